//! Two schedulers, one of which is killed again and again: `cargo xtask cluster-faults --failover KILLS`. Kept in
//! `docs/benchmarks/cluster-failover.json`, told in `docs/benchmarks/cluster-failover.md`.

use super::fault::{Case, Part};
use super::load::{Outcome, PATIENCE, Record};
use super::row::{Row, millis};
use super::trial::{Settings, Trial};
use super::{Arguments, STOP, version};
use crate::faults::Chance;
use crate::machine::Machine;
use crate::program::Program;
use crate::server::MachineTime;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// How long no request may be answered after a scheduler died: `rpc::link::timing::TAKEOVER`.
const TAKEOVER_MS: f64 = 300.0;
/// How long load runs before a kill, besides a random part of a second, and for how long after it answers are looked at.
const BEFORE: Duration = Duration::from_millis(1_000);
const CHANCE_US: u64 = 1_000_000;
const AFTER: Duration = Duration::from_millis(1_500);
/// How long a scheduler that is started again has to be on standby before the other one is killed.
const STANDBY: Duration = Duration::from_millis(1_000);
/// How often everything is restarted in turn.
const ROLLING: usize = 3;

/// What was measured.
#[derive(Debug, Serialize, Deserialize)]
struct Results {
    command: String,
    version: String,
    machine: Machine,
    date: String,
    seed: u64,
    rate: u64,
    /// Of the machine's time, by its host.
    stolen_percent: f64,
    /// Processes that were running or ready to, on average over a minute, before the cluster was started.
    load_before: f64,
    /// The most that the load generator itself was late.
    lag_ms: f64,
    requests: usize,
    good: usize,
    /// Right and after the objective.
    tardy: usize,
    /// What else became of requests, by status and reason.
    failed: BTreeMap<String, usize>,
    doubled: usize,
    /// The longest time without a right answer in the second after each kill.
    outage_ms: Vec<f64>,
    /// The same in the second before each kill: what the load itself leaves between answers.
    calm_ms: Vec<f64>,
    rolling: Row,
}

/// Kills the scheduler that leads again and again, restarts everything in turn, and writes what was seen.
pub(super) fn failover(workspace: &Workspace, weft: &Path, kills: u64, arguments: &Arguments) -> Result<()> {
    let folder = workspace.output("cluster-faults")?.join("failover");
    let load_before = load_average()?;
    let began = MachineTime::now();
    let settings = Settings { rate: arguments.rate, stop: STOP };
    let mut chance = Chance(arguments.seed);
    let mut trial = Trial::start(workspace, weft, &folder, settings, Part::all_with_standby())?;
    let mut seen = Kills::default();
    trial.load.take();
    trial.load.resume();
    for kill in 1..=kills {
        // Whoever was killed last is on standby.
        let leads = if kill % 2 == 1 { Part::Scheduler } else { Part::Standby };
        seen.kill(&mut trial, leads, &mut chance)?;
        let outage = seen.outage_ms.last().copied().unwrap_or_default();
        eprintln!("  kill {kill}/{kills} of {leads}: no answer for {outage:.0} ms");
    }
    trial.load.pause();
    let started = std::time::Instant::now();
    while trial.load.under_way() > 0 && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    seen.take(trial.load.take());
    seen.lag_ms = millis(trial.load.take_lag());
    let mut rolling = Row::of(Case::Rolling);
    for time in 1..=ROLLING {
        rolling.add(&trial.run(Case::Rolling, &mut chance)?);
        eprintln!("  rolling restart {time}/{ROLLING}");
    }
    drop(trial);
    let Kills { requests, good, tardy, failed, doubled, outage_ms, calm_ms, lag_ms } = seen;
    let results = Results {
        command: format!(
            "cargo xtask cluster-faults --failover {kills} --rate {} --seed {}",
            arguments.rate, arguments.seed
        ),
        version: version(workspace, weft)?,
        machine: Machine::here(),
        date: Program::new("date").arguments(["-u", "+%Y-%m-%d"]).read()?.trim().to_owned(),
        seed: arguments.seed,
        rate: arguments.rate,
        stolen_percent: MachineTime::now().stolen_since(began) * 100.0,
        load_before,
        lag_ms,
        requests,
        good,
        tardy,
        failed,
        doubled,
        outage_ms,
        calm_ms,
        rolling,
    };
    let document = workspace.root.join("docs/benchmarks/cluster-failover.json");
    let json = arguments.json.clone().unwrap_or(document);
    let text = serde_json::to_string_pretty(&results).context("write the results as JSON")? + "\n";
    std::fs::write(&json, text).with_context(|| format!("write {}", json.display()))?;
    let (path, text) = (json.with_extension("md"), page(&results));
    std::fs::write(&path, &text).with_context(|| format!("write {}", path.display()))?;
    eprintln!("\n{text}\nwrote {} and {}", workspace.relative(&json), workspace.relative(&path));
    let broken = results.broken();
    ensure!(broken.is_empty(), "keep {} promises:\n  {}", broken.len(), broken.join("\n  "));
    Ok(())
}

fn load_average() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").context("read /proc/loadavg")?;
    text.split(' ').next().and_then(|first| first.parse().ok()).context("understand /proc/loadavg")
}

/// What all kills showed.
#[derive(Debug, Default)]
struct Kills {
    requests: usize,
    good: usize,
    tardy: usize,
    failed: BTreeMap<String, usize>,
    doubled: usize,
    outage_ms: Vec<f64>,
    calm_ms: Vec<f64>,
    lag_ms: f64,
}

impl Kills {
    fn kill(&mut self, trial: &mut Trial<'_>, leads: Part, chance: &mut Chance) -> Result<()> {
        std::thread::sleep(BEFORE + Duration::from_micros(chance.below(CHANCE_US)));
        let at = trial.load.now();
        let server = trial.cluster.part(leads)?;
        server.signal("KILL");
        server.ends_within(Duration::from_secs(1))?.with_context(|| format!("kill {leads}"))?;
        std::thread::sleep(AFTER);
        let records = trial.load.take();
        self.calm_ms.push(longest_gap(&records, at.saturating_sub(BEFORE), at));
        self.outage_ms.push(longest_gap(&records, at, at + BEFORE));
        self.take(records);
        trial.cluster.start_part(leads)?;
        std::thread::sleep(STANDBY);
        Ok(())
    }

    fn take(&mut self, records: Vec<Record>) {
        for record in records {
            self.requests += 1;
            self.doubled += usize::from(record.doubled);
            let what = match &record.outcome {
                Outcome::Right if record.is_good() => {
                    self.good += 1;
                    continue;
                }
                Outcome::Right => {
                    self.tardy += 1;
                    continue;
                }
                Outcome::Refused { status, reason, .. } => format!("{status} {reason}"),
                Outcome::Wrong => "a wrong answer".to_owned(),
                Outcome::Hung => "no answer in 30 s".to_owned(),
                Outcome::Lost => "every connection broke".to_owned(),
            };
            *self.failed.entry(what).or_default() += 1;
        }
    }
}

/// The longest time between right answers from one moment until another, in milliseconds.
fn longest_gap(records: &[Record], from: Duration, until: Duration) -> f64 {
    let right = records.iter().filter(|record| record.outcome == Outcome::Right).map(|record| record.ended);
    let mut times: Vec<Duration> = right.filter(|ended| (from..until).contains(ended)).chain([from, until]).collect();
    times.sort_unstable();
    times.windows(2).map(|pair| millis(pair[1] - pair[0])).fold(0.0, f64::max)
}

/// The value that so many of a hundred do not exceed.
fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

impl Results {
    fn broken(&self) -> Vec<String> {
        let worst = percentile(&self.outage_ms, 100);
        let failed: usize = self.failed.values().sum();
        let refused: usize = self.rolling.refused.values().sum();
        let checks = [
            (
                worst > TAKEOVER_MS,
                format!("requests are answered {TAKEOVER_MS} ms after a kill: once {worst:.0} ms passed"),
            ),
            (failed > 0, format!("no request fails: {failed} of {} did", self.requests)),
            (self.doubled > 0, format!("nothing is answered twice: {} were", self.doubled)),
            (refused > 0, format!("a rolling restart refuses nobody: {refused} of {} were", self.rolling.requests)),
        ];
        let own = checks.into_iter().filter(|(broken, _)| *broken).map(|(_, text)| text);
        own.chain(self.rolling.broken_facts().into_iter().map(|text| format!("rolling restart: {text}"))).collect()
    }
}

fn page(results: &Results) -> String {
    let mut page = String::from(
        "# When the scheduler that leads is killed\n\n\
         Two schedulers on one state folder, two gateways and three nodes on one machine, a Python model (`echo`, objective\n\
         300 ms, six workers) and a virtual model (objective 500 ms). Requests come at a steady rate over both gateways.\n\
         Whichever scheduler leads is killed with SIGKILL; the other one takes over, and the first is started again and waits\n\
         for its turn. Then all parts are restarted in turn with SIGTERM, both schedulers among them. Written by\n\
         `cargo xtask cluster-faults --failover KILLS`; the numbers are in [cluster-failover.json](cluster-failover.json).\n\n",
    );
    write_results(results, &mut page).expect("text can always be added to a string");
    page
}

fn write_results(results: &Results, page: &mut String) -> std::fmt::Result {
    writeln!(page, "- command: `{}`", results.command)?;
    writeln!(page, "- version: {}", results.version)?;
    writeln!(page, "- machine: {}; stolen by its host: {:.1}% of the time", results.machine, results.stolen_percent)?;
    writeln!(page, "- date: {}", results.date)?;
    writeln!(
        page,
        "- how calm it was: a load average of {:.1} before, and the load generator was late by {:.0} ms at the worst\n",
        results.load_before, results.lag_ms
    )?;
    writeln!(
        page,
        "An outage is the longest time without a right answer in the second after a kill. The same in the second"
    )?;
    writeln!(page, "before is what the load itself leaves between answers.\n")?;
    writeln!(page, "| | kills | median, ms | p99 | worst |\n|---|---|---|---|---|")?;
    for (name, values) in [("outage", &results.outage_ms), ("before the kill", &results.calm_ms)] {
        let [median, p99, worst] = [50, 99, 100].map(|percent| percentile(values, percent));
        writeln!(page, "| {name} | {} | {median:.0} | {p99:.0} | {worst:.0} |", values.len())?;
    }
    writeln!(
        page,
        "\n| | requests | in time | right, and late | failed | answered twice |\n|---|---|---|---|---|---|"
    )?;
    let failed: usize = results.failed.values().sum();
    writeln!(
        page,
        "| kills | {} | {} | {} | {failed} | {} |",
        results.requests, results.good, results.tardy, results.doubled
    )?;
    let row = &results.rolling;
    let refused: usize = row.refused.values().sum();
    let lost = refused + row.hung + row.dropped + row.wrong;
    writeln!(
        page,
        "| {} rolling restarts | {} | {} | {} | {lost} | {} |",
        row.runs, row.requests, row.good, row.tardy, row.doubled
    )?;
    let reasons: Vec<_> = results.failed.iter().chain(&row.refused).collect();
    if !reasons.is_empty() {
        writeln!(page, "\nFailures, by status and reason (a number in it is `N`):\n\n| count | answer |\n|---|---|")?;
        reasons.iter().try_for_each(|(reason, count)| writeln!(page, "| {count} | {} |", reason.replace('|', "/")))?;
    }
    writeln!(page, "\n## Broken promises\n")?;
    let broken = results.broken();
    if broken.is_empty() {
        writeln!(page, "None.")?;
    }
    broken.iter().try_for_each(|broken| writeln!(page, "- {broken}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(ended_ms: u64) -> Record {
        let (sent, ended) = (Duration::ZERO, Duration::from_millis(ended_ms));
        Record { model: 0, gateway: 0, sent, ended, outcome: Outcome::Right, breaks: Vec::new(), doubled: false }
    }

    #[test]
    fn an_outage_is_the_longest_time_without_a_right_answer() {
        let mut records: Vec<Record> = [900, 1_010, 1_200, 1_990].map(right).to_vec();
        let (from, until) = (Duration::from_secs(1), Duration::from_secs(2));
        assert_eq!(longest_gap(&records, from, until), 790.0);
        records.push(Record { outcome: Outcome::Wrong, ..right(1_500) });
        assert_eq!(longest_gap(&records, from, until), 790.0);
        assert_eq!(longest_gap(&[], from, until), 1_000.0, "nobody was answered at all");
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!([50, 99, 100].map(|percent| percentile(&values, percent)), [50.0, 99.0, 100.0]);
        assert_eq!(percentile(&[7.0], 99), 7.0);
    }

    #[test]
    fn the_page_in_the_repository_is_the_one_that_is_written() {
        let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks");
        let [kept, results] = ["cluster-failover.md", "cluster-failover.json"]
            .map(|name| std::fs::read_to_string(documents.join(name)).ok());
        let written = results.map(|text| page(&serde_json::from_str(&text).unwrap()));
        assert_eq!(kept, written, "both are there, or neither before it was measured");
    }
}
