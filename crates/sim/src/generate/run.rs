//! The driver: the machine in virtual time, over emulated GPUs. At one instant GPUs come first, then arrivals, then timers.

use super::check::Ledger;
use super::report::{ModelReport, Quantiles, Report, Tally, part};
use super::requests::{Arrival, requests};
use super::scenario::Scenario;
use crate::event_queue::EventQueue;
use crate::workload::{Purpose, Rng, stream};
use policy::generation::journal::{Input, Recorder};
use policy::generation::{Action, Event, Load, Model, Reason, Request, policies};
use policy::{GpuId, GpuType, ModelId, RequestId, Span, Time};
use rand_distr::{Distribution, StandardNormal};

/// What happens, apart from arrivals.
#[derive(Debug)]
enum Happening {
    /// A step is over, and since when it ran.
    Finished {
        worker: usize,
        step: u64,
        life: usize,
        took: Span,
        members: Vec<RequestId>,
    },
    Died(usize),
    Returned(usize),
}

/// A run and the journal of its machine.
#[derive(Clone, Debug)]
pub struct Recording {
    /// What the run showed.
    pub report: Report,
    /// What the machine was told and what it wanted done.
    pub journal: String,
}

/// What a request had by now.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    first: Option<Time>,
    last: Time,
    late: bool,
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    arrivals: Vec<Arrival>,
    progress: Vec<Progress>,
    machine: Recorder,
    happenings: EventQueue<Happening>,
    /// How often each worker died.
    lives: Vec<usize>,
    ledger: Ledger,
    tally: Tally,
    noise: Rng,
    begin: Time,
    end: Time,
}

/// Runs a scenario under a policy. The same scenario gives the same report, to the bit; `None` when there is no such policy.
///
/// Panics when one of the rules in `check.rs` is broken.
pub fn run(scenario: &Scenario, policy: &str) -> Option<Report> {
    simulate(scenario, policy, false).map(|recording| recording.report)
}

/// The same, and the machine's journal.
pub fn run_recorded(scenario: &Scenario, policy: &str) -> Option<Recording> {
    simulate(scenario, policy, true)
}

fn simulate(scenario: &Scenario, policy: &str, journal: bool) -> Option<Recording> {
    let arrivals = requests(scenario);
    let begin = Time::ZERO + scenario.warmup;
    let last = arrivals.last().map_or(begin, |last| last.at + Span::from_nanos(1));
    let mut simulation = Simulation {
        scenario,
        progress: vec![Progress::default(); arrivals.len()],
        machine: Recorder::new(Time::ZERO, policy, policies::by_name(policy)?, scenario.lead, journal),
        happenings: EventQueue::default(),
        lives: vec![0; scenario.gpus.len()],
        ledger: Ledger::new(scenario.gpus.iter().map(|gpu| gpu.cache)),
        tally: Tally {
            busy: vec![0.0; scenario.gpus.len()],
            models: vec![(0, 0); scenario.models.len()],
            ..Tally::default()
        },
        noise: stream(scenario.seed, Purpose::Execution, 0),
        begin,
        end: last.min(begin + scenario.duration).max(begin),
        arrivals,
    };
    simulation.prepare();
    simulation.run();
    let journal = simulation.machine.take_journal().unwrap_or_default();
    Some(Recording { report: simulation.report(policy), journal })
}

impl Simulation<'_> {
    fn prepare(&mut self) {
        for model in &self.scenario.models {
            let model = Model { context: model.context, token_bytes: model.token_bytes, told: model.told };
            self.tell(Time::ZERO, Input::Model(model));
        }
        for worker in 0..self.scenario.gpus.len() {
            self.join(Time::ZERO, worker);
        }
        for failure in &self.scenario.failures {
            self.happenings.push(Time::ZERO + failure.at, Happening::Died(failure.gpu));
            if let Some(down_for) = failure.down_for {
                self.happenings.push(Time::ZERO + failure.at + down_for, Happening::Returned(failure.gpu));
            }
        }
    }

    fn run(&mut self) {
        let mut next = 0;
        loop {
            let happening = self.happenings.next();
            let arrival = self.arrivals.get(next).map_or(Time::NEVER, |arrival| arrival.at);
            let timer = self.machine.next_timer().unwrap_or(Time::NEVER);
            if arrival == Time::NEVER && self.ledger.open() == 0 {
                break;
            }
            if happening != Time::NEVER && happening <= timer && happening <= arrival {
                let (now, what) = self.happenings.pop().expect("something is about to happen");
                self.ledger.tick(now);
                self.happen(now, what);
            } else if arrival != Time::NEVER && arrival <= timer {
                self.ledger.tick(arrival);
                self.arrive(arrival, next);
                next += 1;
            } else {
                assert!(timer != Time::NEVER, "{} requests wait and nothing will ever happen", self.ledger.open());
                self.ledger.tick(timer);
                self.tell(timer, Input::Timer);
                assert!(self.machine.next_timer() != Some(timer), "a timer at {} ns fires for ever", timer.nanos());
            }
        }
    }

    fn measured(&self, number: usize) -> bool {
        let at = self.arrivals[number].at;
        at >= self.begin && at < self.end
    }

    fn join(&mut self, now: Time, worker: usize) {
        let gpu = &self.scenario.gpus[worker];
        let models = gpu.models.iter().map(|model| ModelId::new(*model)).collect();
        let joined = Event::WorkerJoined { worker: GpuId::new(worker), kind: GpuType(0), cache: gpu.cache, models };
        self.tell(now, Input::Event(joined));
    }

    fn arrive(&mut self, now: Time, number: usize) {
        let arrival = self.arrivals[number];
        let model = &self.scenario.models[arrival.model];
        let id = RequestId(number as u64);
        self.ledger.arrived(id, number, arrival.prompt, model.token_bytes);
        if self.measured(number) {
            self.tally.requests += 1;
            self.tally.models[arrival.model].0 += 1;
        }
        let request = Request {
            id,
            model: ModelId::new(arrival.model),
            arrival: now,
            prompt: arrival.prompt,
            max_tokens: self.scenario.max_tokens,
            ttft: model.ttft,
            tpot: model.tpot,
        };
        self.tell(now, Input::Event(Event::Arrived(request)));
        // Whoever leaves before the first token does so now.
        if arrival.leaves == Some(0) && self.ledger.get(id).is_some() {
            self.leave(now, id);
        }
    }

    fn tell(&mut self, now: Time, input: Input) {
        let actions = self.machine.tell(now, input).to_vec();
        for action in actions {
            match action {
                Action::Step { worker, step, model, prefill, decode, not_before, .. } => {
                    self.start(now, worker.index(), step, model, &prefill, &decode, not_before);
                }
                Action::Reject { request, reason, .. } => self.refuse(request, reason),
                Action::Evict { request } => {
                    self.ledger.evicted(request);
                    self.tally.evictions += 1;
                }
                Action::End { request } => self.finish(request),
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "they are the fields of one action")]
    fn start(
        &mut self,
        now: Time,
        worker: usize,
        step: u64,
        model: ModelId,
        prefill: &[(RequestId, u32)],
        decode: &[RequestId],
        not_before: Time,
    ) {
        let start = (now + self.scenario.lead).max(not_before);
        self.ledger.started(worker, not_before, start);
        let mut load = Load { sequences: (prefill.len() + decode.len()) as u64, ..Load::default() };
        let mut pairs = 0.0;
        let parts = prefill.iter().copied().chain(decode.iter().map(|id| (*id, 1)));
        for (place, (id, tokens)) in parts.enumerate() {
            let cached = self.ledger.get(id).expect("only requests that have not ended take part in steps").cached;
            load.cached += u64::from(cached);
            if place < prefill.len() {
                load.prefill += u64::from(tokens);
                pairs += f64::from(tokens) * (f64::from(cached) + f64::from(tokens) / 2.0);
            }
            self.ledger.processes(id, worker, tokens);
        }
        let mut takes = self.scenario.models[model.index()].truth.takes(load, pairs);
        if self.scenario.noise > 0.0 {
            let deviation: f64 = StandardNormal.sample(&mut self.noise);
            // Nothing runs in less than half or more than twice its time, however noisy.
            takes *= (1.0 + self.scenario.noise * deviation).clamp(0.5, 2.0);
        }
        let took = Span::from_nanos(takes as u64);
        let end = start + took;
        self.tally.busy[worker] += (end.min(self.end) - start.max(self.begin).min(self.end)).seconds();
        if start >= self.begin && start < self.end {
            self.tally.steps += 1;
            self.tally.members += load.sequences;
        }
        let members = prefill.iter().map(|(id, _)| *id).chain(decode.iter().copied()).collect();
        let finished = Happening::Finished { worker, step, life: self.lives[worker], took, members };
        self.happenings.push(end + self.scenario.lead, finished);
    }

    fn happen(&mut self, now: Time, what: Happening) {
        match what {
            Happening::Finished { worker, step, life, took, members } => {
                // A step is lost with its worker.
                if life == self.lives[worker] {
                    self.stepped(now, worker, step, took, &members);
                }
            }
            Happening::Died(worker) => {
                self.lives[worker] += 1;
                self.ledger.died(worker);
                self.tell(now, Input::Event(Event::WorkerGone(GpuId::new(worker))));
            }
            Happening::Returned(worker) => {
                self.ledger.returned(worker);
                self.join(now, worker);
            }
        }
    }

    fn stepped(&mut self, now: Time, worker: usize, step: u64, took: Span, members: &[RequestId]) {
        self.ledger.finished(worker);
        let (mut ended, mut leaving) = (Vec::new(), Vec::new());
        for id in members {
            let Some(token) = self.ledger.stepped(*id) else { continue };
            let entry = *self.ledger.get(*id).expect("it was just there");
            if !token {
                continue;
            }
            let arrival = self.arrivals[entry.number];
            let model = &self.scenario.models[arrival.model];
            let progress = &mut self.progress[entry.number];
            let first = *progress.first.get_or_insert(now);
            progress.last = now;
            let due = match entry.generated {
                1 => arrival.at + model.ttft,
                count => first + model.tpot * (count as usize - 1),
            };
            progress.late |= now > due;
            if now >= self.begin && now < self.end {
                self.tally.tokens += 1;
            }
            if entry.generated >= arrival.output {
                ended.push(*id);
            } else if arrival.leaves.is_some_and(|tokens| entry.generated >= tokens) {
                leaving.push(*id);
            }
        }
        ended.iter().for_each(|id| self.finish(*id));
        let done = Event::StepDone { worker: GpuId::new(worker), step, took, ended };
        self.tell(now, Input::Event(done));
        for id in leaving {
            // The machine may have ended it by itself.
            if self.ledger.get(id).is_some() {
                self.leave(now, id);
            }
        }
    }

    fn leave(&mut self, now: Time, id: RequestId) {
        let entry = self.ledger.ended(id);
        if self.measured(entry.number) {
            self.tally.left += 1;
            let late = self.progress[entry.number].late;
            self.count(entry.number, !late, !late);
        }
        self.tell(now, Input::Event(Event::ClientGone(id)));
    }

    fn refuse(&mut self, id: RequestId, reason: Reason) {
        let entry = self.ledger.ended(id);
        if self.measured(entry.number) {
            self.tally.refused(reason);
            match entry.generated {
                0 => self.tally.ttft_missed += 1,
                _ => self.tally.tpot_missed += 1,
            }
        }
    }

    /// A request has all its tokens.
    fn finish(&mut self, id: RequestId) {
        let entry = self.ledger.ended(id);
        if !self.measured(entry.number) {
            return;
        }
        let arrival = self.arrivals[entry.number];
        let model = &self.scenario.models[arrival.model];
        let progress = self.progress[entry.number];
        let first = progress.first.expect("a text has a first token");
        let between = (progress.last - first).seconds() / f64::from(entry.generated.max(2) - 1);
        let in_time = first - arrival.at <= model.ttft;
        self.tally.answered += 1;
        self.tally.ttft.push((first - arrival.at).seconds() * 1e3);
        if entry.generated > 1 {
            self.tally.tpot.push(between * 1e3);
        }
        match (in_time, progress.late) {
            (false, _) => self.tally.ttft_missed += 1,
            (true, true) => self.tally.tpot_missed += 1,
            (true, false) => {}
        }
        self.count(entry.number, !progress.late, in_time && between <= model.tpot.seconds());
    }

    fn count(&mut self, number: usize, good: bool, good_mean: bool) {
        self.tally.good += u64::from(good);
        self.tally.good_mean += u64::from(good_mean);
        self.tally.models[self.arrivals[number].model].1 += u64::from(good);
    }

    fn report(mut self, policy: &str) -> Report {
        let tally = &mut self.tally;
        let seconds = (self.end - self.begin).seconds();
        let requests = tally.requests as f64;
        let gpu_busy: Vec<f64> = tally.busy.iter().map(|busy| part(*busy, seconds)).collect();
        let models = self.scenario.models.iter().zip(&tally.models).map(|(model, (requests, good))| ModelReport {
            name: model.name.clone(),
            requests: *requests,
            good: part(*good as f64, *requests as f64),
        });
        Report {
            policy: policy.to_owned(),
            seed: self.scenario.seed,
            seconds,
            requests: tally.requests,
            offered_rps: part(requests, seconds),
            good_rps: part(tally.good as f64, seconds),
            good: part(tally.good as f64, requests),
            good_mean_tpot: part(tally.good_mean as f64, requests),
            answered: part(tally.answered as f64, requests),
            ttft_missed: part(tally.ttft_missed as f64, requests),
            tpot_missed: part(tally.tpot_missed as f64, requests),
            refused: std::mem::take(&mut tally.refused),
            left: tally.left,
            ttft_ms: Quantiles::of(&mut tally.ttft),
            tpot_ms: Quantiles::of(&mut tally.tpot),
            busy: part(gpu_busy.iter().sum(), gpu_busy.len() as f64),
            gpu_busy,
            steps_per_second: part(tally.steps as f64, seconds),
            mean_batch: part(tally.members as f64, tally.steps as f64),
            tokens_per_second: part(tally.tokens as f64, seconds),
            evictions: tally.evictions,
            cache_peak: self.ledger.peak,
            models: models.collect(),
        }
    }
}
