//! How long batches take: what was measured at the start, corrected by what is seen.
//!
//! Sizes are corrected by classes (1, 2, up to 4, up to 8 and so on), each by the ratio of what batches of that class
//! took to what was measured. Ratios rise fast and fall slowly, so that an estimate lies towards the slow end of what
//! happens: a deadline is missed by the slow ones.
//!
//! A model whose estimates have become so bad that nothing is run any more would never be measured again; after a
//! second without a batch the estimates go back towards the measurement.

use policy::{LatencyTable, MAX_BATCH, Span, Time};

/// Ratios are fixed-point numbers with this as one.
const ONE: u64 = 1 << 16;
/// How much of a difference is believed, in sixteenths, upwards and downwards.
const BELIEF: (u64, u64) = (4, 1);
/// One part of this many is the least change worth telling the dispatcher of.
const WORTH_TELLING: u64 = 32;
/// What a lone request takes when nothing was measured.
const GUESS: Span = Span::from_millis(1);
/// After so long without a batch the estimates fall back.
const STALE: Span = Span::from_secs(1);
const CLASSES: usize = MAX_BATCH.ilog2() as usize + 1;

/// The latency of one model's batches.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    measured: LatencyTable,
    ratios: [u64; CLASSES],
    seen: [bool; CLASSES],
    /// The ratios the dispatcher knows.
    told: [u64; CLASSES],
    last: Time,
}

impl Profile {
    /// Starts from a measurement of some sizes, straight lines between them and on beyond them.
    pub(crate) fn new(measured: &[(usize, Span)], max_batch: usize, now: Time) -> Profile {
        let max_batch = max_batch.clamp(1, MAX_BATCH);
        let mut points = measured.to_vec();
        points.retain(|(size, _)| (1..=max_batch).contains(size));
        points.sort_unstable();
        match points.as_slice() {
            [] => points = vec![(1, GUESS), (max_batch, GUESS * max_batch)],
            [(size, span)] => points.push((max_batch, span.scale(max_batch as u64, *size as u64))),
            [.., (less, short), (more, long)] => {
                let slope = (*long - *short).scale((max_batch - more) as u64, (more - less).max(1) as u64);
                points.push((max_batch, *long + slope));
            }
        }
        let ratios = [ONE; CLASSES];
        Profile { measured: LatencyTable::points(&points), ratios, seen: [false; CLASSES], told: ratios, last: now }
    }

    /// Takes note of a batch.
    pub(crate) fn observe(&mut self, now: Time, size: usize, took: Span) {
        self.last = now;
        let size = size.clamp(1, self.measured.max_batch());
        let ratio = took.scale(ONE, self.measured.latency(size).nanos().max(1)).nanos();
        let class = class(size);
        let known = &mut self.ratios[class];
        // A hiccup is not a trend.
        let ratio = ratio.min(*known * 2).max(1);
        let belief = if ratio > *known { BELIEF.0 } else { BELIEF.1 };
        *known = if ratio > *known {
            *known + (ratio - *known) * belief / 16
        } else {
            *known - (*known - ratio) * belief / 16
        };
        self.seen[class] = true;
        // Sizes not seen yet are likely to differ as their neighbour does.
        let known = *known;
        for other in (0..CLASSES).filter(|other| !self.seen[*other]) {
            self.ratios[other] = known;
        }
    }

    /// Forgets what has become too old to believe.
    pub(crate) fn forget(&mut self, now: Time) {
        if now - self.last > STALE {
            self.last = now;
            for ratio in &mut self.ratios {
                *ratio = (*ratio + ONE) / 2;
            }
        }
    }

    /// The table as it is believed to be, if that is not what was last told.
    pub(crate) fn news(&mut self) -> Option<LatencyTable> {
        let differs = |(known, told): (&u64, &u64)| known.abs_diff(*told) * WORTH_TELLING > *told;
        if !self.ratios.iter().zip(&self.told).any(differs) {
            return None;
        }
        self.told = self.ratios;
        Some(self.table())
    }

    /// The table as it is believed to be.
    pub(crate) fn table(&self) -> LatencyTable {
        let size = |size: usize| self.measured.latency(size).scale(self.ratios[class(size)], ONE);
        LatencyTable::from_sizes((1..=self.measured.max_batch()).map(size))
    }
}

fn class(size: usize) -> usize {
    (size.next_power_of_two().trailing_zeros() as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::ZERO;

    fn millis(table: &LatencyTable, size: usize) -> f64 {
        table.latency(size).millis()
    }

    #[test]
    fn sizes_that_were_not_measured_lie_on_the_line() {
        let measured = [(1, Span::from_millis(2)), (2, Span::from_millis(3)), (4, Span::from_millis(5))];
        let table = Profile::new(&measured, 8, NOW).table();
        assert_eq!([1, 2, 3, 4, 8].map(|size| millis(&table, size)), [2.0, 3.0, 4.0, 5.0, 9.0]);
        assert_eq!(table.max_batch(), 8);
        assert_eq!(millis(&Profile::new(&[], 4, NOW).table(), 4), 4.0);
        assert_eq!(millis(&Profile::new(&[(1, Span::from_millis(2))], 4, NOW).table(), 4), 8.0);
        assert_eq!(Profile::new(&measured, 0, NOW).table().max_batch(), 1);
    }

    #[test]
    fn it_follows_what_is_seen_and_tells_when_it_matters() {
        let mut profile = Profile::new(&[(1, Span::from_millis(2)), (8, Span::from_millis(9))], 8, NOW);
        profile.observe(NOW, 1, Span::from_millis(2));
        assert!(profile.news().is_none());
        for _ in 0..20 {
            profile.observe(NOW, 4, Span::from_millis(10));
        }
        let table = profile.news().expect("twice as slow is worth telling");
        assert!((9.5..10.5).contains(&millis(&table, 4)), "{}", millis(&table, 4));
        // Sizes nobody saw follow; those seen do not.
        assert!((17.0..19.0).contains(&millis(&table, 8)));
        assert_eq!(millis(&table, 1), 2.0);
        assert!(profile.news().is_none());
    }

    #[test]
    fn estimates_that_stop_everything_do_not_last() {
        let mut profile = Profile::new(&[(1, Span::from_millis(2))], 1, NOW);
        for _ in 0..40 {
            profile.observe(NOW, 1, Span::from_secs(30));
        }
        assert!(profile.table().latency(1) > Span::from_millis(100));
        for second in 1..40 {
            profile.forget(NOW + Span::from_millis(1_001) * second);
        }
        assert!(profile.table().latency(1) < Span::from_millis(3), "{}", profile.table().latency(1));
    }
}
