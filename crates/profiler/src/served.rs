//! How long batches of a model take that a server runs, as a client sees it.
//!
//! A batch is one request with as many rows: it goes the way of every request, through gateway, scheduler and worker, and
//! nothing is put beside it. Batches follow each other for a bounded time. They are counted in rounds of a tenth of a
//! second at least, which is what shares are kept over: within it a worker may spend at once what it may spend at all.
//! A round has a latency, the time it took for each of its batches; the median of the rounds is what is told, and the
//! first round is not one of them.

use crate::campaign::{Figures, Meter, median};
use crate::shares::{SETTLE, Shares};
use anyhow::Result;
use harness::{Exit, INTERRUPTED, Interrupt, Misuse};
use load::{Config, Repeat, Repeated};
use policy::Span;
use policy::search::Probe;
use std::time::{Duration, Instant};

/// A round takes at least this long.
const ROUND: Duration = Duration::from_millis(100);
/// Rounds of a measurement at least, unless it takes too long.
const ROUNDS_MIN: usize = 3;
/// So many times as long as was asked for is too long.
const TOO_LONG: u32 = 5;
/// How long a server may say that it cannot just now.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Served {
    /// What the model is called.
    pub(super) name: String,
    /// How it is asked; the batch is put in.
    pub(super) config: Config,
    /// Whether its inputs have a batch dimension.
    pub(super) batches: bool,
    pub(super) shares: Option<Shares>,
    /// How long a point is measured.
    pub(super) probe: Duration,
    pub(super) interrupt: Interrupt,
    /// Why the last point that could not be run could not.
    pub(super) failure: Option<String>,
}

impl Meter for Served {
    fn measure(&mut self, probe: Probe) -> Result<Option<Figures>> {
        if let Some(shares) = &mut self.shares {
            shares.set(probe.share)?;
            std::thread::sleep(SETTLE);
        }
        let mut requests = self.requests(probe.batch)?;
        let begun = Instant::now();
        let mut rounds: Vec<Span> = Vec::new();
        let mut first = true;
        loop {
            let Some(latency) = self.round(&mut requests)? else { return Ok(None) };
            let passed = begun.elapsed();
            if !std::mem::take(&mut first) {
                rounds.push(latency);
            }
            let enough = passed >= self.probe && rounds.len() >= ROUNDS_MIN;
            if enough || (passed >= self.probe * TOO_LONG && !rounds.is_empty()) {
                break;
            }
        }
        // Nanoseconds are more than is known.
        let latency = Span::from_micros((median(&rounds).expect("there is a round").nanos() / 1_000).max(1));
        Ok(Some(Figures { latency, throughput: probe.batch as f64 / latency.seconds() }))
    }
}

impl Served {
    /// Asks once, so that a model that starts on demand has started.
    pub(super) fn wake(&mut self) -> Result<()> {
        let mut requests = self.requests(1)?;
        match self.send(&mut requests)? {
            Some(_) => Ok(()),
            None => {
                let why = self.failure.take().unwrap_or_default();
                Err(Misuse(format!("measure `{}`: a batch of 1 fails: {why}; see `weft logs`", self.name)).into())
            }
        }
    }

    fn requests(&self, batch: usize) -> Result<Repeat, Misuse> {
        let mut config = Config { batch, ..self.config.clone() };
        for shape in config.shapes.iter_mut().filter(|_| self.batches) {
            shape.dimensions[0] = batch;
        }
        Repeat::new(&config).map_err(|error| Misuse(error.to_string()))
    }

    /// Batches for a tenth of a second: how long one takes. `None`: it cannot be run.
    fn round(&mut self, requests: &mut Repeat) -> Result<Option<Span>> {
        let begun = Instant::now();
        let mut count = 0u64;
        loop {
            if self.send(requests)?.is_none() {
                return Ok(None);
            }
            count += 1;
            let passed = begun.elapsed();
            if passed >= ROUND {
                return Ok(Some(Span::from_nanos((passed.as_nanos() as u64 / count).max(1))));
            }
        }
    }

    fn send(&mut self, requests: &mut Repeat) -> Result<Option<Span>> {
        let name = &self.name;
        let patience = Instant::now() + BUSY_PATIENCE;
        loop {
            let interrupt = self.interrupt.clone();
            match requests.send(|| interrupt.is_set()) {
                _ if self.interrupt.is_set() => return Err(stopped(name)),
                Repeated::Stopped => return Err(stopped(name)),
                Repeated::Answered(took) => return Ok(Some(took)),
                // A worker that starts again, or somebody else's requests.
                Repeated::Refused { status: 429 | 503, .. } if Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Repeated::Refused { status: 429 | 500..=599, reason } => {
                    self.failure = Some(reason);
                    return Ok(None);
                }
                Repeated::Unanswered => {
                    self.failure = Some(format!("no answer within {}", self.config.patience));
                    return Ok(None);
                }
                Repeated::Refused { status, reason } => {
                    let hint = match status {
                        401 | 403 => "give a key with --api-key",
                        400 => "say what it takes with --shape and --inputs",
                        _ => "see `weft models`",
                    };
                    return Err(
                        Misuse(format!("measure `{name}`: the server answered {status} {reason}; {hint}")).into()
                    );
                }
                Repeated::Lost(reason) => {
                    let text = "nothing was written; start it again and repeat this";
                    return Err(Misuse(format!("measure `{name}`: the server is gone ({reason}); {text}")).into());
                }
            }
        }
    }
}

/// What is said after Ctrl-C.
pub(super) fn stopped(name: &str) -> anyhow::Error {
    let text = format!("profile {name}: stopped; shares are as they were, and nothing was written");
    Exit { code: INTERRUPTED, text }.into()
}
