//! Who is where while a plan is made, and what follows from it for load, memory and pressure.

use super::plan::{PartitionPlan, Planned, Reason, Step};
use super::{Parameters, PartitionView, Subcluster};
use crate::staffing::{ONE, gpus_needed, spread};
use crate::{GpuType, LatencyTable, ModelId, Span};
use std::collections::BTreeSet;

/// No model is counted as more GPUs (of [`ONE`]) than this, so that sums stay within 64 bits.
const LOAD_MAX: u64 = 1 << 30;
const DISPERSION_MAX: u64 = 1 << 20;

/// A sub-cluster while a plan is made.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) gpus: Vec<usize>,
    pub(super) models: BTreeSet<ModelId>,
    /// Bytes of weights on each GPU, by type.
    pub(super) used: Vec<u64>,
    /// GPUs (of [`ONE`]) that its models need.
    pub(super) load: u64,
    pub(super) variance: u64,
    /// GPUs (of [`ONE`]) that it has, in GPUs of the type that is fastest for most.
    pub(super) capacity: u64,
    pub(super) pressure: u64,
    /// Whether it is there to stay.
    pub(super) open: bool,
}

/// What a model needs, in each of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) load: u64,
    pub(super) variance: u64,
}

/// The state of a plan that is being made.
#[derive(Debug)]
pub(super) struct Books<'a> {
    pub(super) view: &'a PartitionView<'a>,
    pub(super) parameters: &'a Parameters,
    pub(super) places: Vec<Place>,
    /// By model, in order.
    pub(super) homes: Vec<Vec<usize>>,
    pub(super) parts: Vec<Part>,
    /// In how many parts each model is to be served.
    pub(super) wanted: Vec<usize>,
    /// Models without a home before this plan: they are where they are put without a step, until the plan is done.
    pub(super) fresh: Vec<bool>,
    /// What a GPU of each type is worth (of [`ONE`]).
    pub(super) worth: Vec<u64>,
    pub(super) steps: Vec<Planned>,
    pub(super) price: Span,
}

impl<'a> Books<'a> {
    pub(super) fn new(view: &'a PartitionView<'a>, parameters: &'a Parameters, open: usize) -> Books<'a> {
        let kinds = view.kinds.len();
        let mut homes = vec![Vec::new(); view.models.len()];
        for (index, subcluster) in view.present.iter().enumerate() {
            for model in &subcluster.models {
                homes[model.index()].push(index);
            }
        }
        let place = |index: usize| {
            let mut gpus = view.present.get(index).map_or_else(Vec::new, |subcluster| subcluster.gpus.clone());
            gpus.resize(kinds, 0);
            Place { gpus, used: vec![0; kinds], open: index < open, ..Place::default() }
        };
        let mut books = Books {
            view,
            parameters,
            places: (0..open.max(view.present.len())).map(place).collect(),
            fresh: homes.iter().map(Vec::is_empty).collect(),
            parts: Vec::new(),
            wanted: vec![1; view.models.len()],
            homes: vec![Vec::new(); view.models.len()],
            worth: worth(view),
            steps: Vec::new(),
            price: Span::ZERO,
        };
        books.parts = (0..view.models.len()).map(|model| books.part(ModelId::new(model), homes[model].len())).collect();
        for (model, homes) in homes.iter().enumerate() {
            for home in homes {
                books.enter(ModelId::new(model), *home);
            }
        }
        for index in 0..books.places.len() {
            books.weigh(index);
        }
        books
    }

    /// What a model needs in each of so many parts.
    pub(super) fn part(&self, model: ModelId, parts: usize) -> Part {
        let demand = &self.view.models[model.index()];
        if !demand.served || demand.gap == Span::MAX {
            return Part::default();
        }
        let gap = demand.gap.scale(parts.max(1) as u64, 1);
        let needed = |table| gpus_needed(table, gap, demand.objective, &self.view.network).min(LOAD_MAX);
        let load = fastest(demand.tables).map_or(0, needed);
        Part { load, variance: load * demand.dispersion.min(DISPERSION_MAX) / ONE }
    }

    /// The GPUs (of [`ONE`]) that so much demand needs, with headroom.
    pub(super) fn staffed(&self, load: u64, variance: u64) -> u64 {
        load + spread(variance) * self.parameters.headroom / ONE
    }

    /// How much of a capacity such a demand needs, in [`PartitionPlan::FULL`]s.
    pub(super) fn pressure(&self, load: u64, variance: u64, capacity: u64) -> u64 {
        match (self.staffed(load, variance).min(u64::MAX / PartitionPlan::FULL), capacity) {
            (0, _) => 0,
            (_, 0) => u64::MAX,
            (staffed, capacity) => staffed * PartitionPlan::FULL / capacity,
        }
    }

    /// The pressure of all sub-clusters if the demand were divided evenly.
    pub(super) fn even(&self) -> u64 {
        let open = || self.places.iter().filter(|place| place.open);
        let load: u64 = self.places.iter().map(|place| place.load).sum();
        let variance: u64 = self.places.iter().map(|place| place.variance).sum();
        let capacity: u64 = self.places.iter().map(|place| place.capacity).sum();
        // Spreads of equal parts add up to that of the whole times the square root of their number.
        self.pressure(load, variance.saturating_mul(open().count() as u64), capacity)
    }

    /// The highest pressure of a sub-cluster that stays.
    pub(super) fn highest(&self) -> u64 {
        self.places.iter().filter(|place| place.open).map(|place| place.pressure).max().unwrap_or(0)
    }

    /// The GPUs (of [`ONE`]) that a sub-cluster has if all have as many.
    pub(super) fn even_capacity(&self) -> u64 {
        let open = self.places.iter().filter(|place| place.open).count();
        self.places.iter().map(|place| place.capacity).sum::<u64>() / open.max(1) as u64
    }

    /// Works out a sub-cluster's capacity and pressure after something changed there.
    pub(super) fn weigh(&mut self, index: usize) {
        let place = &self.places[index];
        let capacity = place.gpus.iter().zip(&self.worth).map(|(count, worth)| *count as u64 * worth).sum();
        let pressure = self.pressure(place.load, place.variance, capacity);
        (self.places[index].capacity, self.places[index].pressure) = (capacity, pressure);
    }

    /// Whether GPUs of this type can run a model.
    pub(super) fn runs(&self, model: ModelId, kind: usize) -> bool {
        self.view.models[model.index()].tables.get(kind).is_some_and(|table| table.max_batch() > 0)
    }

    /// Whether a sub-cluster has GPUs that can run a model and does not serve it, and whether they have memory for it.
    pub(super) fn takes(&self, model: ModelId, to: usize) -> (bool, bool) {
        let place = &self.places[to];
        let weights = self.view.models[model.index()].weights;
        let (mut able, mut room) = (false, true);
        for (kind, count) in place.gpus.iter().enumerate() {
            if *count > 0 && self.runs(model, kind) {
                able = true;
                room &= place.used[kind] + weights <= self.view.kinds[kind].memory;
            }
        }
        (able && place.open && !self.homes[model.index()].contains(&to), room)
    }

    /// Whether a sub-cluster's models fit on a type of GPU.
    pub(super) fn fits_kind(&self, to: usize, kind: usize) -> bool {
        self.places[to].used[kind] <= self.view.kinds[kind].memory
    }

    /// The GPU time that loading a model takes on the GPUs of a sub-cluster.
    pub(super) fn price_of_load(&self, model: ModelId, to: usize) -> Span {
        let gpus = self.places[to].gpus.iter().enumerate().filter(|(kind, _)| self.runs(model, *kind));
        self.parameters.loading(self.view.models[model.index()].weights) * gpus.map(|(_, count)| count).sum()
    }

    /// The GPU time that a GPU of this type takes to load what a sub-cluster serves.
    pub(super) fn price_of_gpu(&self, kind: usize, to: usize) -> Span {
        self.parameters.loading(self.places[to].used[kind])
    }

    /// Counts a model in where it is.
    fn enter(&mut self, model: ModelId, to: usize) {
        let homes = &mut self.homes[model.index()];
        homes.insert(homes.partition_point(|home| *home < to), to);
        self.places[to].models.insert(model);
        self.count(model, to, true);
    }

    fn leave(&mut self, model: ModelId, from: usize) {
        self.homes[model.index()].retain(|home| *home != from);
        self.places[from].models.remove(&model);
        self.count(model, from, false);
    }

    fn count(&mut self, model: ModelId, at: usize, enters: bool) {
        let part = self.parts[model.index()];
        let weights = self.view.models[model.index()].weights;
        let add = |to: &mut u64, amount: u64| *to = if enters { *to + amount } else { *to - amount };
        for kind in 0..self.view.kinds.len() {
            if self.runs(model, kind) {
                add(&mut self.places[at].used[kind], weights);
            }
        }
        let place = &mut self.places[at];
        add(&mut place.load, part.load);
        add(&mut place.variance, part.variance);
        self.weigh(at);
    }

    /// Changes what each part of a model needs.
    pub(super) fn set_part(&mut self, model: ModelId, part: Part) {
        let old = std::mem::replace(&mut self.parts[model.index()], part);
        for home in self.homes[model.index()].clone() {
            let place = &mut self.places[home];
            place.load = place.load - old.load + part.load;
            place.variance = place.variance - old.variance + part.variance;
            self.weigh(home);
        }
    }

    fn step(&mut self, step: Step, because: Reason) {
        self.steps.push(Planned { step, because });
    }

    /// Puts a model into one more sub-cluster.
    pub(super) fn load(&mut self, model: ModelId, to: usize, because: Reason) {
        self.enter(model, to);
        if !self.fresh[model.index()] {
            self.price += self.price_of_load(model, to);
            self.step(Step::Load { model, to }, because);
            self.route(model, because);
        }
    }

    /// Takes a model out of a sub-cluster.
    pub(super) fn unload(&mut self, model: ModelId, from: usize, because: Reason) {
        self.leave(model, from);
        if !self.fresh[model.index()] {
            self.route(model, because);
            self.step(Step::Unload { model, from }, because);
        }
    }

    /// Moves a model from one sub-cluster to another.
    pub(super) fn shift(&mut self, model: ModelId, from: usize, to: usize, because: Reason) {
        self.enter(model, to);
        self.leave(model, from);
        if !self.fresh[model.index()] {
            self.price += self.price_of_load(model, to);
            self.step(Step::Load { model, to }, because);
            self.route(model, because);
            self.step(Step::Unload { model, from }, because);
        }
    }

    fn route(&mut self, model: ModelId, because: Reason) {
        let to = self.homes[model.index()].clone();
        self.step(Step::Route { model, to }, because);
    }

    /// Moves GPUs. Where a step like it came just before, the two are one.
    pub(super) fn shift_gpus(&mut self, kind: usize, more: usize, from: Option<usize>, to: usize, because: Reason) {
        self.price += self.price_of_gpu(kind, to) * more;
        if let Some(from) = from {
            self.places[from].gpus[kind] -= more;
            self.weigh(from);
        }
        self.places[to].gpus[kind] += more;
        self.weigh(to);
        let kind = GpuType::new(kind);
        if let Some(Planned { step: Step::MoveGpus { kind: k, count, from: f, to: t }, because: b }) =
            self.steps.last_mut()
            && (*k, *f, *t, *b) == (kind, from, to, because)
        {
            *count += more;
        } else {
            self.step(Step::MoveGpus { kind, count: more, from, to }, because);
        }
    }

    /// The plan, with the steps for models that had no home at its end.
    pub(super) fn plan(mut self) -> PartitionPlan {
        for index in 0..self.fresh.len() {
            let model = ModelId::new(index);
            if self.fresh[index] && !self.homes[index].is_empty() {
                for to in self.homes[index].clone() {
                    self.price += self.price_of_load(model, to);
                    self.step(Step::Load { model, to }, Reason::New);
                }
                self.route(model, Reason::New);
            }
        }
        let (even, highest_after) = (self.even(), self.highest());
        let subcluster = |place: Place| Subcluster { gpus: place.gpus, models: place.models.into_iter().collect() };
        PartitionPlan {
            steps: self.steps,
            subclusters: self.places.into_iter().map(subcluster).collect(),
            even,
            highest_after,
            price: self.price,
            ..PartitionPlan::default()
        }
    }
}

/// The table of the type that runs one request fastest, where any can.
fn fastest(tables: &[LatencyTable]) -> Option<&LatencyTable> {
    let runnable = tables.iter().filter(|table| table.max_batch() > 0);
    runnable.min_by_key(|table| table.latency(1))
}

/// What a GPU of each type is worth (of [`ONE`]): how many it would take of the best type for each model to serve all
/// that it can run as it comes, by how many it would take of this. Nothing, where it can run none.
fn worth(view: &PartitionView) -> Vec<u64> {
    let demands = || view.models.iter().filter(|demand| demand.served && demand.gap != Span::MAX);
    let needs = |demand: &super::ModelDemand, table: &LatencyTable| {
        u128::from(gpus_needed(table, demand.gap, demand.objective, &view.network).min(LOAD_MAX))
    };
    let of = |kind: usize| {
        let able = || demands().filter(|demand| demand.tables.get(kind).is_some_and(|table| table.max_batch() > 0));
        if able().next().is_none() && demands().next().is_some() {
            return 0;
        }
        let here: u128 = able().map(|demand| needs(demand, &demand.tables[kind])).sum();
        let best: u128 = able().filter_map(|demand| Some(needs(demand, fastest(demand.tables)?))).sum();
        (u128::from(ONE) * best).checked_div(here).map_or(ONE, |worth| (worth as u64).max(1))
    };
    if view.kinds.len() == 1 { vec![ONE] } else { (0..view.kinds.len()).map(of).collect() }
}
