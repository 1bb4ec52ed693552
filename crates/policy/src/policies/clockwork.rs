//! Clockwork (OSDI 2020, section 5.3): a central scheduler that plans every GPU a little ahead.
//!
//! Each model has one strategy per batch size 1, 2, 4, 8, 16. A strategy's priority is the latest time it may
//! start, `head deadline - l(size)`; a GPU with room in its plan takes the most urgent strategy that still
//! fits. Requests that cannot be on time are dropped. Latency is the worst of the last ten measurements,
//! which with exact profiles is the profile.
//!
//! The paper fills each GPU's plan ten milliseconds ahead to hide its network. That fixes batches while they
//! could still grow, so there are two variants: *just in time* looks ahead only as far as the control latency
//! (the kindest reading, and the one compared against), *ahead* commits ten milliseconds early.

use crate::{Context, GpuId, LaneId, Network, Policy, Span, Time};

const SIZES: [usize; 5] = [16, 8, 4, 2, 1];
const AHEAD: Span = Span::from_millis(10);

/// Eager, planned ahead, powers of two.
#[derive(Debug)]
pub struct Clockwork {
    ahead: bool,
}

impl Clockwork {
    /// Batches are fixed when they can start.
    pub fn just_in_time() -> Clockwork {
        Clockwork { ahead: false }
    }

    /// Batches are fixed ten milliseconds before they start, as published.
    pub fn ahead() -> Clockwork {
        Clockwork { ahead: true }
    }

    /// The most urgent strategy of a lane: its latest start and its size.
    fn strategy(context: &Context, lane: LaneId, gpu: GpuId) -> Option<(Time, usize)> {
        let queue = context.cluster.queue(lane);
        let head = queue.head()?;
        let outlook = context.cluster.outlook(context.now, lane, gpu);
        let limit = queue.len().min(outlook.table.max_batch());
        let fits = |size: &usize| *size <= limit && outlook.finish(*size) <= head.deadline;
        let size = SIZES.into_iter().find(fits)?;
        Some((head.deadline - outlook.table.latency(size), size))
    }
}

impl Policy for Clockwork {
    fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
        // The GPU that could start soonest, as its plan stands.
        let soonest =
            context.cluster.available().min_by_key(|gpu| context.cluster.gpus[gpu.index()].free_at.max(context.now));
        match soonest {
            Some(gpu) => self.on_gpu(context, gpu),
            None => context.reject_hopeless(lane),
        }
    }

    fn on_gpu(&mut self, context: &mut Context, gpu: GpuId) {
        while context.cluster.is_available(gpu) {
            let mut best: Option<(Time, usize, LaneId)> = None;
            for lane in (0..context.cluster.lanes.len()).map(LaneId::new) {
                context.reject_hopeless(lane);
                if let Some((latest, size)) = Clockwork::strategy(context, lane, gpu)
                    && best.is_none_or(|(earlier, ..)| latest < earlier)
                {
                    best = Some((latest, size, lane));
                }
            }
            let Some((_, size, lane)) = best else { return };
            context.run(gpu, lane, size);
        }
    }

    fn lead(&self, network: &Network) -> Span {
        if self.ahead { AHEAD } else { network.control }
    }
}
