//! How long answers get: a distribution that is learned from those that ended, by model.
//!
//! Buckets of a quarter of an octave. Old answers fade, so that a change of traffic is noticed. Before anything ended, an
//! answer is expected to be as long again as it is already, and [`UNKNOWN`] at first.

/// Tokens that an answer is expected to have when none has ended yet.
const UNKNOWN: u32 = 128;
/// After so many answers, the weight of all before is halved.
const FADES: u32 = 4_096;
/// A quarter of an octave each: up to 2^31 tokens.
const BUCKETS: usize = 4 * 31;

/// Lengths of answers in tokens.
#[derive(Clone, Debug)]
pub struct Lengths {
    counts: [f64; BUCKETS],
    sums: [f64; BUCKETS],
    /// Answers in this bucket and all above, and their tokens.
    above: [(f64, f64); BUCKETS],
    since: u32,
}

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths { counts: [0.0; BUCKETS], sums: [0.0; BUCKETS], above: [(0.0, 0.0); BUCKETS], since: 0 }
    }
}

/// The bucket of a length.
fn bucket(tokens: u32) -> usize {
    let tokens = tokens.max(1);
    let octave = tokens.ilog2();
    // The two bits after the first one.
    let quarter = ((u64::from(tokens) * 4) >> octave) as usize & 3;
    (octave as usize * 4 + quarter).min(BUCKETS - 1)
}

impl Lengths {
    /// An answer ended with so many tokens.
    pub fn record(&mut self, tokens: u32) {
        self.since += 1;
        if self.since == FADES {
            self.since = 0;
            self.counts.iter_mut().chain(&mut self.sums).for_each(|value| *value /= 2.0);
        }
        let place = bucket(tokens);
        self.counts[place] += 1.0;
        self.sums[place] += f64::from(tokens);
        let mut above = (0.0, 0.0);
        for place in (0..BUCKETS).rev() {
            above = (above.0 + self.counts[place], above.1 + self.sums[place]);
            self.above[place] = above;
        }
    }

    /// How many more tokens an answer gets that has so many and can have so many in all, on average. At least one.
    pub fn expected(&self, generated: u32, limit: u32) -> u32 {
        let left = limit.saturating_sub(generated).max(1);
        // The bucket it is in counts as passed: its answers end about now.
        let next = if generated == 0 { 0 } else { bucket(generated) + 1 };
        let (count, sum) = self.above.get(next).copied().unwrap_or_default();
        let more = match count {
            // Too few to say; the longer it is, the longer it will be.
            count if count < 1.0 => generated.max(UNKNOWN),
            count => (sum / count - f64::from(generated)).max(1.0) as u32,
        };
        more.clamp(1, left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_those_that_were_longer() {
        let mut lengths = Lengths::default();
        assert_eq!(lengths.expected(0, 1_000), UNKNOWN);
        assert_eq!(lengths.expected(500, 1_000), 500);
        for _ in 0..900 {
            lengths.record(10);
        }
        for _ in 0..100 {
            lengths.record(510);
        }
        assert_eq!(lengths.expected(0, 1_000), 60);
        assert_eq!(lengths.expected(20, 1_000), 490);
        assert_eq!(lengths.expected(20, 100), 80);
        assert_eq!(lengths.expected(600, 601), 1);
    }

    #[test]
    fn every_length_has_a_bucket() {
        let tried = [0, 1, 2, 3, 4, 5, 7, 8, 1_000, u32::MAX];
        let buckets = tried.map(bucket);
        assert!(buckets.is_sorted(), "{buckets:?}");
        Lengths::default().record(u32::MAX);
    }
}
