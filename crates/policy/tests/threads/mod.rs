//! Sub-clusters driven by threads: gateways that pack what comes, shards that decide, GPUs that finish on time.
//!
//! Time goes in rounds. In each, every gateway packs the requests that come in it, a packet for every shard; then every
//! shard takes in its packets, in the order of the gateways, at the end of the round. Which thread does which part of
//! that makes no difference to what any of them does.

use policy::shard::{Decision, Shard, decisions, pack_arrival, pack_done};
use policy::{Dispatcher, GpuId, GpuType, LatencyTable, Model, ModelId, Network, RequestId, Span, Time, policies};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Barrier, Mutex};

pub(crate) const OBJECTIVE: Span = Span::from_millis(100);
const LOAD: f64 = 0.8;
/// As many for any number of threads.
const GATEWAYS: usize = 4;
/// Arrivals drawn beforehand for each gateway; they come round again.
const DRAWN: usize = 1 << 18;

fn table() -> LatencyTable {
    LatencyTable::line(Span::from_nanos(1_082_000), Span::from_nanos(5_204_000), 512).within(OBJECTIVE)
}

/// Requests a second that come for so many GPUs.
pub(crate) fn rate(gpus: usize) -> f64 {
    LOAD * gpus as f64 / table().cheapest().expect("a table that runs").seconds()
}

/// Who sends requests.
struct Gateway {
    /// Nanoseconds since the arrival before, and the model.
    arrivals: Vec<(u32, u32)>,
    next: Time,
    came: u64,
}

impl Gateway {
    /// Packs what comes until then, by shard.
    fn pack(&mut self, index: usize, until: Time, shards: usize, packets: &[Mutex<Vec<u8>>]) {
        let mut open: Vec<_> = packets.iter().map(|packet| packet.lock().expect("nobody panicked")).collect();
        while self.next < until {
            let (gap, model) = self.arrivals[self.came as usize % DRAWN];
            let id = RequestId(self.came * GATEWAYS as u64 + index as u64);
            let (shard, model) = (model as usize % shards, ModelId(model / shards as u32));
            pack_arrival(&mut open[shard], id, model, self.next + OBJECTIVE);
            self.came += 1;
            self.next += Span::from_nanos(u64::from(gap));
        }
    }
}

/// A shard and its GPUs.
struct Cell {
    shard: Shard,
    ends: BinaryHeap<Reverse<(Time, u64, GpuId)>>,
    /// What was decided and not looked at.
    out: Vec<u8>,
    done: Vec<u8>,
    /// All that was ever decided, mixed; and how many requests it ran and refused.
    digest: u64,
    counts: [u64; 2],
}

impl Cell {
    /// Does what comes due before the end of the round.
    fn run_until(&mut self, until: Time) {
        loop {
            let end = self.ends.peek().map_or(Time::NEVER, |Reverse((end, ..))| *end);
            let timer = self.shard.next_timer().unwrap_or(Time::NEVER);
            if end.min(timer) >= until {
                return;
            }
            if end <= timer {
                let Reverse((_, batch, gpu)) = self.ends.pop().expect("a batch is over");
                self.done.clear();
                pack_done(&mut self.done, gpu, batch);
                self.shard.on_packet(end, &self.done, &mut self.out).expect("a packet of ours");
            } else {
                self.shard.on_timer(timer, &mut self.out);
            }
            self.look();
        }
    }

    fn take(&mut self, now: Time, packet: &[u8]) {
        self.shard.on_packet(now, packet, &mut self.out).expect("a packet of ours");
        self.look();
    }

    /// Does what was decided.
    fn look(&mut self) {
        for decision in decisions(&self.out) {
            match decision {
                Decision::Run { gpu, batch, finish, requests, .. } => {
                    self.ends.push(Reverse((finish, batch, gpu)));
                    self.counts[0] += requests.len() as u64;
                }
                Decision::Reject { .. } => self.counts[1] += 1,
                Decision::Preempt { .. } => {}
            }
        }
        if cfg!(test) {
            // FNV-1a.
            for byte in &self.out {
                self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        self.out.clear();
    }
}

/// Gateways, shards and what lies between them.
pub(crate) struct Threads {
    gateways: Vec<Mutex<Gateway>>,
    cells: Vec<Mutex<Cell>>,
    /// By gateway, and then by shard.
    packets: Vec<Vec<Mutex<Vec<u8>>>>,
    round: Span,
    now: Time,
}

impl Threads {
    pub(crate) fn new(policy: &str, models: usize, gpus: usize, shards: usize, round: Span) -> Threads {
        let rate = rate(gpus);
        let model = Model {
            objective: OBJECTIVE,
            tables: vec![table()],
            expected_gap: Span::from_secs_f64(models as f64 / rate),
        };
        let cell = |shard: usize| {
            let policy = policies::by_name(policy).expect("a policy of that name");
            let models = vec![model.clone(); (models - shard).div_ceil(shards)];
            let gpus = vec![GpuType(0); (gpus - shard).div_ceil(shards)];
            Mutex::new(Cell {
                shard: Shard::new(Dispatcher::new(models, &gpus, Network::default(), policy)),
                ends: BinaryHeap::new(),
                out: Vec::new(),
                done: Vec::new(),
                digest: 0xcbf2_9ce4_8422_2325,
                counts: [0; 2],
            })
        };
        let gateway = |index: usize| {
            let mut random = Random(index as u64 + 1);
            let mean = 1e9 * GATEWAYS as f64 / rate;
            let mut draw = || ((-random.unit().ln() * mean) as u32, (random.next() % models as u64) as u32);
            Mutex::new(Gateway { arrivals: (0..DRAWN).map(|_| draw()).collect(), next: Time::ZERO, came: 0 })
        };
        Threads {
            gateways: (0..GATEWAYS).map(gateway).collect(),
            cells: (0..shards).map(cell).collect(),
            packets: (0..GATEWAYS).map(|_| (0..shards).map(|_| Mutex::default()).collect()).collect(),
            round,
            now: Time::ZERO,
        }
    }

    /// Goes through so many rounds on so many threads.
    pub(crate) fn run(&mut self, rounds: usize, threads: usize) {
        let barrier = Barrier::new(threads);
        let this = &*self;
        std::thread::scope(|scope| {
            for thread in 1..threads {
                let barrier = &barrier;
                scope.spawn(move || this.part(rounds, thread, threads, barrier));
            }
            this.part(rounds, 0, threads, &barrier);
        });
        self.now += self.round * rounds;
    }

    /// What one of the threads does.
    fn part(&self, rounds: usize, thread: usize, threads: usize, barrier: &Barrier) {
        let mut until = self.now;
        for _ in 0..rounds {
            until += self.round;
            for (index, gateway) in self.gateways.iter().enumerate().skip(thread).step_by(threads) {
                let mut gateway = gateway.lock().expect("nobody panicked");
                gateway.pack(index, until, self.cells.len(), &self.packets[index]);
            }
            barrier.wait();
            for (index, cell) in self.cells.iter().enumerate().skip(thread).step_by(threads) {
                let mut cell = cell.lock().expect("nobody panicked");
                cell.run_until(until);
                for packets in &self.packets {
                    let mut packet = packets[index].lock().expect("nobody panicked");
                    cell.take(until, &packet);
                    packet.clear();
                }
            }
            barrier.wait();
        }
    }

    /// Requests that came so far.
    pub(crate) fn came(&self) -> u64 {
        self.gateways.iter().map(|gateway| gateway.lock().expect("nobody panicked").came).sum()
    }

    /// Of each shard: all that it decided, mixed, and how many requests it ran and refused.
    pub(crate) fn decided(&self) -> Vec<(u64, [u64; 2])> {
        let decided = |cell: &Mutex<Cell>| {
            let cell = cell.lock().expect("nobody panicked");
            (cell.digest, cell.counts)
        };
        self.cells.iter().map(decided).collect()
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
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
