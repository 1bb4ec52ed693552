//! A static partition, what people do today: every model has GPUs of its own, in proportion to its load.
//!
//! With enough GPUs each model gets at least one and the rest go by largest remainder; with fewer GPUs than
//! models, models are packed by longest processing time first (Graham, 1969). The split is made from the
//! expected rates and stands until GPUs join, leave or die, so a GPU whose models are quiet idles while
//! others refuse. Each GPU serves its models eagerly, least slack first, and gives up on heads that cannot
//! be on time even alone.

use crate::{Candidate, Context, GpuId, LaneId, Model, ModelId, Policy, Span, candidate};
use std::cmp::Reverse;

/// Each GPU to its own models.
#[derive(Debug, Default)]
pub struct StaticSplit {
    made: bool,
    /// Models by GPU.
    models: Vec<Vec<ModelId>>,
    /// GPUs by model, lowest id first.
    gpus: Vec<Vec<GpuId>>,
}

impl StaticSplit {
    fn make(&mut self, context: &mut Context) {
        self.made = true;
        let live: Vec<_> = context.cluster.live().collect();
        let count = context.cluster.models.len();
        let gaps: Vec<_> = (0..count).map(|model| context.cluster.gap(context.now, ModelId::new(model))).collect();
        let models = context.cluster.models.iter().zip(gaps);
        let loads: Vec<_> = models.map(|(model, gap)| loads(model, gap)).collect();
        let kinds: Vec<_> = live.iter().map(|gpu| context.cluster.gpus[gpu.index()].kind.index()).collect();
        self.models = vec![Vec::new(); context.cluster.gpus.len()];
        self.gpus = vec![Vec::new(); count];
        for (gpu, models) in live.iter().zip(split(&loads, &kinds)) {
            models.iter().for_each(|model| self.gpus[*model].push(*gpu));
            self.models[gpu.index()] = models.into_iter().map(ModelId::new).collect();
        }
    }
}

/// Billionths of a GPU that a model keeps busy at its cheapest, by type; `None` where it cannot run.
fn loads(model: &Model, gap: Span) -> Vec<Option<u64>> {
    // A model nobody has asked for yet still needs a place; the upper end keeps sums of loads from overflowing.
    let load = |cost: Span| cost.scale(1_000_000_000, gap.nanos().max(1)).nanos().clamp(1, 1 << 48);
    model.tables.iter().map(|table| table.cheapest().map(load)).collect()
}

/// Which models each GPU serves, from the load of each model by type and the type of each GPU.
///
/// First every model is given a place, those with the fewest GPUs to choose from first and then the heaviest:
/// on an empty GPU while there is one, else on the one that is then loaded least. GPUs that are left over go
/// to whoever lacks most of its share.
fn split(loads: &[Vec<Option<u64>>], kinds: &[usize]) -> Vec<Vec<usize>> {
    let able = |model: usize| kinds.iter().filter_map(move |kind| loads[model][*kind]);
    let weights: Vec<_> = (0..loads.len()).map(|model| able(model).min().unwrap_or(0)).collect();
    let mut models: Vec<_> = (0..loads.len()).filter(|model| weights[*model] > 0).collect();
    models.sort_by_key(|model| (able(*model).count(), Reverse(weights[*model]), *model));
    let mut lacks = shares(&weights, kinds.len());
    let mut split = vec![Vec::new(); kinds.len()];
    let mut taken = vec![0; kinds.len()];
    for &model in &models {
        let loads = kinds.iter().enumerate().filter_map(|(gpu, kind)| Some((gpu, taken[gpu] + loads[model][*kind]?)));
        let (gpu, load) = loads.min_by_key(|(gpu, load)| (taken[*gpu] > 0, *load)).expect("some GPU can run it");
        taken[gpu] = load;
        split[gpu].push(model);
        lacks[model] -= 1;
    }
    for (gpu, kind) in kinds.iter().enumerate().filter(|(gpu, _)| taken[*gpu] == 0) {
        let able = models.iter().filter(|model| loads[**model][*kind].is_some());
        if let Some(&model) = able.max_by_key(|model| (lacks[**model], weights[**model], Reverse(**model))) {
            split[gpu].push(model);
            lacks[model] -= 1;
        }
    }
    split
}

/// Whole GPUs by largest remainder, at least one to each model with any weight; all ones when there are no
/// more GPUs than such models.
fn shares(weights: &[u64], gpus: usize) -> Vec<i64> {
    let mut shares: Vec<i64> = weights.iter().map(|weight| i64::from(*weight > 0)).collect();
    let mut large: Vec<_> = (0..weights.len()).filter(|model| weights[*model] > 0).collect();
    let mut left = gpus;
    if large.len() > gpus {
        return shares;
    }
    // Who would get less than one is given one, and the others share what is left, until all are due one.
    let exact = loop {
        let total = large.iter().map(|model| u128::from(weights[*model])).sum::<u128>().max(1);
        let exact = move |model: usize| (u128::from(weights[model]) * left as u128, total);
        let before = large.len();
        large.retain(|model| exact(*model).0 >= total);
        if large.len() == before {
            break exact;
        }
        left -= before - large.len();
    };
    for &model in &large {
        shares[model] = (exact(model).0 / exact(model).1) as i64;
    }
    let whole: i64 = large.iter().map(|model| shares[*model]).sum();
    large.sort_by_key(|model| (Reverse(exact(*model).0 % exact(*model).1), *model));
    large.iter().take(left - whole as usize).for_each(|model| shares[*model] += 1);
    shares
}

impl Policy for StaticSplit {
    fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
        if !self.made {
            self.make(context);
        }
        let model = context.cluster.model_of(lane);
        let mut own = self.gpus[model.index()].iter().copied();
        if let Some(gpu) = own.find(|gpu| context.cluster.is_available(*gpu)) {
            self.on_gpu(context, gpu);
        }
    }

    fn on_gpu(&mut self, context: &mut Context, gpu: GpuId) {
        while context.cluster.is_available(gpu) {
            let mut best: Option<(LaneId, Candidate)> = None;
            for model in self.models.get(gpu.index()).into_iter().flatten() {
                let lane = LaneId(model.0);
                // With a target of one, the heads to drop are those that are hopeless even alone.
                let outlook = context.cluster.outlook(context.now, lane, gpu);
                if let Some(formed) = candidate(context.cluster.queue(lane), 1, &outlook)
                    && best.is_none_or(|(_, other)| formed.latest < other.latest)
                {
                    best = Some((lane, formed));
                }
            }
            let Some((lane, formed)) = best else { return };
            context.sacrifice(lane, formed.drop);
            context.run(gpu, lane, formed.size);
        }
    }

    fn on_cluster(&mut self, context: &mut Context) {
        self.make(context);
        for gpu in 0..self.models.len() {
            self.on_gpu(context, GpuId::new(gpu));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Models as their loads by type, `-` where they cannot run; GPUs as their types.
    #[track_caller]
    fn check(models: &str, gpus: &str, expected: &str) {
        let loads = |model: &str| model.split('/').map(|load| load.parse().ok()).collect();
        let models: Vec<Vec<Option<u64>>> = models.split(' ').map(loads).collect();
        let kinds: Vec<_> = gpus.bytes().map(|kind| usize::from(kind - b'a')).collect();
        let words = split(&models, &kinds).into_iter().map(|models| {
            let models: Vec<_> = models.iter().map(ToString::to_string).collect();
            models.join("+")
        });
        assert_eq!(words.collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn gpus_go_by_largest_remainder_but_nobody_is_left_out() {
        check("50 30 20", "aaaaaaaaaa", "0 1 2 0 0 0 1 0 1 2");
        check("98 1 1", "aaaa", "0 1 2 0");
        check("1 1", "aaaaa", "0 1 0 0 1");
    }

    #[test]
    fn with_fewer_gpus_than_models_the_heaviest_are_placed_first() {
        check("5 4 3 3 3", "aa", "0+3 1+2+4");
        check("5 4", "a", "0+1");
    }

    #[test]
    fn a_model_goes_where_it_can_run() {
        check("9/9 1/-", "abb", "1 0 0");
        check("9/- 8/- 7/-", "ab", "0+1+2 ");
        check("-/- 1/1", "ab", "1 1");
    }
}
