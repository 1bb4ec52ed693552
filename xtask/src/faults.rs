//! What shares do when something dies, on the stand-in GPU: `cargo xtask faults`. Kept in `docs/benchmarks/faults.json`,
//! told in `docs/benchmarks/faults.md`.
//!
//! *Deaths*: sixteen programs share the GPU; one is killed at a random moment, a hundred times. How long the others
//! waited for their work in the moments after is compared with how long they waited in moments as long in which nobody
//! was killed. *Daemons*: the daemon is killed and another started, fifty times, beside a program with a limit. *Quotas*:
//! a share is asked for, with kernels and with graphs, beside a busy neighbour.

mod page;
pub(crate) mod preemptions;
mod stand_in;

use crate::machine::Machine;
use crate::server::MachineTime;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use stand_in::{Running, StandIn};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Kill programs and daemons on a stand-in GPU, and see what the others notice; writes docs/benchmarks/faults.md.
///
/// 100 kills among 16 programs, 50 new daemons, and quotas from 10% to 90%. Takes about four minutes. Needs gcc.
///
/// Example: cargo xtask faults --rounds 10
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// How many programs are killed; half as many daemons are.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    rounds: u64,
    /// Where the page and its JSON go.
    #[arg(long, value_name = "FOLDER", default_value = "docs/benchmarks")]
    into: std::path::PathBuf,
}

/// Programs that share the GPU while some are killed.
const PROGRAMS: usize = 16;
/// What they are in turn, and how many microseconds they sleep after each kernel: a latency tenant that never paused
/// would leave the others next to nothing.
const CLASSES: [(&str, &str); 3] = [("latency", "4000"), ("standard", "2000"), ("best-effort", "0")];
/// Megabytes that each of them holds.
const MEMORY: &str = "20";
/// What counts as the moments after a death.
const AFTER: Duration = Duration::from_millis(50);
/// When shares must hold again after a daemon was replaced.
const HOLD_AGAIN: Duration = Duration::from_millis(100);
/// The limit of the program that daemons come and go beside, in percent.
const KEPT: f64 = 30.0;

/// Everything that was measured.
#[derive(Debug, Serialize, Deserialize)]
struct Results {
    machine: Machine,
    weft: String,
    /// Of the machine's time, by its host.
    #[serde(default)]
    stolen_percent: f64,
    deaths: Deaths,
    daemons: Vec<Replaced>,
    quotas: Vec<Quota>,
}

/// What the others noticed of a hundred deaths.
#[derive(Debug, Serialize, Deserialize)]
struct Deaths {
    kills: usize,
    programs: usize,
    /// The longest wait of each other program that fell into the moments after a death, sorted, in milliseconds.
    after_ms: Vec<f64>,
    /// The same in moments as long without a death.
    between_ms: Vec<f64>,
    /// Tenants in the end that should not be there.
    left_tenants: usize,
    /// Bytes in use in the end, less those of the programs that live.
    left_bytes: i64,
    /// Files that the daemon had open before the first death and after the last.
    files: [usize; 2],
}

/// One new daemon.
#[derive(Debug, Serialize, Deserialize)]
struct Replaced {
    /// From the start of the new one until it knew both programs, in milliseconds.
    back_ms: f64,
    /// What the limited program was given in the half second from 100 ms after the start, in percent.
    given: f64,
    /// Both programs run.
    alive: bool,
}

/// One share that was asked for.
#[derive(Debug, Serialize, Deserialize)]
struct Quota {
    graphs: bool,
    asked: f64,
    given: f64,
    /// What it was charged, in percent of what it was given.
    charged: f64,
}

pub(crate) fn faults(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let results = measure(workspace, arguments.rounds as usize)?;
    let folder = workspace.root.join(&arguments.into);
    let (json, page) = (folder.join("faults.json"), folder.join("faults.md"));
    let text = serde_json::to_string_pretty(&results).context("write the results as JSON")? + "\n";
    std::fs::write(&json, text).with_context(|| format!("write {}", json.display()))?;
    let text = page::page(&results);
    std::fs::write(&page, &text).with_context(|| format!("write {}", page.display()))?;
    eprintln!("\n{text}\nwrote {} and {}", workspace.relative(&json), workspace.relative(&page));
    judge_deaths(&results)?;
    judge_waits(&results)?;
    judge_shares(&results)
}

/// The same, shorter, and nothing is written. Who is left after a death is judged; waits and shares, which a machine that
/// does something else meanwhile changes, are only printed.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let results = measure(workspace, 12)?;
    eprintln!("\n{}", page::page(&results));
    judge_deaths(&results)
}

/// Measures all of it.
fn measure(workspace: &Workspace, rounds: usize) -> Result<Results> {
    let mut stand_in = StandIn::start(workspace)?;
    let began = MachineTime::now();
    let deaths = deaths(&stand_in, rounds)?;
    let daemons = daemons(&mut stand_in, rounds / 2)?;
    let quotas = quotas(&stand_in)?;
    let weft = workspace.weft(["--version"]).read()?.trim().to_owned();
    let stolen_percent = MachineTime::now().stolen_since(began) * 100.0;
    Ok(Results { machine: Machine::here(), weft, stolen_percent, deaths, daemons, quotas })
}

/// Whether nobody waits longer when somebody dies. A machine that does something else for a moment shows in single samples,
/// so it is not the worst of many that counts.
fn judge_waits(results: &Results) -> Result<()> {
    let Deaths { after_ms, between_ms, .. } = &results.deaths;
    let longer = page::at(after_ms, 0.99) - page::at(between_ms, 0.99);
    ensure!(longer <= 10.0, "keep others from waiting 10 ms longer when a program dies: it was {longer:.1} at p99");
    Ok(())
}

/// Whether deaths harmed nobody and left nothing.
fn judge_deaths(results: &Results) -> Result<()> {
    let Deaths { kills, left_tenants, left_bytes, files, .. } = &results.deaths;
    ensure!(*left_tenants == 0 && *left_bytes == 0, "forget the dead: {left_tenants} tenants, {left_bytes} bytes left");
    // The daemon may be asked something at that moment, and keeps a file of who hung up and had not ended yet.
    let leaks = files[1].saturating_sub(files[0]) > kills / 2;
    ensure!(!leaks, "close the files of the dead: {} were open before and {} after", files[0], files[1]);
    let failed = results.daemons.iter().filter(|one| !one.alive).count();
    ensure!(failed == 0, "keep programs alive when their daemon dies: {failed} times one did not");
    Ok(())
}

/// Whether a share is more than three points from what it should be.
fn is_off(given: f64, asked: f64) -> bool {
    (given - asked).abs() > 3.0
}

/// Whether everybody had its share, on a machine that does nothing else; with graphs too, which are harder to measure.
fn judge_shares(results: &Results) -> Result<()> {
    let wrong = results.daemons.iter().filter(|one| is_off(one.given, KEPT)).count();
    ensure!(wrong <= results.daemons.len().div_ceil(10), "hold shares again after 100 ms: {wrong} times it did not");
    let wrong: Vec<&Quota> = results.quotas.iter().filter(|quota| is_off(quota.given, quota.asked)).collect();
    ensure!(wrong.len() <= 2, "give what was asked within 3 points: {wrong:?}");
    Ok(())
}

fn deaths(stand_in: &StandIn<'_>, kills: usize) -> Result<Deaths> {
    eprintln!("  killing {kills} of {PROGRAMS} programs, one after the other");
    let start = |place: usize, life: usize| {
        let (class, pause) = CLASSES[place % CLASSES.len()];
        let words = ["--memory", MEMORY, "--every", "1", "--us", "100", "--pause", pause];
        stand_in.run(&format!("tenant-{place}-{life}"), &["--class", class], &words)
    };
    let mut programs = (0..PROGRAMS).map(|place| start(place, 0)).collect::<Result<Vec<Running>>>()?;
    let all_there =
        |stand_in: &StandIn<'_>| stand_in.tenants().filter(|all| all.len() == PROGRAMS && all.iter().all(works));
    stand_in.wait("all programs", all_there)?;
    let files = stand_in.daemon_files()?;
    let before = used(&stand_in.tenants().unwrap_or_default());
    let (mut after_ms, mut between_ms) = (Vec::new(), Vec::new());
    let mut chance = Chance(1);
    for round in 0..kills {
        std::thread::sleep(AFTER + Duration::from_micros(chance.below(50_000)));
        let quiet = SystemTime::now();
        std::thread::sleep(AFTER + Duration::from_micros(chance.below(20_000)));
        let victim = chance.below(PROGRAMS as u64) as usize;
        let died = SystemTime::now();
        programs[victim].kill()?;
        std::thread::sleep(AFTER * 2);
        for (place, program) in programs.iter().enumerate() {
            if place != victim {
                let log = waits(&program.log)?;
                between_ms.extend(longest(&log, quiet));
                after_ms.extend(longest(&log, died));
            }
        }
        programs[victim] = start(victim, round + 1)?;
        stand_in.wait("a new program", all_there)?;
    }
    let tenants = stand_in.tenants().context("ask the daemon")?;
    let left_bytes = used(&tenants) - before;
    let left_tenants = tenants.len() - PROGRAMS;
    let files = [files, stand_in.daemon_files()?];
    drop(programs);
    stand_in.wait("all programs to be gone", |stand_in| stand_in.tenants().filter(Vec::is_empty))?;
    after_ms.sort_by(f64::total_cmp);
    between_ms.sort_by(f64::total_cmp);
    Ok(Deaths { kills, programs: PROGRAMS, after_ms, between_ms, left_tenants, left_bytes, files })
}

/// Whether a tenant has begun to work.
fn works(tenant: &serde_json::Value) -> bool {
    tenant["launches"].as_u64().is_some_and(|launches| launches > 0)
}

/// Bytes that tenants hold.
fn used(tenants: &[serde_json::Value]) -> i64 {
    tenants.iter().filter_map(|tenant| tenant["memory_bytes"].as_i64()).sum()
}

/// When every wait of a program ended, and how long it was, in nanoseconds.
fn waits(log: &Path) -> Result<Vec<(u64, u64)>> {
    let bytes = std::fs::read(log).with_context(|| format!("read {}", log.display()))?;
    let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    let words: Vec<u64> = words.collect();
    let pairs = words.chunks_exact(2).map(|pair| (pair[0], pair[1]));
    Ok(pairs.take_while(|(ended, _)| *ended != 0).collect())
}

/// The longest wait that was under way in the moments from a time on, in milliseconds.
fn longest(waits: &[(u64, u64)], from: SystemTime) -> Option<f64> {
    let from = from.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let until = from + AFTER.as_nanos() as u64;
    let overlaps = waits.iter().filter(|(ended, wait)| *ended > from && ended.saturating_sub(*wait) < until);
    overlaps.map(|(_, wait)| *wait).max().map(|wait| wait as f64 / 1e6)
}

fn daemons(stand_in: &mut StandIn<'_>, count: usize) -> Result<Vec<Replaced>> {
    eprintln!("  replacing {count} daemons");
    let mut kept = stand_in.run("kept", &["--limit", &format!("{KEPT}%")], &["--us", "100"])?;
    let mut other = stand_in.run("other", &[], &["--us", "100"])?;
    let both = |stand_in: &StandIn<'_>| stand_in.tenants().filter(|all| all.len() == 2 && all.iter().all(works));
    stand_in.wait("both programs", both)?;
    let pids = [kept.pid(), other.pid()];
    let mut replaced = Vec::new();
    for _ in 0..count {
        std::thread::sleep(Duration::from_millis(300));
        stand_in.replace_daemon()?;
        let start = Instant::now();
        stand_in.wait("both programs to come back", both)?;
        let back = start.elapsed();
        std::thread::sleep(HOLD_AGAIN.saturating_sub(start.elapsed()));
        let given = share(stand_in, pids, Duration::from_millis(500))?;
        replaced.push(Replaced { back_ms: back.as_secs_f64() * 1e3, given, alive: kept.runs() && other.runs() });
    }
    drop((kept, other));
    stand_in.wait("all programs to be gone", |stand_in| stand_in.tenants().filter(Vec::is_empty))?;
    Ok(replaced)
}

fn quotas(stand_in: &StandIn<'_>) -> Result<Vec<Quota>> {
    let mut quotas = Vec::new();
    for graphs in [false, true] {
        eprintln!("  asking for shares, with {}", if graphs { "graphs" } else { "kernels" });
        let words = ["--us", "200", "--graphs", if graphs { "1" } else { "0" }];
        let limited = stand_in.run("limited", &["--limit", "10%"], &words)?;
        let other = stand_in.run("other", &[], &words)?;
        let both = |stand_in: &StandIn<'_>| stand_in.tenants().filter(|all| all.len() == 2 && all.iter().all(works));
        stand_in.wait("both programs", both)?;
        for tenths in 1..10 {
            let asked = format!("{}%", tenths * 10);
            stand_in.set("limited", &["--request", "0%", "--limit", &asked])?;
            stand_in.set("limited", &["--request", &asked])?;
            std::thread::sleep(Duration::from_millis(300));
            let (charged, pids) = (|| charged(stand_in, "limited"), [limited.pid(), other.pid()]);
            let before = (charged()?, stand_in.given(pids)?[0]);
            let given = share(stand_in, pids, Duration::from_secs(2))?;
            let after = (charged()?, stand_in.given(pids)?[0]);
            let charged = (after.0 - before.0) as f64 * 100.0 / (after.1 - before.1).max(1) as f64;
            quotas.push(Quota { graphs, asked: f64::from(tenths) * 10.0, given, charged });
        }
        drop((limited, other));
        stand_in.wait("all programs to be gone", |stand_in| stand_in.tenants().filter(Vec::is_empty))?;
    }
    Ok(quotas)
}

/// GPU time that a tenant was charged so far, in nanoseconds.
fn charged(stand_in: &StandIn<'_>, name: &str) -> Result<u64> {
    let tenants = stand_in.tenants().context("ask the daemon")?;
    let tenant = tenants.iter().find(|tenant| tenant["name"] == name);
    tenant.and_then(|tenant| tenant["charged_ns"].as_u64()).with_context(|| format!("find what {name} was charged"))
}

/// What part of the GPU's time the first of two programs was given meanwhile, in percent.
fn share(stand_in: &StandIn<'_>, pids: [u32; 2], meanwhile: Duration) -> Result<f64> {
    let before = (stand_in.given(pids)?, Instant::now());
    std::thread::sleep(meanwhile);
    let (after, passed) = (stand_in.given(pids)?, before.1.elapsed());
    let [its, others] = [0, 1].map(|place| after[place] - before.0[place]);
    ensure!(its + others > 0, "see the GPU used: it stood still for {meanwhile:?}");
    Ok(its as f64 * 100.0 / passed.as_nanos() as f64)
}

/// Random numbers that are the same in every run.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // Knuth's multiplier; the high bits are the random ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_in_the_moments_it_reaches_into() {
        let at = |millis: u64| UNIX_EPOCH + Duration::from_millis(millis);
        let wait = |ended: u64, took: u64| (ended * 1_000_000, took * 1_000_000);
        let waits = [wait(100, 2), wait(150, 9), wait(300, 150), wait(500, 1)];
        assert_eq!(longest(&waits, at(99)), Some(9.0));
        assert_eq!(longest(&waits, at(145)), Some(150.0), "it began in these moments");
        assert_eq!(longest(&waits, at(310)), None);
    }
}
