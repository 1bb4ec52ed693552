//! How fast requests of a model come: a five-second mean of fifty-millisecond samples, as the mean gap
//! between two requests.

use crate::{Span, Time};

const SAMPLE: Span = Span::from_millis(50);
const SAMPLES: usize = 100;

/// Counts arrivals in a ring of samples.
#[derive(Clone, Debug)]
pub struct RateEstimate {
    /// Counts of the samples before the current one.
    counts: [u32; SAMPLES],
    /// The count of the current one, beside what else an arrival touches.
    counting: u32,
    /// Over the whole window.
    total: u64,
    /// Number of the sample being filled, counted from the origin.
    current: u64,
    /// The sample in which the first arrival fell.
    since: Option<u64>,
    expected: Span,
}

impl RateEstimate {
    /// Starts from an expected gap, which stands until arrivals say otherwise. [`Span::MAX`]: no idea.
    pub fn new(expected: Span) -> RateEstimate {
        RateEstimate { counts: [0; SAMPLES], counting: 0, total: 0, current: 0, since: None, expected }
    }

    /// Takes note of an arrival.
    #[inline]
    pub fn record(&mut self, now: Time) {
        self.advance(now);
        self.since.get_or_insert(self.current);
        self.counting += 1;
        self.total += 1;
    }

    #[inline]
    fn advance(&mut self, now: Time) {
        let sample = now.nanos() / SAMPLE.nanos();
        if sample != self.current {
            self.turn_to(sample);
        }
    }

    fn turn_to(&mut self, sample: u64) {
        self.counts[(self.current % SAMPLES as u64) as usize] += std::mem::take(&mut self.counting);
        for passed in (self.current + 1..=sample).take(SAMPLES) {
            let count = &mut self.counts[(passed % SAMPLES as u64) as usize];
            self.total -= u64::from(std::mem::take(count));
        }
        self.current = self.current.max(sample);
    }

    /// The mean time between two requests.
    ///
    /// Until a whole window was seen, the expected gap counts for the part not seen.
    pub fn gap(&mut self, now: Time) -> Span {
        self.advance(now);
        let Some(since) = self.since else { return self.expected };
        let window = SAMPLE * SAMPLES;
        let whole = (self.current - since).min(SAMPLES as u64 - 1);
        let seen = SAMPLE * whole as usize + Span::from_nanos(now.nanos() % SAMPLE.nanos() + 1);
        let unseen = window - seen;
        let imagined = match self.expected {
            Span::MAX => 0.0,
            gap => unseen.nanos() as f64 / gap.nanos().max(1) as f64,
        };
        let span = if self.expected == Span::MAX { seen } else { window };
        let count = self.total as f64 + imagined;
        if count <= 0.0 { Span::MAX } else { Span::from_nanos((span.nanos() as f64 / count) as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(estimate: &mut RateEstimate, from: Time, gap: Span, count: usize) -> Time {
        (0..count).fold(from, |now, _| {
            estimate.record(now);
            now + gap
        })
    }

    #[test]
    fn a_steady_stream_is_measured_within_a_percent() {
        let gap = Span::from_millis(2);
        let mut estimate = RateEstimate::new(Span::MAX);
        let now = feed(&mut estimate, Time::ZERO, gap, 5_000);
        let measured = estimate.gap(now).millis();
        assert!((measured - 2.0).abs() < 0.02, "{measured}");
    }

    #[test]
    fn before_anything_came_the_expectation_stands_and_then_fades() {
        let mut estimate = RateEstimate::new(Span::from_millis(4));
        assert_eq!(estimate.gap(Time::ZERO), Span::from_millis(4));
        let now = feed(&mut estimate, Time::ZERO, Span::from_millis(2), 1_250);
        let half_way = estimate.gap(now).millis();
        assert!((2.5..2.9).contains(&half_way), "{half_way}");
        let now = feed(&mut estimate, now, Span::from_millis(2), 1_300);
        let at_last = estimate.gap(now).millis();
        assert!((at_last - 2.0).abs() < 0.05, "{at_last}");
    }

    #[test]
    fn silence_is_noticed() {
        let mut estimate = RateEstimate::new(Span::MAX);
        let now = feed(&mut estimate, Time::ZERO, Span::from_millis(1), 6_000);
        assert_eq!(estimate.gap(now + Span::from_secs(6)), Span::MAX);
    }
}
