//! One run: load, a fault at a random moment, the part's return, and what everybody saw of it.

use super::census::{Census, Phantoms};
use super::cluster::{Cluster, WORKERS};
use super::fault::{Case, Kind, Part};
use super::load::{Load, Outcome, PATIENCE, Record};
use super::router::Router;
use crate::faults::Chance;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long load runs before a fault; the good rate of most of it is what a cluster must come back to.
const BEFORE: Duration = Duration::from_millis(2_500);
/// The moment of a fault, and how long a killed part is away, vary by this.
const CHANCE_US: u64 = 1_000_000;
/// The least that a killed part is away.
const AWAY: Duration = Duration::from_millis(300);
/// A rate is counted over so long.
const WINDOW: Duration = Duration::from_millis(500);
/// A cluster is back when so much of the good rate from before is.
const BACK: f64 = 0.95;
/// By then every request sent has either met its objective or not.
const JUDGED: Duration = Duration::from_millis(600);
/// How long a cluster is watched after a part is back: at least, and at most.
const AFTER_LEAST: Duration = Duration::from_millis(3_000);
const AFTER_MOST: Duration = Duration::from_secs(15);
/// Within this a process must end after its first SIGTERM, and after its second.
const DRAIN: Duration = Duration::from_secs(15);
const AT_ONCE: Duration = Duration::from_secs(1);
/// Between the two.
const BETWEEN: Duration = Duration::from_millis(50);
/// How long after the last request the gauges may take to fall to 0: longer than the longest deadline.
const SETTLE: Duration = Duration::from_secs(3);

/// The time in which a part was not well, as the load counts it, and how it ended and came back.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    pub(super) part: Part,
    pub(super) kind: Kind,
    pub(super) from: Duration,
    /// When it was started again, or went on.
    pub(super) back: Duration,
    /// From SIGTERM to the end, of a process that was sent one.
    pub(super) ended_after: Option<Duration>,
    /// It ran on after the first SIGTERM, and after the second.
    pub(super) ignored: [bool; 2],
    /// Every gateway knew every node again.
    pub(super) joined: bool,
    /// From its return until the good rate was back; `None` when that did not happen.
    pub(super) recovery: Option<Duration>,
}

/// Everything that was seen in a run.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) records: Vec<Record>,
    pub(super) outages: Vec<Outage>,
    /// Requests in flight after all were answered or given up; `None` when a gateway did not say.
    pub(super) in_flight: Option<u64>,
    pub(super) phantoms: Phantoms,
    /// Workers that `weft models` counted in the end, the most of all gateways, and processes that there were.
    pub(super) counted: [usize; 2],
    /// Worker processes of each node in the end.
    pub(super) by_node: Vec<usize>,
    /// Parts whose process ended though nobody asked it to.
    pub(super) ended: Vec<String>,
    /// The most that the load itself was late.
    pub(super) lag: Duration,
}

impl Seen {
    /// Whether the cluster is whole again, so that another run can begin with it.
    pub(super) fn is_whole(&self) -> bool {
        let hung = self.records.iter().any(|record| record.outcome == Outcome::Hung);
        let back = self.outages.iter().all(|outage| outage.recovery.is_some() && outage.joined);
        !hung && back && self.ended.is_empty() && self.in_flight == Some(0) && self.counted == [WORKERS; 2]
    }
}

/// How faults are done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Requests a second.
    pub(super) rate: u64,
    /// For how long a process is stopped.
    pub(super) stop: Duration,
}

/// A cluster under load. Both end when this goes out of scope, the load first.
pub(super) struct Trial<'a> {
    settings: Settings,
    pub(super) load: Load,
    census: Census,
    pub(super) cluster: Cluster<'a>,
}

impl<'a> Trial<'a> {
    /// Starts a new cluster and sees that it carries the load.
    pub(super) fn start(
        workspace: &'a Workspace,
        weft: &Path,
        folder: &Path,
        settings: Settings,
        parts: Vec<Part>,
    ) -> Result<Trial<'a>> {
        let cluster = Cluster::start(workspace, weft, folder, parts)?;
        let gateways = cluster.gateways();
        let router = Router::start(gateways.map(|ports| ports.http));
        let census = Census::start(gateways.map(|ports| ports.metrics).to_vec());
        let trial = Trial { settings, load: Load::start(router, settings.rate), census, cluster };
        let (there, counted) = (trial.census.workers(), trial.cluster.models()?);
        ensure!(
            counted.iter().all(|counted| *counted == there),
            "see every worker process: there are {there}, and `weft models` counts {counted:?}"
        );
        trial.warm_up()?;
        Ok(trial)
    }

    /// Sends load until all of it is answered in time.
    fn warm_up(&self) -> Result<()> {
        self.load.resume();
        let wanted = self.settings.rate as f64 * WINDOW.as_secs_f64() * BACK;
        let is_good = || {
            let until = self.load.now().saturating_sub(JUDGED);
            self.load.good(until.saturating_sub(WINDOW), until) as f64 >= wanted
        };
        let carries = wait(AFTER_MOST, is_good);
        self.load.pause();
        wait(PATIENCE, || self.load.under_way() == 0);
        let answers = self.load.take();
        ensure!(
            carries,
            "carry {} requests a second before any fault: {} of {} were good. Lower --rate or leave the machine alone",
            self.settings.rate,
            answers.iter().filter(|record| record.is_good()).count(),
            answers.len()
        );
        self.load.take_lag();
        Ok(())
    }

    /// Does a case once.
    pub(super) fn run(&mut self, case: Case, chance: &mut Chance) -> Result<Seen> {
        self.load.take();
        self.census.take();
        self.load.resume();
        let began = self.load.now();
        std::thread::sleep(BEFORE + Duration::from_micros(chance.below(CHANCE_US)));
        let usual = self.good_by_window(began + WINDOW, self.load.now().saturating_sub(WINDOW));
        let mut outages = Vec::new();
        match case {
            Case::Fault(part, kind) => outages.push(self.disturb(part, kind, chance, usual)?),
            Case::Rolling => {
                let mut parts = self.cluster.order();
                // What others join comes last.
                let schedulers = parts.iter().filter(|part| matches!(part, Part::Scheduler | Part::Standby)).count();
                parts.rotate_left(schedulers);
                for part in parts {
                    outages.push(self.disturb(part, Kind::Term, chance, usual)?);
                }
            }
        }
        self.settle(outages)
    }

    fn disturb(&mut self, part: Part, kind: Kind, chance: &mut Chance, usual: f64) -> Result<Outage> {
        let from = self.load.now();
        let (mut ended_after, mut ignored) = (None, [false; 2]);
        let server = self.cluster.part(part)?;
        match kind {
            Kind::Stop => {
                server.signal("STOP");
                std::thread::sleep(self.settings.stop);
            }
            Kind::Kill => {
                server.signal("KILL");
                server.ends_within(AT_ONCE)?.with_context(|| format!("kill {part}"))?;
                std::thread::sleep(AWAY + Duration::from_micros(chance.below(CHANCE_US)));
            }
            Kind::Term | Kind::TermTwice => {
                server.signal("TERM");
                let limit = if kind == Kind::Term { DRAIN } else { BETWEEN };
                ended_after = server.ends_within(limit)?;
                ignored[0] = kind == Kind::Term && ended_after.is_none();
                if ended_after.is_none() {
                    server.signal("TERM");
                    ignored[1] = server.ends_within(AT_ONCE)?.is_none();
                }
                if ignored[1] {
                    server.signal("KILL");
                    server.ends_within(AT_ONCE)?.with_context(|| format!("kill {part}"))?;
                }
            }
        }
        let back = self.load.now();
        match kind {
            Kind::Stop => server.signal("CONT"),
            Kind::Kill | Kind::Term | Kind::TermTwice => self.cluster.start_part(part)?,
        }
        let joined = self.cluster.wait_until_joined(AFTER_MOST)?;
        let mut recovery = None;
        let least = back + AFTER_LEAST;
        wait(AFTER_MOST, || {
            recovery = recovery.or_else(|| self.recovery(back, usual));
            recovery.is_some() && self.load.now() >= least
        });
        Ok(Outage { part, kind, from, back, ended_after, ignored, joined, recovery })
    }

    /// How long after its return the good rate was what it had been, and stayed so for a moment.
    fn recovery(&self, back: Duration, usual: f64) -> Option<Duration> {
        let judged = self.load.now().checked_sub(JUDGED)?;
        let mut from = back;
        while from + WINDOW * 2 <= judged {
            let is_back = |from: Duration| self.load.good(from, from + WINDOW) as f64 >= usual * BACK;
            if is_back(from) && is_back(from + WINDOW) {
                return Some(from - back);
            }
            from += WINDOW / 5;
        }
        None
    }

    fn good_by_window(&self, from: Duration, until: Duration) -> f64 {
        let length = until.saturating_sub(from).max(WINDOW);
        self.load.good(from, until) as f64 * WINDOW.as_secs_f64() / length.as_secs_f64()
    }

    /// Ends the load and looks at what is left.
    fn settle(&mut self, outages: Vec<Outage>) -> Result<Seen> {
        self.load.pause();
        let mut in_flight = None;
        wait(SETTLE, || {
            in_flight = self.cluster.in_flight();
            self.load.under_way() == 0 && in_flight == Some(0)
        });
        wait(PATIENCE + SETTLE, || self.load.under_way() == 0);
        let counted = self.cluster.models()?.into_iter().max().unwrap_or(0);
        Ok(Seen {
            records: self.load.take(),
            outages,
            in_flight,
            phantoms: self.census.take(),
            counted: [counted, self.census.workers()],
            by_node: self.cluster.workers_by_node(),
            ended: self.cluster.ended()?,
            lag: self.load.take_lag(),
        })
    }
}

/// Waits until something is so; whether it was in time.
fn wait(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}
