//! What holds of placement whatever happens: instances start and stop, GPUs die and come back.

use policy::placement::policies::{NAMES, by_name};
use policy::placement::{Demand, Kind, Move, Need, Piece, Plan, Policy, Reason, Stale, State, WHOLE, explain};
use policy::{GpuId, InstanceId, NodeId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const GB: u64 = 1 << 30;
const NODE_GPUS: usize = 4;
const GPUS: usize = 16;

#[derive(Clone, Debug)]
enum Step {
    Start(Demand),
    Stop(prop::sample::Index),
    Die(usize),
    Join(usize),
}

fn demands() -> impl Strategy<Value = Demand> {
    let kinds = prop_oneof![Just(Kind::Inference), Just(Kind::Training), Just(Kind::Llm)];
    let quotas = prop_oneof![6 => Just(WHOLE), 1 => (1..10u32).prop_map(|tenth| tenth * 100)];
    (kinds, 1..=4usize, 0..20u32, 0..30u32, quotas, 1..=40u64, 0..4u8, 0..6u32).prop_map(
        |(kind, gpus, request, more, quota, memory, flags, service)| {
            let (request, gpus) = (50 + request * 50, if kind == Kind::Training { gpus } else { 1 });
            let limit = (request + more * 20).min(WHOLE);
            let need = Need { quota, ..Need::new(request.min(WHOLE), limit, memory * GB) };
            let apart = flags == 1;
            let labels = if flags == 2 { vec!["fast".to_owned()] } else { Vec::new() };
            Demand { apart, labels, ..Demand::new(format!("service-{service}"), kind, gpus, need) }
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => demands().prop_map(Step::Start),
        4 => any::<prop::sample::Index>().prop_map(Step::Stop),
        1 => (0..GPUS).prop_map(Step::Die),
        1 => (0..GPUS).prop_map(Step::Join),
    ];
    prop::collection::vec(step, 1..80)
}

fn join(state: &mut State, gpu: usize) {
    let labels = if gpu.is_multiple_of(3) { BTreeSet::from(["fast".to_owned()]) } else { BTreeSet::new() };
    state.join(GpuId::new(gpu), NodeId::new(gpu / NODE_GPUS), 40 * GB, labels);
}

fn cluster(policy: &dyn Policy) -> State {
    let mut state = State::new(policy.rules());
    (0..GPUS).for_each(|gpu| join(&mut state, gpu));
    state
}

/// Counts everything anew, moment by moment, and compares.
fn check(state: &State, wanted: &BTreeMap<InstanceId, Demand>) {
    let mut in_use = 0;
    let mut found: BTreeMap<InstanceId, Vec<(GpuId, Need)>> = BTreeMap::new();
    for (index, gpu) in state.gpus().iter().enumerate() {
        in_use += usize::from(!gpu.parts.is_empty());
        assert!(gpu.alive || gpu.parts.is_empty(), "a dead GPU hosts something");
        let memory: u64 = gpu.parts.iter().map(|part| part.need.memory).sum();
        assert!(memory <= gpu.memory, "{memory} bytes of {} on GPU {index}", gpu.memory);
        let mut most = (0, 0);
        for time in (0..WHOLE).step_by(50) {
            let running = gpu.parts.iter().filter(|part| (part.start..part.start + part.need.quota).contains(&time));
            let sum = running.fold((0, 0), |sum, part| (sum.0 + part.need.request, sum.1 + part.need.limit));
            assert!(sum.0 <= WHOLE && sum.1 <= state.rules().limit, "{sum:?} at {time} on GPU {index}");
            most = (most.0.max(sum.0), most.1.max(sum.1));
        }
        let room = &state.rooms()[index];
        assert_eq!((room.request, room.limit), (WHOLE - most.0, state.rules().limit - most.1), "GPU {index}");
        assert_eq!((room.memory, room.parts as usize), (gpu.memory - memory, gpu.parts.len()), "GPU {index}");
        for part in &gpu.parts {
            found.entry(part.instance).or_default().push((GpuId::new(index), part.need));
        }
    }
    assert_eq!(state.in_use(), in_use);
    assert_eq!(state.instances().keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    for (id, demand) in wanted {
        let instance = &state.instances()[id];
        assert_eq!(&instance.demand, demand);
        let mut pieces: Vec<(GpuId, Need)> = instance.pieces.iter().map(|piece| (piece.gpu, piece.need)).collect();
        pieces.sort_by_key(|(gpu, _)| *gpu);
        assert_eq!(found.remove(id), Some(pieces.clone()), "{id:?} is not where it is said to be");
        assert!(pieces.windows(2).all(|pair| pair[0].0 < pair[1].0), "two parts of {id:?} on one GPU");
        let labels = |gpu: &GpuId| demand.labels.iter().all(|label| state.gpus()[gpu.index()].labels.contains(label));
        assert!(pieces.iter().all(|(gpu, _)| labels(gpu)), "{id:?} is on a GPU without its labels");
        if pieces.len() == demand.gpus && pieces.iter().all(|(_, need)| *need == demand.need) {
            continue;
        }
        let sum = |of: fn(&Need) -> u64| pieces.iter().map(|(_, need)| of(need)).sum::<u64>();
        let whole = [sum(|need| need.request.into()), sum(|need| need.limit.into()), sum(|need| need.memory)];
        assert_eq!(whole, [demand.need.request.into(), demand.need.limit.into(), demand.need.memory], "{id:?}");
        let nodes: BTreeSet<NodeId> = pieces.iter().map(|(gpu, _)| state.gpus()[gpu.index()].node).collect();
        assert!(demand.kind == Kind::Llm && nodes.len() == 1, "{id:?} is divided over {nodes:?}");
    }
    assert!(found.is_empty(), "nobody's: {found:?}");
}

/// Runs the steps, checks after each, and gives back every plan that was made.
fn run(name: &str, steps: &[Step]) -> (State, Vec<Plan>) {
    let policy = by_name(name).unwrap();
    let mut state = cluster(&*policy);
    let mut wanted = BTreeMap::new();
    let (mut plans, mut next) = (Vec::new(), 0);
    for step in steps {
        let mut to_place = Vec::new();
        match step {
            Step::Start(demand) => {
                to_place.push((InstanceId(next), demand.clone()));
                next += 1;
            }
            Step::Stop(index) if !wanted.is_empty() => {
                let id = *wanted.keys().nth(index.index(wanted.len())).unwrap();
                assert_eq!(state.stop(id), wanted.remove(&id));
                let moves = policy.tidy(&state);
                let before = state.in_use();
                assert!(moves.len() <= policy.moves());
                assert_eq!(state.shift(&moves), Ok(()));
                assert!(moves.is_empty() || state.in_use() < before, "moves that free no GPU: {moves:?}");
                plans.push(Plan { moves, pieces: Vec::new() });
            }
            Step::Stop(_) => {}
            Step::Die(gpu) => {
                let hosted: BTreeSet<InstanceId> = state.gpus()[*gpu].parts.iter().map(|part| part.instance).collect();
                to_place = state.lose(GpuId::new(*gpu));
                assert_eq!(to_place.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>(), hosted);
                to_place.iter().for_each(|(id, demand)| assert_eq!(wanted.remove(id).as_ref(), Some(demand)));
                check(&state, &wanted);
            }
            Step::Join(gpu) if !state.gpus()[*gpu].alive => join(&mut state, *gpu),
            Step::Join(_) => {}
        }
        for (id, demand) in to_place {
            let Ok(plan) = policy.place(&state, &demand) else { continue };
            let before = state.clone();
            assert!(plan.moves.len() <= policy.moves());
            assert!(!explain(&state, &demand, &plan).is_empty());
            assert_eq!(state.apply(id, demand.clone(), &plan), Ok(()), "{plan:?}");
            assert_eq!(state.clone().apply(id, demand.clone(), &plan), Err(Stale::Twice(id)));
            // With a last step that cannot be done, none is.
            let broken = Plan { pieces: vec![Piece { gpu: GpuId(99), ..plan.pieces[0] }; demand.gpus], ..plan.clone() };
            let mut untouched = before.clone();
            assert!(untouched.apply(id, demand.clone(), &broken).is_err());
            assert!(untouched == before, "a plan that failed left a trace");
            wanted.insert(id, demand);
            plans.push(plan);
        }
        check(&state, &wanted);
    }
    (state, plans)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn nothing_leaks_and_nothing_is_owned_twice_under_any_policy(steps in steps()) {
        for name in NAMES {
            let (mut state, plans) = run(name, &steps);
            let (again, same) = run(name, &steps);
            prop_assert!(state == again && plans == same, "{} is not the same twice", name);
            let ids: Vec<InstanceId> = state.instances().keys().copied().collect();
            ids.into_iter().for_each(|id| assert!(state.stop(id).is_some()));
            let free = |gpu: &policy::placement::Gpu| gpu.parts.is_empty();
            prop_assert!(state.gpus().iter().all(free) && state.in_use() == 0);
        }
    }

    #[test]
    fn a_refusal_means_that_an_empty_gpu_is_missing(steps in steps(), demand in demands()) {
        for name in NAMES {
            let (state, _) = run(name, &steps);
            let refused = by_name(name).unwrap().place(&state, &demand).is_err();
            let idle = (0..state.gpus().len()).filter(|gpu| {
                state.rooms()[*gpu].idle() && state.allows(&demand, GpuId::new(*gpu))
            });
            let limit = demand.need.limit <= state.rules().limit;
            prop_assert!(!refused || idle.count() < demand.gpus || !limit, "{} refuses {:?}", name, demand);
        }
    }
}

fn demand(service: &str, kind: Kind, gpus: usize, request: u32, limit: u32, memory_gb: u64) -> Demand {
    Demand::new(service, kind, gpus, Need::new(request, limit, memory_gb * GB))
}

/// Starts an instance under a policy and tells why it is where it is.
fn start(state: &mut State, policy: &dyn Policy, id: u32, demand: &Demand) -> Vec<String> {
    let plan = policy.place(state, demand).unwrap();
    let told = explain(state, demand, &plan);
    state.apply(InstanceId(id), demand.clone(), &plan).unwrap();
    told
}

#[test]
fn inference_fills_what_training_leaves_and_the_plan_says_so() {
    let policy = by_name("weft").unwrap();
    let mut state = cluster(&*policy);
    let told = start(&mut state, &*policy, 0, &demand("training-x", Kind::Training, 2, 550, 900, 31));
    assert_eq!(
        told,
        [
            "gpu 0: request 0.55 of 1.00 taken, no GPU in use has room; memory 31 of 40 GB",
            "gpu 1: request 0.55 of 1.00 taken, no GPU in use has room; memory 31 of 40 GB",
        ]
    );
    let told = start(&mut state, &*policy, 1, &demand("resnet", Kind::Inference, 1, 300, 500, 4));
    assert_eq!(told, ["gpu 0: request 0.85 of 1.00 taken, complements training-x; memory 35 of 40 GB"]);
    // The limits of all three would exceed 1.5.
    let told = start(&mut state, &*policy, 2, &demand("bert", Kind::Inference, 1, 100, 200, 4));
    assert_eq!(told, ["gpu 1: request 0.65 of 1.00 taken, complements training-x; memory 35 of 40 GB"]);
}

#[test]
fn one_training_job_is_disturbed_before_a_second() {
    let policy = by_name("weft").unwrap();
    let mut state = cluster(&*policy);
    start(&mut state, &*policy, 0, &demand("job-a", Kind::Training, 2, 500, 900, 30));
    start(&mut state, &*policy, 1, &demand("job-b", Kind::Training, 2, 500, 900, 30));
    // On job b, as if something else had left the rest.
    let small = demand("small", Kind::Inference, 1, 300, 500, 5);
    let piece = Piece { gpu: GpuId(2), need: small.need, start: 0, reason: Reason::Fits };
    state.apply(InstanceId(2), small.clone(), &Plan { moves: Vec::new(), pieces: vec![piece] }).unwrap();
    let told = start(&mut state, &*policy, 3, &demand("other", Kind::Inference, 1, 300, 500, 5));
    assert_eq!(told, ["gpu 3: request 0.80 of 1.00 taken, complements job-b; memory 35 of 40 GB"]);
}

#[test]
fn an_llm_is_divided_over_fragments_of_one_node() {
    let policy = by_name("weft").unwrap();
    let mut state = cluster(&*policy);
    start(&mut state, &*policy, 0, &demand("job", Kind::Training, 3, 400, 700, 30));
    let told = start(&mut state, &*policy, 1, &demand("llama", Kind::Llm, 1, 400, 600, 20));
    assert_eq!(
        told,
        [
            "gpu 0: request 0.60 of 1.00 taken, holds 10 GB of it in a fragment; memory 40 of 40 GB",
            "gpu 1: request 0.60 of 1.00 taken, holds 10 GB of it in a fragment; memory 40 of 40 GB",
        ]
    );
    // What is left of the node holds some of it, and an idle GPU of the node the rest.
    start(&mut state, &*policy, 2, &demand("llama-2", Kind::Llm, 1, 400, 600, 20));
    let gpus = |id: u32| state.instances()[&InstanceId(id)].pieces.iter().map(|piece| piece.gpu.0).collect::<Vec<_>>();
    assert_eq!((gpus(1), gpus(2)), (vec![0, 1], vec![2, 3]));
}

#[test]
fn large_parts_that_leave_as_much_share_a_node() {
    let policy = by_name("weft").unwrap();
    let mut state = cluster(&*policy);
    let mut node_of = |id: u32, gpus: usize, memory_gb: u64| {
        start(&mut state, &*policy, id, &demand(&format!("job-{id}"), Kind::Training, gpus, 500, 900, memory_gb));
        let pieces = &state.instances()[&InstanceId(id)].pieces;
        let nodes: BTreeSet<usize> = pieces.iter().map(|piece| piece.gpu.index() / NODE_GPUS).collect();
        nodes.into_iter().collect::<Vec<_>>()
    };
    assert_eq!((node_of(0, 1, 40), node_of(1, 1, 25)), (vec![0], vec![1]), "nothing and 15 GB");
    assert_eq!((node_of(2, 2, 27), node_of(3, 2, 39)), (vec![1], vec![0]), "13 GB and 1 GB");
    assert_eq!((node_of(4, 1, 31), node_of(5, 2, 30)), (vec![2], vec![2]), "9 GB are like neither, but like 10 GB");
}

#[test]
fn a_few_moves_free_a_gpu() {
    let policy = by_name("weft-moves").unwrap();
    let mut state = cluster(&*policy);
    start(&mut state, &*policy, 0, &demand("job-a", Kind::Training, 1, 500, 900, 40));
    start(&mut state, &*policy, 1, &demand("small", Kind::Inference, 1, 300, 500, 5));
    start(&mut state, &*policy, 2, &demand("job-b", Kind::Training, 1, 500, 1000, 38));
    assert_eq!(state.in_use(), 3);
    state.stop(InstanceId(0)).unwrap();
    start(&mut state, &*policy, 3, &demand("job-c", Kind::Training, 1, 500, 900, 30));
    let moves = policy.tidy(&state);
    assert!(moves.is_empty() && state.in_use() == 2, "job-c went beside what was there: {moves:?}");
    // A job that needs a whole GPU takes the one that a move makes idle.
    start(&mut state, &*policy, 4, &demand("second", Kind::Inference, 1, 100, 100, 2));
    state.stop(InstanceId(2)).unwrap();
    let moves = policy.tidy(&state);
    let moved: Vec<u32> = moves.iter().map(|step: &Move| step.instance.0).collect();
    assert_eq!((moved, state.shift(&moves), state.in_use()), (vec![4], Ok(()), 1));
}

#[test]
fn refusals_say_what_is_missing() {
    let policy = by_name("weft").unwrap();
    let why = |state: &State, demand: &Demand| policy.place(state, demand).unwrap_err().reason;
    let state = cluster(&*policy);
    assert_eq!(
        why(&state, &demand("big", Kind::Inference, 1, 100, 100, 41)),
        "big needs 41 GB on a GPU and the largest has 40 GB: ask for less, or for more GPUs"
    );
    assert_eq!(
        why(&state, &demand("wide", Kind::Training, 17, 500, 500, 10)),
        "wide needs 17 GPUs with 10 GB and a share of 0.50 free, and there is room on 16: stop something, or add GPUs"
    );
    let labelled = Demand { labels: vec!["h100".into()], ..demand("picky", Kind::Inference, 1, 100, 100, 1) };
    assert_eq!(why(&state, &labelled), "no GPU has the labels h100: label one, or ask for fewer");
    assert_eq!(why(&State::new(policy.rules()), &labelled), "there is no GPU: start a node");
}
