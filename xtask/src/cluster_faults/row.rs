//! What all runs of a case showed together, and which promises that breaks.

use super::fault::{Case, Kind, Part};
use super::load::{Break, MODELS, Outcome, Record};
use super::trial::{Outage, Seen};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// An answer may come so long after its deadline.
pub(super) const MARGIN: Duration = Duration::from_millis(250);
/// The good rate must be back so long after the part.
pub(super) const RECOVERY: Duration = Duration::from_secs(2);
/// A worker whose process ended may be counted for so long: somebody has to notice.
pub(super) const NOTICE: Duration = Duration::from_secs(1);
/// A gateway that closes a connection sooner after a request was written may not have read it: it closed an idle connection
/// while the request was on its way.
const ACCEPTED: Duration = Duration::from_millis(100);
/// A gateway that is back is not reached for so long.
const LISTENS: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) part: String,
    pub(super) fault: String,
    pub(super) runs: usize,
    pub(super) requests: usize,
    /// Right and within the objective.
    pub(super) good: usize,
    /// Right and after the objective.
    pub(super) tardy: usize,
    /// Other answers by status and reason.
    pub(super) refused: BTreeMap<String, usize>,
    /// Answers of any kind later than deadline and margin, and the worst, in milliseconds after the deadline.
    pub(super) late: usize,
    pub(super) late_worst_ms: f64,
    /// No answer for as long as the client waited.
    pub(super) hung: usize,
    /// Connections that were closed under a request that their gateway had accepted and should have answered.
    pub(super) dropped: usize,
    /// Requests sent again because their gateway was gone.
    pub(super) retried: usize,
    pub(super) wrong: usize,
    pub(super) doubled: usize,
    /// 404 for a model that is deployed.
    pub(super) unknown: usize,
    /// 503 that does not say when to try again.
    pub(super) without_retry_after: usize,
    /// Of runs whose good rate came back.
    pub(super) recovery_ms: Vec<f64>,
    pub(super) unrecovered: usize,
    pub(super) unjoined: usize,
    /// The worst of all runs; `None` when a gateway did not say.
    pub(super) in_flight: Option<u64>,
    /// Workers counted without a process, for how long at the worst, and how many then.
    pub(super) phantom_ms: f64,
    pub(super) phantoms: usize,
    /// Runs after which `weft models` counted workers that were not there.
    pub(super) miscounted: usize,
    /// Runs after which one node had all workers.
    pub(super) crowded: usize,
    /// From SIGTERM to the end.
    pub(super) end_ms: Vec<f64>,
    /// Processes that ran on after the first SIGTERM, and after the second.
    pub(super) ignored: [usize; 2],
    /// Processes that ended though nobody asked them to.
    pub(super) ended: Vec<String>,
    /// The most that the load itself was late.
    pub(super) lag_ms: f64,
}

impl Row {
    pub(super) fn of(case: Case) -> Row {
        Row { part: case.part(), fault: case.fault().to_owned(), in_flight: Some(0), ..Row::default() }
    }

    /// Adds a run.
    pub(super) fn add(&mut self, seen: &Seen) {
        self.runs += 1;
        self.requests += seen.records.len();
        seen.records.iter().for_each(|record| self.add_request(record, &seen.outages));
        seen.outages.iter().for_each(|outage| self.add_outage(outage));
        self.in_flight = self.in_flight.zip(seen.in_flight).map(|(worst, now)| worst.max(now));
        if seen.phantoms.longest > NOTICE {
            self.phantom_ms = self.phantom_ms.max(millis(seen.phantoms.longest));
            self.phantoms = self.phantoms.max(seen.phantoms.most);
        }
        self.miscounted += usize::from(seen.counted[0] > seen.counted[1]);
        let of_scheduler = seen.outages.iter().any(|outage| matches!(outage.part, Part::Scheduler | Part::Standby));
        let crowded = seen.by_node.iter().filter(|workers| **workers > 0).count() == 1;
        self.crowded += usize::from(of_scheduler && crowded);
        self.ended.extend(seen.ended.iter().cloned());
        self.lag_ms = self.lag_ms.max(millis(seen.lag));
    }

    fn add_request(&mut self, record: &Record, outages: &[Outage]) {
        self.doubled += usize::from(record.doubled);
        self.retried += usize::from(!record.breaks.is_empty());
        self.dropped += record.breaks.iter().filter(|broken| !is_excused(broken, outages)).count();
        match &record.outcome {
            Outcome::Right if record.is_good() => self.good += 1,
            Outcome::Right => self.tardy += 1,
            Outcome::Refused { status, reason, retry_after } => {
                *self.refused.entry(format!("{status} {reason}")).or_default() += 1;
                self.unknown += usize::from(*status == 404);
                self.without_retry_after += usize::from(*status == 503 && !retry_after);
            }
            Outcome::Wrong => self.wrong += 1,
            Outcome::Hung => self.hung += 1,
            Outcome::Lost => self.dropped += 1,
        }
        if !matches!(record.outcome, Outcome::Hung | Outcome::Lost) {
            let after = running_time(record, outages).saturating_sub(MODELS[record.model].objective);
            if after > MARGIN {
                self.late += 1;
                self.late_worst_ms = self.late_worst_ms.max(millis(after));
            }
        }
    }

    fn add_outage(&mut self, outage: &Outage) {
        match outage.recovery {
            Some(recovery) => self.recovery_ms.push(millis(recovery)),
            None => self.unrecovered += 1,
        }
        self.unjoined += usize::from(!outage.joined);
        self.end_ms.extend(outage.ended_after.map(millis));
        for (count, ignored) in self.ignored.iter_mut().zip(outage.ignored) {
            *count += usize::from(ignored);
        }
    }

    /// Promises that these runs broke, each in a sentence.
    pub(super) fn broken(&self) -> Vec<String> {
        self.broken_facts().into_iter().chain(self.broken_times()).collect()
    }

    /// Those that hold on a busy machine too.
    pub(super) fn broken_facts(&self) -> Vec<String> {
        let count = |number: usize| format!("{number} of {}", self.requests);
        let in_flight = self.in_flight.map_or_else(|| "a number that nobody told".to_owned(), |left| left.to_string());
        let checks = [
            (self.hung > 0, format!("every request is answered: {} were not within 30 s", count(self.hung))),
            (self.dropped > 0, format!("accepted requests are answered: {} were dropped", count(self.dropped))),
            (self.wrong > 0, format!("an answer is that to its request: {} were not", count(self.wrong))),
            (self.doubled > 0, format!("nothing is answered twice: {} were", count(self.doubled))),
            (self.unknown > 0, format!("a deployed model is known: {} got 404", count(self.unknown))),
            (
                self.without_retry_after > 0,
                format!("503 says when to try again: {} did not", count(self.without_retry_after)),
            ),
            (self.unrecovered > 0, format!("the good rate comes back: {} times it did not in 15 s", self.unrecovered)),
            (self.unjoined > 0, format!("a part joins again: {} times it did not in 15 s", self.unjoined)),
            (self.in_flight != Some(0), format!("the in-flight gauges return to 0: they stayed at {in_flight}")),
            (
                self.phantoms > 0,
                format!(
                    "no worker is counted without a process: {} were for {:.1} s",
                    self.phantoms,
                    self.phantom_ms / 1e3
                ),
            ),
            (
                self.miscounted > 0,
                format!(
                    "`weft models` counts what is there: after {} of {} runs it did not",
                    self.miscounted, self.runs
                ),
            ),
            (
                self.crowded > 0,
                format!("workers are spread over the nodes again: after {} runs one node had all", self.crowded),
            ),
            (self.ignored[0] > 0, format!("SIGTERM ends a process in 15 s: {} times it did not", self.ignored[0])),
            (self.ignored[1] > 0, format!("a second SIGTERM ends it at once: {} times it did not", self.ignored[1])),
            (!self.ended.is_empty(), format!("nothing ends by itself: {} did", self.ended.join(", "))),
        ];
        broken(checks)
    }

    /// Those that a machine may break which does something else for a moment.
    pub(super) fn broken_times(&self) -> Vec<String> {
        let slowest = self.recovery_ms.iter().copied().fold(0.0, f64::max);
        let count = |number: usize| format!("{number} of {}", self.requests);
        broken([
            (
                self.late > 0,
                format!(
                    "no answer comes later than deadline + {} ms: {} did, the worst {:.0} ms after its deadline",
                    MARGIN.as_millis(),
                    count(self.late),
                    self.late_worst_ms
                ),
            ),
            (
                slowest > millis(RECOVERY),
                format!(
                    "the good rate is back {} s after the part: the worst took {slowest:.0} ms",
                    RECOVERY.as_secs()
                ),
            ),
        ])
    }
}

fn broken(checks: impl IntoIterator<Item = (bool, String)>) -> Vec<String> {
    checks.into_iter().filter(|(broken, _)| *broken).map(|(_, text)| text).collect()
}

/// Whether nobody else could have kept a connection from breaking: its gateway was gone.
fn is_excused(broken: &Break, outages: &[Outage]) -> bool {
    outages.iter().any(|outage| {
        let its_gateway = outage.part == Part::Gateway(broken.gateway) && outage.kind != Kind::Stop;
        let meanwhile = (outage.from..outage.back + LISTENS).contains(&broken.at);
        let unread = !broken.connected || broken.at.saturating_sub(broken.sent) < ACCEPTED;
        its_gateway && meanwhile && (outage.kind.is_sudden() || unread)
    })
}

/// How long a request took, without the time in which its own gateway was stopped.
fn running_time(record: &Record, outages: &[Outage]) -> Duration {
    let is_own = |outage: &&Outage| outage.part == Part::Gateway(record.gateway) && outage.kind == Kind::Stop;
    let overlap = |outage: &Outage| record.ended.min(outage.back).saturating_sub(record.sent.max(outage.from));
    record.took().saturating_sub(outages.iter().filter(is_own).map(overlap).sum())
}

pub(super) fn millis(length: Duration) -> f64 {
    length.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::super::census::Phantoms;
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn outage(part: Part, kind: Kind) -> Outage {
        let (from, back) = (ms(1_000), ms(11_000));
        let recovery = Some(ms(100));
        Outage { part, kind, from, back, ended_after: None, ignored: [false; 2], joined: true, recovery }
    }

    fn record(sent: u64, ended: u64, outcome: Outcome) -> Record {
        Record { model: 0, gateway: 0, sent: ms(sent), ended: ms(ended), outcome, breaks: Vec::new(), doubled: false }
    }

    fn row(records: Vec<Record>, outage: Outage) -> Row {
        let case = Case::Fault(outage.part, outage.kind);
        let mut row = Row::of(case);
        row.add(&Seen {
            records,
            outages: vec![outage],
            in_flight: Some(0),
            phantoms: Phantoms::default(),
            counted: [6, 6],
            by_node: vec![2, 2, 2],
            ended: Vec::new(),
            lag: ms(1),
        });
        row
    }

    #[test]
    fn a_calm_run_breaks_no_promise() {
        let row = row(vec![record(0, 20, Outcome::Right)], outage(Part::Node(0), Kind::Kill));
        assert_eq!((row.good, row.broken()), (1, Vec::new()));
    }

    #[test]
    fn late_is_late_unless_its_own_gateway_was_stopped() {
        let late = || vec![record(900, 11_100, Outcome::Right)];
        assert_eq!(row(late(), outage(Part::Node(0), Kind::Stop)).late, 1);
        assert_eq!(row(late(), outage(Part::Gateway(1), Kind::Stop)).late, 1);
        assert_eq!(row(late(), outage(Part::Gateway(0), Kind::Stop)).late, 0);
        // It counts from when the gateway went on.
        let still = vec![record(900, 11_600, Outcome::Right)];
        assert_eq!(row(still, outage(Part::Gateway(0), Kind::Stop)).late, 1);
    }

    #[test]
    fn only_a_gateway_that_was_killed_may_drop_what_it_accepted() {
        let dropped = |kind: Kind, part: Part, after: u64| {
            let mut record = record(1_500, 1_520, Outcome::Right);
            record.breaks = vec![Break { gateway: 0, sent: ms(1_400), at: ms(1_400 + after), connected: true }];
            row(vec![record], outage(part, kind)).dropped
        };
        assert_eq!(dropped(Kind::Kill, Part::Gateway(0), 200), 0);
        assert_eq!(dropped(Kind::Kill, Part::Gateway(1), 200), 1);
        assert_eq!(dropped(Kind::Term, Part::Gateway(0), 200), 1);
        assert_eq!(dropped(Kind::Term, Part::Gateway(0), 5), 0, "it closed an idle connection");
        assert_eq!(dropped(Kind::Stop, Part::Gateway(0), 5), 1);
    }

    #[test]
    fn every_promise_is_named_when_it_is_broken() {
        let refused = |status, retry_after| Outcome::Refused { status, reason: "no".to_owned(), retry_after };
        let records = vec![
            record(0, 30_000, Outcome::Hung),
            record(0, 5, Outcome::Wrong),
            record(0, 5, Outcome::Lost),
            record(0, 900, refused(404, false)),
            record(0, 5, refused(503, false)),
            Record { doubled: true, ..record(0, 5, Outcome::Right) },
        ];
        let mut outage = outage(Part::Scheduler, Kind::Term);
        (outage.ignored, outage.joined, outage.recovery) = ([true; 2], false, None);
        let mut row = row(records, outage);
        row.in_flight = None;
        (row.phantoms, row.miscounted, row.crowded) = (1, 1, 1);
        row.ended.push("node-1".to_owned());
        row.recovery_ms.push(2_500.0);
        assert_eq!((row.broken_facts().len(), row.broken_times().len()), (15, 2), "{:#?}", row.broken());
    }
}
