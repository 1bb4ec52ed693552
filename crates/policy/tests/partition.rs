//! What every plan for sub-clusters keeps to, whatever the models, the GPUs and how things were before.

use policy::partition::{
    Execution, GpuKind, ModelDemand, Parameters, PartitionPlan, PartitionView, Step, Subcluster, Unplaced, partition,
};
use policy::staffing::{ONE, gpus_needed, spread};
use policy::{LatencyTable, ModelId, Network, Span};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Model {
    tables: Vec<LatencyTable>,
    objective: Span,
    gap: Span,
    dispersion: u64,
    weights: u64,
    served: bool,
}

impl Model {
    fn demand(&self) -> ModelDemand<'_> {
        let Model { tables, objective, gap, dispersion, weights, served } = self;
        ModelDemand {
            tables,
            objective: *objective,
            gap: *gap,
            dispersion: *dispersion,
            weights: *weights,
            served: *served,
        }
    }
}

#[derive(Clone, Debug)]
struct World {
    models: Vec<Model>,
    kinds: Vec<GpuKind>,
    subclusters: usize,
}

impl World {
    fn view(&self, present: &[Subcluster]) -> PartitionView<'_> {
        PartitionView {
            models: self.models.iter().map(Model::demand).collect(),
            kinds: self.kinds.clone(),
            network: Network::default(),
            subclusters: self.subclusters,
            present: present.to_vec(),
        }
    }
}

/// What GPUs of each type in a sub-cluster hold.
fn held(world: &World, models: &[ModelId], kind: usize) -> u64 {
    let runs = |model: &&ModelId| world.models[model.index()].tables[kind].max_batch() > 0;
    models.iter().filter(runs).map(|model| world.models[model.index()].weights).sum()
}

/// A cluster that takes steps and objects to those that cannot be taken.
struct Books<'a> {
    world: &'a World,
    subclusters: Vec<Subcluster>,
    /// Where requests of each model go.
    routes: Vec<Vec<usize>>,
    /// GPUs in no sub-cluster, by type.
    outside: Vec<usize>,
}

impl<'a> Books<'a> {
    fn new(world: &'a World, present: &[Subcluster], count: usize) -> Books<'a> {
        let kinds = world.kinds.len();
        let mut subclusters = present.to_vec();
        subclusters.resize(count.max(present.len()), Subcluster { gpus: vec![0; kinds], models: Vec::new() });
        let homes =
            |model: usize| (0..present.len()).filter(|at| present[*at].models.contains(&ModelId::new(model))).collect();
        let inside = |kind: usize| present.iter().map(|subcluster| subcluster.gpus[kind]).sum::<usize>();
        Books {
            world,
            routes: (0..world.models.len()).map(homes).collect(),
            outside: (0..kinds).map(|kind| world.kinds[kind].count - inside(kind)).collect(),
            subclusters,
        }
    }

    fn start(&mut self, step: &Step) {
        match step {
            Step::MoveGpus { kind, count, from, .. } => match from {
                Some(from) => self.subclusters[*from].gpus[kind.index()] -= count,
                None => self.outside[kind.index()] -= count,
            },
            Step::Load { model, to } => {
                let models = &mut self.subclusters[*to].models;
                assert!(!models.contains(model), "{model:?} is loaded twice into {to}");
                models.insert(models.partition_point(|other| other < model), *model);
            }
            Step::Route { model, to } => {
                assert!(
                    to.iter().all(|to| self.subclusters[*to].models.contains(model)),
                    "{model:?} is sent where it is not loaded"
                );
                self.routes[model.index()].clone_from(to);
            }
            Step::Unload { model, from } => {
                assert!(!self.routes[model.index()].contains(from), "{model:?} is unloaded where it is sent to");
            }
        }
        self.check();
    }

    fn finish(&mut self, step: &Step) {
        match step {
            Step::MoveGpus { kind, count, to, .. } => self.subclusters[*to].gpus[kind.index()] += count,
            Step::Unload { model, from } => self.subclusters[*from].models.retain(|other| other != model),
            Step::Load { .. } | Step::Route { .. } => {}
        }
        self.check();
    }

    fn check(&self) {
        for (index, subcluster) in self.subclusters.iter().enumerate() {
            for (kind, count) in subcluster.gpus.iter().enumerate() {
                let held = held(self.world, &subcluster.models, kind);
                let memory = self.world.kinds[kind].memory;
                assert!(*count == 0 || held <= memory, "sub-cluster {index} holds {held} on GPUs of {memory}");
            }
        }
    }
}

/// Takes all steps in their order and says how things are then.
fn walk(world: &World, present: &[Subcluster], plan: &PartitionPlan) -> Vec<Subcluster> {
    let mut books = Books::new(world, present, plan.subclusters.len());
    for planned in &plan.steps {
        books.start(&planned.step);
        books.finish(&planned.step);
    }
    assert_eq!(books.subclusters, plan.subclusters);
    for (index, model) in world.models.iter().enumerate() {
        let id = ModelId::new(index);
        let homes: Vec<usize> =
            (0..plan.subclusters.len()).filter(|at| plan.subclusters[*at].models.contains(&id)).collect();
        assert_eq!(homes, books.routes[index], "{id:?} is sent to where it is");
        let unplaced = plan.unplaced.iter().find(|(model, _)| *model == id);
        assert_eq!(homes.is_empty(), unplaced.is_some() || !model.served, "{id:?} is at {homes:?}, {unplaced:?}");
        if let Some((_, Unplaced::NoGpu)) = unplaced {
            let able = |at: &Subcluster| {
                (0..at.gpus.len()).any(|kind| at.gpus[kind] > 0 && model.tables[kind].max_batch() > 0)
            };
            // One that closes takes nobody in.
            assert!(!plan.subclusters.iter().take(world.subclusters).any(able), "{id:?} could be run");
        }
    }
    for (kind, gpus) in world.kinds.iter().enumerate() {
        let inside: usize = plan.subclusters.iter().map(|subcluster| subcluster.gpus[kind]).sum();
        assert!(inside <= gpus.count, "{inside} of {} GPUs are in sub-clusters", gpus.count);
    }
    books.subclusters
}

/// Takes steps as they become possible, and finishes those that are under way in an order that `choices` says.
fn interleave(world: &World, present: &[Subcluster], plan: &PartitionPlan, choices: &[usize]) {
    let mut books = Books::new(world, present, plan.subclusters.len());
    let mut execution = Execution::new(plan);
    let mut under_way: Vec<usize> = Vec::new();
    for turn in 0.. {
        while let Some((index, step)) = execution.start() {
            books.start(&step.clone());
            under_way.push(index);
        }
        if under_way.is_empty() {
            break;
        }
        let index = under_way.swap_remove(choices[turn % choices.len()] % under_way.len());
        let step = execution.step(index).clone();
        books.finish(&step);
        execution.finished(index);
    }
    assert!(execution.is_over());
    assert_eq!(books.subclusters, plan.subclusters);
}

fn line(alpha_us: u64, beta_us: u64) -> LatencyTable {
    LatencyTable::line(Span::from_micros(alpha_us), Span::from_micros(beta_us), 64)
}

/// Models of up to a few GPUs each; with `two` types of GPU, some models run on one of them only.
fn model(two: bool, weights: u64) -> impl Strategy<Value = Model> {
    let shape = (200..4_000u64, 1_000..20_000u64, 2..6u64);
    let demand = (50..400_000u64, 1..12u64, 1..=weights);
    let odd = (any::<bool>(), 0..5usize, 0..30usize);
    (shape, demand, odd).prop_map(move |((alpha, beta, patience), (gap, bursts, weights), (fast, runs, served))| {
        let objective = Span::from_micros((alpha + beta) * patience);
        let table = line(alpha, beta).within(objective);
        let other = line(alpha * 3 / 2, beta * 2).within(objective);
        let tables = match (two, runs, fast) {
            (false, ..) => vec![table],
            (true, 0, true) => vec![table, LatencyTable::default()],
            (true, 0, false) => vec![LatencyTable::default(), table],
            (true, _, true) => vec![table, other],
            (true, _, false) => vec![other, table],
        };
        let gap = Span::from_micros(gap);
        Model { tables, objective, gap, dispersion: bursts * ONE, weights, served: served > 0 }
    })
}

fn worlds() -> impl Strategy<Value = World> {
    any::<bool>().prop_flat_map(|two| {
        let gpus = (1..40usize, 20..200u64, 1..40usize, 20..200u64);
        (prop::collection::vec(model(two, 20), 0..50), gpus, 1..9usize).prop_map(move |(models, gpus, subclusters)| {
            let mut kinds = vec![GpuKind { count: gpus.0, memory: gpus.1 }];
            if two {
                kinds.push(GpuKind { count: gpus.2, memory: gpus.3 });
            }
            World { models, kinds, subclusters }
        })
    })
}

/// Weights are small numbers of bytes here, so that a GPU loads some of them in a second.
fn parameters() -> Parameters {
    Parameters { bandwidth: 20, ..Parameters::default() }
}

/// Another world with the same types: rates, GPUs, memory no less, models that come and go, and sub-clusters.
fn next(world: &World, change: &Change) -> World {
    let mut world = world.clone();
    for (index, model) in world.models.iter_mut().enumerate() {
        let hundredths = change.rates[index % change.rates.len()];
        model.gap = model.gap.scale(100, hundredths);
        model.served ^= hundredths.is_multiple_of(17);
    }
    world.models.extend(change.more.iter().filter(|model| world.kinds.len() == model.tables.len()).cloned());
    for kind in &mut world.kinds {
        kind.count += change.gpus;
    }
    world.subclusters = change.subclusters;
    world
}

#[derive(Clone, Debug)]
struct Change {
    rates: Vec<u64>,
    more: Vec<Model>,
    gpus: usize,
    subclusters: usize,
}

fn changes() -> impl Strategy<Value = Change> {
    (prop::collection::vec(20..400u64, 1..40), prop::collection::vec(model(true, 20), 0..6), 0..6usize, 1..9usize)
        .prop_map(|(rates, more, gpus, subclusters)| Change { rates, more, gpus, subclusters })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_can_be_taken_in_its_order_and_in_any_that_an_execution_allows(
        first in worlds(),
        changes in prop::collection::vec(changes(), 1..4),
        choices in prop::collection::vec(any::<usize>(), 1..20),
    ) {
        let mut world = first;
        let mut present = Vec::new();
        for change in std::iter::once(None).chain(changes.iter().map(Some)) {
            if let Some(change) = change {
                world = next(&world, change);
            }
            let view = world.view(&present);
            let plan = partition(&view, &parameters());
            prop_assert_eq!(&plan, &partition(&view, &parameters()));
            interleave(&world, &present, &plan, &choices);
            present = walk(&world, &present, &plan);
        }
    }

    /// With memory for everything, the highest pressure is at most one model's above the even one.
    #[test]
    fn the_first_plan_is_within_a_model_of_even(
        models in prop::collection::vec(model(false, 1), 1..60),
        per_subcluster in 4..12usize,
        subclusters in 1..9usize,
    ) {
        let kinds = vec![GpuKind { count: per_subcluster * subclusters, memory: 1_000 }];
        let world = World { models, kinds, subclusters };
        // Models are not divided: what holds is about whole ones.
        let parameters = Parameters { largest: 1 << 40, ..parameters() };
        let plan = partition(&world.view(&[]), &parameters);
        walk(&world, &[], &plan);
        let alone = |model: &Model| {
            let load = gpus_needed(&model.tables[0], model.gap, model.objective, &Network::default());
            load + spread(load * model.dispersion / ONE)
        };
        let largest = world.models.iter().filter(|model| model.served).map(alone).max().unwrap_or(0);
        let most = plan.even + (largest + 2) * PartitionPlan::FULL / (per_subcluster as u64 * ONE);
        prop_assert!(plan.highest_after <= most, "{} of at most {most}, even {}", plan.highest_after, plan.even);
    }

    /// A plan leaves nothing for the next one to do, unless somebody waits for memory.
    #[test]
    fn where_nothing_changes_nothing_moves(world in worlds(), change in changes()) {
        let first = partition(&world.view(&[]), &parameters());
        let changed = next(&world, &change);
        let view = changed.view(&first.subclusters);
        let second = partition(&view, &parameters());
        for (world, plan) in [(&world, &first), (&changed, &second)] {
            let again = partition(&world.view(&plan.subclusters), &parameters());
            let closing = plan.subclusters[world.subclusters.min(plan.subclusters.len())..].iter();
            // What finds no memory in this plan may find it in the next one.
            let is_left = |one: &Subcluster| !one.models.is_empty() || one.gpus.iter().any(|count| *count > 0);
            let waits = !plan.unplaced.is_empty() || closing.into_iter().any(is_left);
            prop_assert!(waits || again.steps.is_empty(), "{:?}", again.steps);
        }
    }
}

/// A hundred models on a hundred GPUs in five sub-clusters, as popular as by Zipf.
fn hundred(rate: f64) -> World {
    let weights: Vec<f64> = (1..=100).map(|rank| f64::from(rank).powf(-0.9)).collect();
    let total: f64 = weights.iter().sum();
    let model = |weight: &f64| Model {
        tables: vec![line(500, 8_000)],
        objective: Span::from_millis(40),
        gap: Span::from_secs_f64(total / (rate * weight)),
        dispersion: ONE,
        weights: 2_000_000_000,
        served: true,
    };
    let kinds = vec![GpuKind { count: 100, memory: 80_000_000_000 }];
    World { models: weights.iter().map(model).collect(), kinds, subclusters: 5 }
}

#[test]
fn a_popular_model_is_divided_and_small_changes_move_little() {
    let world = hundred(60_000.0);
    let parameters = Parameters::default();
    let first = partition(&world.view(&[]), &parameters);
    let present = walk(&world, &[], &first);
    let homes = |model: usize| present.iter().filter(|one| one.models.contains(&ModelId::new(model))).count();
    assert_eq!((homes(0) > 1, homes(99)), (true, 1));
    assert_eq!(present.iter().map(|one| one.gpus[0]).collect::<Vec<_>>(), [20; 5]);
    // Every rate strays by up to three hundredths.
    let mut strayed = world.clone();
    for (index, model) in strayed.models.iter_mut().enumerate() {
        model.gap = model.gap.scale(97 + index as u64 * 5 % 7, 100);
    }
    let second = partition(&strayed.view(&present), &parameters);
    assert!(second.steps.is_empty(), "{:?}", second.steps);
    // The most popular model of the first sub-cluster becomes four times as popular.
    let hot = present[0].models[0].index();
    strayed.models[hot].gap = strayed.models[hot].gap.scale(1, 4);
    let third = partition(&strayed.view(&present), &parameters);
    walk(&strayed, &present, &third);
    assert!((1..=20).contains(&(third.loads() + third.gpu_moves())), "{:?}", third.steps);
    assert!(third.highest_after < third.highest_before);
}

#[test]
fn bursty_models_are_spread() {
    let mut world = hundred(60_000.0);
    for (index, model) in world.models.iter_mut().enumerate() {
        (model.gap, model.weights) = (Span::from_millis(2), 1_000_000_000);
        model.dispersion = if index % 20 == 0 { 40 * ONE } else { ONE };
    }
    let plan = partition(&world.view(&[]), &Parameters::default());
    let bursty = |one: &Subcluster| one.models.iter().filter(|model| model.index() % 20 == 0).count();
    assert_eq!(plan.subclusters.iter().map(bursty).collect::<Vec<_>>(), [1; 5]);
}

#[test]
fn a_move_that_does_not_pay_is_not_made() {
    let world = hundred(60_000.0);
    let parameters = Parameters::default();
    let first = partition(&world.view(&[]), &parameters);
    let mut hot = world.clone();
    for model in &first.subclusters[0].models {
        hot.models[model.index()].gap = hot.models[model.index()].gap.scale(2, 3);
    }
    let view = hot.view(&first.subclusters);
    let moved = partition(&view, &parameters);
    assert!(!moved.steps.is_empty() && moved.price <= parameters.epoch * 100);
    // Loading a byte takes a second: nothing is worth that.
    let slow = partition(&view, &Parameters { bandwidth: 1, ..parameters });
    let pressed = |plan: &PartitionPlan| {
        plan.steps.iter().filter(|planned| planned.because == policy::partition::Reason::Pressed).count()
    };
    assert_eq!((pressed(&moved) > 0, pressed(&slow)), (true, 0));
}
