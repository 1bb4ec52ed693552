//! How long a kernel takes: its name says it.
//!
//! The last number with a unit (`ns`, `us`, `ms`, `s`) among the parts of the name counts: `busy_250us`,
//! `layer3_conv_2ms_fp16`. A name with the part `per_block`, such as `tile_per_block_3us`, takes that long for each block of
//! the grid. Any other name takes ten microseconds.

/// What a name without a duration takes.
const USUAL_NS: u64 = 10_000;

/// A kernel's duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Duration {
    nanoseconds: u64,
    per_block: bool,
}

impl Duration {
    /// What a kernel's name says.
    pub(crate) fn of_name(name: &str) -> Duration {
        let nanoseconds = name.split('_').filter_map(parse).next_back().unwrap_or(USUAL_NS);
        Duration { nanoseconds, per_block: name.contains("per_block") }
    }

    /// What a launch of so many blocks takes.
    pub(crate) fn of_launch(self, blocks: u64) -> u64 {
        if self.per_block { self.nanoseconds.saturating_mul(blocks) } else { self.nanoseconds }
    }
}

fn parse(part: &str) -> Option<u64> {
    let digits = part.find(|letter: char| !letter.is_ascii_digit())?;
    let unit = match &part[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    part[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_durations() {
        let cases = [
            ("busy_250us", 250_000),
            ("busy_1500ns", 1_500),
            ("layer3_conv_2ms_fp16", 2_000_000),
            ("busy_1s", 1_000_000_000),
            ("gemm", USUAL_NS),
            ("busy_us", USUAL_NS),
            ("busy_250", USUAL_NS),
            ("", USUAL_NS),
        ];
        for (name, expected) in cases {
            assert_eq!(Duration::of_name(name).of_launch(7), expected, "{name}");
        }
        assert_eq!(Duration::of_name("tile_per_block_3us").of_launch(7), 21_000);
    }
}
