//! Numbers in JSON: read once, turned into what a tensor holds without losing a bit.
//!
//! Most numbers in requests have at most nineteen digits and a small exponent. Those are exact in one multiplication
//! or division (Clinger, "How to read floating point numbers accurately", section 3); the rest goes the library's way.

/// Powers of ten that a double holds exactly.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Every number of so many digits fits 64 bits.
const SAFE_DIGITS: usize = 19;

/// A number as it was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number<'a> {
    /// All of it.
    pub(super) text: &'a str,
    negative: bool,
    /// Its digits, the point left out; nonsense when there are more than [`SAFE_DIGITS`].
    digits: u64,
    count: usize,
    /// What ten is raised to, to make the digits the number.
    exponent: i32,
    /// Neither point nor exponent.
    whole: bool,
}

impl<'a> Number<'a> {
    /// Reads a number at a place in a text, and where it ends. `None` when there is none.
    #[inline(always)]
    pub(super) fn read(text: &'a str, start: usize) -> Option<(Number<'a>, usize)> {
        let bytes = text.as_bytes();
        let mut at = start;
        let negative = bytes.get(at) == Some(&b'-');
        at += usize::from(negative);
        let mut digits = 0u64;
        let mut run = |at: &mut usize| {
            let from = *at;
            while let Some(byte @ b'0'..=b'9') = bytes.get(*at) {
                digits = digits.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
                *at += 1;
            }
            *at - from
        };
        let before = run(&mut at);
        if before == 0 || (before > 1 && bytes[at - before] == b'0') {
            return None;
        }
        let mut whole = true;
        let mut after = 0;
        if bytes.get(at) == Some(&b'.') {
            whole = false;
            at += 1;
            after = run(&mut at);
            if after == 0 {
                return None;
            }
        }
        let mut exponent = 0i32;
        if let Some(b'e' | b'E') = bytes.get(at) {
            whole = false;
            at += 1;
            let down = bytes.get(at) == Some(&b'-');
            at += usize::from(matches!(bytes.get(at), Some(b'-' | b'+')));
            let from = at;
            while let Some(byte @ b'0'..=b'9') = bytes.get(at) {
                exponent = exponent.saturating_mul(10).saturating_add(i32::from(byte - b'0'));
                at += 1;
            }
            if at == from {
                return None;
            }
            exponent = if down { -exponent } else { exponent };
        }
        let exponent = exponent.saturating_sub(i32::try_from(after).unwrap_or(i32::MAX));
        let number = Number { text: &text[start..at], negative, digits, count: before + after, exponent, whole };
        Some((number, at))
    }

    /// Its value as a whole number from 0, when it is one that fits.
    pub(super) fn unsigned(&self) -> Option<u64> {
        match self.whole {
            true if self.negative => (self.count <= SAFE_DIGITS && self.digits == 0).then_some(0),
            true if self.count <= SAFE_DIGITS => Some(self.digits),
            true => self.text.parse().ok(),
            false => None,
        }
    }

    /// Its value as a whole number, when it is one that fits.
    pub(super) fn signed(&self) -> Option<i64> {
        match self.whole {
            true if self.count < SAFE_DIGITS => {
                let size = self.digits as i64;
                Some(if self.negative { -size } else { size })
            }
            true => self.text.parse().ok(),
            false => None,
        }
    }

    /// The double nearest to it; infinite when it is beyond all of them.
    #[inline]
    pub(super) fn double(&self) -> f64 {
        if self.count <= SAFE_DIGITS && self.digits <= 1 << 53 && self.exponent.unsigned_abs() <= 22 {
            let power = TENS[self.exponent.unsigned_abs() as usize];
            let size = self.digits as f64;
            let size = if self.exponent < 0 { size / power } else { size * power };
            return if self.negative { -size } else { size };
        }
        // What was read as a JSON number is a number to the library, too.
        self.text.parse().unwrap_or(f64::NAN)
    }

    /// The single nearest to it; infinite when it is beyond all of them.
    #[inline]
    pub(super) fn single(&self) -> f32 {
        let double = self.double();
        // Rounding twice differs from rounding once only when the first step lands in the middle between two singles.
        let middle = double.to_bits() & 0x1fff_ffff == 0x1000_0000;
        let usual = double == 0.0 || double.abs() >= f64::from(f32::MIN_POSITIVE);
        if usual && !middle {
            return double as f32;
        }
        self.text.parse().unwrap_or(f32::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Option<Number<'_>> {
        Number::read(text, 0).filter(|(_, end)| *end == text.len()).map(|(number, _)| number)
    }

    #[test]
    fn the_grammar_is_that_of_json() {
        for good in ["0", "-0", "10", "1.5", "-0.25", "1e5", "1E+5", "1.25e-7", "123456789012345678901234567890"] {
            assert!(read(good).is_some(), "{good}");
        }
        for bad in ["", "-", "+1", "01", "1.", ".5", "1e", "1e+", "0x10", "NaN", "1_000", "--1", "1.e3"] {
            assert!(read(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn whole_numbers_are_exact_to_their_limits() {
        let unsigned = |text| read(text).unwrap().unsigned();
        assert_eq!(unsigned("18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned("18446744073709551616"), None);
        assert_eq!((unsigned("-0"), unsigned("-1"), unsigned("1.0"), unsigned("1e3")), (Some(0), None, None, None));
        let signed = |text| read(text).unwrap().signed();
        assert_eq!((signed("9223372036854775807"), signed("9223372036854775808")), (Some(i64::MAX), None));
        assert_eq!((signed("-9223372036854775808"), signed("-9223372036854775809")), (Some(i64::MIN), None));
    }

    #[test]
    fn numbers_near_the_middle_between_two_singles_round_once() {
        // The first two round to the middle as doubles; the last is below the normal singles.
        for text in ["1.000000059604644775390626", "1.000000059604644775390624", "1.1754942e-38", "1e-45", "7e-46"] {
            assert_eq!(read(text).unwrap().single(), text.parse::<f32>().unwrap(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn doubles_are_those_of_the_library(whole in 0u64..10_000_000, fraction in "[0-9]{0,20}", power in -330i32..330) {
            let text = if fraction.is_empty() { format!("{whole}e{power}") } else { format!("{whole}.{fraction}e{power}") };
            let number = read(&text).unwrap();
            prop_assert_eq!(number.double(), text.parse::<f64>().unwrap());
            prop_assert_eq!(number.single(), text.parse::<f32>().unwrap());
        }

        #[test]
        fn whatever_single_is_written_reads_back(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            let mut buffer = zmij::Buffer::new();
            prop_assert_eq!(read(buffer.format_finite(value)).unwrap().single().to_bits(), value.to_bits());
        }
    }
}
