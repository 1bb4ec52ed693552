//! Squishy bin packing (Nexus, section 6.1): which models share a GPU, at which rates, in which batches.
//!
//! A model fills whole GPUs at the largest batch `b` with `2 * l(b) <= objective`. What is left of its rate
//! becomes a node with a duty cycle, `b / rate` for the largest `b` with `l(b) + b / rate <= objective`, and
//! nodes share a GPU when all their batches fit into the shorter duty cycle: best fit, by occupancy.
//!
//! The paper rents the GPUs that the plan needs. Here their number is given, so surplus nodes are folded onto
//! the GPUs with least to do, and spare GPUs relieve the fullest. Time on the network comes off objectives.

use crate::{GpuType, LatencyTable, Model, Network, Span, target_batch};
use std::cmp::Reverse;
use std::ops::Add;

/// Rates are integers: requests in this many nanoseconds.
const PERIOD: u64 = 1_000_000_000_000_000;
/// The occupancy of a full GPU.
const FULL: u64 = 1_000_000;

/// What one GPU does for one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The model, by index.
    pub(super) model: usize,
    /// How many of its requests come here, relative to other shares.
    pub(super) rate: u64,
    /// How many of them gather while the GPU does its round.
    pub(super) batch: usize,
}

/// The shares of each GPU, given the gap between requests of each model and the type of each GPU. Every model
/// that some GPU can run has a share somewhere.
pub(super) fn pack(models: &[Model], network: &Network, gaps: &[Span], gpus: &[GpuType]) -> Vec<Vec<Share>> {
    let packer = Packer { models, network };
    let rates: Vec<_> = gaps.iter().map(|gap| PERIOD / gap.nanos().max(1)).collect();
    let mut plan = packer.place(packer.nodes(&rates, gpus), gpus);
    packer.level(&mut plan);
    let share =
        |node: &Node, part: &Part| Share { model: part.model, rate: part.rate, batch: packer.batch(node, part) };
    plan.iter().map(|node| node.parts.iter().map(|part| share(node, part)).collect()).collect()
}

/// A model, by index, and the rate at which its requests come to one GPU, at least one.
#[derive(Clone, Copy, Debug)]
struct Part {
    model: usize,
    rate: u64,
}

/// A GPU and what it runs, each part once per duty cycle.
#[derive(Clone, Debug)]
struct Node {
    gpu: GpuType,
    duty: Span,
    parts: Vec<Part>,
}

impl Node {
    fn empty(gpu: GpuType) -> Node {
        Node { gpu, duty: Span::MAX, parts: Vec::new() }
    }
}

struct Packer<'a> {
    models: &'a [Model],
    network: &'a Network,
}

impl Packer<'_> {
    /// Whole GPUs first, then what is left, merged; of these the fullest first.
    fn nodes(&self, rates: &[u64], gpus: &[GpuType]) -> Vec<Node> {
        let types = gpus.iter().map(|gpu| gpu.index() + 1).max().unwrap_or(0);
        let mut free: Vec<_> = (0..types).map(|kind| gpus.iter().filter(|gpu| gpu.index() == kind).count()).collect();
        // The types that can run each model, fastest first. Who has least choice chooses first.
        let mut choices: Vec<(usize, Vec<(u64, GpuType)>)> = (0..rates.len())
            .map(|model| {
                let able = (0..types).map(GpuType::new).filter(|gpu| free[gpu.index()] > 0 && self.runs(model, *gpu));
                let mut able: Vec<_> = able.map(|gpu| (self.throughput(model, gpu), gpu)).collect();
                able.sort_by_key(|(most, gpu)| (Reverse(*most), *gpu));
                (model, able)
            })
            .collect();
        choices.sort_by_key(|(_, able)| able.len());
        let (mut whole, mut rest) = (Vec::new(), Vec::new());
        for (model, able) in choices {
            let Some(&fastest) = able.first() else { continue };
            // More than all GPUs could do is as good as all they could do.
            let mut rate = rates[model].clamp(1, fastest.0.saturating_mul(gpus.len() as u64));
            while rate > 0 {
                let (most, gpu) = *able.iter().find(|(_, gpu)| free[gpu.index()] > 0).unwrap_or(&fastest);
                let node = self.with(&Node::empty(gpu), Part { model, rate: rate.min(most) });
                if rate >= most {
                    free[gpu.index()] = free[gpu.index()].saturating_sub(1);
                    whole.push(node);
                } else {
                    rest.push(node);
                }
                rate -= rate.min(most);
            }
        }
        rest.sort_by_key(|node| Reverse(self.occupancy(node)));
        let mut merged: Vec<Node> = Vec::new();
        for node in rest {
            let same = (0..merged.len()).filter(|other| merged[*other].gpu == node.gpu);
            let both = same.map(|other| (other, self.with(&merged[other], node.parts[0])));
            let fits = both.filter(|(_, both)| self.occupancy(both) <= FULL);
            match fits.max_by_key(|(other, both)| (self.occupancy(both), Reverse(*other))) {
                Some((other, both)) => merged[other] = both,
                None => merged.push(node),
            }
        }
        merged.sort_by_key(|node| Reverse(self.occupancy(node)));
        whole.extend(merged);
        whole
    }

    /// Puts nodes on GPUs of their type, folds what is left over and uses GPUs that are.
    fn place(&self, nodes: Vec<Node>, gpus: &[GpuType]) -> Vec<Node> {
        let mut plan: Vec<_> = gpus.iter().map(|gpu| Node::empty(*gpu)).collect();
        let mut surplus = Vec::new();
        for node in nodes {
            match plan.iter_mut().find(|free| free.gpu == node.gpu && free.parts.is_empty()) {
                Some(free) => *free = node,
                None => surplus.extend(node.parts),
            }
        }
        for part in surplus {
            let able = (0..plan.len()).filter(|place| self.runs(part.model, plan[*place].gpu));
            let folded = able.map(|place| (place, self.with(&plan[place], part)));
            let (place, node) = folded.min_by_key(|(_, node)| self.occupancy(node)).expect("its own type is there");
            plan[place] = node;
        }
        for spare in 0..plan.len() {
            if plan[spare].parts.is_empty() {
                self.relieve(&mut plan, spare);
            }
        }
        plan
    }

    /// Gives a spare GPU the largest part of the fullest one, or half of it where there is only one part.
    fn relieve(&self, plan: &mut [Node], spare: usize) {
        let gpu = plan[spare].gpu;
        let helped = (0..plan.len()).filter(|place| plan[*place].parts.iter().any(|part| self.runs(part.model, gpu)));
        let Some(fullest) = helped.max_by_key(|place| (self.occupancy(&plan[*place]), Reverse(*place))) else { return };
        let node = &plan[fullest];
        let able = node.parts.iter().filter(|part| self.runs(part.model, gpu));
        let mut moved = *able.max_by_key(|part| self.takes(node, part)).expect("it has a part that can move");
        let mut kept: Vec<_> = node.parts.iter().copied().filter(|part| part.model != moved.model).collect();
        if kept.is_empty() {
            moved.rate = moved.rate.div_ceil(2);
            kept.push(moved);
        }
        plan[fullest] = kept.into_iter().fold(Node::empty(node.gpu), |node, part| self.with(&node, part));
        plan[spare] = self.with(&plan[spare], moved);
    }

    /// Shares a model's rate among the GPUs it has to itself by what they can do, so that none of them is full
    /// while another has time to spare.
    fn level(&self, plan: &mut [Node]) {
        let alone = |node: &Node| match node.parts[..] {
            [part] => Some((part, u128::from(self.throughput(part.model, node.gpu)))),
            _ => None,
        };
        let mut sums = vec![(0, 0); self.models.len()];
        for (part, most) in plan.iter().filter_map(alone) {
            let (rate, total) = sums[part.model];
            sums[part.model] = (rate + u128::from(part.rate), total + most);
        }
        for node in plan {
            if let Some((part, most)) = alone(node) {
                let (rate, total) = sums[part.model];
                let rate = (rate * most / total).max(1) as u64;
                *node = self.with(&Node::empty(node.gpu), Part { rate, ..part });
            }
        }
    }

    /// This node with one part more. The shorter duty cycle counts, so that nobody waits longer than planned.
    fn with(&self, node: &Node, part: Part) -> Node {
        let mut node = node.clone();
        match node.parts.iter_mut().find(|other| other.model == part.model) {
            Some(other) => other.rate += part.rate,
            None => node.parts.push(part),
        }
        let gap = Span::from_nanos(PERIOD / part.rate);
        let objective = self.models[part.model].objective;
        let batch = target_batch(self.table(part.model, node.gpu), gap, objective, self.network);
        let duty = (gap * batch).min(self.room(part.model, node.gpu, batch));
        node.duty = node.duty.min(duty).max(Span::from_nanos(1));
        node
    }

    /// Millionths of the duty cycle that the batches of all parts take.
    fn occupancy(&self, node: &Node) -> u64 {
        let busy = node.parts.iter().map(|part| self.takes(node, part)).fold(Span::ZERO, Span::add);
        busy.scale(FULL, node.duty.nanos()).nanos()
    }

    fn takes(&self, node: &Node, part: &Part) -> Span {
        self.table(part.model, node.gpu).latency(self.batch(node, part))
    }

    /// The batch that gathers for a part in its node's duty cycle.
    fn batch(&self, node: &Node, part: &Part) -> usize {
        let gathered = (u128::from(part.rate) * u128::from(node.duty.nanos())).div_ceil(u128::from(PERIOD));
        gathered.clamp(1, self.table(part.model, node.gpu).max_batch() as u128) as usize
    }

    /// The rate that fills a GPU: one batch runs while the next one gathers.
    fn throughput(&self, model: usize, gpu: GpuType) -> u64 {
        let table = self.table(model, gpu);
        let fits = |batch: &usize| table.latency(*batch) <= self.room(model, gpu, *batch);
        let batch = (1..=table.max_batch()).take_while(fits).last().unwrap_or(1);
        (PERIOD * batch as u64 / table.latency(batch).nanos().max(1)).max(1)
    }

    /// What remains of a model's objective for waiting, once a batch has been moved, run and answered.
    fn room(&self, model: usize, gpu: GpuType, batch: usize) -> Span {
        let network = self.network;
        let moving = network.control + network.data_per_request * batch + network.response;
        self.models[model].objective - moving - self.table(model, gpu).latency(batch)
    }

    fn runs(&self, model: usize, gpu: GpuType) -> bool {
        self.table(model, gpu).max_batch() > 0
    }

    fn table(&self, model: usize, gpu: GpuType) -> &LatencyTable {
        &self.models[model].tables[gpu.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Models as requests a second, objective in milliseconds, and how many times faster than `b + 5` ms they
    /// run on each type, zero where they cannot. GPUs as their types. The plan as `model:rate x batch`.
    #[track_caller]
    fn check(models: &[(u64, u64, &[f64])], gpus: &str, expected: &str) {
        let line = LatencyTable::line(Span::from_millis(1), Span::from_millis(5), 64);
        let (gaps, models): (Vec<_>, Vec<_>) = models
            .iter()
            .map(|(rate, objective, speeds)| {
                let objective = Span::from_millis(*objective);
                let table = |speed: &f64| {
                    if *speed > 0.0 { line.at_speed(*speed).within(objective) } else { LatencyTable::default() }
                };
                let tables = speeds.iter().map(table).collect();
                (Span::from_secs(1).scale(1, *rate), Model { objective, tables, expected_gap: Span::MAX })
            })
            .unzip();
        let gpus: Vec<_> = gpus.bytes().map(|kind| GpuType(u32::from(kind - b'a'))).collect();
        let text = |share: &Share| format!("{}:{}x{}", share.model, (share.rate + 500_000) / 1_000_000, share.batch);
        let plan = pack(&models, &Network::default(), &gaps, &gpus).into_iter();
        let words = plan.map(|shares| shares.iter().map(text).collect::<Vec<_>>().join("+"));
        assert_eq!(words.collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn a_model_fills_gpus_and_shares_them_evenly() {
        check(&[(1400, 30, &[1.0])], "aaa", "0:467x7 0:467x7 0:467x7");
        check(&[(9000, 30, &[1.0])], "aa", "0:667x10 0:667x10");
    }

    #[test]
    fn small_loads_share_a_gpu_while_their_batches_fit_the_duty_cycle() {
        check(&[(100, 60, &[1.0]), (80, 60, &[1.0]), (60, 60, &[1.0])], "a", "0:100x5+1:80x4+2:60x3");
        check(&[(100, 60, &[1.0]), (80, 60, &[1.0]), (60, 60, &[1.0])], "aa", "1:80x4+2:60x3 0:100x5");
    }

    #[test]
    fn the_surplus_is_folded_onto_the_gpu_with_least_to_do() {
        check(&[(600, 30, &[1.0]), (300, 30, &[1.0]), (200, 30, &[1.0])], "aa", "0:600x9 1:300x5+2:200x4");
    }

    #[test]
    fn a_model_goes_where_it_can_run() {
        check(
            &[(500, 30, &[1.0, 0.5]), (100, 30, &[1.0, 0.0]), (9, 30, &[0.0, 0.0])],
            "abb",
            "1:100x2 0:250x3 0:250x3",
        );
    }
}
