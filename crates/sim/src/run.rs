//! The driver: the dispatcher in virtual time, over emulated GPUs.
//!
//! The same loop as the live one: take the next event or timer, tell the dispatcher, do what it says. At one
//! instant GPUs come first, then arrivals, then timers, so that a decision sees all that has happened.

use crate::Scenario;
use crate::check::Ledger;
use crate::event_queue::EventQueue;
use crate::gpu::{Batch, Gpu};
use crate::report::{Report, Tallies};
use crate::workload::{Arrivals, Purpose, Rng, stream};
use policy::{Action, Actions, Dispatcher, Event, GpuId, GpuType, ModelId, Request, Span, Time, Tournament};
use rand::RngExt;
use rand_distr::{Distribution, StandardNormal};

/// What happens in the cluster, apart from arrivals.
#[derive(Debug)]
enum Happening {
    /// A batch's data reached its GPU.
    Delivered(GpuId, u64),
    /// A batch is over.
    Finished(GpuId, u64),
    /// Word of it reached the scheduler.
    Told(GpuId, u64),
    /// Word that it shall stop reached a GPU, in the life it was meant for if it has died so many times.
    Stopped(GpuId, usize),
    /// Word that it did reached the scheduler.
    ToldStopped(GpuId, usize),
    Died(GpuId),
    Returned(GpuId),
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    dispatcher: Dispatcher,
    types: Vec<GpuType>,
    gpus: Vec<Gpu>,
    happenings: EventQueue<Happening>,
    ledger: Ledger,
    tallies: Tallies,
    actions: Actions,
    execution: Rng,
    network: Rng,
    begin: Time,
    end: Time,
}

/// Runs a scenario. The same scenario gives the same report, to the bit.
///
/// Panics when one of the rules in `check.rs` is broken, and when the scenario names no known policy.
pub fn run(scenario: &Scenario) -> Report {
    let policy =
        policy::policies::by_name(&scenario.policy).expect("the policy was checked when the scenario was read");
    run_policy(scenario, policy)
}

pub(crate) fn run_policy(scenario: &Scenario, policy: Box<dyn policy::Policy>) -> Report {
    let types = scenario.gpu_types();
    let mut simulation = Simulation {
        scenario,
        dispatcher: Dispatcher::new(scenario.dispatch_models(), &types, scenario.network, policy),
        gpus: types.iter().map(|_| Gpu::default()).collect(),
        happenings: EventQueue::default(),
        ledger: Ledger::default(),
        tallies: Tallies::new(scenario.models.len(), types.len()),
        actions: Actions::default(),
        execution: stream(scenario.seed, Purpose::Execution, 0),
        network: stream(scenario.seed, Purpose::Network, 0),
        begin: Time::ZERO + scenario.warmup,
        end: Time::ZERO + scenario.warmup + scenario.duration,
        types,
    };
    for failure in &scenario.failures {
        simulation.happenings.push(Time::ZERO + failure.at, Happening::Died(failure.gpu));
        if let Some(down_for) = failure.down_for {
            simulation.happenings.push(Time::ZERO + failure.at + down_for, Happening::Returned(failure.gpu));
        }
    }
    simulation.run()
}

impl Simulation<'_> {
    fn run(mut self) -> Report {
        let scenario = self.scenario;
        let mut streams: Vec<_> = scenario
            .models
            .iter()
            .enumerate()
            .map(|(index, model)| Arrivals::new(&scenario.arrivals, index, model.share * scenario.rate, scenario.seed))
            .collect();
        let mut arrivals = Tournament::new(streams.len());
        for (index, stream) in streams.iter_mut().enumerate() {
            arrivals.set(index, stream.first());
        }
        let certainly_bad = scenario.give_up_at.map(|fraction| {
            let expected = scenario.rate * scenario.duration.seconds();
            // Bursty arrivals stray further from their mean than Poisson ones; six of their deviations.
            (fraction * (expected + 6.0 * (5.0 * expected).sqrt())) as u64
        });
        let mut gave_up = None;
        loop {
            let happening = self.happenings.next();
            let arrival = if arrivals.earliest() < self.end { arrivals.earliest() } else { Time::NEVER };
            let timer = self.dispatcher.next_timer().unwrap_or(Time::NEVER);
            if arrival == Time::NEVER && self.ledger.open() == 0 {
                break;
            }
            if happening != Time::NEVER && happening <= timer && happening <= arrival {
                let (now, what) = self.happenings.pop().expect("something is about to happen");
                self.ledger.tick(now);
                self.happen(now, what);
            } else if arrival != Time::NEVER && arrival <= timer {
                let (now, model) = arrivals.first().expect("a request is about to come");
                self.ledger.tick(now);
                arrivals.set(model, streams[model].after(now));
                self.arrive(now, model);
            } else {
                assert!(timer != Time::NEVER, "{} requests wait and nothing will ever happen", self.ledger.open());
                self.ledger.tick(timer);
                self.dispatcher.on_timer(timer, &mut self.actions);
                self.act(timer);
                assert!(self.dispatcher.next_timer() != Some(timer), "a timer at {} ns fires for ever", timer.nanos());
            }
            if certainly_bad.is_some_and(|limit| self.tallies.bad() > limit) {
                gave_up = Some(arrival.min(happening).min(timer).min(self.end));
                break;
            }
        }
        let measured = gave_up.map_or(scenario.duration, |at| at - self.begin);
        self.tallies.report(scenario, measured, gave_up.is_some())
    }

    fn measured(&self, arrival: Time) -> bool {
        arrival >= self.begin && arrival < self.end
    }

    fn arrive(&mut self, now: Time, model: usize) {
        let objective = self.scenario.models[model].objective;
        let deadline = now + (objective - self.scenario.network.response);
        let request = Request { id: self.ledger.next_id(), model: ModelId::new(model), arrival: now, deadline };
        self.ledger.arrived(&request);
        self.tallies.requests += 1;
        if self.measured(now) {
            self.tallies.offered(model);
        }
        self.dispatcher.on_event(now, Event::Arrived(request), &mut self.actions);
        self.act(now);
    }

    fn tell(&mut self, now: Time, event: Event) {
        self.dispatcher.on_event(now, event, &mut self.actions);
        self.act(now);
    }

    /// Tells of the batches that are over, up to the one named or all of them. Word from one GPU comes in
    /// order, so what comes late comes together.
    fn tell_done(&mut self, now: Time, gpu: GpuId, last: Option<u64>) {
        while let Some(&batch) = self.gpus[gpu.index()].untold.front()
            && last.is_none_or(|last| batch <= last)
        {
            self.gpus[gpu.index()].untold.pop_front();
            self.tell(now, Event::BatchDone { gpu, batch });
        }
    }

    /// Does what the dispatcher wants done.
    fn act(&mut self, now: Time) {
        if self.actions.list.is_empty() {
            return;
        }
        let mut actions = std::mem::take(&mut self.actions);
        for action in &actions.list {
            match action {
                Action::Run { gpu, model, batch, requests, .. } => {
                    self.send(now, *gpu, *model, *batch, &actions.requests[requests.clone()]);
                }
                Action::Reject { request, reason, .. } => {
                    let entry = self.ledger.refused(*request);
                    if self.measured(entry.arrival) {
                        self.tallies.refused(entry.model.index(), *reason);
                    }
                }
                Action::Preempt { gpu } => {
                    let delay = self.delay();
                    let deaths = self.gpus[gpu.index()].deaths;
                    self.happenings.push(now + delay, Happening::Stopped(*gpu, deaths));
                }
            }
        }
        actions.clear();
        self.actions = actions;
    }

    /// Puts a batch on its way to a GPU.
    fn send(&mut self, now: Time, gpu: GpuId, model: ModelId, serial: u64, requests: &[policy::RequestId]) {
        let network = &self.scenario.network;
        let size = requests.len();
        let delay = network.control + network.data_per_request * size;
        if self.dispatcher.keeps_deadlines() {
            let table = &self.scenario.models[model.index()].tables[self.types[gpu.index()].index()];
            let first = requests.iter().map(|id| self.ledger.get(*id).deadline).min().expect("a batch is not empty");
            let finish = now + delay + table.latency(size);
            assert!(finish <= first, "a batch of {size} of model {} started late at {} ns", model.0, now.nanos());
        }
        let state = &mut self.gpus[gpu.index()];
        for id in requests {
            self.ledger.started(*id);
            state.requests.push_back(*id);
        }
        state.batches.push_back(Batch { serial, model, size });
        self.tallies.batches += 1;
        let jitter = jitter(&mut self.network, network.jitter);
        if delay + jitter == Span::ZERO {
            state.arrived += 1;
            self.start_next(now, gpu);
        } else {
            self.happenings.push(now + delay + jitter, Happening::Delivered(gpu, serial));
        }
    }

    /// How long a message between scheduler and GPU takes.
    fn delay(&mut self) -> Span {
        self.scenario.network.control + jitter(&mut self.network, self.scenario.network.jitter)
    }

    /// Starts a GPU's first batch if it has arrived and nothing runs.
    fn start_next(&mut self, now: Time, gpu: GpuId) {
        let state = &mut self.gpus[gpu.index()];
        if state.started.is_some() || state.arrived == 0 {
            return;
        }
        let batch = state.batches.front().expect("an arrived batch is there");
        let table = &self.scenario.models[batch.model.index()].tables[self.types[gpu.index()].index()];
        let mut takes = table.latency(batch.size);
        if self.scenario.noise > 0.0 {
            let deviation: f64 = StandardNormal.sample(&mut self.execution);
            // Nothing runs in less than half or more than twice its time, however noisy.
            takes = Span::from_secs_f64(takes.seconds() * (1.0 + self.scenario.noise * deviation).clamp(0.5, 2.0));
        }
        state.started = Some(now);
        self.happenings.push(now + takes, Happening::Finished(gpu, batch.serial));
    }

    fn happen(&mut self, now: Time, what: Happening) {
        match what {
            Happening::Delivered(gpu, serial) => {
                let state = &mut self.gpus[gpu.index()];
                if state.batches.iter().any(|batch| batch.serial == serial) {
                    // Messages to one GPU are delivered in order: all up to this one are there.
                    let place = state.batches.iter().position(|batch| batch.serial == serial).expect("just seen");
                    state.arrived = state.arrived.max(place + 1);
                    self.start_next(now, gpu);
                }
            }
            Happening::Finished(gpu, serial) => {
                // Preempted and lost batches are gone by the time they would have been over.
                let state = &self.gpus[gpu.index()];
                if state.started.is_some() && state.batches.front().is_some_and(|batch| batch.serial == serial) {
                    self.finish(now, gpu);
                }
            }
            Happening::Told(gpu, batch) => self.tell_done(now, gpu, Some(batch)),
            Happening::Stopped(gpu, deaths) => {
                if self.gpus[gpu.index()].deaths == deaths {
                    self.abandon(now, gpu);
                    let delay = self.delay();
                    self.happenings.push(now + delay, Happening::ToldStopped(gpu, deaths));
                }
            }
            Happening::ToldStopped(gpu, deaths) => {
                if self.gpus[gpu.index()].deaths == deaths {
                    // Word of what was over before it stopped comes first.
                    self.tell_done(now, gpu, None);
                    self.tell(now, Event::Preempted(gpu));
                }
            }
            Happening::Died(gpu) => {
                if !std::mem::replace(&mut self.gpus[gpu.index()].dead, true) {
                    self.gpus[gpu.index()].deaths += 1;
                    // Its last words come before the news of its death, or answered requests would be run again.
                    self.tell_done(now, gpu, None);
                    self.abandon(now, gpu);
                    self.tell(now, Event::GpuLost(gpu));
                }
            }
            Happening::Returned(gpu) => {
                if std::mem::replace(&mut self.gpus[gpu.index()].dead, false) {
                    let kind = self.types[gpu.index()];
                    self.tell(now, Event::GpuJoined { gpu, kind });
                }
            }
        }
    }

    /// Answers the requests of the batch that is over.
    fn finish(&mut self, now: Time, gpu: GpuId) {
        let scenario = self.scenario;
        let started = self.stop(now, gpu);
        let state = &mut self.gpus[gpu.index()];
        state.arrived -= 1;
        let batch = state.batches.pop_front().expect("the batch that is over is the first");
        let response = scenario.network.response;
        let objective = scenario.models[batch.model.index()].objective;
        let mut counted = 0;
        for id in state.requests.drain(..batch.size) {
            let entry = self.ledger.finished(id);
            if entry.arrival >= self.begin && entry.arrival < self.end {
                counted += 1;
                let latency = now + response - entry.arrival;
                let queueing = started - entry.arrival;
                self.tallies.answered(batch.model.index(), latency <= objective, queueing, latency);
            }
        }
        if counted > 0 {
            self.tallies.batch(batch.model.index(), batch.size, counted);
        }
        self.start_next(now, gpu);
        let delay = self.delay();
        self.gpus[gpu.index()].untold.push_back(batch.serial);
        if delay == Span::ZERO {
            self.tell_done(now, gpu, Some(batch.serial));
        } else {
            self.happenings.push(now + delay, Happening::Told(gpu, batch.serial));
        }
    }

    /// Stops the clock of what a GPU runs and adds the time it was busy, as far as it was measured.
    fn stop(&mut self, now: Time, gpu: GpuId) -> Time {
        let started = self.gpus[gpu.index()].started.take().unwrap_or(now);
        self.tallies.busy[gpu.index()] += now.min(self.end) - started.max(self.begin).min(self.end);
        started
    }

    /// Takes everything off a GPU; the requests wait again.
    fn abandon(&mut self, now: Time, gpu: GpuId) {
        self.stop(now, gpu);
        let state = &mut self.gpus[gpu.index()];
        state.batches.clear();
        state.arrived = 0;
        for id in state.requests.drain(..) {
            self.ledger.returned(id);
        }
    }
}

fn jitter(rng: &mut Rng, most: Span) -> Span {
    if most == Span::ZERO { Span::ZERO } else { Span::from_nanos(rng.random_range(0..=most.nanos())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GpuGroup, ModelSpec, Spacing};
    use policy::{Context, LaneId, LatencyTable, Network, Policy};

    /// One model, l(b) = 2 ms * b, an objective of 10 ms, a request every millisecond.
    fn scenario(gpus: usize) -> Scenario {
        let table = LatencyTable::line(Span::from_millis(2), Span::ZERO, 8);
        let model =
            ModelSpec { name: "m".to_owned(), objective: Span::from_millis(10), share: 1.0, tables: vec![table] };
        Scenario {
            seed: 1,
            warmup: Span::ZERO,
            duration: Span::from_millis(100),
            policy: "one of the test's own".to_owned(),
            rate: 1_000.0,
            gpus: vec![GpuGroup { kind: "gpu".to_owned(), count: gpus, speed: 1.0 }],
            network: Network::default(),
            arrivals: Spacing::Constant,
            noise: 0.0,
            failures: Vec::new(),
            models: vec![model],
            give_up_at: None,
        }
    }

    /// Sends a batch as soon as this many wait, on GPU 0.
    struct Fixed(usize);

    impl Policy for Fixed {
        fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
            if context.cluster.queue(lane).len() >= self.0 {
                context.run(GpuId(0), lane, self.0);
            }
        }

        fn on_gpu(&mut self, _context: &mut Context, _gpu: GpuId) {}
    }

    /// Asks to be woken and then does not sleep again.
    struct Restless;

    impl Policy for Restless {
        fn on_queue(&mut self, _context: &mut Context, _lane: LaneId) {}

        fn on_gpu(&mut self, _context: &mut Context, _gpu: GpuId) {}

        fn next_timer(&self) -> Time {
            Time::from_nanos(20_000_000)
        }
    }

    #[test]
    #[should_panic(expected = "a batch of 4 of model 0 started late")]
    fn a_batch_that_is_known_to_be_late_is_caught() {
        // The first of four has waited 3 ms when the batch starts, which then takes 8 ms.
        run_policy(&scenario(1), Box::new(Fixed(4)));
    }

    #[test]
    #[should_panic(expected = "GpuId(0) is not available")]
    fn a_second_batch_on_a_busy_gpu_is_caught() {
        run_policy(&scenario(1), Box::new(Fixed(1)));
    }

    #[test]
    #[should_panic(expected = "a timer at 20000000 ns fires for ever")]
    fn a_timer_that_stays_due_is_caught() {
        run_policy(&scenario(1), Box::new(Restless));
    }

    /// Runs whoever comes first, and stops it for whoever comes next.
    struct Fickle;

    impl Policy for Fickle {
        fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
            match context.cluster.available_for(ModelId(lane.0)) {
                Some(gpu) => self.on_gpu(context, gpu),
                None if context.cluster.live().any(|gpu| !context.cluster.gpus[gpu.index()].stopping) => {
                    context.preempt(GpuId(0));
                }
                None => (),
            }
        }

        fn on_gpu(&mut self, context: &mut Context, gpu: GpuId) {
            if !context.cluster.queue(LaneId(0)).is_empty() {
                context.run(gpu, LaneId(0), 1);
            }
        }
    }

    #[test]
    fn word_to_stop_does_not_reach_a_gpu_that_died_and_came_back() {
        let mut scenario = scenario(1);
        scenario.network.control = Span::from_micros(1_700);
        scenario.models[0].objective = Span::from_millis(30);
        let deaths = (0..90).map(|count| crate::Failure {
            gpu: GpuId(0),
            at: Span::from_micros(5_000 + count * 1_030),
            down_for: Some(Span::from_micros(10)),
        });
        scenario.failures = deaths.collect();
        let report = run_policy(&scenario, Box::new(Fickle));
        assert!(report.batches > 50, "{report:?}");
    }

    #[test]
    fn a_policy_that_does_nothing_answers_everybody_with_a_refusal() {
        let report = run_policy(&scenario(1), Box::new(Fixed(usize::MAX)));
        assert_eq!((report.bad_average, report.bad_by_cause.too_late, report.batches), (1.0, 1.0, 0));
    }
}
