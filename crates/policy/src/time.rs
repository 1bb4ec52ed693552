//! Time as the core knows it: integer nanoseconds since an origin the driver chose.
//!
//! `Time` is a point, `Span` a length. Neither can be negative: subtraction stops at zero, because every
//! question the core asks ("how long is left", "when must this start") has zero as its honest floor.
//! Neither reads a clock.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::str::FromStr;

/// A point in time, in nanoseconds since the driver's origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Time {
    /// The driver's origin.
    pub const ZERO: Time = Time(0);
    /// Later than anything that happens; stands for "never".
    pub const NEVER: Time = Time(u64::MAX);

    /// The point this many nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the origin, for people and plots; decisions compare integers.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than anything that happens.
    pub const MAX: Span = Span(u64::MAX);

    /// A span of this many nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Span {
        Span(nanos)
    }

    /// A span of this many microseconds.
    pub const fn from_micros(micros: u64) -> Span {
        Span(micros * 1_000)
    }

    /// A span of this many milliseconds.
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis * 1_000_000)
    }

    /// A span of this many seconds.
    pub const fn from_secs(seconds: u64) -> Span {
        Span(seconds * 1_000_000_000)
    }

    /// The nearest span to a number of milliseconds; negative and absurd values are clamped.
    pub fn from_millis_f64(millis: f64) -> Span {
        Span((millis * 1e6).round() as u64)
    }

    /// The nearest span to a number of seconds; negative and absurd values are clamped.
    pub fn from_secs_f64(seconds: f64) -> Span {
        Span((seconds * 1e9).round() as u64)
    }

    /// Length in nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Length in seconds, for people and plots.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Length in milliseconds, for people and plots.
    pub fn millis(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// This span scaled by `numerator / denominator`, rounding down.
    pub const fn scale(self, numerator: u64, denominator: u64) -> Span {
        let wide = self.0 as u128 * numerator as u128 / denominator as u128;
        if wide > u64::MAX as u128 { Span::MAX } else { Span(wide as u64) }
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Sub for Time {
    type Output = Span;
    /// How long after `earlier` this is; zero when it is not after it.
    fn sub(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Mul<usize> for Span {
    type Output = Span;
    fn mul(self, factor: usize) -> Span {
        Span(self.0.saturating_mul(factor as u64))
    }
}

/// The text was not a length of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanSyntax;

impl fmt::Display for SpanSyntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a number with a unit, like \"250us\", \"1.5ms\", \"25ms\" or \"60s\"")
    }
}

impl std::error::Error for SpanSyntax {}

/// Units from the longest name a number may carry to the shortest, each in nanoseconds.
const UNITS: [(&str, f64); 6] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)];

impl FromStr for Span {
    type Err = SpanSyntax;

    fn from_str(text: &str) -> Result<Span, SpanSyntax> {
        let text = text.trim();
        let number_ends = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or(SpanSyntax)?;
        let (number, unit) = text.split_at(number_ends);
        let number: f64 = number.parse().map_err(|_| SpanSyntax)?;
        let unit = unit.trim_start();
        let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(SpanSyntax)?;
        let total = number * nanos;
        // A century fits a span thirty times over; anything beyond is a typing error.
        if total > 100.0 * 365.25 * 24.0 * 3600e9 {
            return Err(SpanSyntax);
        }
        Ok(Span(total.round() as u64))
    }
}

impl fmt::Display for Span {
    /// The shortest form that reads back as the same span.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, nanos) = match self.0 {
            0 => ("us", 1_000),
            n if n % 1_000_000_000 == 0 || n >= 10_000_000_000 => ("s", 1_000_000_000),
            n if n >= 1_000_000 => ("ms", 1_000_000),
            n if n >= 1_000 => ("us", 1_000),
            _ => ("ns", 1),
        };
        let whole = self.0 / nanos;
        let fraction = self.0 % nanos;
        if fraction == 0 {
            return write!(f, "{whole}{unit}");
        }
        let digits = nanos.ilog10() as usize;
        let decimals = format!("{fraction:0digits$}");
        write!(f, "{whole}.{}{unit}", decimals.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_and_print_the_same() {
        for text in ["0us", "1ns", "250us", "1.053ms", "5.072ms", "25ms", "60s", "1.5ms", "90s", "12.5s"] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string(), text);
        }
        assert_eq!("2 min".parse::<Span>().unwrap(), Span::from_secs(120));
    }

    #[test]
    fn nonsense_is_no_span() {
        for text in ["", "5", "ms", "-5ms", "5 fortnights", "1e9s", "..5ms", "nan s", "9999999999999999999s"] {
            assert_eq!(text.parse::<Span>(), Err(SpanSyntax), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_span_survives_its_own_text(nanos in 0..10_000_000_000_000u64) {
            let span = Span::from_nanos(nanos);
            let back: Span = span.to_string().parse().unwrap();
            // Text goes through a double, which holds 2^53 nanoseconds (104 days) exactly.
            proptest::prop_assert_eq!(back, span);
        }
    }
}
