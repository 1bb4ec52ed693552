//! Eager batching: a GPU that is free runs something at once, the lane with the least slack first.
//!
//! Two ways of giving up on requests. *Timeout drop* keeps a head until it cannot be on time even alone;
//! under load that makes batches small. *Window drop* sacrifices heads that keep the target batch from
//! forming (Nexus, section 6.3; Symphony, section 3).

use crate::policies::Targets;
use crate::{Candidate, Context, GpuId, LaneId, Policy, Time, candidate};

/// Eager, least slack first.
#[derive(Debug)]
pub struct Eager {
    targets: Targets,
    window: bool,
}

impl Eager {
    /// Heads are sacrificed for the target batch.
    pub fn window_drop() -> Eager {
        Eager { targets: Targets::default(), window: true }
    }

    /// Heads are kept until they are hopeless.
    pub fn timeout_drop() -> Eager {
        Eager { targets: Targets::default(), window: false }
    }

    /// The batch this lane would run on this GPU.
    fn candidate(&mut self, context: &mut Context, lane: LaneId, gpu: GpuId) -> Option<Candidate> {
        if context.cluster.queue(lane).is_empty() {
            return None;
        }
        let target = if self.window { self.targets.of(context, lane) } else { 1 };
        let outlook = context.cluster.outlook(context.now, lane, gpu);
        candidate(context.cluster.queue(lane), target, &outlook)
    }
}

impl Policy for Eager {
    fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
        if let Some(gpu) = context.cluster.available_for(context.cluster.model_of(lane)) {
            self.on_gpu(context, gpu);
        } else if self.window {
            // Nobody is served now, but a head that no GPU can save is told at once.
            context.reject_hopeless(lane);
        }
    }

    fn on_gpu(&mut self, context: &mut Context, gpu: GpuId) {
        while context.cluster.is_available(gpu) {
            let lanes = (0..context.cluster.lanes.len()).map(LaneId::new);
            let mut best: Option<(Time, LaneId, Candidate)> = None;
            for lane in lanes {
                if let Some(formed) = self.candidate(context, lane, gpu)
                    && best.is_none_or(|(latest, ..)| formed.latest < latest)
                {
                    best = Some((formed.latest, lane, formed));
                }
            }
            let Some((_, lane, formed)) = best else { return };
            context.sacrifice(lane, formed.drop);
            context.run(gpu, lane, formed.size);
        }
    }
}
