//! What several of the commands are asked.

use clap::Args;
use clap::builder::PossibleValuesParser;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// The file that every command reads.
#[derive(Debug, Args)]
pub(super) struct File {
    /// Scenario, a TOML file, or - for stdin; paths in it are relative to its folder
    #[arg(value_name = "SCENARIO")]
    pub(super) path: PathBuf,
}

/// What is compared, and how carefully.
#[derive(Debug, Args)]
pub(super) struct Comparison {
    /// Policies to compare, separated by commas [default: all of them]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',', value_parser = policy_name(), hide_default_value = true)]
    #[arg(default_values_t = sim::POLICIES.map(String::from))]
    pub(super) policies: Vec<String>,

    /// Number of seeds for each policy, beginning with the scenario's
    #[arg(long, value_name = "N", default_value = "3", value_parser = seeds, allow_negative_numbers = true)]
    pub(super) seeds: NonZeroU32,

    /// Largest part of requests that may be late, refused or lost
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = limit)]
    pub(super) limit: f64,
}

pub(super) fn policy_name() -> PossibleValuesParser {
    PossibleValuesParser::new(sim::POLICIES)
}

fn seeds(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse().ok().filter(|number: &NonZeroU32| number.get() <= 1000);
    number.ok_or_else(|| "expected a whole number from 1 to 1000".into())
}

fn limit(text: &str) -> Result<f64, String> {
    let percent = text.trim().strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    let fraction = percent.filter(|percent| (0.0..=50.0).contains(percent)).map(|percent| percent / 100.0);
    fraction.ok_or_else(|| "expected a percentage from 0% to 50%, like 1%".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_percentages() {
        assert_eq!([limit("1%"), limit(" 0.5 % "), limit("0%")], [Ok(0.01), Ok(0.005), Ok(0.0)]);
        for text in ["", "%", "1", "0.01", "-1%", "51%", "nan%", "inf%", "1%%"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seeds_are_counted() {
        assert_eq!(seeds("5").map(NonZeroU32::get), Ok(5));
        for text in ["0", "-1", "1001", "few", ""] {
            assert!(seeds(text).is_err(), "{text}");
        }
    }
}
