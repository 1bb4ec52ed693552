//! What is to be measured: pairs in settings, how often and for how long.

use crate::pairs::Pair;
use crate::results::{Machine, Options, Results};
use crate::settings::{ALONE, Setting, World};
use std::time::Duration;

/// What is to be done.
#[derive(Debug)]
pub struct Plan {
    /// In the order in which they are measured.
    pub pairs: Vec<Pair>,
    /// In the order of tables.
    pub settings: Vec<Setting>,
    /// How often, for how long and under which load.
    pub options: Options,
    /// The folder that stands in commands.
    pub workloads: String,
    /// Programs that start at the same time.
    pub at_once: usize,
    /// How long a program may take until it is ready.
    pub start_patience: Duration,
    /// How long a program may take for an answer, after the time that it was given for the work.
    pub answer_patience: Duration,
}

impl Plan {
    /// Results with nothing measured so far. `command`: what a person would type to measure the same.
    pub fn results(&self, command: String) -> Results {
        Results {
            command,
            weft: env!("CARGO_PKG_VERSION").into(),
            machine: Machine::find(),
            options: self.options.clone(),
            pairs: self.pairs.clone(),
            settings: self.settings.iter().map(|setting| setting.name.clone()).collect(),
            refusals: Vec::new(),
            solos: Vec::new(),
            runs: Vec::new(),
        }
    }

    /// Runs of all rounds together.
    pub(super) fn runs(&self) -> usize {
        let of = |setting: &Setting| match &setting.best_effort {
            _ if setting.name == ALONE => 4,
            None => 2,
            Some(_) if self.alternation(setting).is_some() => 2,
            Some(_) => 4,
        };
        let of_pair = self.settings.iter().map(of).sum::<usize>();
        let first = if self.chosen(World::Weft) { self.pairs.len() } else { 0 };
        self.options.rounds * self.pairs.len() * of_pair + self.idle_runs() + self.solo_runs() + first
    }

    /// How long turns are in which latency programs of a setting are seen with and without those beside them, where that is
    /// in the same runs.
    pub(super) fn alternation(&self, setting: &Setting) -> Option<Duration> {
        let seconds = self.options.alternate_seconds?;
        (setting.best_effort.is_some() && setting.sharing.is_some()).then(|| Duration::from_secs_f64(seconds))
    }

    /// What is wrong with turns that were asked for.
    pub fn check_alternation(&self) -> Result<(), String> {
        let Some(seconds) = self.options.alternate_seconds else { return Ok(()) };
        if !self.settings.iter().any(|setting| self.alternation(setting).is_some()) {
            return Err("nobody is suspended in these settings; choose one under Weft with --settings, as weft".into());
        }
        let least = 2.0 * seconds;
        if self.options.closed_seconds.min(self.options.poisson_seconds) < least {
            return Err(format!("a run has at least two turns; give --seconds and --poisson-seconds {least} or more"));
        }
        Ok(())
    }

    /// Runs in which latency programs have nothing to do: beside them, and best-effort programs by themselves at the
    /// beginning and at the end of a round.
    fn idle_runs(&self) -> usize {
        let beside = self.settings.iter().filter(|setting| setting.idle).count();
        self.options.rounds * self.pairs.len() * (2 + beside)
    }

    /// Runs that show what programs do alone under Weft.
    fn solo_runs(&self) -> usize {
        let counted = self.settings.iter().any(|setting| setting.latency.needs_weft());
        let of_two = |pair: &&Pair| pair.latency.copies == 1 && pair.best_effort.copies == 1;
        if counted { 2 * self.pairs.iter().filter(of_two).count() } else { 0 }
    }

    /// How long the runs take when nothing waits.
    pub(super) fn length(&self) -> Duration {
        let Options { rounds, closed_seconds, poisson_seconds, idle_seconds, warmup_seconds, .. } = self.options;
        let apart = |setting: &Setting| setting.best_effort.is_some() && self.alternation(setting).is_none();
        let poisson = |setting: &Setting| if setting.name == ALONE || apart(setting) { 2 } else { 1 };
        let poisson = rounds * self.pairs.len() * self.settings.iter().map(poisson).sum::<usize>();
        let idle = self.idle_runs();
        let closed = self.runs() - poisson - idle;
        let each = [
            (self.runs(), warmup_seconds),
            (closed, closed_seconds),
            (poisson, poisson_seconds),
            (idle, idle_seconds.unwrap_or(closed_seconds)),
        ];
        Duration::from_secs_f64(each.iter().map(|(runs, seconds)| *runs as f64 * seconds).sum())
    }

    /// Whether latency programs are measured in a world.
    pub(super) fn chosen(&self, world: World) -> bool {
        self.settings.iter().any(|setting| setting.latency == world)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{pairs, settings};

    pub(crate) fn plan(text: &str, wanted: &[&str], rounds: usize) -> Plan {
        let wanted: Vec<String> = wanted.iter().map(|&name| name.into()).collect();
        let (closed_seconds, poisson_seconds, warmup_seconds) = (2.0, 4.0, 1.0);
        Plan {
            pairs: pairs::read(text).unwrap(),
            settings: settings::select(settings::all(&[90]), &wanted).unwrap(),
            options: Options {
                rounds,
                closed_seconds,
                poisson_seconds,
                idle_seconds: None,
                alternate_seconds: None,
                restart_each_round: false,
                poisson_load: 0.5,
                objective_ms: None,
                warmup_seconds,
                seed: 1,
            },
            workloads: ".".into(),
            at_once: 2,
            start_patience: Duration::from_secs(1),
            answer_patience: Duration::from_secs(1),
        }
    }

    #[test]
    fn runs_are_counted() {
        let of = |wanted: &[&str]| plan("one = a | t", wanted, 3).runs();
        // Alone twice under two loads, and the best-effort side by itself twice; others apart and together under two
        // loads; `default` has a run with nothing to do.
        // Two more where a daemon counts launches: each side alone.
        // One more where Weft chooses: it has to know them.
        assert_eq!([of(&["alone"]), of(&["gate"]), of(&["default"]), of(&["weft"])], [18, 32, 33, 36]);
        let mut one_round = plan("one = a | t", &["alone"], 1);
        assert_eq!(one_round.length(), Duration::from_secs(2 * 3 + 2 * 5 + 2 * 3));
        one_round.options.alternate_seconds = Some(1.0);
        assert_eq!(one_round.length(), Duration::from_secs(2 * 3 + 2 * 5 + 2 * 3), "there is nobody to alternate with");
        let mut alternating = plan("one = a | t", &["weft"], 3);
        alternating.options.alternate_seconds = Some(1.0);
        assert_eq!(alternating.runs(), 36 - 3 * 2);
        one_round.options.idle_seconds = Some(10.0);
        assert_eq!(one_round.length(), Duration::from_secs(2 * 3 + 2 * 5 + 2 * 11));
    }
}
