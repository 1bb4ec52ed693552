//! Every way in which a preempted process, its neighbour, the daemon and the driver can go on, die, stop or refuse, step by
//! step, up to a depth: the process's channels are always enabled in time. And a machine with a bug in it is found out.

use share_core::{BusyPeriod, Lease, Patience, Preemption, Step, daemon_is_dead};
use std::collections::HashSet;

/// Small numbers, so that everything that can happen happens within the depth.
const LEASE: Lease = Lease { length_ns: 1, most_ns: 7, rest_ns: 2 };
const PATIENCE: Patience = Patience { idle_ns: 2, sync_ns: 3, heartbeat_ns: 2, ahead_ns: 100, ..Patience::USUAL };
const DEPTH: usize = 11;
/// The first moment; before it there is room for what is long ago.
const START: u64 = 1_000;
/// How often the driver refuses a call, and how often the process is not given the CPU.
const REFUSALS: u8 = 2;
const DELAYS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    Runs,
    Stopped,
    Dead,
}

/// What is wrong with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Enabling that was refused counts as done.
    BelievesEnabling,
    /// Disabling that was refused counts as not done at all.
    ForgetsDisabling,
    /// What a neighbour says is believed for ever.
    BelievesNeighbour,
    /// What a daemon says is believed for ever.
    BelievesDaemon,
    /// There is no longest time.
    NoMost,
    /// Only a message ends a preemption.
    NoLease,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    now: u64,
    neighbour: Life,
    /// Whether it has work on the GPU.
    works: bool,
    page: BusyPeriod,
    daemon: Life,
    heartbeat: u64,
    /// The daemon wants the process off the GPU while the neighbour is busy.
    exclusive: bool,
    process: Preemption,
    /// What the driver knows.
    off: bool,
    off_since: u64,
    /// When a neighbour that was alive last had work, and a daemon that was alive last wanted this.
    claimed_at: u64,
    wanted_at: u64,
    refuse_next: bool,
    refusals: u8,
    delays: u8,
}

/// What happens between two polls of the process.
#[derive(Clone, Copy, Debug)]
enum Event {
    Nothing,
    Launch,
    Sync,
    Finish,
    NeighbourDies,
    NeighbourStops,
    NeighbourGoesOn,
    DaemonDies,
    DaemonStops,
    DaemonGoesOn,
    DaemonRestarts,
    Exclusive,
    Concurrent,
    Refuse,
    Delay,
}

const EVENTS: [Event; 15] = [
    Event::Nothing,
    Event::Launch,
    Event::Sync,
    Event::Finish,
    Event::NeighbourDies,
    Event::NeighbourStops,
    Event::NeighbourGoesOn,
    Event::DaemonDies,
    Event::DaemonStops,
    Event::DaemonGoesOn,
    Event::DaemonRestarts,
    Event::Exclusive,
    Event::Concurrent,
    Event::Refuse,
    Event::Delay,
];

impl World {
    fn new() -> World {
        World {
            now: START,
            neighbour: Life::Runs,
            works: false,
            page: BusyPeriod::default(),
            daemon: Life::Runs,
            heartbeat: START,
            exclusive: true,
            process: Preemption::default(),
            off: false,
            off_since: 0,
            claimed_at: 0,
            wanted_at: START,
            refuse_next: false,
            refusals: 0,
            delays: 0,
        }
    }

    /// Whether the event can happen; then it has, time has passed and the process has polled.
    fn step(mut self, event: Event, bug: Bug) -> Option<World> {
        let (neighbour, daemon) = (self.neighbour == Life::Runs, self.daemon == Life::Runs);
        let mut delayed = false;
        match event {
            Event::Nothing => {}
            Event::Launch if neighbour => {
                self.works = true;
                let since_ns = if self.page.since_ns == 0 { self.now } else { self.page.since_ns };
                self.page = BusyPeriod { since_ns, until_ns: self.now + 1, gap_ns: 0, syncing_since_ns: 0 };
            }
            Event::Sync if neighbour && self.works && self.page.syncing_since_ns == 0 => {
                self.page.syncing_since_ns = self.now;
            }
            Event::Finish if neighbour && self.works => {
                (self.works, self.page) = (false, BusyPeriod::default());
            }
            Event::NeighbourDies if self.neighbour != Life::Dead => {
                (self.neighbour, self.works) = (Life::Dead, false);
            }
            Event::NeighbourStops if neighbour => self.neighbour = Life::Stopped,
            Event::NeighbourGoesOn if self.neighbour == Life::Stopped => self.neighbour = Life::Runs,
            Event::DaemonDies if self.daemon != Life::Dead => self.daemon = Life::Dead,
            Event::DaemonStops if daemon => self.daemon = Life::Stopped,
            Event::DaemonGoesOn if self.daemon == Life::Stopped => self.daemon = Life::Runs,
            // The next one knows nothing of what the last one wanted.
            Event::DaemonRestarts if self.daemon == Life::Dead => (self.daemon, self.exclusive) = (Life::Runs, false),
            Event::Exclusive if daemon && !self.exclusive => self.exclusive = true,
            Event::Concurrent if daemon && self.exclusive => self.exclusive = false,
            Event::Refuse if self.refusals < REFUSALS && !self.refuse_next => {
                (self.refuse_next, self.refusals) = (true, self.refusals + 1);
            }
            Event::Delay if self.delays < DELAYS => (delayed, self.delays) = (true, self.delays + 1),
            _ => return None,
        }
        if self.daemon == Life::Runs {
            self.heartbeat = self.now;
            if self.neighbour == Life::Dead {
                self.page = BusyPeriod::default();
            }
            if self.exclusive {
                self.wanted_at = self.now;
            }
        }
        if self.neighbour == Life::Runs && self.works {
            self.claimed_at = self.now;
        }
        if !delayed {
            self.poll(bug);
        }
        self.now += 1;
        Some(self)
    }

    fn poll(&mut self, bug: Bug) {
        let mut patience = PATIENCE;
        if bug == Bug::BelievesNeighbour {
            (patience.idle_ns, patience.sync_ns) = (u64::MAX, u64::MAX);
        }
        if bug == Bug::BelievesDaemon {
            patience.heartbeat_ns = u64::MAX;
        }
        let mut lease = LEASE;
        if bug == Bug::NoMost {
            lease.most_ns = u64::MAX;
        }
        let alive = !daemon_is_dead(self.heartbeat, self.now, &patience);
        let mut reason = alive && self.exclusive && self.page.is_on(self.now, &patience);
        if bug == Bug::NoLease && self.off {
            // Until a daemon or a neighbour says that it is over.
            reason = self.exclusive && self.page.since_ns != 0;
        }
        match self.process.poll(self.now, reason, &lease) {
            Step::Stay => {}
            Step::Disable => {
                let refused = std::mem::take(&mut self.refuse_next);
                // One that was refused may have been carried out in part.
                (self.off, self.off_since) = (true, self.now);
                match (refused, bug) {
                    (true, Bug::ForgetsDisabling) => self.process = Preemption::default(),
                    _ => self.process.disabled(!refused),
                }
            }
            Step::Enable => {
                let refused = std::mem::take(&mut self.refuse_next);
                self.off = self.off && refused;
                self.process.enabled(!refused || bug == Bug::BelievesEnabling);
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        let excuses = u64::from(self.refusals + self.delays);
        if self.off {
            let bound = PATIENCE.longest_ns() + LEASE.length_ns + excuses + 1;
            let since = self.now - self.claimed_at.min(self.wanted_at);
            if since > bound {
                return Err(format!("off {since} after the last reason, more than {bound}"));
            }
            let bound = LEASE.most_ns + excuses + 1;
            let since = self.now - self.off_since;
            if since > bound {
                return Err(format!("off for {since}, more than {bound}"));
            }
        }
        if self.off && self.process.is_enabled() {
            return Err("the process takes its channels for enabled, and they are not".into());
        }
        Ok(())
    }
}

/// What was seen.
struct Explored {
    worlds: usize,
    preempted: usize,
    found: Option<String>,
}

fn explore(bug: Bug) -> Explored {
    let mut explored = Explored { worlds: 0, preempted: 0, found: None };
    let mut layer: Vec<World> = vec![World::new()];
    for _ in 0..DEPTH {
        let mut next = HashSet::new();
        for world in layer {
            for event in EVENTS {
                let Some(after) = world.step(event, bug) else { continue };
                explored.preempted += usize::from(after.off);
                if let Err(problem) = after.check() {
                    explored.found = Some(format!("{problem}: {after:?}"));
                    return explored;
                }
                next.insert(after);
            }
        }
        explored.worlds += next.len();
        layer = next.into_iter().collect();
    }
    explored
}

#[test]
fn whoever_dies_stops_or_refuses_channels_are_enabled_in_time() {
    let explored = explore(Bug::None);
    assert_eq!(explored.found, None);
    assert!(explored.worlds > 100_000, "{} worlds", explored.worlds);
    assert!(explored.preempted > 10_000, "{} of them preempted", explored.preempted);
}

#[test]
fn a_machine_with_a_bug_is_found_out() {
    for bug in [
        Bug::BelievesEnabling,
        Bug::ForgetsDisabling,
        Bug::BelievesNeighbour,
        Bug::BelievesDaemon,
        Bug::NoMost,
        Bug::NoLease,
    ] {
        assert!(explore(bug).found.is_some(), "{bug:?} was not found");
    }
}
