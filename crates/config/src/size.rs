//! Numbers of bytes as people write them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number of bytes: `"64MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bytes(pub u64);

/// Units that are understood; the first that ends a text is its unit.
const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let wrong = || format!("`{text}` is not a size; write it like \"64MiB\"");
        let (unit, factor) = UNITS.into_iter().find(|(unit, _)| text.ends_with(unit)).ok_or_else(wrong)?;
        let number: u64 = text[..text.len() - unit.len()].trim().parse().map_err(|_| wrong())?;
        number.checked_mul(factor).map(Bytes).ok_or_else(wrong)
    }
}

impl TryFrom<String> for Bytes {
    type Error = String;

    fn try_from(text: String) -> Result<Bytes, String> {
        text.parse()
    }
}

impl From<Bytes> for String {
    fn from(bytes: Bytes) -> String {
        bytes.to_string()
    }
}

/// Exactly, in the largest binary unit that divides it.
impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match units.into_iter().find(|(_, shift)| self.0 != 0 && self.0.trailing_zeros() >= *shift) {
            Some((unit, shift)) => write!(formatter, "{}{unit}", self.0 >> shift),
            None => write!(formatter, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_read_back_the_same() {
        assert_eq!("64MiB".parse(), Ok(Bytes(64 << 20)));
        assert_eq!("5 kB".parse(), Ok(Bytes(5_000)));
        for text in ["64MiB", "20GiB", "1023B", "0B", "5000B"] {
            assert_eq!(text.parse::<Bytes>().unwrap().to_string(), text);
        }
        for wrong in ["64", "MiB", "-1B", "99999999999999GiB", "", "é"] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong}");
        }
    }
}
