//! Whether a latency program's requests are answered as if it were alone: a sequential estimate.
//!
//! A program's work comes in bursts: from a launch to the end of the wait for it. Bursts without a pause between them are a
//! *busy period*: requests that wait for each other. What delays one burst of it delays all that follow, and a pause makes up
//! for it. So a request's delay by others is how late its busy period is at its end: the sum over its bursts of the time
//! that each took longer than alone.
//!
//! The target is a tail: at most one request in a hundred, queueing included, takes longer than the p99 alone and its slack;
//! with an objective, longer than the objective. So the cost of a busy period is the chance that a request in it takes
//! longer than promised, given how late it is. Where
//! requests do not wait for each other that is all or nothing; where they do, most of them have time to lose. Programs that
//! never pause have no busy periods that end; theirs are cut after [`SharingConfig::endless`] bursts, and are late by a part of the time they
//! take.
//!
//! Wald's sequential test decides between two chances, with one error rate, whether more than one in a hundred is late: as
//! soon as the observations suffice and not before. The cost without best-effort work, as on a host that is busy with
//! something else, is added to both chances.

use super::SharingConfig;
use super::rhythm::Rhythm;
use super::view::Burst;
use crate::{Span, Time};
use std::collections::BTreeMap;

/// The verdict of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slowdown {
    /// There are too few observations.
    Unknown,
    /// No more requests are late than the target allows.
    Fine,
    /// More requests are late.
    Worse,
}

/// Which busy periods count, by when they began; `None`: none does at present.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// For the level.
    pub(super) from: Option<Time>,
    /// For the cost without best-effort work, where none was on the GPU: preempted work is off the GPU, though preempting it
    /// has a cost of its own.
    pub(super) alone: Option<Time>,
}

/// A busy period that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BusyPeriod {
    began: Time,
    /// How late its last burst ended, and its first.
    late: Span,
    late_first: Span,
    /// The time that all of it takes alone.
    alone: Span,
    bursts: u32,
    /// It is an observation of the level.
    counts: bool,
    /// It is an observation of the GPU without best-effort work.
    alone_on_gpu: bool,
    /// It was cut.
    endless: bool,
}

/// The busy periods of one process.
#[derive(Clone, Debug)]
struct Process {
    period: Option<BusyPeriod>,
    ended: Time,
    rhythm: Rhythm,
}

/// The estimate for one latency program on one GPU.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    processes: BTreeMap<u32, Process>,
    /// The mean time of a burst alone.
    alone: Span,
    /// The mean time of bursts over their time alone, in thousandths.
    ratio: u64,
    /// Bursts that began without a pause, in millionths.
    in_a_row: u64,
    /// Busy periods without best-effort work, and the sum of their costs.
    without: (f64, f64),
    /// The logarithm of how much more likely it is that too many are late.
    score: f64,
    /// Busy periods that counted for the level.
    evidence: u64,
    /// Undisturbed bursts whose time alone is known.
    pub(super) seen: u64,
}

impl Estimate {
    pub(super) fn new() -> Estimate {
        Estimate {
            processes: BTreeMap::new(),
            alone: Span::ZERO,
            ratio: 0,
            in_a_row: 0,
            without: (0.0, 0.0),
            score: 0.0,
            evidence: 0,
            seen: 0,
        }
    }

    /// The mean time of bursts over their time alone, in thousandths; `None` while it is unknown.
    pub(super) fn ratio(&self) -> Option<u64> {
        (self.ratio > 0).then_some(self.ratio)
    }

    /// The level changed: earlier observations do not count.
    pub(super) fn restart(&mut self) {
        (self.score, self.evidence) = (0.0, 0);
    }

    /// Whether there are observations of this level.
    pub(super) fn has_evidence(&self, config: &SharingConfig) -> bool {
        self.evidence > 0 && self.is_attributable(config)
    }

    /// Looks at the bursts that ended since the last look.
    pub(super) fn update(&mut self, bursts: &[Burst], objective: Option<Span>, counts: Counts, config: &SharingConfig) {
        for burst in bursts {
            if burst.alone == Span::ZERO {
                self.processes.remove(&burst.process);
                continue;
            }
            self.seen += u64::from(burst.undisturbed);
            self.average(burst, config);
            if let Some(period) = self.add(burst, counts, config) {
                self.judge(&period, objective, config);
            }
        }
    }

    fn average(&mut self, burst: &Burst, config: &SharingConfig) {
        let over = config.mean_over();
        let ratio = burst.took.scale(1_000, burst.alone.nanos()).nanos().min(1_000_000);
        let mean = |old: u64, new: u64| if old == 0 { new } else { (old * (over - 1) + new) / over };
        self.ratio = mean(self.ratio, ratio).max(1);
        self.alone = Span::from_nanos(mean(self.alone.nanos().min(1 << 40), burst.alone.nanos().min(1 << 40)));
    }

    /// A burst; the busy period that it shows to have ended.
    fn add(&mut self, burst: &Burst, counts: Counts, config: &SharingConfig) -> Option<BusyPeriod> {
        let ended = burst.began + burst.took;
        let process = self.processes.entry(burst.process).or_insert_with(|| Process {
            period: None,
            ended: Time::ZERO,
            rhythm: Rhythm::default(),
        });
        let pause = burst.began - process.ended.min(burst.began);
        // A shorter pause is what the host does between two requests of which one waits for the other.
        let in_a_row = pause <= config.slack_of(burst.alone);
        let over = config.mean_over();
        self.in_a_row = (self.in_a_row * (over - 1) + u64::from(in_a_row) * 1_000_000) / over;
        process.ended = ended;
        if !in_a_row {
            process.rhythm.began(burst.began, config);
        }
        let before = process.period.take();
        // A pause makes up for as much delay as it is long.
        let made_up = if in_a_row { Span::ZERO } else { pause };
        let (goes_on, done) = match before {
            Some(period) if in_a_row || pause < period.late => (Some(period), None),
            done => (None, done),
        };
        let late = goes_on.map_or(Span::ZERO, |period| period.late - made_up) + burst.took;
        // So does a burst that is faster than alone.
        let late = late - burst.alone;
        let began = goes_on.map_or(burst.began, |period| period.began);
        let since = |from: Option<Time>| from.is_some_and(|from| began >= from);
        let period = BusyPeriod {
            began,
            late,
            late_first: goes_on.map_or(late, |period| period.late_first),
            alone: goes_on.map_or(Span::ZERO, |period| period.alone) + burst.alone,
            bursts: goes_on.map_or(0, |period| period.bursts) + 1,
            counts: goes_on.is_none_or(|period| period.counts) && since(counts.from),
            alone_on_gpu: goes_on.is_none_or(|period| period.alone_on_gpu) && burst.undisturbed && since(counts.alone),
            endless: false,
        };
        if period.bursts >= config.endless() {
            return Some(BusyPeriod { endless: true, ..period });
        }
        process.period = Some(period);
        done
    }

    /// The chance that a request in a busy period takes longer than promised.
    fn cost(&self, period: &BusyPeriod, objective: Option<Span>, config: &SharingConfig) -> f64 {
        let part = |whole: Span, permille: u32| whole.scale(permille.into(), 1_000);
        if period.endless {
            // Requests may wait for each other or for their client; the former is assumed.
            let left = objective.map_or(Span::ZERO, |objective| objective - self.alone);
            return f64::from(u8::from(period.late > part(period.alone, config.rate_slack).max(left)));
        }
        let allowed = config.allowed();
        // The part of requests that find another before them; how long the slowest wait, and so how fast waits get rarer.
        let waiting = self.in_a_row.min(500_000) as f64 / 1e6;
        let longest = self.alone.scale(config.queue_at_half() * self.in_a_row.min(500_000), 500_000);
        let slowest = self.alone + longest;
        let promised = (slowest + part(slowest, config.tail_slack)).max(objective.unwrap_or(Span::ZERO));
        // A delay within a busy period hits the requests that wait longest: no pause makes up for it.
        let grew = period.late - period.late_first > promised - slowest;
        let may_wait = promised - self.alone - period.late_first;
        match (may_wait > Span::ZERO && !grew, waiting > allowed) {
            (false, _) => 1.0,
            (true, false) => 0.0,
            (true, true) => waiting * (allowed / waiting).powf(may_wait.seconds() / longest.seconds()),
        }
    }

    fn judge(&mut self, period: &BusyPeriod, objective: Option<Span>, config: &SharingConfig) {
        let cost = self.cost(period, objective, config);
        if period.alone_on_gpu {
            let (all, costs) = self.without;
            let kept = if all >= 4.0 * config.mean_over() as f64 { 0.5 } else { 1.0 };
            self.without = (all * kept + 1.0, costs * kept + cost);
        }
        if period.counts && self.is_attributable(config) {
            let (fine, bad) = self.chances(config);
            let by = cost * (bad / fine).ln() + (1.0 - cost) * ((1.0 - bad) / (1.0 - fine)).ln();
            self.score = (self.score + by).clamp(-config.bound(), config.bound());
            self.evidence += 1;
        }
    }

    /// Whether delays can be attributed to best-effort work: not for a program that is late most of the time without it.
    fn is_attributable(&self, config: &SharingConfig) -> bool {
        self.chances(config).0 < 0.5
    }

    /// The two chances that the test decides between; the allowed one lies between them.
    fn chances(&self, config: &SharingConfig) -> (f64, f64) {
        let (allowed, (fine, bad)) = (config.allowed(), config.chances());
        let (all, costs) = self.without;
        // Too few observations count as no cost. The cost that the target allows is already in both chances.
        let without = (costs / all.max(config.mean_over() as f64) - allowed).max(0.0);
        (fine + without, (bad + 1.5 * without).min(0.95))
    }

    /// When busy periods are expected to begin next, and by how much that may be off.
    pub(super) fn next(&self, now: Time, config: &SharingConfig) -> impl Iterator<Item = (Time, Span)> {
        self.processes.values().filter_map(move |process| process.rhythm.next(now, config))
    }

    /// The verdict so far.
    pub(super) fn verdict(&self, config: &SharingConfig) -> Slowdown {
        let bound = config.bound();
        match self.score {
            _ if !self.is_attributable(config) => Slowdown::Unknown,
            score if score >= bound => Slowdown::Worse,
            score if score <= -bound => Slowdown::Fine,
            _ => Slowdown::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Span = Span::from_millis(1);
    const ALL: Counts = Counts { from: Some(Time::ZERO), alone: Some(Time::ZERO) };

    /// Busy periods of so many bursts each, 20 ms apart, of which each first is late by what is said for it; undisturbed ones
    /// before them, late by `without` each hundredth. What is known, and after how many.
    fn play(
        bursts: u64,
        late: impl Fn(u64) -> Span,
        without: impl Fn(u64) -> Span,
        objective: Option<Span>,
    ) -> (Slowdown, u64) {
        let config = SharingConfig::default();
        let mut estimate = Estimate::new();
        let mut now = Time::ZERO + Span::from_secs(1);
        for index in 0..4_000 {
            let undisturbed = index < 500;
            if index == 500 {
                estimate.restart();
            }
            let mut period = Vec::new();
            for burst in 0..bursts {
                let more = if undisturbed { without(index) } else { late(index) };
                let took = ALONE + if burst == 0 { more } else { Span::ZERO };
                period.push(Burst { process: 1, began: now, took, alone: ALONE, undisturbed });
                now += took + Span::from_micros(10);
            }
            now += Span::from_millis(20);
            estimate.update(&period, objective, ALL, &config);
            if !undisturbed && estimate.verdict(&config) != Slowdown::Unknown {
                return (estimate.verdict(&config), index - 500);
            }
        }
        (Slowdown::Unknown, 3_500)
    }

    fn micros(micros: u64) -> Span {
        Span::from_micros(micros)
    }

    #[test]
    fn what_is_late_is_known_after_three_and_what_is_fine_after_two_hundred() {
        let never = |_| Span::ZERO;
        assert_eq!(play(1, |_| micros(200), never, None), (Slowdown::Worse, 3));
        let (fine, after) = play(1, |_| micros(50), never, None);
        assert!(fine == Slowdown::Fine && (220..230).contains(&after), "{after}");
    }

    #[test]
    fn who_waits_for_others_bears_more_before_its_own() {
        let never = |_| Span::ZERO;
        // Alone, or two in a row half of the time: then the slowest take four times as long.
        assert_eq!(play(1, |_| micros(300), never, None).0, Slowdown::Worse);
        assert_eq!(play(2, |_| micros(300), never, None).0, Slowdown::Fine);
        assert_eq!(play(2, |_| micros(700), never, None).0, Slowdown::Worse);
        // A few that are later are made up for by the others.
        let some = |index: u64| if index.is_multiple_of(10) { micros(1_000) } else { micros(100) };
        assert_eq!(play(2, some, never, None).0, Slowdown::Fine);
        assert_eq!(play(1, some, never, None).0, Slowdown::Worse);
    }

    #[test]
    fn an_objective_may_be_used_up() {
        let never = |_| Span::ZERO;
        assert_eq!(play(1, |_| micros(3_000), never, Some(micros(5_000))).0, Slowdown::Fine);
        assert_eq!(play(1, |_| micros(5_000), never, Some(micros(5_000))).0, Slowdown::Worse);
        // One that it exceeds by itself is no reason to disturb it, nor to hold everybody for ever.
        assert_eq!(play(1, |_| micros(50), never, Some(micros(500))).0, Slowdown::Fine);
    }

    #[test]
    fn what_is_late_by_itself_blames_nobody() {
        let some = |every: u64| move |index: u64| if index.is_multiple_of(every) { micros(500) } else { Span::ZERO };
        assert_eq!(play(1, some(10), some(10), None).0, Slowdown::Fine);
        assert_eq!(play(1, some(10), |_| Span::ZERO, None).0, Slowdown::Worse);
        assert_eq!(play(1, some(3), some(10), None).0, Slowdown::Worse);
    }

    #[test]
    fn who_is_late_most_of_the_time_by_itself_is_no_judge() {
        let late = |_| micros(900);
        assert_eq!(play(1, late, late, None).0, Slowdown::Unknown);
    }

    #[test]
    fn who_never_pauses_is_judged_by_its_rate() {
        let config = SharingConfig::default();
        for (more, expected) in [(20, Slowdown::Fine), (50, Slowdown::Worse)] {
            let mut estimate = Estimate::new();
            let mut now = Time::ZERO;
            for _ in 0..10_000 {
                let burst =
                    Burst { process: 1, began: now, took: ALONE + micros(more), alone: ALONE, undisturbed: false };
                estimate.update(&[burst], None, ALL, &config);
                now += burst.took + micros(10);
            }
            assert_eq!(estimate.verdict(&config), expected, "{more} us more");
        }
    }
}
