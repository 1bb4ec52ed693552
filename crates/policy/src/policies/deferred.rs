//! Deferred batching (Symphony, sections 3 and 4): every batch starts as late as it can without losing a
//! request that might still have joined, on the free GPU with the lowest id.
//!
//! A lane's candidate waits until it is due; then it is ready and takes a GPU. When there is none, ready
//! candidates wait for one and the least slack goes first. A candidate that nobody served by its latest
//! start is formed anew, smaller.

use crate::policies::Targets;
use crate::{Context, GpuId, LaneId, Network, Policy, Span, Time, Tournament, candidate};

/// Deferral by the book.
#[derive(Debug, Default)]
pub struct Deferred {
    targets: Targets,
    /// When each lane's candidate must be looked at again: when it is due, or when it dies.
    timers: Option<Tournament>,
    /// The latest start of candidates that are due.
    ready: Option<Tournament>,
    /// Ready lanes that no free GPU can serve, while the others are looked at.
    aside: Vec<(usize, Time)>,
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
        let Network { control, data_per_request, jitter, .. } = context.cluster.network;
        let (timers, ready) = self.trees(context.cluster.lanes.len());
        let Some(formed) = formed else {
            // Nobody here can be saved as the plan stands, but a GPU may come sooner than planned; until its last
            // chance is gone the head stands ready for that.
            timers.clear(lane.index());
            ready.set(lane.index(), context.cluster.expiry.get(lane.index()));
            return;
        };
        let send = formed.due - (control + data_per_request * formed.size);
        if send <= now {
            ready.set(lane.index(), formed.latest);
            // It dies when it could not be on time even if nothing were late, which is still to come.
            timers.set(lane.index(), formed.latest + jitter + Span::from_nanos(1));
        } else {
            ready.clear(lane.index());
            timers.set(lane.index(), send);
        }
        context.sacrifice(lane, formed.drop);
    }

    /// Gives GPUs to ready candidates, least slack first, for as long as there are both.
    fn grant(&mut self, context: &mut Context) {
        while context.cluster.available_count() > 0
            && let Some((_, lane)) = self.ready.as_ref().and_then(Tournament::first)
        {
            if !self.serve(context, LaneId::new(lane)) {
                // The GPUs that are free cannot run it, or not in time; another lane may have a use for them.
                let ready = self.ready.as_mut().expect("it holds this lane");
                self.aside.push((lane, ready.get(lane)));
                ready.clear(lane);
            }
        }
        for (lane, latest) in self.aside.drain(..) {
            self.ready.as_mut().expect("it held this lane").set(lane, latest);
        }
    }

    /// Sends off a lane's candidate, as large as it has become, if that is still due. Whether the lane is done
    /// with: false where it is ready and no free GPU can serve it.
    fn serve(&mut self, context: &mut Context, lane: LaneId) -> bool {
        let Some(gpu) = context.cluster.available_for(context.cluster.model_of(lane)) else { return false };
        self.refresh(context, lane);
        if self.ready.as_ref().is_some_and(|ready| ready.get(lane.index()) == Time::NEVER) {
            return true;
        }
        let outlook = context.cluster.outlook(context.now, lane, gpu);
        let queue = context.cluster.queue(lane);
        let size = queue.head().map_or(0, |head| outlook.largest(head.deadline, queue.len()));
        if size == 0 {
            return false;
        }
        context.run(gpu, lane, size);
        self.refresh(context, lane);
        true
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
