//! Nexus (SOSP 2019, section 6): a plan every thirty seconds, then each GPU on its own.
//!
//! The plan says which models each GPU serves, at which rate and in which batches (section 6.1, in `packing`).
//! Requests are routed by rate to a lane per GPU and model. A GPU serves its lanes in turn and drops heads
//! that keep the planned batch from forming (section 6.3); a batch may grow beyond the plan where that makes
//! nobody late, since a burst would otherwise wait for the next plan. Epochs are planned afresh: nothing here
//! spares a model the move to another GPU.

mod packing;

use crate::{Context, GpuId, LaneId, ModelId, Policy, Request, Span, Time, candidate};
use std::cmp::Reverse;
use std::collections::BTreeMap;

const EPOCH: Span = Span::from_secs(30);
/// How soon to plan again while nothing is known of any rate.
const BLIND: Span = Span::from_secs(1);

/// A plan per epoch, requests routed by weight.
#[derive(Debug, Default)]
pub struct Nexus {
    next_epoch: Time,
    /// Every lane ever opened; a pair that returns to the plan finds its old lane.
    lanes: BTreeMap<(ModelId, GpuId), LaneId>,
    /// By model.
    routes: Vec<Vec<Route>>,
    /// By GPU.
    turns: Vec<Turns>,
}

/// One of the lanes a model's requests go to.
#[derive(Debug)]
struct Route {
    lane: LaneId,
    gpu: GpuId,
    weight: i64,
    credit: i64,
}

/// The lanes a GPU serves and the batches planned for them, and whose turn it is.
#[derive(Clone, Debug, Default)]
struct Turns {
    lanes: Vec<(LaneId, usize)>,
    next: usize,
}

impl Nexus {
    fn plan(&mut self, context: &mut Context) {
        let (now, cluster) = (context.now, &mut *context.cluster);
        let gaps: Vec<_> = (0..cluster.models.len()).map(|model| cluster.gap(now, ModelId::new(model))).collect();
        let blind = gaps.iter().all(|gap| *gap == Span::MAX);
        self.next_epoch = now + if blind { BLIND } else { EPOCH };
        let live: Vec<_> = cluster.live().collect();
        let kinds: Vec<_> = live.iter().map(|gpu| cluster.gpus[gpu.index()].kind).collect();
        let plan = packing::pack(&cluster.models, &cluster.network, &gaps, &kinds);
        self.routes = gaps.iter().map(|_| Vec::new()).collect();
        self.turns = vec![Turns::default(); cluster.gpus.len()];
        for (gpu, shares) in live.into_iter().zip(plan) {
            for share in shares {
                let model = ModelId::new(share.model);
                let lane = *self.lanes.entry((model, gpu)).or_insert_with(|| cluster.open_lane(model));
                self.routes[share.model].push(Route { lane, gpu, weight: share.rate as i64, credit: 0 });
                self.turns[gpu.index()].lanes.push((lane, share.batch));
            }
        }
        // Who waits where the plan no longer serves joins the shortest line of the model that it does serve.
        for lane in (0..context.cluster.lanes.len()).map(LaneId::new) {
            let routes = &self.routes[context.cluster.model_of(lane).index()];
            if !context.cluster.queue(lane).is_empty() && routes.iter().all(|route| route.lane != lane) {
                let shortest = routes.iter().min_by_key(|route| context.cluster.queue(route.lane).len());
                shortest.into_iter().for_each(|route| context.merge(lane, route.lane));
            }
        }
        for gpu in 0..self.turns.len() {
            self.on_gpu(context, GpuId::new(gpu));
        }
    }
}

impl Policy for Nexus {
    /// Smooth weighted round robin: every lane earns its weight, the richest pays for all.
    fn route(&mut self, context: &mut Context, request: &Request) -> LaneId {
        if self.next_epoch <= context.now {
            self.plan(context);
        }
        let routes = &mut self.routes[request.model.index()];
        let total: i64 = routes.iter().map(|route| route.weight).sum();
        routes.iter_mut().for_each(|route| route.credit += route.weight);
        let richest = routes.iter_mut().max_by_key(|route| (route.credit, Reverse(route.gpu)));
        // Where no GPU can run the model, its requests wait in its own lane for one that can.
        richest.map_or(LaneId(request.model.0), |route| {
            route.credit -= total;
            route.lane
        })
    }

    fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
        let model = context.cluster.model_of(lane);
        if let Some(route) = self.routes[model.index()].iter().find(|route| route.lane == lane) {
            self.on_gpu(context, route.gpu);
        }
    }

    fn on_gpu(&mut self, context: &mut Context, gpu: GpuId) {
        let Some(turns) = self.turns.get_mut(gpu.index()) else { return };
        let mut passed = 0;
        while passed < turns.lanes.len() && context.cluster.is_available(gpu) {
            let (lane, batch) = turns.lanes[turns.next];
            turns.next = (turns.next + 1) % turns.lanes.len();
            passed += 1;
            let outlook = context.cluster.outlook(context.now, lane, gpu);
            if let Some(formed) = candidate(context.cluster.queue(lane), batch, &outlook) {
                context.sacrifice(lane, formed.drop);
                context.run(gpu, lane, formed.size);
                passed = 0;
            }
        }
    }

    fn on_cluster(&mut self, context: &mut Context) {
        self.plan(context);
    }

    fn on_timer(&mut self, context: &mut Context) {
        self.plan(context);
    }

    fn next_timer(&self) -> Time {
        self.next_epoch
    }
}
