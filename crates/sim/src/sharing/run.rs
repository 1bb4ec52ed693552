//! The loop: hosts, GPU and policy over one heap of events.

use super::check::InvariantChecker;
use super::gpu::{Gpu, Job};
use super::policies::Verdict;
use super::policies::{self, Control};
use super::report::{Report, Tally};
use super::scenario::{Load, Scenario, TenantSpec};
use super::snapshot::{Head, Snapshot, TenantState};
use super::tenant::{Doing, QUEUE, Request, Tenant};
use crate::event_queue::EventQueue;
use policy::sharing::{Burst, Class, SharingConfig, WHOLE};
use policy::{Span, Time};

/// Runs a scenario under a policy; `None` when there is no policy of this name.
pub fn run(scenario: &Scenario, policy: &str) -> Option<Report> {
    run_with(scenario, policy, SharingConfig::default())
}

/// The same with other parameters of Weft's.
pub fn run_with(scenario: &Scenario, policy: &str, config: SharingConfig) -> Option<Report> {
    let measured = measure(scenario);
    let control = policies::by_name(policy, scenario, config)?;
    let mut report = Run::new(scenario, control, measured.clone()).finish(policy);
    for (index, tenant) in report.tenants.iter_mut().enumerate() {
        let only = vec![measured[index].clone()];
        let by_itself = Run::new_alone(scenario, index, scenario.seed, policies::none(), only).finish("alone");
        tenant.beside(&by_itself.tenants[0]);
    }
    Some(report)
}

/// Requests of a tenant that are measured while it is alone.
const MEASURED: usize = 20;

/// What was measured of one kernel while its tenant was alone. Means.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    duration: Span,
    /// Idle time of the GPU between it and the next.
    gap: Span,
    /// From the first launch after a sync to the end of the one that follows this kernel.
    burst: Span,
}

/// The measuring phase: each tenant alone for a few requests, with other draws than the run's.
fn measure(scenario: &Scenario) -> Vec<Vec<Measured>> {
    let measure_one = |index: usize| {
        let none = vec![vec![Measured::default(); scenario.tenants[index].kernels.len()]];
        let mut run = Run::new_alone(scenario, index, !scenario.seed, policies::none(), none);
        run.tenants[0].load = match run.tenants[0].load {
            // A request now and then would take long to measure; gaps after the last kernel are left to a closed loop.
            Load::Poisson { .. } | Load::Every { .. } => Load::Closed { think: Span::from_millis(10) },
            closed => closed,
        };
        run.measuring = Some(vec![Sums::default(); scenario.tenants[index].kernels.len()]);
        run.start();
        while run.answered[0] < MEASURED && run.step() {}
        run.measuring.take().into_iter().flatten().map(Sums::mean).collect()
    };
    (0..scenario.tenants.len()).map(measure_one).collect()
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    duration: (u64, u64),
    gap: (u64, u64),
    burst: (u64, u64),
}

impl Sums {
    fn mean(self) -> Measured {
        let mean = |(sum, count): (u64, u64)| Span::from_nanos(sum / count.max(1));
        Measured { duration: mean(self.duration), gap: mean(self.gap), burst: mean(self.burst) }
    }
}

fn add(to: &mut (u64, u64), span: Span) {
    *to = (to.0 + span.nanos(), to.1 + 1);
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request comes.
    Arrive(usize),
    /// The host has computed what it had to.
    Host(usize),
    /// A launch that was held is asked for again.
    Again(usize),
    /// Something may be due by now.
    Look,
    /// A tenant's work is off the GPU now, or on.
    Switched { tenant: usize, off: bool },
    /// The policy's clock.
    Tick,
    /// What came before is not counted.
    Warm,
}

struct Run<'a> {
    scenario: &'a Scenario,
    specs: Vec<&'a TenantSpec>,
    control: Box<dyn Control>,
    measured: Vec<Vec<Measured>>,
    measuring: Option<Vec<Sums>>,
    /// When the kernel before was done, and which it was; while measuring.
    before: Option<(usize, Time)>,
    now: Time,
    events: EventQueue<Event>,
    gpu: Gpu,
    snapshot: Snapshot,
    tenants: Vec<Tenant>,
    /// What was predicted and turned out otherwise, to be charged with the next launch.
    owed: Vec<i64>,
    /// The earliest time at which each is asked again.
    again: Vec<Time>,
    /// Whether a tenant's work is off the GPU, and whether that is being changed.
    off: Vec<bool>,
    switching: Vec<bool>,
    /// When it is looked next whether it may be on again.
    look: Vec<Time>,
    answered: Vec<usize>,
    /// By tenant: the best-effort work that was done when its burst began; `None` where some was on the GPU.
    disturbed: Vec<Option<u64>>,
    tallies: Vec<Tally>,
    /// Work done and idle time when the measured part began.
    at_warm: (Vec<u64>, Span, Span),
    checker: InvariantChecker,
    finished: Vec<Job>,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, control: Box<dyn Control>, measured: Vec<Vec<Measured>>) -> Run<'a> {
        let all: Vec<usize> = (0..scenario.tenants.len()).collect();
        Run::of(scenario, &all, scenario.seed, control, measured)
    }

    /// Only one of the tenants, with the same draws.
    fn new_alone(
        scenario: &'a Scenario,
        index: usize,
        seed: u64,
        control: Box<dyn Control>,
        measured: Vec<Vec<Measured>>,
    ) -> Run<'a> {
        Run::of(scenario, &[index], seed, control, measured)
    }

    fn of(
        scenario: &'a Scenario,
        chosen: &[usize],
        seed: u64,
        control: Box<dyn Control>,
        measured: Vec<Vec<Measured>>,
    ) -> Run<'a> {
        let specs: Vec<&TenantSpec> = chosen.iter().map(|index| &scenario.tenants[*index]).collect();
        let spec = super::gpu::GpuSpec { mode: control.mode(scenario.gpu.mode), ..scenario.gpu };
        let mut gpu = Gpu::new(spec, specs.len());
        let states: Vec<TenantState> = specs.iter().map(|spec| state(spec)).collect();
        for (index, state) in states.iter().enumerate() {
            gpu.set_slice(index, control.slice(index, state).unwrap_or(spec.slice));
        }
        let tenant = |index: &usize| Tenant::new(&scenario.tenants[*index], *index, seed, scenario.noise);
        Run {
            scenario,
            control,
            measured,
            measuring: None,
            before: None,
            now: Time::ZERO,
            events: EventQueue::default(),
            gpu,
            snapshot: Snapshot { gpu: spec, states },
            tenants: chosen.iter().map(tenant).collect(),
            owed: vec![0; specs.len()],
            again: vec![Time::NEVER; specs.len()],
            off: vec![false; specs.len()],
            switching: vec![false; specs.len()],
            look: vec![Time::ZERO; specs.len()],
            answered: vec![0; specs.len()],
            disturbed: vec![None; specs.len()],
            tallies: vec![Tally::default(); specs.len()],
            at_warm: (vec![0; specs.len()], Span::ZERO, Span::ZERO),
            checker: InvariantChecker::new(specs.len()),
            finished: Vec::new(),
            specs,
        }
    }

    fn start(&mut self) {
        self.events.push(Time::ZERO + self.scenario.warmup, Event::Warm);
        for tenant in 0..self.tenants.len() {
            let first = self.tenants[tenant].first();
            self.events.push(first, Event::Arrive(tenant));
        }
        if self.control.tick().is_some() {
            self.events.push(Time::ZERO, Event::Tick);
        }
    }

    fn finish(mut self, policy: &str) -> Report {
        self.start();
        while self.step() {}
        let measured = self.scenario.duration;
        let end = Time::ZERO + self.scenario.warmup + measured;
        self.advance(end);
        self.checker.finish(&self.gpu);
        let (done, busy, switching) = &self.at_warm;
        for (index, tally) in self.tallies.iter_mut().enumerate() {
            tally.used = Span::from_nanos((self.gpu.done[index] - done[index]) / 1_000);
        }
        let part = |now: Span, then: Span| (now - then).seconds() / measured.seconds();
        let (gpu_busy, gpu_switching) = (part(self.gpu.busy, *busy), part(self.gpu.switching, *switching));
        let tenants = self.tallies.into_iter().zip(&self.specs);
        let tenants = tenants.map(|(tally, spec)| tally.report(&spec.name, measured)).collect();
        Report { policy: policy.to_owned(), seed: self.scenario.seed, gpu_busy, gpu_switching, tenants }
    }

    /// Goes to the next moment at which something happens. `false`: there is none before the end.
    fn step(&mut self) -> bool {
        let next = self.events.next().min(self.gpu.next());
        if next > Time::ZERO + self.scenario.warmup + self.scenario.duration {
            return false;
        }
        self.advance(next);
        while self.events.next() == self.now {
            let (_, event) = self.events.pop().expect("there is a next event");
            self.happen(event);
        }
        self.ask();
        self.switch();
        true
    }

    /// Takes work off the GPU, or puts it back, as the policy says. One after the other: each takes its time.
    fn switch(&mut self) {
        for tenant in 0..self.tenants.len() {
            if self.switching[tenant] {
                continue;
            }
            let until = self.control.off_until(self.now, tenant, &self.snapshot);
            match (until, self.off[tenant]) {
                (Some(until), true) if self.look[tenant] <= self.now => {
                    self.look[tenant] = until;
                    self.events.push(until, Event::Look);
                }
                (Some(_), true) => {}
                (None, false) => {}
                (wanted, _) => {
                    self.switching[tenant] = true;
                    let off = wanted.is_some();
                    self.events.push(self.now + self.snapshot.gpu.preemption, Event::Switched { tenant, off });
                }
            }
        }
    }

    fn advance(&mut self, to: Time) {
        self.checker.tick(to);
        self.now = to;
        let mut finished = std::mem::take(&mut self.finished);
        self.gpu.advance(to, &mut finished);
        for job in finished.drain(..) {
            self.done(&job);
        }
        self.finished = finished;
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Arrive(tenant) => {
                let after = self.tenants[tenant].after(now);
                if after < Time::NEVER {
                    self.events.push(after, Event::Arrive(tenant));
                }
                self.tenants[tenant].waiting.push_back(now);
                if self.tenants[tenant].doing == Doing::Nothing {
                    self.proceed(tenant);
                }
            }
            Event::Host(tenant) => self.proceed(tenant),
            Event::Again(tenant) => self.again[tenant] = Time::NEVER,
            Event::Tick => {
                self.control.on_tick(now, &self.snapshot);
                for (index, state) in self.snapshot.states.iter().enumerate() {
                    self.gpu.set_slice(index, self.control.slice(index, state).unwrap_or(self.snapshot.gpu.slice));
                }
                self.snapshot.states.iter_mut().for_each(|state| state.ended.clear());
                for at in (0..self.tenants.len()).filter_map(|tenant| self.control.look_at(tenant)) {
                    if at > now {
                        self.events.push(at, Event::Look);
                    }
                }
                if let Some(tick) = self.control.tick() {
                    self.events.push(now + tick, Event::Tick);
                }
            }
            Event::Look => {}
            Event::Switched { tenant, off } => {
                (self.off[tenant], self.switching[tenant]) = (off, false);
                self.gpu.set_off(tenant, off);
            }
            Event::Warm => {
                self.at_warm = (self.gpu.done.clone(), self.gpu.busy, self.gpu.switching);
                self.tallies.fill(Tally::default());
            }
        }
    }

    /// The host goes on: with its request's next kernel, or with the next request.
    fn proceed(&mut self, tenant: usize) {
        let host = &mut self.tenants[tenant];
        if host.request.is_none() {
            host.request = host.waiting.pop_front().map(|arrived| Request { arrived, next: 0 });
        }
        let Some(request) = host.request else {
            host.doing = Doing::Nothing;
            return;
        };
        host.doing = Doing::Asking;
        let kernel = host.kernels[request.next];
        let measured = self.measured[tenant][request.next];
        let state = &mut self.snapshot.states[tenant];
        state.in_request = true;
        state.head = Some(Head {
            kernel: request.next,
            predicted: measured.duration,
            gap: measured.gap,
            sms: kernel.sms,
            memory_bound: kernel.memory_bound,
            since: self.now,
        });
        state.note_wants(self.now);
    }

    /// Asks the policy for every launch that waits: the most important first, then the longest.
    fn ask(&mut self) {
        let mut asking: Vec<usize> =
            (0..self.tenants.len()).filter(|tenant| self.tenants[*tenant].doing == Doing::Asking).collect();
        asking.sort_by_key(|tenant| {
            let state = &self.snapshot.states[*tenant];
            (state.rank(), std::cmp::Reverse(state.head.map(|head| head.predicted)))
        });
        for tenant in asking {
            match self.control.may_launch(self.now, tenant, &self.snapshot) {
                Verdict::Go => self.launch(tenant),
                Verdict::Wait { until } => {
                    let until = until.max(self.now + Span::from_nanos(1));
                    if until < self.again[tenant] {
                        self.again[tenant] = until;
                        self.events.push(until, Event::Again(tenant));
                    }
                }
            }
        }
    }

    fn launch(&mut self, tenant: usize) {
        let now = self.now;
        let before = self.best_effort_work();
        let cap = self.control.sm_cap(now, tenant, &self.snapshot);
        let host = &mut self.tenants[tenant];
        let state = &mut self.snapshot.states[tenant];
        let head = state.head.take().expect("it asked for a launch");
        // On a part of the SMs that it wants, a kernel takes longer in proportion.
        let (wanted, sms) = (head.sms.max(1), cap.map_or(head.sms, |cap| cap.min(head.sms)).max(1));
        let duration = host.duration(head.kernel).scale(wanted.into(), sms.into());
        let job = Job::new(tenant, self.checker.next(tenant), head.kernel, duration, head.predicted, sms);
        self.checker.launched(&job);
        self.gpu.submit(job);

        let sms = if self.snapshot.gpu.mode.is_at_once() { head.sms } else { WHOLE };
        let charge = head.predicted.scale(u64::from(sms), u64::from(WHOLE)).nanos() as i64 + self.owed[tenant];
        self.owed[tenant] = charge.min(0);
        state.charged += Span::from_nanos(charge.max(0) as u64);
        state.last = Some(head);
        state.in_flight += 1;
        state.launches += 1;
        state.outstanding += head.predicted;
        state.busy_until = state.busy_until.max(now) + head.predicted;
        if state.burst_since.is_none() {
            state.burst_since = Some(now);
            self.disturbed[tenant] = before;
        }
        state.note_wants(now);
        self.tallies[tenant].launches += 1;
        self.tallies[tenant].held += now - head.since;

        let kernel = host.kernels[head.kernel];
        let request = host.request.as_mut().expect("a launch belongs to a request");
        request.next += 1;
        let last = request.next == host.kernels.len();
        host.doing = if kernel.sync || last {
            state.syncing_since = Some(now);
            Doing::Syncing
        } else if state.in_flight >= QUEUE {
            Doing::Blocked
        } else {
            let gap = host.gap(kernel.gap);
            self.events.push(now + gap, Event::Host(tenant));
            Doing::Computing
        };
        self.control.on_launch(now, tenant, &self.snapshot);
    }

    fn done(&mut self, job: &Job) {
        let (now, tenant) = (self.now, job.tenant);
        self.checker.done(job);
        if let Some(sums) = &mut self.measuring {
            add(&mut sums[job.kernel].duration, job.duration);
            let started = job.started.unwrap_or(now);
            if let Some((before, ended)) = self.before.replace((job.kernel, now)) {
                add(&mut sums[before].gap, started - ended);
            }
        }
        let at_once = self.snapshot.gpu.mode.is_at_once();
        let charge =
            |span: Span, sms: u32| span.scale(if at_once { sms } else { WHOLE }.into(), WHOLE.into()).nanos() as i64;
        let wanted = self.tenants[tenant].kernels[job.kernel].sms;
        self.owed[tenant] += charge(job.duration, job.sms) - charge(job.predicted, wanted);
        let state = &mut self.snapshot.states[tenant];
        state.in_flight -= 1;
        state.outstanding = state.outstanding - job.predicted;
        state.note_wants(now);
        let host = &mut self.tenants[tenant];
        match host.doing {
            Doing::Syncing if state.in_flight == 0 => self.synced(tenant, job.kernel),
            Doing::Blocked => {
                host.doing = Doing::Computing;
                let gap = host.gap(host.kernels[job.kernel].gap);
                self.events.push(now + gap, Event::Host(tenant));
            }
            _ => {}
        }
        self.control.on_done(now, tenant, &self.snapshot);
    }

    /// What best-effort work was done so far.
    fn best_effort_done(&self) -> u64 {
        let best_effort =
            self.snapshot.states.iter().zip(&self.gpu.done).filter(|(state, _)| state.class == Class::BestEffort);
        best_effort.map(|(_, done)| done).sum()
    }

    /// The same, unless there is some on the GPU now.
    fn best_effort_work(&self) -> Option<u64> {
        let is_on =
            |(state, off): (&TenantState, &bool)| state.class == Class::BestEffort && state.in_flight > 0 && !off;
        (!self.snapshot.states.iter().zip(&self.off).any(is_on)).then(|| self.best_effort_done())
    }

    /// The host's wait is over: its burst has ended and perhaps its request.
    fn synced(&mut self, tenant: usize, kernel: usize) {
        let now = self.now;
        let best_effort_done = self.best_effort_done();
        let host = &mut self.tenants[tenant];
        let state = &mut self.snapshot.states[tenant];
        state.busy_until = now;
        state.syncing_since = None;
        state.bursts += 1;
        let began = state.burst_since.take().unwrap_or(now);
        state.burst = now - began;
        state.burst_alone = self.measured[tenant][kernel].burst;
        if self.control.tick().is_some() {
            let alone = state.burst_alone;
            let undisturbed = self.disturbed[tenant] == Some(best_effort_done);
            state.ended.push(Burst { process: 0, began, took: state.burst, alone, undisturbed });
        }
        if let Some(sums) = &mut self.measuring {
            add(&mut sums[kernel].burst, state.burst);
        }
        let request = host.request.expect("a sync belongs to a request");
        let mut gap = host.gap(host.kernels[kernel].gap);
        if request.next == host.kernels.len() {
            host.request = None;
            state.in_request = false;
            state.answered += 1;
            self.answered[tenant] += 1;
            self.tallies[tenant].completions.push(now - request.arrived);
            if let Load::Closed { think } = host.load {
                gap += host.gap(think);
                // The request comes when the host is free for it.
                host.waiting.push_back(now + gap);
            }
        }
        host.doing = Doing::Computing;
        self.events.push(now + gap, Event::Host(tenant));
    }
}

fn state(spec: &TenantSpec) -> TenantState {
    TenantState {
        class: spec.class,
        priority: spec.priority,
        request: spec.request,
        limit: spec.limit,
        objective: spec.objective,
        head: None,
        last: None,
        in_flight: 0,
        outstanding: Span::ZERO,
        busy_until: Time::ZERO,
        burst_since: None,
        syncing_since: None,
        burst: Span::ZERO,
        burst_alone: Span::ZERO,
        bursts: 0,
        ended: Vec::new(),
        charged: Span::ZERO,
        in_request: false,
        launches: 0,
        answered: 0,
        wanted: Span::ZERO,
        wants_since: None,
    }
}
