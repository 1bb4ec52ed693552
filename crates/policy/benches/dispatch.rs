//! The dispatch machine alone, on one core: requests a second against models and GPUs.
//!
//! Poisson arrivals at 80% of what the GPUs can serve, drawn beforehand; GPUs that finish exactly on time. The
//! cluster is warm before anything is measured and runs on from one sample to the next, so that what is
//! measured is the steady state.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use policy::{
    Action, Actions, Dispatcher, Event, GpuId, GpuType, LatencyTable, Model, ModelId, Network, Request, RequestId,
    Span, Time, policies,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Models and GPUs.
const SIZES: [(usize, usize); 5] = [(1, 10), (10, 100), (100, 1_000), (1_000, 10_000), (1_000, 50_000)];
const POLICIES: [&str; 2] = ["deferred", "weft"];
const OBJECTIVE: Span = Span::from_millis(100);
const LOAD: f64 = 0.8;
/// Requests per measured step.
const STEP: u64 = 100_000;
/// Arrivals drawn beforehand; they come round again.
const DRAWN: usize = 1 << 20;

struct World {
    dispatcher: Dispatcher,
    actions: Actions,
    /// Nanoseconds since the arrival before, and the model.
    arrivals: Vec<(u32, u32)>,
    next_arrival: Time,
    came: u64,
    ends: BinaryHeap<Reverse<(Time, u64, GpuId)>>,
}

impl World {
    fn new(policy: &str, models: usize, gpus: usize) -> World {
        let table = LatencyTable::line(Span::from_nanos(1_082_000), Span::from_nanos(5_204_000), 512).within(OBJECTIVE);
        let cheapest = table.cheapest().expect("a table that runs").seconds();
        let rate = LOAD * gpus as f64 / cheapest;
        let expected_gap = Span::from_secs_f64(models as f64 / rate);
        let model = Model { objective: OBJECTIVE, tables: vec![table], expected_gap };
        let policy = policies::by_name(policy).expect("a policy of that name");
        let mut random = Random(1);
        let mut draw = || ((-random.unit().ln() * 1e9 / rate) as u32, (random.next() % models as u64) as u32);
        World {
            dispatcher: Dispatcher::new(vec![model; models], &vec![GpuType(0); gpus], Network::default(), policy),
            actions: Actions::default(),
            arrivals: (0..DRAWN).map(|_| draw()).collect(),
            next_arrival: Time::ZERO,
            came: 0,
            ends: BinaryHeap::new(),
        }
    }

    /// Lets so many requests come, with all that happens in between.
    fn step(&mut self, requests: u64) {
        let until = self.came + requests;
        while self.came < until {
            let end = self.ends.peek().map_or(Time::NEVER, |Reverse((end, ..))| *end);
            let timer = self.dispatcher.next_timer().unwrap_or(Time::NEVER);
            if end <= self.next_arrival && end <= timer {
                let Reverse((now, batch, gpu)) = self.ends.pop().expect("a batch is over");
                self.dispatcher.on_event(now, Event::BatchDone { gpu, batch }, &mut self.actions);
            } else if self.next_arrival <= timer {
                let now = self.next_arrival;
                let (gap, model) = self.arrivals[self.came as usize % DRAWN];
                let id = RequestId(self.came);
                let request = Request { id, model: ModelId(model), arrival: now, deadline: now + OBJECTIVE };
                self.came += 1;
                self.next_arrival = now + Span::from_nanos(u64::from(gap));
                self.dispatcher.on_event(now, Event::Arrived(request), &mut self.actions);
            } else {
                self.dispatcher.on_timer(timer, &mut self.actions);
            }
            for action in &self.actions.list {
                if let Action::Run { gpu, batch, finish, .. } = action {
                    self.ends.push(Reverse((*finish, *batch, *gpu)));
                }
            }
            self.actions.clear();
        }
    }

    /// Runs through three objectives' time and makes sure that the cluster copes.
    fn warm_up(&mut self) {
        while self.next_arrival < Time::ZERO + OBJECTIVE * 3 {
            self.step(STEP / 10);
        }
        let cluster = self.dispatcher.cluster();
        let (offered, refused): (u64, u64) = (cluster.offered.iter().sum(), cluster.refused.iter().sum());
        assert!(refused * 100 <= offered, "{refused} of {offered} requests were refused");
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): enough for arrivals, and the crate draws no random numbers itself.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

fn dispatch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("dispatch");
    group.throughput(Throughput::Elements(STEP)).sample_size(10);
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3));
    for policy in POLICIES {
        for (models, gpus) in SIZES {
            // Made when it is first run, so that a filter on names spares the rest.
            let mut world = None;
            group.bench_function(BenchmarkId::new(policy, format!("{models} models, {gpus} GPUs")), |bencher| {
                let world = world.get_or_insert_with(|| {
                    let mut world = World::new(policy, models, gpus);
                    world.warm_up();
                    world
                });
                bencher.iter(|| world.step(STEP));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, dispatch);
criterion_main!(benches);
