//! Measuring: programs are started once and stay, unless they are to be others in every round; rounds go through the
//! settings of a pair; every run has an end.
//!
//! Only the programs for which Weft chooses how they share are there for one pair and no longer: it chooses by who else
//! is there.

use crate::alternation::{self, Alternation, Turns};
use crate::daemons::Daemons;
use crate::figures::BEST_EFFORT_ALONE;
use crate::glances::Glances;
use crate::latencies::Latencies;
use crate::pairs::{Group, Pair};
use crate::plan::Plan;
use crate::results::{Given, Load, Options, Refusal, Results, Run, Side, Solos};
use crate::settings::{ALONE, Setting, World, order};
use anyhow::{Result, bail};
use harness::{Answer, Interrupt, Order, Program, now_ns};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use policy::sharing::Class;
use sim::sharing::Solo;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// A program is one for all settings that have these in common, and for all pairs unless Weft chooses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    world: World,
    best_effort: bool,
    command: String,
    /// Where Weft is told.
    slo: Option<String>,
    request: Option<String>,
    copy: usize,
}

fn keys(world: World, class: Class, group: &Group) -> Vec<Key> {
    let best_effort = class == Class::BestEffort;
    let told = |option: &Option<String>| option.clone().filter(|_| world.needs_weft());
    let (slo, request) = (told(&group.slo), told(&group.request));
    let first = Key { world, best_effort, command: group.command.clone(), slo, request, copy: 0 };
    let key = |copy| Key { copy, ..first.clone() };
    (0..group.copies).map(key).collect()
}

/// The programs of a pair in a setting.
fn of_both(pair: &Pair, setting: &Setting) -> Vec<Key> {
    let best_effort = setting.best_effort.map(|world| keys(world, Class::BestEffort, &pair.best_effort));
    [keys(setting.latency, Class::Latency, &pair.latency), best_effort.unwrap_or_default()].concat()
}

/// The one program of a side that has one.
fn single(mut keys: Vec<Key>) -> Option<Key> {
    keys.pop().filter(|_| keys.is_empty())
}

/// What programs are to do in a run.
#[derive(Clone, Copy, Debug)]
struct Task<'a> {
    keys: &'a [Key],
    round: usize,
    seconds: f64,
    /// Requests a second of each latency program; 0 where one follows the other.
    rate: f64,
    /// Whether to see what Weft does about it.
    watched: bool,
    /// How long best-effort programs are suspended and go on in turns, if they are.
    alternate: Option<Duration>,
}

/// How long a run takes in which nothing was done before, in turn.
const LONGER: [f64; 3] = [1.0, 3.0, 9.0];

/// What they did.
#[derive(Debug)]
struct Done {
    latency: Option<Side>,
    /// Latency programs while best-effort programs were suspended.
    apart: Option<Side>,
    best_effort: Option<Side>,
    given: Option<Given>,
}

impl Done {
    /// Of a run without time for turns of both kinds.
    fn without_turns() -> Done {
        let latency = Some(Side { done: 0, rate_rps: 0.0, latencies: None });
        Done { latency, apart: None, best_effort: None, given: None }
    }

    /// Whether not one request was done by those who answer them, in turns of either kind where there are any;
    /// best-effort programs may be kept from it by others.
    fn is_nothing(&self) -> bool {
        let sides = [self.latency.as_ref().or(self.best_effort.as_ref()), self.apart.as_ref()];
        sides.into_iter().flatten().any(|side| side.done == 0)
    }

    /// What was seen of latency programs while best-effort programs were suspended, as of a run of its own.
    fn take_apart(&mut self) -> Option<Done> {
        let apart = self.apart.take()?;
        Some(Done { latency: Some(apart), apart: None, best_effort: None, given: None })
    }
}

/// A program, or why there is none.
#[derive(Debug)]
enum Slot {
    Running(Program),
    Lost {
        reason: String,
        /// It ran before, so that it may run again.
        ran: bool,
    },
}

/// Everything that runs. Programs end before the daemons that they use.
#[derive(Debug)]
struct Stage<'a> {
    slots: BTreeMap<Key, Slot>,
    daemons: Daemons,
    plan: &'a Plan,
    interrupt: &'a Interrupt,
    bar: ProgressBar,
    /// What was said already.
    told: BTreeSet<String>,
}

/// Measures. What was measured before something went wrong is in the results all the same, and is kept after every
/// setting: whoever is killed loses no more than that.
pub fn measure(plan: &Plan, interrupt: &Interrupt, results: &mut Results, keep: &dyn Fn(&Results)) -> Result<()> {
    let bar = bar(plan.runs());
    let mut stage =
        Stage { slots: BTreeMap::new(), daemons: Daemons::new()?, plan, interrupt, bar, told: BTreeSet::new() };
    let needed = needed(plan);
    stage.tell(&format!(
        "{} programs are started, then {} runs take about {:.0} min",
        needed.len() + plan.pairs.iter().map(|pair| chosen_for(plan, pair).len()).sum::<usize>(),
        plan.runs(),
        plan.length().as_secs_f64() / 60.0 + 0.5
    ));
    stage.start(needed)?;
    for pair in &plan.pairs {
        let (best_effort, latency): (Vec<Key>, Vec<Key>) =
            chosen_for(plan, pair).into_iter().partition(|key| key.best_effort);
        if !latency.is_empty() {
            stage.acquaint(pair)?;
        }
        // How best-effort programs share is chosen by the latency programs that are there.
        stage.start(latency.clone())?;
        stage.start(best_effort.clone())?;
        for round in 0..plan.options.rounds {
            stage.revive()?;
            if plan.options.restart_each_round && round > 0 {
                stage.renew(pair)?;
            }
            stage.round(pair, round, results, keep)?;
        }
        stage.end(&best_effort);
        stage.end(&latency);
    }
    Ok(())
}

/// Every program that some setting needs from the beginning to the end, once; those that everything is compared with
/// first.
fn needed(plan: &Plan) -> Vec<Key> {
    let mut needed: Vec<Key> = Vec::new();
    for pair in &plan.pairs {
        needed.extend(keys(World::Native, Class::BestEffort, &pair.best_effort));
        needed.extend(plan.settings.iter().flat_map(|setting| of_both(pair, setting)));
    }
    needed.retain(|key| key.world != World::Weft);
    needed.sort();
    needed.dedup();
    needed
}

/// The programs of a pair for which Weft chooses how they share.
fn chosen_for(plan: &Plan, pair: &Pair) -> Vec<Key> {
    let mut chosen: Vec<Key> = plan.settings.iter().flat_map(|setting| of_both(pair, setting)).collect();
    chosen.retain(|key| key.world == World::Weft);
    chosen.sort();
    chosen.dedup();
    chosen
}

impl Stage<'_> {
    /// Starts programs, a few at a time. `Err` where nothing could be compared without one.
    fn start(&mut self, keys: Vec<Key>) -> Result<()> {
        let mut waiting: VecDeque<Key> = VecDeque::new();
        for key in keys {
            if waiting.len() == self.plan.at_once {
                let first = waiting.pop_front().expect("it is not empty");
                self.wait_ready(&first)?;
            }
            let slot = match self.launch(&key) {
                Ok(program) => Slot::Running(program),
                Err(reason) => self.lose(&key, reason)?,
            };
            self.slots.insert(key.clone(), slot);
            waiting.push_back(key);
        }
        waiting.iter().try_for_each(|key| self.wait_ready(key))
    }

    /// Lets the daemon see latency programs alone before it chooses how they share, as it would in their second run.
    fn acquaint(&mut self, pair: &Pair) -> Result<()> {
        let keys = keys(World::WeftFirst, Class::Latency, &pair.latency);
        self.start(keys.clone())?;
        let seen = self.daemons.set_sharing(World::WeftFirst, "weft").and_then(|()| self.closed(&keys, 0));
        if let Err(reason) = seen {
            self.tell(&reason);
        }
        self.end(&keys);
        if self.interrupt.is_set() {
            bail!("measure: interrupted");
        }
        Ok(())
    }

    /// Ends programs.
    fn end(&mut self, keys: &[Key]) {
        let mut ending: Vec<Program> = Vec::new();
        for key in keys {
            if let Some(Slot::Running(mut program)) = self.slots.remove(key) {
                program.close();
                ending.push(program);
            }
        }
        let until = Instant::now() + Duration::from_secs(10);
        ending.iter_mut().for_each(|program| program.wait_end(until));
    }

    fn launch(&mut self, key: &Key) -> Result<Program, String> {
        let class = if key.best_effort { Class::BestEffort } else { Class::Latency };
        let (command, slo, request) = (key.command.clone(), key.slo.clone(), key.request.clone());
        let group = Group { copies: 1, command, slo, request };
        let command = self.daemons.command(key.world, class, &group, &self.plan.workloads)?;
        Program::start(format!("`{}` ({})", key.command, key.world), command)
    }

    fn wait_ready(&mut self, key: &Key) -> Result<()> {
        self.bar.set_message(format!("starting {} ({})", key.command, key.world));
        let Some(Slot::Running(program)) = self.slots.get_mut(key) else { return Ok(()) };
        if let Err(reason) = program.wait_ready(self.plan.start_patience, self.interrupt) {
            let slot = self.lose(key, reason)?;
            self.slots.insert(key.clone(), slot);
        }
        Ok(())
    }

    /// What is left of a program that did not start. Nothing can be compared without those of the native world.
    fn lose(&mut self, key: &Key, reason: String) -> Result<Slot> {
        if self.interrupt.is_set() {
            bail!("measure: interrupted");
        }
        if key.world == World::Native {
            bail!("measure what programs do alone: {reason}");
        }
        self.tell(&reason);
        Ok(Slot::Lost { reason, ran: false })
    }

    /// Starts again what ran and died.
    fn revive(&mut self) -> Result<()> {
        let dead = |slot: &Slot| matches!(slot, Slot::Lost { ran: true, .. });
        let keys = self.slots.iter().filter(|(_, slot)| dead(slot)).map(|(key, _)| key.clone());
        self.start(keys.collect())
    }

    /// Other processes take the place of a pair's latency programs.
    fn renew(&mut self, pair: &Pair) -> Result<()> {
        let mut keys: Vec<Key> = self
            .plan
            .settings
            .iter()
            .flat_map(|setting| keys(setting.latency, Class::Latency, &pair.latency))
            .collect();
        keys.sort();
        keys.dedup();
        self.end(&keys);
        self.start(keys)
    }

    /// A pair in every setting.
    fn round(&mut self, pair: &Pair, round: usize, results: &mut Results, keep: &dyn Fn(&Results)) -> Result<()> {
        let mut poisson_rps = None;
        for setting in order(&self.plan.settings, round) {
            let first = poisson_rps.is_none();
            let measured = self.setting(pair, round, setting, &mut poisson_rps, results);
            if self.interrupt.is_set() {
                bail!("measure: interrupted");
            }
            match measured {
                Ok(()) => {}
                Err(reason) if setting.name == ALONE => bail!("measure {} alone: {reason}", pair.name),
                Err(reason) => {
                    let refusal =
                        Refusal { pair: pair.name.clone(), setting: setting.name.clone(), round: round + 1, reason };
                    self.tell(&format!("{} in setting {} is skipped: {}", pair.name, setting.name, refusal.reason));
                    results.refusals.push(refusal);
                }
            }
            if setting.name == ALONE {
                let keys = keys(World::Native, Class::BestEffort, &pair.best_effort);
                let side = self.idle(&keys, round);
                if self.interrupt.is_set() {
                    bail!("measure: interrupted");
                }
                match side {
                    Ok(done) => results.runs.push(Run {
                        pair: pair.name.clone(),
                        round: round + 1,
                        setting: BEST_EFFORT_ALONE.into(),
                        load: Load::Closed,
                        apart: false,
                        offered_rps: 0.0,
                        latency: None,
                        best_effort: done.best_effort,
                        given: None,
                    }),
                    Err(reason) => bail!("measure the best-effort side of {} alone: {reason}", pair.name),
                }
            }
            if first && round == 0 {
                results.solos.extend(self.solos(pair));
            }
            keep(results);
        }
        Ok(())
    }

    /// What both programs of a pair do alone, where a daemon counts their launches. A pair of many has none.
    fn solos(&mut self, pair: &Pair) -> Option<Solos> {
        let worlds = [World::WeftTime, World::Weft];
        let world = worlds.into_iter().find(|world| self.plan.chosen(*world))?;
        let latency = single(keys(world, Class::Latency, &pair.latency))?;
        let best_effort = single(keys(world, Class::BestEffort, &pair.best_effort))?;
        let counted = self.daemons.set_sharing(world, "weft").and_then(|()| {
            let [latency, best_effort] = [self.solo(latency)?, self.solo(best_effort)?];
            Ok(Solos { pair: pair.name.clone(), latency, best_effort })
        });
        match counted {
            Ok(solos) => Some(solos),
            Err(reason) => {
                self.tell(&format!("{} is not predicted, for want of what each does alone: {reason}", pair.name));
                None
            }
        }
    }

    fn solo(&mut self, key: Key) -> Result<Solo, String> {
        let Some(Slot::Running(program)) = self.slots.get(&key) else { return Err("it does not run".into()) };
        let process = program.id();
        let Options { closed_seconds, warmup_seconds, .. } = self.plan.options;
        for seconds in LONGER.map(|times| closed_seconds * times) {
            let before = self.daemons.used_by(key.world, process)?;
            let keys = std::slice::from_ref(&key);
            let done = self.attempt(&Task { keys, round: 0, seconds, rate: 0.0, watched: false, alternate: None })?;
            let after = self.daemons.used_by(key.world, process)?;
            let rate_rps = done.latency.or(done.best_effort).map_or(0.0, |side| side.rate_rps);
            if rate_rps > 0.0 {
                // It was busy from when it was told on.
                let steps = rate_rps * (seconds + warmup_seconds);
                let grew = |now: u64, then: u64| now.saturating_sub(then) as f64 / steps;
                let [launches, gpu_ms] = [grew(after.0, before.0), grew(after.1, before.1) / 1e6];
                return Ok(Solo { launches, gpu_ms, takes_ms: 1e3 / rate_rps, kernels: None });
            }
        }
        let side = if key.best_effort { "best-effort" } else { "latency" };
        Err(format!("the {side} program did not one request; give it more time with --seconds"))
    }

    /// A pair in a setting: every load. `poisson_rps`: the rate at random, found by the first of a round.
    fn setting(
        &mut self,
        pair: &Pair,
        round: usize,
        setting: &Setting,
        poisson_rps: &mut Option<f64>,
        results: &mut Results,
    ) -> Result<(), String> {
        let options = self.plan.options.clone();
        self.bar.set_message(format!("round {} of {}: {}, {}", round + 1, options.rounds, pair.name, setting.name));
        if let Some(policy) = setting.sharing {
            self.daemons.set_sharing(setting.latency, policy)?;
        }
        let both = of_both(pair, setting);
        let (best_effort, latency): (Vec<Key>, Vec<Key>) = both.iter().cloned().partition(|key| key.best_effort);
        let run = |load, apart, offered_rps, done: Done| Run {
            pair: pair.name.clone(),
            round: round + 1,
            setting: setting.name.clone(),
            load,
            apart,
            offered_rps,
            latency: done.latency,
            best_effort: done.best_effort,
            given: done.given,
        };
        let watched = setting.sharing.is_some();
        let alternate = self.plan.alternation(setting);
        // A machine that drifts is the same for both; what comes first in one round comes last in the next.
        let orders: &[bool] = match (best_effort.is_empty() || alternate.is_some(), round % 2) {
            (true, _) => &[false],
            (false, 0) => &[true, false],
            _ => &[false, true],
        };
        for &apart in orders {
            let keys = if apart { &latency } else { &both };
            let watched = watched && !apart;
            let task = Task { keys, round, seconds: options.closed_seconds, rate: 0.0, watched, alternate };
            let mut done = self.run(&task)?;
            if poisson_rps.is_none() {
                let capacity = done.latency.as_ref().map_or(0.0, |side| side.rate_rps);
                if capacity <= 0.0 {
                    return Err("not one request was done; give it more time with --seconds".into());
                }
                *poisson_rps = Some(capacity * options.poisson_load);
            }
            results.runs.extend(done.take_apart().map(|done| run(Load::Closed, true, 0.0, done)));
            results.runs.push(run(Load::Closed, apart, 0.0, done));
        }
        let offered_rps = poisson_rps.unwrap_or_default();
        let rate = offered_rps / pair.latency.copies as f64;
        for &apart in orders {
            let keys = if apart { &latency } else { &both };
            let watched = watched && !apart;
            let task = Task { keys, round, seconds: options.poisson_seconds, rate, watched, alternate };
            let mut done = self.run(&task)?;
            results.runs.extend(done.take_apart().map(|done| run(Load::Poisson, true, offered_rps, done)));
            results.runs.push(run(Load::Poisson, apart, offered_rps, done));
        }
        if setting.idle {
            let idle = self.idle(&best_effort, round)?;
            results.runs.push(run(Load::Idle, false, 0.0, idle));
        }
        Ok(())
    }

    /// One run of best-effort programs while latency programs have nothing to do.
    fn idle(&mut self, keys: &[Key], round: usize) -> Result<Done, String> {
        let Options { closed_seconds, idle_seconds, .. } = self.plan.options;
        let seconds = idle_seconds.unwrap_or(closed_seconds);
        self.run(&Task { keys, round, seconds, rate: 0.0, watched: false, alternate: None })
    }

    /// One run of these programs, one request after the other.
    fn closed(&mut self, keys: &[Key], round: usize) -> Result<Done, String> {
        let seconds = self.plan.options.closed_seconds;
        self.run(&Task { keys, round, seconds, rate: 0.0, watched: false, alternate: None })
    }

    /// One run of these programs, longer than asked where nothing is done otherwise.
    fn run(&mut self, task: &Task<'_>) -> Result<Done, String> {
        let [first, longer @ ..] = LONGER.map(|times| Task { seconds: task.seconds * times, ..*task });
        let mut done = self.attempt(&first)?;
        for task in longer {
            if !done.is_nothing() {
                break;
            }
            self.tell(&format!("a run in which not one request was done is made again, for {} s", task.seconds));
            self.bar.inc_length(1);
            done = self.attempt(&task)?;
        }
        if task.alternate.is_some() && done.apart.is_none() {
            return Err("there was no time for turns; give it more with --seconds and --poisson-seconds".into());
        }
        Ok(done)
    }

    /// The programs begin at the same time. Latency programs have a rate, best-effort programs never.
    fn attempt(&mut self, task: &Task<'_>) -> Result<Done, String> {
        let Task { keys, round, seconds, rate, watched, alternate } = *task;
        for key in keys {
            if let Some(Slot::Lost { reason, .. }) = self.slots.get(key) {
                return Err(reason.clone());
            }
        }
        let lead = Duration::from_secs_f64(self.plan.options.warmup_seconds);
        let at_ns = now_ns() + lead.as_nanos() as u64;
        let until = Instant::now() + lead + Duration::from_secs_f64(seconds) + self.plan.answer_patience;
        let mut lost = Vec::new();
        for key in keys {
            let rate = if key.best_effort { 0.0 } else { rate };
            let order = Order { at_ns, seconds, rate, seed: seed(self.plan.options.seed, round, key.copy) };
            let Some(Slot::Running(program)) = self.slots.get_mut(key) else { continue };
            if let Err(reason) = program.order(&order) {
                lost.push((key, reason));
            }
        }
        let process = |key: &Key| match self.slots.get(key) {
            Some(Slot::Running(program)) => Some(program.id()),
            _ => None,
        };
        let place = keys.first().map(|key| self.daemons.place(key.world));
        let processes = keys.iter().filter_map(process).collect();
        let glances = place.clone().filter(|_| watched).map(|place| Glances::start(place, at_ns, processes));
        let alternation = place.zip(alternate).map(|(place, each)| {
            let until_ns = at_ns + Duration::from_secs_f64(seconds).as_nanos() as u64;
            let turns = Turns { at_ns, until_ns, each, apart_first: round % 2 == 1 };
            let best_effort = keys.iter().filter(|key| key.best_effort).filter_map(process).collect();
            Alternation::start(place, turns, best_effort)
        });
        // Whoever was told answers, also when others are gone: nobody may answer the next order with this one's answer.
        let (mut latency, mut best_effort) = (Vec::new(), Vec::new());
        for key in keys.iter().filter(|key| lost.iter().all(|(other, _)| other != key)).collect::<Vec<_>>() {
            let Some(Slot::Running(program)) = self.slots.get_mut(key) else { continue };
            match program.answer(until, self.interrupt) {
                Ok(answer) if key.best_effort => best_effort.push(answer),
                Ok(answer) => latency.push(answer),
                Err(reason) => lost.push((key, reason)),
            }
        }
        let given = glances.and_then(Glances::end);
        let turns = alternation.map(Alternation::end).transpose();
        self.bar.inc(1);
        let reason = lost.first().map(|(_, reason)| reason.clone());
        for (key, reason) in lost {
            self.slots.insert(key.clone(), Slot::Lost { reason, ran: true });
        }
        if let Some(reason) = reason {
            return Err(reason);
        }
        let best_effort = side(best_effort);
        let Some(turns) = turns? else {
            return Ok(Done { latency: side(latency), apart: None, best_effort, given });
        };
        let of = |apart| alternation::side(&latency, at_ns, &turns, apart);
        let (Some(latency), Some(apart)) = (of(false)?, of(true)?) else { return Ok(Done::without_turns()) };
        let beside = |own: Side| Side {
            rate_rps: alternation::rate_beside(own.rate_rps, seconds, &turns),
            // Some of it while it was suspended.
            latencies: None,
            ..own
        };
        Ok(Done { latency: Some(latency), apart: Some(apart), best_effort: best_effort.map(beside), given })
    }

    /// Says something to whoever watches, once.
    fn tell(&mut self, text: &str) {
        if !self.told.insert(text.to_owned()) {
            return;
        }
        // Nobody is left to be told if this fails.
        self.bar.suspend(|| drop(writeln!(std::io::stderr(), "weft: {text}")));
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        let all: Vec<Key> = self.slots.keys().cloned().collect();
        self.end(&all);
    }
}

/// What programs did together; `None` of nobody.
fn side(answers: Vec<Answer>) -> Option<Side> {
    if answers.is_empty() {
        return None;
    }
    let whole = |answer: &Answer| if answer.done == 0 { 0.0 } else { answer.done as f64 / answer.seconds };
    let rate = |answer: &Answer| answer.per_second.unwrap_or_else(|| whole(answer));
    let done = answers.iter().map(|answer| answer.done).sum();
    let rate_rps = answers.iter().map(rate).sum();
    let latencies = answers.into_iter().flat_map(|answer| answer.latencies_us).collect();
    Some(Side { done, rate_rps, latencies: Latencies::new(latencies) })
}

/// Requests come at the same times in every setting of a round, and at others in the next round and to the next copy.
fn seed(seed: u64, round: usize, copy: usize) -> u64 {
    let mixed = seed.wrapping_mul(1_000_003).wrapping_add(round as u64 * 1009).wrapping_add(copy as u64);
    mixed % (1 << 31)
}

fn bar(runs: usize) -> ProgressBar {
    let target = match std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(runs as u64), target);
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos} of {len} in {elapsed}");
    bar.set_style(style.expect("the template is well formed").progress_chars("━╸ "));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;

    #[test]
    fn programs_are_started_once_for_all_that_can_use_them() {
        // Both pairs have the training in common, and the settings under Weft have one world.
        let plan = plan("one = a | t\ntwo = 2 x b | t", &["default", "slices", "gate", "weft-time"], 1);
        let needed = needed(&plan);
        let shown: Vec<String> =
            needed.iter().map(|key| format!("{} {} {}", key.world, key.command, key.copy)).collect();
        assert_eq!(
            shown,
            [
                "native a 0",
                "native b 0",
                "native b 1",
                "native t 0", //
                "weft-time a 0",
                "weft-time b 0",
                "weft-time b 1",
                "weft-time t 0",
            ]
        );
    }

    #[test]
    fn where_weft_chooses_a_pair_is_by_itself() {
        let plan = plan("one = a | t\ntwo = 2 x b | t", &["default", "alone-weft", "weft-time", "weft"], 1);
        assert!(needed(&plan).iter().all(|key| key.world != World::Weft));
        let shown: Vec<String> =
            chosen_for(&plan, &plan.pairs[1]).iter().map(|key| format!("{} {}", key.command, key.copy)).collect();
        assert_eq!(shown, ["b 0", "b 1", "t 0"]);
    }

    #[test]
    fn sides_are_sums() {
        let answer = |done: u64, seconds| Answer {
            done,
            seconds,
            latencies_us: vec![10 * done; done as usize],
            came_us: None,
            per_second: None,
        };
        let both = side(vec![answer(4, 2.0), answer(1, 0.5), answer(0, 0.0)]).unwrap();
        assert_eq!((both.done, both.rate_rps), (5, 4.0));
        assert_eq!(both.latencies.unwrap().max_us, 40);
        let nothing = side(vec![answer(0, 0.0)]).unwrap();
        assert_eq!((nothing.rate_rps, nothing.latencies), (0.0, None));
        assert!(side(vec![]).is_none());
    }

    #[test]
    fn nothing_is_what_those_did_who_answer_requests() {
        let side = |done| Some(Side { done, rate_rps: 0.0, latencies: None });
        let done = |latency, best_effort| Done { latency, apart: None, best_effort, given: None };
        assert!(done(side(0), side(7)).is_nothing() && done(None, side(0)).is_nothing());
        assert!(!done(side(1), side(0)).is_nothing() && !done(None, side(1)).is_nothing());
        let in_turns = |apart| Done { apart, ..done(side(1), side(1)) };
        assert!(in_turns(side(0)).is_nothing() && !in_turns(side(1)).is_nothing());
        assert!(Done::without_turns().is_nothing());
    }

    #[test]
    fn requests_come_at_other_times_in_other_rounds_and_copies() {
        assert_eq!(seed(1, 2, 3), seed(1, 2, 3));
        let seeds = [seed(1, 0, 0), seed(1, 1, 0), seed(1, 0, 1), seed(2, 0, 0), seed(u64::MAX, 0, 0)];
        for (index, one) in seeds.iter().enumerate() {
            assert!(seeds[index + 1..].iter().all(|other| other != one), "{seeds:?}");
        }
    }
}
