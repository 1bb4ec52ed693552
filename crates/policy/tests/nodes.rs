//! What holds of workers and nodes whatever happens: nodes join and go, workers come, go and move.

use policy::placement::machine::Host;
use policy::placement::nodes::{Capacity, Choice, Footprint, Nodes, Refused};
use policy::placement::policies::by_name;
use policy::placement::{Demand, Kind, Need, Plan, Reason, Rules, State, WHOLE};
use policy::{GpuId, InstanceId, NodeId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const GB: u64 = 1 << 30;

fn cpu(service: &str, threads: u32) -> Footprint {
    Footprint { service: service.into(), threads, gpus: 0, need: Need::new(0, 0, 0) }
}

fn gpu(service: &str, request: u32, limit: u32, memory_gb: u64) -> Footprint {
    Footprint { gpus: 1, need: Need::new(request, limit, memory_gb * GB), ..cpu(service, 1) }
}

fn cores(cores: u32) -> Option<Capacity> {
    Some(Capacity { cores, gpus: Vec::new() })
}

fn gpus(count: usize) -> Option<Capacity> {
    Some(Capacity { cores: 64, gpus: vec![40 * GB; count] })
}

fn cluster(nodes: &[Option<Capacity>]) -> Nodes {
    let mut cluster = Nodes::default();
    nodes.iter().zip(0..).for_each(|(capacity, node)| cluster.join(node, capacity.clone()));
    cluster
}

/// Starts workers one after the other; the node of each.
fn start(cluster: &mut Nodes, workers: &[Footprint]) -> Vec<u32> {
    let first = cluster.workers().last().map_or(0, |(last, _)| last + 1);
    let start = |(footprint, id): (&Footprint, u64)| {
        let choice = cluster.choose(footprint).expect("there is room");
        cluster.add(id, footprint.clone(), &choice);
        choice.node
    };
    workers.iter().zip(first..).map(start).collect()
}

/// Carries out all relocations; how many there were.
fn relocate_all(cluster: &mut Nodes, footprints: &BTreeMap<u64, Footprint>) -> usize {
    for moves in 0.. {
        let candidates: Vec<u64> = cluster.workers().map(|(id, _)| id).collect();
        let Some(found) = cluster.relocation(candidates, |_, _| true) else { return moves };
        assert!(moves < 1_000, "relocations go on for ever");
        cluster.remove(found.worker);
        cluster.add(found.worker, footprints[&found.worker].clone(), &found.choice);
    }
    unreachable!("there is a last move")
}

#[test]
fn workers_without_gpus_are_spread() {
    let one = cpu("m:1", 1);
    let check = |nodes: &[Option<Capacity>], workers: &[Footprint], expected: &[u32]| {
        assert_eq!(start(&mut cluster(nodes), workers), expected);
    };
    check(&[None, None, None], &[one.clone(), one.clone(), one.clone(), one.clone()], &[0, 1, 2, 0]);
    check(&[cores(4), cores(4)], &[one.clone(), cpu("n:1", 1), one.clone()], &[0, 1, 1]);
    // A small node takes what it has cores for, and the large one the rest.
    let many = vec![one.clone(); 6];
    check(&[cores(2), cores(8)], &many, &[1, 0, 1, 0, 1, 1]);
    // Where there are no cores left, the least loaded node is taken.
    check(&[cores(1), cores(2)], &[cpu("a:1", 2), cpu("b:1", 2), cpu("c:1", 1)], &[1, 0, 1]);
}

#[test]
fn workers_of_one_model_are_on_different_nodes_where_that_costs_no_gpu() {
    let check = |nodes: &[Option<Capacity>], workers: &[Footprint], expected: &[u32]| {
        assert_eq!(start(&mut cluster(nodes), workers), expected);
    };
    let half = gpu("m:1", 400, 600, 10);
    // The second would open a GPU elsewhere, and there is room beside the first.
    check(&[gpus(2), gpus(2)], &[half.clone(), half.clone()], &[0, 0]);
    // Each opens a GPU wherever it goes.
    let whole = gpu("m:1", 800, 1000, 30);
    check(&[gpus(2), gpus(2)], &[whole.clone(), whole.clone(), whole.clone(), whole], &[0, 1, 0, 1]);
    // GPUs in use have room on both nodes.
    let other = gpu("n:1", 800, 900, 30);
    let small = gpu("s:1", 100, 200, 4);
    check(&[gpus(1), gpus(1)], &[other.clone(), other, small.clone(), small], &[0, 1, 0, 1]);
}

#[test]
fn programs_without_a_limit_are_alone_while_there_are_idle_gpus() {
    let all = gpu("m:1", 0, 1000, 0);
    let nodes = start(&mut cluster(&[gpus(1), gpus(1)]), &vec![all; 4]);
    assert_eq!(nodes, [0, 1, 0, 1], "and where the least is asked after that");
}

#[test]
fn what_no_node_can_promise_is_refused_in_words() {
    let check = |nodes: &[Option<Capacity>], footprint: Footprint, expected: &str| {
        let mut cluster = cluster(nodes);
        let taken = gpu("t:1", 700, 900, 10);
        while let Ok(choice) = cluster.choose(&taken) {
            if choice.gpus.is_empty() {
                break;
            }
            let id = cluster.workers().count() as u64;
            cluster.add(id, taken.clone(), &choice);
        }
        assert_eq!(cluster.choose(&footprint).unwrap_err().to_string(), expected);
    };
    check(&[], cpu("m:1", 1), "no node takes workers: start one with `weft node`");
    check(
        &[cores(4), cores(4)],
        gpu("m:1", 0, 1000, 0),
        "it asks for a GPU and no node has one: start a node with a GPU, or deploy it without",
    );
    check(
        &[gpus(1)],
        gpu("m:1", 100, 200, 50),
        "it asks for a GPU with 50 GB of memory, and no node has that: ask for less",
    );
    let two = Footprint { gpus: 2, ..gpu("m:1", 100, 200, 5) };
    check(
        &[gpus(1), gpus(1)],
        two,
        "it asks for 2 GPUs of one node with 5 GB of memory each, and no node has that: ask for less",
    );
    check(
        &[gpus(1), gpus(1)],
        gpu("m:1", 400, 500, 5),
        "it asks for a GPU with 5 GB of memory and to be promised 40% of it, and no node has that left: stop \
         something, ask for less, or add a node",
    );
    // A node that did not say what it has is tried when no other is left.
    let nodes = cluster(&[cores(4), None]);
    assert_eq!(nodes.choose(&gpu("m:1", 400, 500, 5)).map(|choice| choice.node), Ok(1));
}

#[test]
fn a_node_that_joins_gets_work_and_workers_end_up_apart() {
    let mut nodes = cluster(&[cores(8)]);
    let one = cpu("m:1", 1);
    start(&mut nodes, &vec![one.clone(); 4]);
    nodes.join(1, cores(8));
    let footprints: BTreeMap<u64, Footprint> = (0..4).map(|id| (id, one.clone())).collect();
    assert_eq!(relocate_all(&mut nodes, &footprints), 2);
    assert_eq!(nodes.workers().filter(|(_, node)| *node == 0).count(), 2);
    // GPUs are not opened for it.
    let mut nodes = cluster(&[gpus(2)]);
    let half = gpu("m:1", 400, 600, 10);
    start(&mut nodes, &[half.clone(), half.clone()]);
    nodes.join(1, gpus(2));
    assert_eq!(relocate_all(&mut nodes, &[(0, half.clone()), (1, half)].into()), 0);
    // Who exceeds a GPU has one to itself.
    let mut nodes = cluster(&[gpus(1)]);
    let all = gpu("a:1", 0, 1000, 0);
    start(&mut nodes, &[all.clone(), Footprint { service: "b:1".into(), ..all.clone() }]);
    nodes.join(1, gpus(1));
    assert_eq!(relocate_all(&mut nodes, &[(0, all.clone()), (1, all)].into()), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Join(Option<Capacity>),
    Lose(prop::sample::Index),
    Open(prop::sample::Index, bool),
    Start(Footprint),
    Bring(Footprint, prop::sample::Index),
    Stop(prop::sample::Index),
    Relocate,
}

fn footprints() -> impl Strategy<Value = Footprint> {
    let on_gpu =
        (0..6u32, 1..=2usize, 0..=10u32, 1..=10u32, 0..=40u64).prop_map(|(service, gpus, request, more, memory)| {
            let (request, limit) = (request * 100, (request * 100 + more * 50).min(WHOLE));
            Footprint { gpus, ..gpu(&format!("m:{service}"), request, limit, memory) }
        });
    let on_cpu = (0..6u32, 1..=8u32).prop_map(|(service, threads)| cpu(&format!("c:{service}"), threads));
    prop_oneof![on_gpu, on_cpu]
}

fn capacities() -> impl Strategy<Value = Option<Capacity>> {
    let known = (1..=16u32, prop::collection::vec((1..=8u64).prop_map(|tens| tens * 10 * GB), 0..4));
    prop_oneof![4 => known.prop_map(|(cores, gpus)| Some(Capacity { cores, gpus })), 1 => Just(None)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<prop::sample::Index>;
    let step = prop_oneof![
        2 => capacities().prop_map(Step::Join),
        1 => index().prop_map(Step::Lose),
        1 => (index(), any::<bool>()).prop_map(|(node, open)| Step::Open(node, open)),
        8 => footprints().prop_map(Step::Start),
        1 => (footprints(), index()).prop_map(|(footprint, node)| Step::Bring(footprint, node)),
        3 => index().prop_map(Step::Stop),
        1 => Just(Step::Relocate),
    ];
    prop::collection::vec(step, 1..60)
}

/// What the test knows of itself.
#[derive(Default)]
struct Known {
    nodes: BTreeMap<u32, (Option<Capacity>, bool)>,
    /// Worker, its node, what it takes, and whether its node brought it along.
    workers: BTreeMap<u64, (u32, Footprint, bool)>,
}

fn picked<K: Copy, V>(of: &BTreeMap<K, V>, index: &prop::sample::Index) -> Option<K> {
    (!of.is_empty()).then(|| *of.keys().nth(index.index(of.len())).unwrap())
}

/// Counts anew and compares.
fn check(nodes: &Nodes, known: &Known) {
    let expected: Vec<(u64, u32)> = known.workers.iter().map(|(id, (node, ..))| (*id, *node)).collect();
    assert_eq!(nodes.workers().collect::<Vec<_>>(), expected);
    for (node, (capacity, _)) in &known.nodes {
        let hosts = nodes.hosts(*node);
        assert_eq!(hosts.len(), capacity.as_ref().map_or(0, |capacity| capacity.gpus.len()));
        let mut found: BTreeMap<u64, usize> = BTreeMap::new();
        for Host { memory, tenants, .. } in hosts {
            let names: BTreeSet<&str> = tenants.iter().map(|tenant| tenant.name.as_str()).collect();
            assert_eq!(names.len(), tenants.len(), "a worker is on a GPU twice");
            let brought = tenants.iter().any(|tenant| known.workers[&tenant.name.parse::<u64>().unwrap()].2);
            let requests: u32 = tenants.iter().map(|tenant| tenant.need.request).sum();
            assert!(brought || requests <= WHOLE, "{requests} was promised of a GPU");
            assert!(tenants.iter().all(|tenant| brought || tenant.need.memory <= *memory), "more than it has");
            for name in names {
                *found.entry(name.parse().unwrap()).or_default() += 1;
            }
        }
        for (id, (own, footprint, brought)) in &known.workers {
            if own == node && capacity.is_some() && !brought {
                assert_eq!(found.get(id).copied().unwrap_or(0), footprint.gpus, "worker {id}");
            }
        }
    }
}

/// The books of the whole cluster as one placement; `None` where something exceeds its GPU.
fn whole(nodes: &Nodes, known: &Known) -> Option<State> {
    let mut state = State::new(Rules::SHARED);
    let (mut gpu, mut instance) = (0, 0);
    for (number, (_, open)) in known.nodes.iter().filter(|(_, (_, open))| *open) {
        assert!(*open);
        for host in nodes.hosts(*number) {
            let id = GpuId::new(gpu);
            gpu += 1;
            state.join(id, NodeId::new(*number as usize), host.memory, BTreeSet::new());
            for tenant in &host.tenants {
                let piece = policy::placement::Piece { gpu: id, need: tenant.need, start: 0, reason: Reason::Fits };
                let plan = Plan { moves: Vec::new(), pieces: vec![piece] };
                let demand = Demand::new(tenant.name.clone(), Kind::Inference, 1, tenant.need);
                state.apply(InstanceId(instance), demand, &plan).ok()?;
                instance += 1;
            }
        }
    }
    Some(state)
}

/// How many idle GPUs a choice takes.
fn opened(nodes: &Nodes, choice: &Choice) -> usize {
    choice.gpus.iter().filter(|gpu| nodes.hosts(choice.node)[gpu.index()].tenants.is_empty()).count()
}

/// A choice for one GPU takes no idle GPU where the policy for one large machine takes none.
fn check_choice(nodes: &Nodes, known: &Known, footprint: &Footprint, choice: &Choice) {
    assert!(known.nodes[&choice.node].1, "the node takes no workers");
    assert_eq!(nodes.choose(footprint).as_ref(), Ok(choice), "it was chosen otherwise before");
    let Some(state) = whole(nodes, known).filter(|_| footprint.gpus == 1) else { return };
    let demand = Demand::new(&*footprint.service, Kind::Inference, 1, footprint.need);
    if let Ok(plan) = by_name("weft").unwrap().place(&state, &demand) {
        let opens = plan.pieces.iter().filter(|piece| state.rooms()[piece.gpu.index()].idle()).count();
        assert!(opened(nodes, choice) <= opens, "{choice:?} takes more GPUs than {plan:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_promised_twice_and_no_gpu_is_wasted(steps in steps()) {
        let (mut nodes, mut known) = (Nodes::default(), Known::default());
        let (mut next_node, mut next_worker) = (0, 0);
        for step in &steps {
            match step {
                Step::Join(capacity) => {
                    nodes.join(next_node, capacity.clone());
                    known.nodes.insert(next_node, (capacity.clone(), true));
                    next_node += 1;
                }
                Step::Lose(index) => {
                    if let Some(node) = picked(&known.nodes, index) {
                        nodes.lose(node);
                        known.nodes.remove(&node);
                        known.workers.retain(|_, (own, ..)| *own != node);
                    }
                }
                Step::Open(index, open) => {
                    if let Some(node) = picked(&known.nodes, index) {
                        nodes.set_open(node, *open);
                        known.nodes.get_mut(&node).unwrap().1 = *open;
                    }
                }
                Step::Start(footprint) => match nodes.choose(footprint) {
                    Ok(choice) => {
                        check_choice(&nodes, &known, footprint, &choice);
                        let version = nodes.version();
                        nodes.add(next_worker, footprint.clone(), &choice);
                        prop_assert!(nodes.version() > version);
                        known.workers.insert(next_worker, (choice.node, footprint.clone(), false));
                        next_worker += 1;
                    }
                    Err(Refused::NoNode) => prop_assert!(known.nodes.values().all(|(_, open)| !open)),
                    Err(Refused::NoRoom(reason)) => prop_assert!(footprint.gpus > 0 && !reason.is_empty()),
                },
                Step::Bring(footprint, index) => {
                    if let Some(node) = picked(&known.nodes, index) {
                        nodes.take_in(next_worker, footprint.clone(), node);
                        known.workers.insert(next_worker, (node, footprint.clone(), true));
                        next_worker += 1;
                    }
                }
                Step::Stop(index) => {
                    if let Some(worker) = picked(&known.workers, index) {
                        nodes.remove(worker);
                        known.workers.remove(&worker);
                    }
                }
                Step::Relocate => {
                    let footprints: BTreeMap<u64, Footprint> =
                        known.workers.iter().map(|(id, (_, footprint, _))| (*id, footprint.clone())).collect();
                    relocate_all(&mut nodes, &footprints);
                    let moved: Vec<(u64, u32)> = nodes.workers().collect();
                    for (id, node) in moved {
                        let own = known.workers.get_mut(&id).unwrap();
                        // Where it was moved to there was room for it.
                        own.2 &= own.0 == node;
                        own.0 = node;
                    }
                }
            }
            check(&nodes, &known);
        }
    }

    #[test]
    fn one_history_has_one_outcome(steps in steps()) {
        let play = || {
            let mut nodes = Nodes::default();
            let mut told = Vec::new();
            for (step, number) in steps.iter().zip(0..) {
                match step {
                    Step::Join(capacity) => nodes.join(number, capacity.clone()),
                    Step::Start(footprint) => {
                        let choice = nodes.choose(footprint);
                        if let Ok(choice) = &choice {
                            nodes.add(u64::from(number), footprint.clone(), choice);
                        }
                        told.push(choice);
                    }
                    _ => {}
                }
            }
            told
        };
        prop_assert_eq!(play(), play());
    }
}
