//! Random traces with the mix of the published ones: an instance starts every second; 20% train on 2 or 4 GPUs for a
//! quarter of an hour, 20% are LLMs and 60% other inference, for minutes; half of the training and a quarter of the rest
//! stay to the end.

use policy::InstanceId;
use policy::placement::{Demand, Kind, Need};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sim::placement::{Change, Event, Trace};
use std::ops::RangeInclusive;

/// What instances of a kind are like: request and limit in thousandths, memory in GB, minutes, percent that end.
struct Like {
    kind: Kind,
    request: RangeInclusive<u32>,
    limit: RangeInclusive<u32>,
    memory: RangeInclusive<u64>,
    /// Memory is a multiple of it.
    step: u64,
    minutes: RangeInclusive<u64>,
    end: u32,
}

/// Of ten instances two are the first, two the second.
const LIKE: [Like; 3] = [
    Like {
        kind: Kind::Training,
        request: 400..=800,
        limit: 600..=1_000,
        memory: 5..=8,
        step: 5,
        minutes: 10..=15,
        end: 50,
    },
    Like { kind: Kind::Llm, request: 400..=600, limit: 600..=800, memory: 20..=30, step: 1, minutes: 1..=3, end: 75 },
    Like {
        kind: Kind::Inference,
        request: 200..=400,
        limit: 300..=600,
        memory: 3..=10,
        step: 1,
        minutes: 1..=3,
        end: 75,
    },
];

/// A trace of so many instances.
pub(crate) fn random(seed: u64, instances: usize) -> Trace {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut events: Vec<Event> = Vec::new();
    for (index, seconds) in (0..instances).zip(0..) {
        let instance = InstanceId::new(index);
        let like = &LIKE[(rng.random_range(0..10usize) / 2).min(2)];
        let gpus = if like.kind == Kind::Training { 2 * rng.random_range(1..=2usize) } else { 1 };
        let request = rng.random_range(like.request.clone());
        let limit = rng.random_range(like.limit.clone()).max(request + 200);
        let memory = (like.step * rng.random_range(like.memory.clone())) << 30;
        let demand = Demand::new(format!("{index}"), like.kind, gpus, Need::new(request, limit, memory));
        events.push(Event { seconds, instance, change: Change::Start(demand) });
        if rng.random_range(0..100u32) < like.end {
            let seconds = seconds + 60 * rng.random_range(like.minutes.clone());
            events.push(Event { seconds, instance, change: Change::Stop });
        }
    }
    events.sort_by_key(|event| (event.seconds, event.change != Change::Stop));
    Trace { events }
}
