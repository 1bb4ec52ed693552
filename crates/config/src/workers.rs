//! How many workers a model has: a number, or from some to some, as it needs them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The most workers of one model.
pub const WORKERS_MAX: usize = 1_024;

/// How many workers there may be; never more at least than at most, and at most one or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    min: usize,
    max: usize,
}

impl Workers {
    /// One, at all times.
    pub const ONE: Workers = Workers { min: 1, max: 1 };

    /// Checks the bounds.
    pub fn new(min: usize, max: usize) -> Result<Workers, String> {
        if max == 0 || max > WORKERS_MAX {
            return Err(format!("`workers` is {max}; 1 to {WORKERS_MAX} are allowed"));
        }
        if min > max {
            return Err(format!("`workers` is at least {min} and at most {max}: lower the one or raise the other"));
        }
        Ok(Workers { min, max })
    }

    /// At least.
    pub fn min(self) -> usize {
        self.min
    }

    /// At most.
    pub fn max(self) -> usize {
        self.max
    }

    /// The number, where it never changes.
    pub fn fixed(self) -> Option<usize> {
        (self.min == self.max).then_some(self.min)
    }
}

impl TryFrom<usize> for Workers {
    type Error = String;

    fn try_from(count: usize) -> Result<Workers, String> {
        Workers::new(count, count)
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fixed() {
            Some(count) => write!(f, "{count}"),
            None => write!(f, "{}..{}", self.min, self.max),
        }
    }
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Workers, String> {
        let wrong = |_| format!("`{text}` is no number of workers: write it like `2`, or like `0..8`");
        match text.split_once("..") {
            None => text.parse().map_err(wrong).and_then(|count: usize| count.try_into()),
            Some((min, max)) => Workers::new(min.parse().map_err(wrong)?, max.parse().map_err(wrong)?),
        }
    }
}

impl Serialize for Workers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.fixed() {
            Some(count) => serializer.serialize_u64(count as u64),
            None => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Workers, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "`workers` is a number, or text like \"0..8\"")]
        enum Written {
            Count(usize),
            Text(String),
        }
        let read = match Written::deserialize(deserializer)? {
            Written::Count(count) => count.try_into(),
            Written::Text(text) => text.parse(),
        };
        read.map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_read_back_the_same() {
        for (text, min, max) in [("2", 2, 2), ("\"0..8\"", 0, 8), ("\"3..3\"", 3, 3)] {
            let workers: Workers = serde_json::from_str(text).unwrap();
            assert_eq!((workers.min(), workers.max()), (min, max));
            assert_eq!(serde_json::from_str::<Workers>(&serde_json::to_string(&workers).unwrap()).unwrap(), workers);
        }
        assert_eq!(serde_json::to_string(&Workers::new(2, 2).unwrap()).unwrap(), "2", "as it was always written");
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let refused = |text: &str| serde_json::from_str::<Workers>(text).unwrap_err().to_string();
        assert!(refused("0").contains("`workers` is 0; 1 to 1024 are allowed"));
        assert!(refused("\"5..2\"").contains("at least 5 and at most 2: lower the one or raise the other"));
        assert!(refused("\"0..\"").contains("write it like `2`, or like `0..8`"));
        assert!(refused("\"many\"").contains("write it like"));
        assert!(refused("true").contains("is a number, or text like"));
        assert!(refused("9999").contains("1 to 1024"));
    }
}
