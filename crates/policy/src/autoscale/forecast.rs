//! How many requests will come: from the last seconds, their trend, and the same time a period ago.
//!
//! Arrivals are counted by the second. A forecast is the most that is expected within a horizon: what the trend leads
//! to, or what followed the same point of the last period, whichever is more. The reserve for bursts is what past
//! forecasts fell short by, four times in five, so a service that surprises has a larger one.

use crate::{Span, Time};
use std::collections::VecDeque;

const SECOND: u64 = 1_000_000_000;
/// Seconds that are remembered.
const HISTORY: usize = 1_800;
/// Seconds over which the present rate is taken.
const LEVEL: usize = 3;
/// Seconds for which a burst is remembered.
const BURSTS: usize = 300;
/// Standard deviations that a second may be off by chance.
const CHANCE: f64 = 2.0;
/// Seconds over which a trend is taken.
const TREND: usize = 12;
/// The part of a trend that is believed.
const DAMPING: f64 = 0.5;
/// Seconds that are one sample of a period.
const COARSE: usize = 5;
/// Seconds between two searches for a period.
const SEARCH: u64 = 10;
/// How alike two periods must be: their correlation.
const ALIKE: f64 = 0.5;
/// The shortest period, in seconds.
const PERIOD_MIN: usize = 20;
/// Errors that are remembered.
const ERRORS: usize = 240;
/// Errors without which a reserve is a guess.
const ERRORS_MIN: usize = 30;
const RESERVE_GUESS: f64 = 1.3;
const RESERVE_MAX: f64 = 2.0;
/// The part of past errors that a reserve covers.
const COVERED: f64 = 0.8;

/// What came, and what is to come.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// Requests in each whole second, the last one last.
    seconds: VecDeque<f64>,
    /// Number of the second that is being counted.
    current: Option<u64>,
    counting: f64,
    /// Whole seconds since the start.
    age: u64,
    /// In seconds.
    period: Option<usize>,
    /// Forecasts whose horizon is not over: when it is, in seconds of age, how long it was and what was expected.
    open: VecDeque<(u64, usize, f64)>,
    /// What came over what was expected.
    errors: VecDeque<f64>,
    reserve: f64,
    /// The most, over [`LEVEL`] seconds, of the last [`BURSTS`].
    burst: f64,
}

impl Default for Forecast {
    fn default() -> Self {
        Forecast {
            seconds: VecDeque::new(),
            current: None,
            counting: 0.0,
            age: 0,
            period: None,
            open: VecDeque::new(),
            errors: VecDeque::new(),
            reserve: RESERVE_GUESS,
            burst: 0.0,
        }
    }
}

impl Forecast {
    /// Takes note of arrivals between two times, spread evenly. `horizon` is how far ahead the service looks.
    pub fn record(&mut self, from: Time, until: Time, arrivals: u64, horizon: Span) {
        let second = until.nanos() / SECOND;
        let current = *self.current.get_or_insert(from.nanos() / SECOND);
        if second <= current {
            self.counting += arrivals as f64;
            return;
        }
        // Longer ago than is remembered makes no difference.
        let first = second.saturating_sub(HISTORY as u64).max(current);
        let length = (until - from).nanos().max(1) as f64;
        for passed in first..=second {
            let (start, end) = ((passed * SECOND).max(from.nanos()), ((passed + 1) * SECOND).min(until.nanos()));
            self.counting += arrivals as f64 * end.saturating_sub(start) as f64 / length;
            if passed < second {
                self.close(horizon);
            }
        }
        self.current = Some(second);
    }

    /// A second is over.
    fn close(&mut self, horizon: Span) {
        if self.seconds.len() == HISTORY {
            self.seconds.pop_front();
        }
        self.seconds.push_back(std::mem::take(&mut self.counting));
        self.age += 1;
        self.burst = (0..BURSTS.min(self.seconds.len())).map(|ago| self.mean(ago, LEVEL)).fold(0.0, f64::max);
        if self.age.is_multiple_of(SEARCH) {
            self.period = self.find_period();
        }
        let horizon = whole_seconds(horizon);
        while let Some((due, length, expected)) = self.open.front().copied().filter(|(due, ..)| *due <= self.age) {
            self.open.pop_front();
            self.learn(length + (self.age - due) as usize, expected);
        }
        // Of a service that nobody calls there is nothing to learn.
        let expected = self.peak(horizon);
        if expected >= 1.0 {
            self.open.push_back((self.age + horizon as u64, horizon, expected));
        }
    }

    fn learn(&mut self, length: usize, expected: f64) {
        let came = (0..length).map(|ago| self.mean(ago, LEVEL)).fold(0.0, f64::max);
        if self.errors.len() == ERRORS {
            self.errors.pop_front();
        }
        self.errors.push_back(came / expected);
        if self.errors.len() >= ERRORS_MIN {
            let mut sorted: Vec<f64> = self.errors.iter().copied().collect();
            sorted.sort_by(f64::total_cmp);
            let rank = ((sorted.len() as f64 * COVERED) as usize).min(sorted.len() - 1);
            self.reserve = sorted[rank].clamp(1.0, RESERVE_MAX);
        }
    }

    /// What forecasts are to be multiplied by for a burst to be within them.
    pub fn reserve(&self) -> f64 {
        self.reserve
    }

    /// Requests a second in the largest burst of the last minutes.
    pub fn burst(&self) -> f64 {
        self.burst
    }

    /// The length of a period, if what came repeats itself.
    pub fn period(&self) -> Option<Span> {
        self.period.map(|seconds| Span::from_secs(seconds as u64))
    }

    /// Requests a second now: over the last seconds, or in the last one where that is more by far than chance makes it.
    pub fn level(&self) -> f64 {
        let last = self.mean(0, 1);
        self.mean(0, LEVEL).max(last - CHANCE * last.sqrt())
    }

    /// Requests a second, at most, from now on for this many seconds.
    fn peak(&self, horizon: usize) -> f64 {
        let level = self.level();
        let trend = level + (self.slope() * DAMPING * horizon as f64).max(0.0);
        trend.max(self.last_period(horizon).unwrap_or(0.0))
    }

    /// Requests a second that are expected, at most, within a horizon.
    pub fn expected(&self, horizon: Span) -> f64 {
        self.peak(whole_seconds(horizon))
    }

    /// The mean of some seconds, the last of them so long ago.
    fn mean(&self, ago: usize, length: usize) -> f64 {
        let end = self.seconds.len().saturating_sub(ago);
        let start = end.saturating_sub(length);
        self.seconds.range(start..end).sum::<f64>() / (end - start).max(1) as f64
    }

    /// Requests a second by which the rate grows each second.
    fn slope(&self) -> f64 {
        if self.seconds.len() < TREND {
            return 0.0;
        }
        let middle = (TREND - 1) as f64 / 2.0;
        let last = self.seconds.range(self.seconds.len() - TREND..).enumerate();
        let (over, under) = last.fold((0.0, 0.0), |(over, under), (index, count)| {
            let off = index as f64 - middle;
            (over + off * count, under + off * off)
        });
        over / under
    }

    /// The most that followed this point of the last period, at today's scale.
    fn last_period(&self, horizon: usize) -> Option<f64> {
        let period = self.period?;
        let scale_over = (period / 2).max(COARSE);
        let (now, then) = (self.mean(0, scale_over), self.mean(period, scale_over));
        let scale = if then > 0.0 { (now / then).clamp(0.5, 1.5) } else { 1.0 };
        let followed = (1..=horizon.min(period)).map(|ahead| self.mean(period - ahead, LEVEL));
        Some(followed.fold(0.0, f64::max) * scale)
    }

    /// The shift, in seconds, at which the past looks most like itself.
    fn find_period(&self) -> Option<usize> {
        let whole = self.seconds.len() / COARSE;
        let skip = self.seconds.len() % COARSE;
        let sample = |index: usize| {
            let start = skip + index * COARSE;
            self.seconds.range(start..start + COARSE).sum::<f64>()
        };
        let samples: Vec<f64> = (0..whole).map(sample).collect();
        let mut best: Option<(f64, usize)> = None;
        let mut fell = false;
        // Neighbouring seconds are always alike: a period begins after they no longer are.
        for lag in 1..=whole / 2 {
            let alike = correlation(&samples[lag..], &samples[..whole - lag]);
            fell |= alike < 0.2;
            if fell && lag * COARSE >= PERIOD_MIN && alike > best.map_or(ALIKE, |(most, _)| most) {
                best = Some((alike, lag));
            }
        }
        best.map(|(_, lag)| lag * COARSE)
    }
}

fn whole_seconds(span: Span) -> usize {
    (span.nanos().div_ceil(SECOND) as usize).clamp(1, HISTORY / 2)
}

/// From -1 to 1; 0 where either does not vary.
fn correlation(left: &[f64], right: &[f64]) -> f64 {
    let count = left.len() as f64;
    let (left_mean, right_mean) = (left.iter().sum::<f64>() / count, right.iter().sum::<f64>() / count);
    let (mut both, mut left_square, mut right_square) = (0.0, 0.0, 0.0);
    for (left, right) in left.iter().zip(right) {
        let (left, right) = (left - left_mean, right - right_mean);
        both += left * right;
        left_square += left * left;
        right_square += right * right;
    }
    if left_square <= 0.0 || right_square <= 0.0 { 0.0 } else { both / (left_square * right_square).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(rates: impl Iterator<Item = u64>) -> Forecast {
        let mut forecast = Forecast::default();
        let mut now = Time::ZERO;
        for rate in rates {
            let next = now + Span::from_secs(1);
            forecast.record(now, next, rate, Span::from_secs(5));
            now = next;
        }
        forecast
    }

    #[test]
    fn a_steady_rate_is_expected_to_stay_and_needs_no_reserve() {
        let forecast = feed((0..200).map(|_| 40));
        assert_eq!((forecast.level(), forecast.expected(Span::from_secs(9)), forecast.reserve()), (40.0, 40.0, 1.0));
        assert_eq!(forecast.period(), None);
    }

    #[test]
    fn a_rise_is_expected_to_go_on_for_a_while_and_a_fall_is_not() {
        let expected = |forecast: Forecast| forecast.expected(Span::from_secs(10));
        let rise = expected(feed((0..60).map(|second| 10 + second)));
        assert!((70.0..80.0).contains(&rise), "{rise}");
        assert_eq!(expected(feed((0..60).map(|second| 100 - second))), 42.0);
    }

    #[test]
    fn what_repeats_itself_is_expected_again() {
        let wave = |second: u64| if second % 60 >= 50 { 100 } else { 10 };
        let forecast = feed((0..286).map(wave));
        assert_eq!(forecast.period(), Some(Span::from_secs(60)));
        let soon = forecast.expected(Span::from_secs(9));
        assert!((80.0..140.0).contains(&soon), "{soon}");
        assert!(forecast.expected(Span::from_secs(2)) < 20.0);
    }

    #[test]
    fn surprises_make_a_reserve() {
        let forecast = feed((0..300).map(|second| if second % 7 == 0 || second % 11 < 3 { 60 } else { 20 }));
        assert!(forecast.reserve() > 1.0 && forecast.reserve() <= RESERVE_MAX, "{}", forecast.reserve());
    }

    #[test]
    fn arrivals_after_a_pause_are_spread_over_it() {
        let mut forecast = Forecast::default();
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        forecast.record(at(0), at(50), 500, Span::from_secs(5));
        assert_eq!(forecast.level(), 10.0);
        forecast.record(at(50), at(1_000_000), 0, Span::from_secs(5));
        assert_eq!((forecast.level(), forecast.seconds.len()), (0.0, HISTORY));
    }
}
