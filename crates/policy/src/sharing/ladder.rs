//! A ladder: how much best-effort work may disturb, a rung at a time, by what bursts on a rung took.
//!
//! It knows when a rung is bad, good, or not to be judged; who is held to find out is for [`adjust`](super::adjust).

use crate::{Span, Time};

/// Good bursts for this long, and one rung more is tried.
const CALM: Span = Span::from_secs(2);
/// A rung that was bad is not tried again for this long, at first and at most.
const AGAIN_FIRST: Span = Span::from_secs(5);
pub(super) const AGAIN_MOST: Span = Span::from_secs(320);
/// Best-effort work that wanted nothing for this long did nothing to the bursts that end now.
const BLAME: Span = Span::from_millis(100);
/// What was launched on the rung before, or while nobody needed the GPU, is in the way for so long.
const SETTLED: Span = Span::from_millis(60);
/// Bursts that tell something about a rung.
pub(super) const BURSTS: u64 = 12;
/// What a burst may take of what it takes alone or of its objective, on average, in thousandths: more is bad, less is
/// good.
const BAD: u64 = 1_045;
const GOOD: u64 = 1_025;
/// A burst that takes more is in the tail; more than this part of them is bad, half of it is good, in thousandths.
const TAIL: u64 = 1_200;
const TAIL_BAD: u64 = 40;
/// Differences of so many standard errors are none of chance: they are looked for at every burst.
const SURE: u64 = 3;
/// Where chance hides no more than this part, what is as good as without best-effort work is good.
const CHANCE_LEAST: u64 = 100;
/// What bursts take without best-effort work excuses no more than this, in thousandths.
const WITHOUT_MOST: u64 = 2_000;
/// What tells something about a tail.
const TAIL_BURSTS: u64 = 3;
/// So bad that a single rung will not do, nor two.
const VERY_BAD: u64 = 1_400;
const WORST: u64 = 2_000;
/// A single burst says no more than this; something stopped the program.
const RATIO_MOST: u64 = 4_000;

/// Something that can be more or less, and what became of it.
#[derive(Clone, Debug)]
pub(super) struct Ladder {
    rung: usize,
    rungs: usize,
    since: Time,
    /// What ends before says nothing about this rung.
    settled: Time,
    /// What bursts take alone, and what was promised.
    standards: [Standard; 2],
    /// How much best-effort work there was so far that this ladder is for, and when there last was some.
    beside: Span,
    blamed: Time,
}

/// Something that bursts are compared with. What is bad by one may be good by the other.
#[derive(Clone, Debug)]
struct Standard {
    /// Those on this rung.
    bursts: Bursts,
    /// By rung: not before then, and for how long the next time.
    barred: Vec<(Time, Span)>,
    /// When something was last compared with it.
    seen: Time,
}

/// What is to be done about bad bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing, or it was done.
    Borne,
    /// See whether they are as bad without best-effort work.
    Doubted,
    /// They may be as bad without it, or that may be chance.
    Unsure,
}

/// Bursts, by what they took of what they may, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bursts {
    pub(super) count: u64,
    sum: u64,
    squares: u64,
    /// How many were in the tail.
    long: u64,
}

impl Bursts {
    pub(super) fn add(&mut self, ratio: u64) {
        self.count += 1;
        let counted = ratio.min(RATIO_MOST);
        self.sum += counted;
        self.squares += counted * counted;
        self.long += u64::from(ratio > TAIL);
    }

    /// 0 without any.
    fn mean(&self) -> u64 {
        self.sum / self.count.max(1)
    }

    /// The part in the tail, in thousandths.
    fn tail(&self) -> u64 {
        self.long * 1_000 / self.count.max(1)
    }

    pub(super) fn and(self, more: Bursts) -> Bursts {
        Bursts {
            count: self.count + more.count,
            sum: self.sum + more.sum,
            squares: self.squares + more.squares,
            long: self.long + more.long,
        }
    }

    pub(super) fn halved(self) -> Bursts {
        Bursts { count: self.count / 2, sum: self.sum / 2, squares: self.squares / 2, long: self.long / 2 }
    }

    /// How far chance alone may set the means of two lots of bursts apart, and their tails.
    fn chance(&self, other: &Bursts) -> (u64, u64) {
        let variance_of_mean = |bursts: &Bursts| {
            let count = bursts.count.max(1);
            (bursts.squares / count).saturating_sub(bursts.mean() * bursts.mean()) / count
        };
        let variance_of_tail = |bursts: &Bursts| {
            let tail = other.tail().min(1_000);
            tail * (1_000 - tail) / bursts.count.max(1)
        };
        let sum = |variance: &dyn Fn(&Bursts) -> u64| SURE * (variance(self) + variance(other)).isqrt();
        (sum(&variance_of_mean), sum(&variance_of_tail))
    }
}

impl Ladder {
    pub(super) fn new(rungs: usize, start: usize) -> Ladder {
        let barred = vec![(Time::ZERO, AGAIN_FIRST); rungs];
        let standard = Standard { bursts: Bursts::default(), barred, seen: Time::ZERO };
        Ladder {
            rung: start,
            rungs,
            since: Time::ZERO,
            settled: Time::ZERO,
            standards: [standard.clone(), standard],
            beside: Span::ZERO,
            blamed: Time::ZERO,
        }
    }

    /// There was this much best-effort work so far that it is for.
    pub(super) fn saw(&mut self, now: Time, beside: Span) {
        if beside > self.beside {
            self.blamed = now;
        }
        self.beside = beside;
    }

    pub(super) fn is_to_blame(&self, now: Time) -> bool {
        self.beside > Span::ZERO && now < self.blamed + BLAME
    }

    pub(super) fn rung(&self) -> usize {
        self.rung
    }

    /// A burst took this many thousandths of what it may, or of what it was promised. `known`: what they take without
    /// best-effort work, where that was seen.
    pub(super) fn burst(&mut self, now: Time, ratio: u64, promised: bool, known: Option<Bursts>) -> Verdict {
        if now < self.settled {
            return Verdict::Borne;
        }
        let without = if promised { Some(Bursts::default()) } else { known };
        let standard = &mut self.standards[usize::from(promised)];
        standard.bursts.add(ratio);
        standard.seen = now;
        let bursts = standard.bursts;
        if bursts.count < BURSTS {
            return Verdict::Borne;
        }
        if self.rung == 0 && !promised {
            // It is held here, so whatever they took is not its doing.
            let is_due = self.since + CALM <= now && self.is_open(now, 1);
            self.to(now, usize::from(is_due));
            return Verdict::Borne;
        }
        let besides = without.unwrap_or_default();
        let mean = bursts.mean() * 1_000 / besides.mean().clamp(1_000, WITHOUT_MOST);
        let tail = bursts.tail().saturating_sub(besides.tail());
        // Where bursts differ a lot without it, a few bad ones may be chance.
        let (by_chance, tail_by_chance) = if besides.count > 0 { bursts.chance(&besides) } else { Default::default() };
        let (seems_long, seems_to_have_tail) = (mean > BAD, tail > TAIL_BAD && bursts.long >= TAIL_BURSTS);
        let (is_long, has_tail) = (seems_long && mean > 1_000 + by_chance, seems_to_have_tail && tail > tail_by_chance);
        if is_long || has_tail {
            if without.is_none() {
                return Verdict::Doubted;
            }
            self.bar(now, promised);
            let down = match mean {
                WORST.. => 4,
                VERY_BAD.. => 2,
                _ => 1,
            };
            self.to(now, self.rung.saturating_sub(down));
            return Verdict::Borne;
        }
        // Good is good beyond doubt: an excuse that may be chance keeps a rung, and is no reason for the next.
        let good = |mean: u64, tail: u64| mean < GOOD && tail <= TAIL_BAD / 2;
        let is_known = besides.count > 0 && by_chance < CHANCE_LEAST;
        let is_good = good(bursts.mean(), bursts.tail()) || is_known && good(mean, tail);
        if is_good && self.since + CALM <= now {
            let next = self.rung + 1;
            self.to(now, if self.is_open(now, next) { next } else { self.rung });
        } else if bursts.count >= 16 * BURSTS {
            // What was long ago says little.
            self.standards[usize::from(promised)].bursts = bursts.halved();
        }
        if seems_long || seems_to_have_tail { Verdict::Unsure } else { Verdict::Borne }
    }

    /// Whether there is a rung, and it may be tried by every standard that somebody is held to at present.
    fn is_open(&self, now: Time, rung: usize) -> bool {
        let open = |standard: &Standard| standard.barred[rung].0 <= now || standard.seen + CALM < now;
        rung < self.rungs && self.standards.iter().all(open)
    }

    fn bar(&mut self, now: Time, promised: bool) {
        let (until, wait) = &mut self.standards[usize::from(promised)].barred[self.rung];
        *until = now + *wait;
        *wait = wait.scale(2, 1).min(AGAIN_MOST);
    }

    /// What was launched before is another's doing.
    pub(super) fn settle(&mut self, now: Time) {
        self.settled = now + SETTLED;
    }

    fn to(&mut self, now: Time, rung: usize) {
        if rung != self.rung {
            self.since = now;
            self.settle(now);
        }
        self.rung = rung;
        self.standards.iter_mut().for_each(|standard| standard.bursts = Bursts::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn who_has_no_time_left_is_seen_within_a_dozen_bursts() {
        let mut ladder = Ladder::new(6, 4);
        for burst in 0..150 {
            ladder.burst(at(burst * 10), 300, true, None);
        }
        for burst in 150..162 {
            ladder.burst(at(burst * 10), 1_300, false, Some(Bursts::default()));
        }
        assert!(ladder.rung() < 4, "{ladder:?}");
    }

    #[test]
    fn what_is_bad_by_one_standard_may_be_good_by_the_other() {
        let mut ladder = Ladder::new(6, 4);
        for burst in 0..400 {
            ladder.burst(at(burst * 10), 1_300, false, Some(Bursts::default()));
        }
        assert!(ladder.rung() <= 1, "{ladder:?}");
        for burst in 400..1_400 {
            ladder.burst(at(burst * 10), 300, true, None);
        }
        assert!(ladder.rung() >= 4, "nobody is held to what it takes alone any more: {ladder:?}");
        for burst in 1_400..1_500 {
            ladder.burst(at(burst * 10), 300, true, None);
            ladder.burst(at(burst * 10 + 5), 1_300, false, Some(Bursts::default()));
        }
        assert!(ladder.rung() < 4, "both are: {ladder:?}");
    }

    #[test]
    fn a_tail_is_bad_even_where_the_mean_is_good() {
        let mut ladder = Ladder::new(6, 4);
        for burst in 0..200 {
            ladder.burst(at(burst * 10), if burst % 15 == 0 { 1_400 } else { 1_000 }, false, Some(Bursts::default()));
        }
        assert!(ladder.rung() < 4, "{ladder:?}");
    }
}
