//! Latency programs with and without those beside them within one run: best-effort programs are suspended and go on in
//! turns, and requests are told apart by when they came. A host that is faster for a second is faster for both.
//!
//! A part at either end of a turn does not count: what was launched before it, and who comes after it. Requests that queue up
//! for longer than a turn are seen in both, so this tells nothing of who is too slow for what comes.

use crate::latencies::Latencies;
use crate::results::Side;
use config::ShareAsked;
use harness::{Answer, now_ns};
use share_client::{Answer as Reply, Change, Client, DaemonPaths, Question};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The part of a turn at either end that does not count.
const EDGE: f64 = 0.1;
/// How long a wait goes on before the end of it all is seen.
const GLANCE: Duration = Duration::from_millis(10);

/// When a run takes place, and its turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    pub(super) at_ns: u64,
    pub(super) until_ns: u64,
    pub(super) each: Duration,
    /// Whether the first is without those beside.
    pub(super) apart_first: bool,
}

/// Somebody who suspends best-effort programs and lets them go on, until the run is over.
#[derive(Debug)]
pub(super) struct Alternation {
    over: Arc<AtomicBool>,
    alternating: JoinHandle<Result<Vec<Turn>, String>>,
}

/// A time in which nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    from_ns: u64,
    to_ns: u64,
    apart: bool,
}

impl Turn {
    /// Nothing where the daemon took longer to answer than it lasts.
    fn length(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// The part that counts.
    fn inner(&self) -> (u64, u64) {
        let edge = (self.length() as f64 * EDGE) as u64;
        (self.from_ns + edge, self.from_ns + self.length() - edge)
    }
}

impl Alternation {
    /// Begins, with the tenants of these processes at the daemon there.
    pub(super) fn start(place: DaemonPaths, turns: Turns, processes: Vec<u32>) -> Alternation {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let alternating = std::thread::spawn(move || alternate(&place, &turns, &processes, &ended));
        Alternation { over, alternating }
    }

    /// Ends, with everybody let go on. The turns that there were.
    pub(super) fn end(self) -> Result<Vec<Turn>, String> {
        self.over.store(true, Ordering::Relaxed);
        self.alternating.join().unwrap_or_else(|_| Err("best-effort programs were not alternated".into()))
    }
}

fn alternate(place: &DaemonPaths, turns: &Turns, processes: &[u32], over: &AtomicBool) -> Result<Vec<Turn>, String> {
    let failed = |error: anyhow::Error| format!("the daemon of Weft did not answer: {error:#}");
    let client = Client::connect(place).map_err(failed)?.ok_or("the daemon of Weft is gone")?;
    let status = client.status().map_err(failed)?;
    let mut names: Vec<String> = status
        .gpus
        .into_iter()
        .flat_map(|gpu| gpu.tenants)
        .filter(|tenant| tenant.processes.iter().any(|process| processes.contains(process)))
        .map(|tenant| tenant.name)
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Err("best-effort programs cannot be suspended: they are no tenants of the daemon of Weft".into());
    }
    let suspend = |suspended| {
        for name in &names {
            let share = ShareAsked { suspended: Some(suspended), ..ShareAsked::default() };
            match client.ask(&Question::Set(Change { name: name.clone(), share })).map_err(failed)? {
                Reply::Set(_) => {}
                Reply::Error(error) => return Err(format!("{name} is not suspended: {error}")),
                _ => return Err("the daemon of Weft answered something else".into()),
            }
        }
        Ok(())
    };
    let taken = take_turns(turns, over, suspend);
    // Whatever happened: they are needed again.
    suspend(false).and(taken)
}

fn take_turns(
    turns: &Turns,
    over: &AtomicBool,
    suspend: impl Fn(bool) -> Result<(), String>,
) -> Result<Vec<Turn>, String> {
    let (mut taken, mut apart, mut next_ns) = (Vec::new(), turns.apart_first, turns.at_ns);
    while next_ns < turns.until_ns && wait_until(next_ns, over) {
        suspend(apart)?;
        let from_ns = now_ns();
        next_ns = (next_ns + turns.each.as_nanos() as u64).min(turns.until_ns);
        taken.push(Turn { from_ns, to_ns: next_ns, apart });
        apart = !apart;
    }
    wait_until(turns.until_ns, over);
    Ok(taken)
}

/// Whether it came to that time before it was over.
fn wait_until(when_ns: u64, over: &AtomicBool) -> bool {
    loop {
        let left = Duration::from_nanos(when_ns.saturating_sub(now_ns()));
        if left.is_zero() || over.load(Ordering::Relaxed) {
            return left.is_zero();
        }
        std::thread::sleep(left.min(GLANCE));
    }
}

/// What latency programs did in turns of one kind, of a run that began at `at_ns`; `None` where there was no time for one,
/// as on a host that does something else meanwhile.
pub(super) fn side(answers: &[Answer], at_ns: u64, turns: &[Turn], apart: bool) -> Result<Option<Side>, String> {
    let inner: Vec<(u64, u64)> = turns.iter().filter(|turn| turn.apart == apart).map(Turn::inner).collect();
    let length: u64 = inner.iter().map(|(from, to)| to - from).sum();
    let mut latencies = Vec::new();
    for answer in answers {
        let came =
            answer.came_us.as_ref().ok_or("it does not say when requests came, as `came_us`; see workload.py")?;
        let counts = |came_us: &u64| {
            let came = at_ns.saturating_add(came_us.saturating_mul(1_000));
            inner.iter().any(|(from, to)| (*from..*to).contains(&came))
        };
        let counted = came.iter().zip(&answer.latencies_us).filter(|(came, _)| counts(came));
        latencies.extend(counted.map(|(_, latency)| *latency));
    }
    let done = latencies.len() as u64;
    let side = || Side { done, rate_rps: done as f64 * 1e9 / length as f64, latencies: Latencies::new(latencies) };
    Ok((length > 0).then(side))
}

/// What best-effort programs did a second, when they did so much in all of a run.
pub(super) fn rate_beside(rate_rps: f64, seconds: f64, turns: &[Turn]) -> f64 {
    let beside: u64 = turns.iter().filter(|turn| !turn.apart).map(Turn::length).sum();
    if beside == 0 { 0.0 } else { rate_rps * seconds / (beside as f64 / 1e9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn turns() -> Vec<Turn> {
        let turn = |from: u64, to: u64, apart| Turn { from_ns: from * MS, to_ns: to * MS, apart };
        vec![turn(1_000, 2_000, false), turn(2_000, 3_000, true), turn(3_000, 4_000, false)]
    }

    #[test]
    fn requests_belong_to_the_turn_in_which_they_came() {
        // One every 100 ms from the beginning on: those beside take 20 ms, those apart 10.
        let came: Vec<u64> = (0..30).map(|step| step * 100_000).collect();
        let took = |came: &u64| if (1_000_000..2_000_000).contains(came) { 10_000 } else { 20_000 };
        let answer = Answer {
            done: 30,
            seconds: 3.0,
            latencies_us: came.iter().map(took).collect(),
            came_us: Some(came),
            per_second: None,
        };
        let of = |apart| side(std::slice::from_ref(&answer), 1_000 * MS, &turns(), apart).unwrap().unwrap();
        let (beside, apart) = (of(false), of(true));
        // Of ten in each turn the first and the last tenth do not count.
        assert_eq!((beside.done, apart.done), (16, 8));
        assert_eq!((beside.rate_rps, apart.rate_rps), (10.0, 10.0));
        assert_eq!(beside.latencies.unwrap().p50_us, 20_000);
        assert_eq!(apart.latencies.unwrap().max_us, 10_000);
        let silent = Answer { came_us: None, ..answer };
        assert!(side(&[silent], 0, &turns(), true).unwrap_err().contains("came_us"));
        let late = Turn { from_ns: 3_000 * MS, to_ns: 2_000 * MS, apart: true };
        assert!(side(&[], 0, &[late], true).unwrap().is_none(), "there was no time for it");
    }

    #[test]
    fn programs_are_suspended_in_every_other_turn_also_when_all_of_them_are_late() {
        let turns = Turns { at_ns: 1, until_ns: 1 + 5 * MS, each: Duration::from_millis(2), apart_first: true };
        let asked = std::cell::RefCell::new(Vec::new());
        let suspend = |suspended| {
            asked.borrow_mut().push(suspended);
            Ok(())
        };
        let taken = take_turns(&turns, &AtomicBool::new(false), suspend).unwrap();
        assert_eq!(asked.take(), [true, false, true]);
        assert!(taken.iter().all(|turn| turn.length() == 0), "{taken:?}");
        let ended =
            take_turns(&Turns { at_ns: u64::MAX - 1, until_ns: u64::MAX, ..turns }, &AtomicBool::new(true), suspend);
        assert_eq!((ended, asked.take()), (Ok(vec![]), vec![]), "it was over before the first");
    }

    #[test]
    fn who_was_suspended_did_it_in_less_time() {
        assert_eq!(rate_beside(2.0, 3.0, &turns()), 3.0);
        assert_eq!(rate_beside(2.0, 3.0, &[]), 0.0);
        let late = Turn { from_ns: 2, to_ns: 1, apart: false };
        assert_eq!((late.inner(), rate_beside(2.0, 3.0, &[late])), ((2, 2), 0.0));
    }
}
