//! How a lane's requests follow each other, learned from the gaps between them.
//!
//! A mean gap does not see a burst coming: where requests come in bursts, the next one is far more likely just after
//! one came than the mean says, and far less likely once it has been quiet for a while. So gaps are counted by size, in
//! powers of two of nanoseconds, and two questions are answered from the counts: how long does waiting pay after an
//! arrival, and how long is the shortest wait that has a chance to be worth anything.

use crate::Span;

/// Gaps of up to 2^39 ns, nine minutes.
const BUCKETS: usize = 40;
/// Counts are halved when there are this many gaps, so that the last few hundred count most.
const MEMORY: u32 = 512;
/// Gaps that are imagined while few were seen, spread as if requests came independently at their mean rate.
const PRIOR: i64 = 16;
/// How such gaps fall on powers of two from a 64th of the mean to four times the mean, in 1024ths: e^-x - e^-2x.
const MEMORYLESS: [i64; 9] = [16, 31, 58, 106, 176, 244, 238, 120, 35];
/// Less likely company than one in twenty is not waited for: batches would be less than a twentieth larger.
const CHANCE: i64 = 20;

/// Gaps between the requests of a lane.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    /// Bucket `i` counts gaps of at least 2^(i-1) and less than 2^i ns.
    counts: [u32; BUCKETS],
    total: u32,
}

impl Default for Gaps {
    fn default() -> Gaps {
        Gaps { counts: [0; BUCKETS], total: 0 }
    }
}

/// Up to where a bucket reaches, in nanoseconds.
fn end(bucket: usize) -> i64 {
    1 << bucket
}

impl Gaps {
    /// Takes note of a gap.
    #[inline]
    pub(super) fn record(&mut self, gap: Span) {
        let bucket = (64 - gap.nanos().leading_zeros() as usize).min(BUCKETS - 1);
        self.counts[bucket] += 1;
        self.total += 1;
        if self.total >= MEMORY {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
    }

    /// How gaps are spread, by bucket, when their mean is `mean`: those seen, in 1024ths, and the imagined ones.
    pub(super) fn spread(&self, mean: Span) -> Spread {
        let mut counts = [0; BUCKETS];
        for (count, seen) in counts.iter_mut().zip(&self.counts) {
            *count = i64::from(*seen) * 1_024;
        }
        if mean != Span::MAX {
            let middle = (64 - mean.nanos().leading_zeros() as usize).min(BUCKETS - 3);
            for (place, part) in MEMORYLESS.iter().enumerate() {
                counts[(middle + place).saturating_sub(6)] += PRIOR * part;
            }
        }
        Spread { counts, total: counts.iter().sum() }
    }
}

/// How gaps are spread over buckets.
#[derive(Debug)]
pub(super) struct Spread {
    counts: [i64; BUCKETS],
    total: i64,
}

impl Spread {
    /// How long after an arrival waiting for the next one still pays, when that one spares `gain` of GPU time and waiting
    /// costs one GPU: until then, what is spared on average exceeds the time waited by the most.
    pub(super) fn patience(&self, gain: Span) -> Span {
        let gain = (gain.nanos().min(1 << 38)) as i64;
        let (mut balance, mut best, mut patience, mut left) = (0, 0, 0, self.total);
        for (bucket, count) in self.counts.iter().enumerate() {
            if left == 0 {
                break;
            }
            left -= count;
            let width = end(bucket) / 2;
            // Those that end here do so half way through on average.
            balance += count * gain - (left + count / 2) * width;
            if balance > best {
                (best, patience) = (balance, end(bucket));
            }
        }
        Span::from_nanos(patience as u64)
    }

    /// The wait after an arrival in which the next one comes with the least chance worth waiting for.
    pub(super) fn least_wait(&self) -> Span {
        if self.total == 0 {
            return Span::MAX;
        }
        let mut came = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            let missing = self.total / CHANCE - came;
            came += count;
            if *count > 0 && *count >= missing {
                let start = end(bucket) / 2;
                return Span::from_nanos((start + start * missing.max(0) / count) as u64);
            }
        }
        Span::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gaps in microseconds and how often each comes.
    fn spread(gaps: &[(u64, usize)]) -> Spread {
        let mut seen = Gaps::default();
        for round in 0..100 {
            for (gap, times) in gaps {
                (0..*times).for_each(|_| seen.record(Span::from_micros(gap + round % 2)));
            }
        }
        seen.spread(Span::MAX)
    }

    #[test]
    fn waiting_pays_while_a_burst_lasts() {
        // Four of five gaps are of 10 us, the fifth of 100 ms: bursts of five requests.
        let bursts = spread(&[(10, 4), (100_000, 1)]);
        let patience = bursts.patience(Span::from_millis(5));
        assert!(patience > Span::from_micros(10) && patience < Span::from_micros(40), "{patience}");
        // Where waiting costs next to nothing, the next burst is waited for too.
        assert!(bursts.patience(Span::from_secs(100)) > Span::from_millis(100));
    }

    #[test]
    fn regular_requests_are_waited_for_or_not_at_all() {
        let regular = spread(&[(10_000, 1)]);
        assert_eq!(regular.patience(Span::from_millis(5)), Span::ZERO);
        assert!(regular.patience(Span::from_millis(30)) > Span::from_millis(10));
    }

    #[test]
    fn rare_company_is_not_waited_for() {
        let mut seen = Gaps::default();
        assert_eq!(seen.spread(Span::MAX).least_wait(), Span::MAX);
        // Imagined gaps alone: a twentieth of them is shorter than a twentieth of the mean.
        let least = seen.spread(Span::from_secs(1)).least_wait();
        assert!(least > Span::from_millis(35) && least < Span::from_millis(75), "{least}");
        (0..2_000).for_each(|_| seen.record(Span::from_millis(1)));
        assert!(seen.spread(Span::from_secs(1)).least_wait() < Span::from_millis(1));
    }
}
