//! What happens in a run besides requests: drawn from its seed.

use policy::{Span, Time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Random numbers of one purpose.
pub(crate) type Random = Xoshiro256PlusPlus;

/// A stream of random numbers for one purpose of a run: a draw more in one moves nothing in another.
pub(crate) fn random(seed: u64, purpose: u64) -> Random {
    Random::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03))
}

pub(crate) fn between(random: &mut Random, low: Span, high: Span) -> Span {
    Span::from_nanos(random.random_range(low.nanos()..=high.nanos()))
}

/// A part of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// One of the schedulers.
    Scheduler(usize),
    /// One of the gateways.
    Gateway(usize),
    /// One of the nodes.
    Node(usize),
}

/// What is done to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is killed, and started again after a while.
    Kill(Who, Span),
    /// It is told to end, and started again a while after it did.
    Term(Who, Span),
    /// It does nothing for a while.
    Stop(Who, Span),
    /// One of its connections breaks, whichever that is of so many.
    Break(Who, u32),
    /// One of its connections carries nothing for a while.
    Stall(Who, u32, Span),
    /// One of a node's workers dies.
    Worker(usize, u32),
    /// The scheduler that leads hangs for so long and loses the lead, which it hears so long after that.
    Split(Span, Span),
    /// Batches on a node take so many times as long for a while.
    Slow(usize, u32, Span),
}

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many schedulers; one leads.
    pub schedulers: usize,
    /// How many gateways.
    pub gateways: usize,
    /// How many nodes.
    pub nodes: usize,
    /// For each model how many workers it has.
    pub workers: Vec<usize>,
    /// When what goes wrong, in order.
    pub faults: Vec<(Time, Fault)>,
    /// Requests a second, to all gateways together.
    pub rate: u64,
    /// Requests come until then.
    pub until: Time,
    /// The lead passes on after so many events since requests came, and how.
    pub takeover: Option<(u64, Takeover)>,
}

/// How the lead passes from one scheduler to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// The first one is killed.
    Killed,
    /// The first one is told to end.
    Ended,
    /// The first one hangs, loses the lead and wakes later.
    Hangs,
    /// The first one goes on deciding for a while, and half of the members have found the other.
    Splits,
}

impl Takeover {
    /// All of them.
    pub const ALL: [Takeover; 4] = [Takeover::Killed, Takeover::Ended, Takeover::Hangs, Takeover::Splits];

    /// What happens to the scheduler that leads.
    pub(crate) fn fault(self, leads: Who) -> Fault {
        let (away, learns) = (Span::from_millis(300), Span::from_millis(400));
        match self {
            Takeover::Killed => Fault::Kill(leads, away),
            Takeover::Ended => Fault::Term(leads, away),
            Takeover::Hangs => Fault::Split(Span::from_millis(800), learns),
            Takeover::Splits => Fault::Split(Span::ZERO, learns),
        }
    }
}

/// When the first requests come: everything has been started by then.
pub(crate) const START: Time = Time::from_nanos(3_000_000_000);

impl Plan {
    /// The plan of a seed. One of eight has no faults at all.
    pub fn new(seed: u64) -> Plan {
        let mut random = random(seed, 1);
        let schedulers = random.random_range(1..=2);
        let gateways = random.random_range(1..=2);
        let nodes = random.random_range(1..=3);
        let workers = (0..random.random_range(1..=2)).map(|_| random.random_range(1..=3)).collect();
        let count = if seed.is_multiple_of(8) { 0 } else { random.random_range(1..=4) };
        let mut at = START + Span::from_millis(200);
        let mut faults = Vec::new();
        for _ in 0..count {
            // Close together, so that one meets what another left; or on top of each other.
            at += between(&mut random, Span::ZERO, Span::from_millis(900));
            faults.push((at, draw(&mut random, schedulers, gateways, nodes)));
        }
        let until = at + Span::from_millis(800);
        let rate = random.random_range(20..=150);
        Plan { schedulers, gateways, nodes, workers, faults, rate, until, takeover: None }
    }

    /// The same run with a second scheduler, and with nothing wrong but that the lead passes on after so many events.
    pub fn with_takeover(seed: u64, after: u64, how: Takeover) -> Plan {
        let plan = Plan::new(seed);
        let until = START + Span::from_millis(900);
        Plan { schedulers: 2, faults: Vec::new(), takeover: Some((after, how)), until, ..plan }
    }

    /// Whether nothing goes wrong at all.
    pub(crate) fn is_calm(&self) -> bool {
        self.faults.is_empty() && self.takeover.is_none()
    }

    /// Whether nothing is wrong but that a scheduler dies or ends, once, with another on standby.
    pub(crate) fn is_takeover(&self) -> bool {
        let dies =
            |fault: &Fault| matches!(fault, Fault::Kill(Who::Scheduler(_), _) | Fault::Term(Who::Scheduler(_), _));
        let dead = matches!(self.takeover, Some((_, Takeover::Killed | Takeover::Ended)));
        self.schedulers > 1
            && (self.faults.is_empty() && dead || matches!(self.faults.as_slice(), [(_, fault)] if dies(fault)))
    }
}

fn draw(random: &mut Random, schedulers: usize, gateways: usize, nodes: usize) -> Fault {
    let who = match random.random_range(0..4) {
        0 => Who::Scheduler(random.random_range(0..schedulers)),
        1 => Who::Gateway(random.random_range(0..gateways)),
        _ => Who::Node(random.random_range(0..nodes)),
    };
    let node = random.random_range(0..nodes);
    let back = between(random, Span::from_millis(1), Span::from_millis(700));
    let pick = random.random();
    match random.random_range(0..if schedulers > 1 { 12 } else { 10 }) {
        0 | 1 => Fault::Kill(who, back),
        2 | 3 => Fault::Term(who, back),
        4 | 5 => Fault::Stop(who, between(random, Span::from_millis(10), Span::from_secs(7))),
        6 => Fault::Break(who, pick),
        7 => Fault::Stall(who, pick, between(random, Span::from_millis(10), Span::from_secs(2))),
        8 => Fault::Worker(node, pick),
        10 | 11 => {
            let hangs = between(random, Span::ZERO, Span::from_secs(2));
            Fault::Split(hangs, between(random, Span::ZERO, Span::from_secs(1)))
        }
        _ => {
            Fault::Slow(node, random.random_range(2..=100), between(random, Span::from_millis(50), Span::from_secs(1)))
        }
    }
}
