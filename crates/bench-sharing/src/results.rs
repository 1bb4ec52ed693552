//! What was measured, as it is kept in a file. Every figure, table and chart can be made from it again.

use crate::latencies::Latencies;
use crate::pairs::Pair;
use policy::Span;
use serde::{Deserialize, Serialize};
use share_client::Gpus;
use sim::sharing::Solo;

/// Everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// What a person would type to measure the same.
    pub(super) command: String,
    pub(super) weft: String,
    pub(super) machine: Machine,
    pub(super) options: Options,
    pub(super) pairs: Vec<Pair>,
    /// Names, in the order of tables.
    pub(super) settings: Vec<String>,
    /// What could not be measured, and why.
    pub(super) refusals: Vec<Refusal>,
    /// In the order in which they were made.
    pub(super) runs: Vec<Run>,
    /// What the programs of pairs of two do alone, for predictions.
    #[serde(default)]
    pub(super) solos: Vec<Solos>,
}

impl Results {
    /// Reads what [`Report::file`](crate::Report::file) wrote.
    pub fn read(text: &str) -> Result<Results, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Counts other requests for goodput from now on: every latency is there. `None` leaves it as it was measured.
    pub fn set_objective(&mut self, objective: Option<Span>) {
        self.options.objective_ms = objective.map(Span::millis).or(self.options.objective_ms);
    }

    /// Adds other pairs, which were measured in the same way.
    pub fn add(&mut self, other: Results) -> Result<(), String> {
        let same = [
            ("settings", self.settings == other.settings),
            ("options", self.options == other.options),
            ("machine", self.machine == other.machine),
            ("version", self.weft == other.weft),
        ];
        if let Some((what, _)) = same.iter().find(|(_, same)| !same) {
            return Err(format!("it is of another {what}"));
        }
        if let Some(pair) = other.pairs.iter().find(|pair| self.pairs.iter().any(|own| own.name == pair.name)) {
            return Err(format!("both have the pair {}", pair.name));
        }
        self.command = format!("{}; {}", self.command, other.command);
        self.pairs.extend(other.pairs);
        self.refusals.extend(other.refusals);
        self.runs.extend(other.runs);
        self.solos.extend(other.solos);
        Ok(())
    }
}

/// What both programs of a pair do alone, under Weft.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Solos {
    pub(super) pair: String,
    pub(super) latency: Solo,
    pub(super) best_effort: Solo,
}

/// The machine, in words that name it to nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) gpu: String,
    pub(super) driver: String,
    pub(super) cpu: String,
    pub(super) cores: usize,
}

impl Machine {
    /// This one.
    pub(super) fn find() -> Machine {
        let gpus = Gpus::find();
        let names: Vec<String> = gpus.gpus.iter().map(|gpu| gpu.name.clone()).collect();
        let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Machine {
            gpu: if names.is_empty() { "no GPU that NVML knows".into() } else { names.join(", ") },
            driver: gpus.driver.unwrap_or_else(|| "unknown".into()),
            cpu: model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// How it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// How often everything is measured.
    pub rounds: usize,
    /// Of a run with one request after the other.
    pub closed_seconds: f64,
    /// Of a run with requests at random.
    pub poisson_seconds: f64,
    /// Of runs in which the latency programs have nothing to do, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<f64>,
    /// How long best-effort programs under Weft are suspended and go on in turns, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternate_seconds: Option<f64>,
    /// Whether latency programs are new processes in every round.
    #[serde(default, alias = "anew", skip_serializing_if = "std::ops::Not::not")]
    pub restart_each_round: bool,
    /// The part of its capacity alone at which requests come at random.
    pub poisson_load: f64,
    /// How long a request may take to count for goodput, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective_ms: Option<f64>,
    /// For how long programs are busy before they are measured.
    #[serde(alias = "lead_seconds")]
    pub warmup_seconds: f64,
    /// Of the requests at random.
    pub seed: u64,
}

/// A setting that a pair was not measured in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Refusal {
    pub(super) pair: String,
    pub(super) setting: String,
    /// From 1.
    pub(super) round: usize,
    pub(super) reason: String,
}

/// What the latency programs are asked in a run. Best-effort programs are always busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Load {
    /// One request after the other.
    Closed,
    /// Requests that come at random.
    Poisson,
    /// Nothing.
    Idle,
}

/// One run of one pair in one setting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) pair: String,
    /// From 1.
    pub(super) round: usize,
    /// [`BEST_EFFORT_ALONE`](super::figures::BEST_EFFORT_ALONE) where the latency programs had nothing to do with it.
    pub(super) setting: String,
    pub(super) load: Load,
    /// The latency programs of the setting, while those beside them had nothing to do.
    #[serde(default)]
    pub(super) apart: bool,
    /// Requests a second that were asked of all latency programs together; 0 where one follows the other.
    pub(super) offered_rps: f64,
    pub(super) latency: Option<Side>,
    pub(super) best_effort: Option<Side>,
    /// What Weft did about the best-effort programs, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) given: Option<Given>,
}

/// What Weft did about best-effort programs, on average over a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Given {
    /// The part of the time in which they were held.
    pub(super) held: f64,
    /// The part of the SMs that long kernels were confined to.
    pub(super) space: f64,
    /// 0 for the driver's own.
    pub(super) slice_us: f64,
    /// What the bursts of latency programs took of what they may, as far as Weft saw.
    pub(super) takes: Option<f64>,
}

impl Given {
    /// Of several runs; `None` of none.
    pub(super) fn mean(all: &[Given]) -> Option<Given> {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let of = |figure: fn(&Given) -> f64| mean(&all.iter().map(figure).collect::<Vec<_>>());
        let takes: Vec<f64> = all.iter().filter_map(|given| given.takes).collect();
        let takes = (!takes.is_empty()).then(|| mean(&takes));
        let given = |_| Given {
            held: of(|given| given.held),
            space: of(|given| given.space),
            slice_us: of(|given| given.slice_us),
            takes,
        };
        all.first().map(given)
    }
}

impl std::fmt::Display for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "held for {:.0}% of the time", self.held * 100.0)?;
        if self.space < 1.0 {
            write!(f, ", on {:.0}% of the SMs", self.space * 100.0)?;
        }
        if self.slice_us > 0.0 {
            write!(f, ", in slices of {:.0} us", self.slice_us)?;
        }
        self.takes.map_or(Ok(()), |takes| write!(f, ", for bursts that took {takes:.2} of what they may"))
    }
}

/// What the programs of one side did, together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Side {
    pub(super) done: u64,
    /// The sum of what each program did a second.
    pub(super) rate_rps: f64,
    /// `None` where nothing was done, and of programs that were suspended meanwhile.
    pub(super) latencies: Option<Latencies>,
}
