//! Deferred batching (Symphony, sections 3 and 4): every batch starts as late as it can without losing a
//! request that might still have joined, on the free GPU with the lowest id.
//!
//! A lane's candidate waits until it is due; then it is ready and takes a GPU. When there is none, ready
//! candidates wait for one and the least slack goes first. A candidate that nobody served by its latest
//! start is formed anew, smaller.

use crate::policies::Targets;
use crate::{Context, GpuId, LaneId, Policy, Span, Time, Tournament, candidate};

/// Deferral by the book.
#[derive(Debug, Default)]
pub struct Deferred {
    targets: Targets,
    /// When each lane's candidate must be looked at again: when it is due, or when it dies.
    timers: Option<Tournament>,
    /// The latest start of candidates that are due.
    ready: Option<Tournament>,
}

impl Deferred {
    fn trees(&mut self, lanes: usize) -> (&mut Tournament, &mut Tournament) {
        (
            self.timers.get_or_insert_with(|| Tournament::new(lanes)),
            self.ready.get_or_insert_with(|| Tournament::new(lanes)),
        )
    }

    /// Forms a lane's candidate and files it as waiting or ready.
    fn refresh(&mut self, context: &mut Context, lane: LaneId) {
        let target = self.targets.of(context, lane);
        let now = context.now;
        let outlook = context.cluster.likely_outlook(now, lane);
        let formed = candidate(context.cluster.queue(lane), target, &outlook);
        let lead = context.cluster.network.control;
        let data = context.cluster.network.data_per_request;
        let (timers, ready) = self.trees(context.cluster.lanes.len());
        let Some(formed) = formed else {
            timers.clear(lane.index());
            ready.clear(lane.index());
            return;
        };
        let send = formed.due - (lead + data * formed.size);
        if send <= now {
            ready.set(lane.index(), formed.latest);
            timers.set(lane.index(), formed.latest.max(now) + Span::from_nanos(1));
        } else {
            ready.clear(lane.index());
            timers.set(lane.index(), send);
        }
        context.sacrifice(lane, formed.drop);
    }

    /// Gives GPUs to ready candidates, least slack first, for as long as there are both.
    fn grant(&mut self, context: &mut Context) {
        while let Some((_, lane)) = self.ready.as_ref().and_then(Tournament::first) {
            let lane = LaneId::new(lane);
            let Some(gpu) = context.cluster.available_for(context.cluster.model_of(lane)) else { return };
            self.refresh(context, lane);
            let outlook = context.cluster.outlook(context.now, lane, gpu);
            let queue = context.cluster.queue(lane);
            let size = queue.head().map_or(0, |head| outlook.largest(head.deadline, queue.len()));
            if size > 0 {
                context.run(gpu, lane, size);
                self.refresh(context, lane);
            }
        }
    }
}

impl Policy for Deferred {
    fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
        self.refresh(context, lane);
        self.grant(context);
    }

    fn on_gpu(&mut self, context: &mut Context, _gpu: GpuId) {
        self.on_timer(context);
    }

    fn on_timer(&mut self, context: &mut Context) {
        while let Some((at, lane)) = self.timers.as_ref().and_then(Tournament::first)
            && at <= context.now
        {
            self.refresh(context, LaneId::new(lane));
        }
        self.grant(context);
    }

    fn next_timer(&self) -> Time {
        self.timers.as_ref().map_or(Time::NEVER, Tournament::earliest)
    }
}
