//! The GPU: what was launched, and how it runs. Time is counted in nanoseconds, work in thousandths of one, so that
//! kernels that slow each other down stay integers.
//!
//! 1. A tenant's kernels run in the order of their launches, one at a time.
//! 2. Every moment is busy, spent on switching, or idle; the three add up to the time that passed.
//!
//! 3. In spatial mode SMs go to kernels in the order in which they came to the front of their queues: a kernel that has
//!    SMs keeps them until it is done, and one that finds fewer than it wants takes longer in proportion.
//!
//! Not modelled: what one kernel does to another's caches and memory bandwidth, and kernels of one tenant at the same time.

use policy::{Span, Time};
use std::collections::VecDeque;

/// How tenants share the GPU when nobody interferes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One process at a time, in turn.
    TimeSlice,
    /// All at once, as with MPS: kernels that want more SMs than there are slow each other down alike.
    Concurrent,
    /// All at once, and a kernel keeps the SMs that it has: what MPS does without priorities.
    Spatial,
    /// One kernel at a time, in the order of launches.
    Fifo,
}

impl Mode {
    /// Whether kernels of several tenants run at the same time.
    pub fn is_at_once(self) -> bool {
        matches!(self, Mode::Concurrent | Mode::Spatial)
    }
}

/// The GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuSpec {
    /// How tenants share it.
    pub mode: Mode,
    /// A process's turn, when others wait.
    pub slice: Span,
    /// What changing to another process costs.
    pub switch: Span,
    /// How long a process without work keeps its turn when others wait.
    pub linger: Span,
    /// How long it takes to take a process's work off, or to put it back.
    pub preemption: Span,
}

impl Default for GpuSpec {
    fn default() -> GpuSpec {
        GpuSpec {
            mode: Mode::TimeSlice,
            slice: Span::from_millis(2),
            switch: Span::from_micros(20),
            linger: Span::from_micros(50),
            preemption: Span::from_micros(350),
        }
    }
}

/// A kernel that was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) tenant: usize,
    /// Counts the tenant's launches.
    pub(super) number: u64,
    /// Position in the tenant's sequence.
    pub(super) kernel: usize,
    pub(super) duration: Span,
    pub(super) predicted: Span,
    pub(super) sms: u32,
    /// When it first ran.
    pub(super) started: Option<Time>,
    /// Thousandths of nanoseconds.
    remaining: u64,
}

impl Job {
    pub(super) fn new(tenant: usize, number: u64, kernel: usize, duration: Span, predicted: Span, sms: u32) -> Job {
        Job { tenant, number, kernel, duration, predicted, sms, started: None, remaining: duration.nanos() * FULL }
    }
}

/// Work done in a nanosecond by a kernel that is not slowed down.
const FULL: u64 = 1_000;

/// A GPU at work.
#[derive(Debug)]
pub(super) struct Gpu {
    spec: GpuSpec,
    /// By tenant.
    slices: Vec<Span>,
    /// By tenant: it has no turn, and what it runs goes on until its turn ends or is done.
    off: Vec<bool>,
    queues: Vec<VecDeque<Job>>,
    /// Tenants in the order of launches.
    order: VecDeque<usize>,
    clock: Time,
    /// Whose turn it is.
    owner: Option<usize>,
    /// When the change to it is done.
    ready: Time,
    /// When its turn ends.
    until: Time,
    /// When its queue was last seen empty.
    empty_since: Time,
    /// By tenant: how often a kernel had come to the front of any queue when its first one did.
    fronts: Vec<u64>,
    front: u64,
    /// Work done, by tenant, in thousandths of nanoseconds.
    pub(super) done: Vec<u64>,
    pub(super) busy: Span,
    pub(super) switching: Span,
    pub(super) idle: Span,
}

impl Gpu {
    pub(super) fn new(spec: GpuSpec, tenants: usize) -> Gpu {
        Gpu {
            spec,
            slices: vec![spec.slice; tenants],
            off: vec![false; tenants],
            queues: vec![VecDeque::new(); tenants],
            order: VecDeque::new(),
            clock: Time::ZERO,
            owner: None,
            ready: Time::ZERO,
            until: Time::ZERO,
            empty_since: Time::ZERO,
            fronts: vec![0; tenants],
            front: 0,
            done: vec![0; tenants],
            busy: Span::ZERO,
            switching: Span::ZERO,
            idle: Span::ZERO,
        }
    }

    /// Gives a tenant's turns another length.
    pub(super) fn set_slice(&mut self, tenant: usize, slice: Span) {
        self.slices[tenant] = slice;
    }

    /// Takes a tenant's work off, or puts it back, where tenants take turns; the GPU was advanced to this moment.
    pub(super) fn set_off(&mut self, tenant: usize, off: bool) {
        self.off[tenant] = off;
        self.take_turns();
    }

    /// Takes a launch; the GPU was advanced to this moment.
    pub(super) fn submit(&mut self, job: Job) {
        if self.spec.mode == Mode::Fifo {
            self.order.push_back(job.tenant);
        }
        if self.queues[job.tenant].is_empty() {
            self.come_to_front(job.tenant);
        }
        self.queues[job.tenant].push_back(job);
        self.take_turns();
    }

    /// When something changes by itself.
    pub(super) fn next(&self) -> Time {
        let mut next = Time::NEVER;
        for (tenant, speed) in self.speeds() {
            let left = self.queues[tenant][0].remaining.div_ceil(speed);
            next = next.min(self.clock + Span::from_nanos(left));
        }
        if self.spec.mode == Mode::TimeSlice {
            if self.ready > self.clock {
                next = next.min(self.ready);
            } else if let Some(owner) = self.owner
                && self.waiting_after(owner).is_some()
            {
                let idle_until = self.empty_since + self.spec.linger;
                next = next.min(if self.has_work(owner) { self.until } else { idle_until.min(self.until) });
            }
        }
        next.max(self.clock)
    }

    /// Runs until `to` and says which kernels were done on the way.
    pub(super) fn advance(&mut self, to: Time, finished: &mut Vec<Job>) {
        loop {
            let step = self.next().min(to);
            self.progress(step - self.clock, step);
            self.clock = step;
            let before = finished.len();
            for tenant in 0..self.queues.len() {
                while self.queues[tenant].front().is_some_and(|job| job.remaining == 0) {
                    finished.push(self.queues[tenant].pop_front().expect("it has a front"));
                    self.come_to_front(tenant);
                    if self.spec.mode == Mode::Fifo {
                        assert_eq!(self.order.pop_front(), Some(tenant), "a kernel ran before its turn");
                    }
                    self.empty_since = step;
                }
            }
            let turned = self.take_turns();
            if step >= to && finished.len() == before && !turned {
                return;
            }
        }
    }

    /// Tenants whose first kernel makes progress.
    fn running(&self) -> impl Iterator<Item = usize> + '_ {
        let one = match self.spec.mode {
            Mode::Fifo => self.order.front().copied(),
            Mode::TimeSlice => self.owner.filter(|owner| self.clock >= self.ready && self.has_work(*owner)),
            Mode::Concurrent | Mode::Spatial => None,
        };
        let all = self.spec.mode.is_at_once();
        let concurrent = (0..self.queues.len()).filter(move |tenant| all && !self.queues[*tenant].is_empty());
        one.into_iter().chain(concurrent)
    }

    /// Who makes progress, and how fast.
    fn speeds(&self) -> Vec<(usize, u64)> {
        let mut running: Vec<usize> = self.running().collect();
        let sms = |tenant: usize| u64::from(self.queues[tenant][0].sms).max(1);
        match self.spec.mode {
            Mode::Concurrent => {
                let wanted: u64 = running.iter().map(|tenant| sms(*tenant)).sum();
                let speed = if wanted <= FULL { FULL } else { (FULL * FULL / wanted).max(1) };
                running.into_iter().map(|tenant| (tenant, speed)).collect()
            }
            Mode::Spatial => {
                running.sort_by_key(|tenant| self.fronts[*tenant]);
                let mut left = FULL;
                let mut speed = |tenant: usize| {
                    let given = sms(tenant).min(left);
                    left -= given;
                    FULL * given / sms(tenant)
                };
                let speeds = running.into_iter().map(|tenant| (tenant, speed(tenant)));
                speeds.filter(|(_, speed)| *speed > 0).collect()
            }
            Mode::TimeSlice | Mode::Fifo => running.into_iter().map(|tenant| (tenant, FULL)).collect(),
        }
    }

    /// A tenant's first kernel is another now.
    fn come_to_front(&mut self, tenant: usize) {
        self.front += 1;
        self.fronts[tenant] = self.front;
    }

    fn progress(&mut self, passed: Span, to: Time) {
        let running = self.speeds();
        for &(tenant, speed) in &running {
            let from = self.clock;
            let job = &mut self.queues[tenant][0];
            let work = (speed * passed.nanos()).min(job.remaining);
            job.started = job.started.or(Some(from));
            job.remaining -= work;
            self.done[tenant] += work;
        }
        let account = match (running.is_empty(), self.ready > self.clock) {
            (false, _) => &mut self.busy,
            (true, true) => &mut self.switching,
            (true, false) => &mut self.idle,
        };
        *account += passed;
        debug_assert!(to >= self.clock);
    }

    /// Whether a tenant has something to run in its turn. Who is off begins nothing, and ends what it began only while the
    /// turn is still its own.
    fn has_work(&self, tenant: usize) -> bool {
        let runs = |job: &Job| !self.off[tenant] || self.owner == Some(tenant) && job.started.is_some();
        self.queues[tenant].front().is_some_and(runs)
    }

    /// The next after `tenant`, in turn, that has work and is not it.
    fn waiting_after(&self, tenant: usize) -> Option<usize> {
        let count = self.queues.len();
        (1..count).map(|step| (tenant + step) % count).find(|other| self.has_work(*other))
    }

    /// Whether it became somebody else's turn.
    fn take_turns(&mut self) -> bool {
        if self.spec.mode != Mode::TimeSlice || self.clock < self.ready {
            return false;
        }
        let Some(owner) = self.owner else {
            let first = (0..self.queues.len()).find(|tenant| self.has_work(*tenant));
            self.owner = first;
            self.until = self.clock + first.map_or(Span::ZERO, |first| self.slices[first]);
            return false;
        };
        let empty = !self.has_work(owner);
        let over = self.clock >= self.until || empty && self.clock >= self.empty_since + self.spec.linger;
        match self.waiting_after(owner) {
            Some(next) if over => {
                self.owner = Some(next);
                self.ready = self.clock + self.spec.switch;
                self.until = self.ready + self.slices[next];
                self.empty_since = self.ready;
                true
            }
            None if over && !empty => {
                self.until = self.clock + self.slices[owner];
                false
            }
            _ => false,
        }
    }

    /// Work that was launched and is not done, by tenant, in thousandths of nanoseconds.
    pub(super) fn left(&self, tenant: usize) -> u64 {
        self.queues[tenant].iter().map(|job| job.remaining).sum()
    }

    /// The tenant's launches that are not done.
    pub(super) fn queued(&self, tenant: usize) -> usize {
        self.queues[tenant].len()
    }
}
