//! Time-sharing, what people do today: dynamic batching as in common inference servers (Triton's dynamic
//! batcher with a preferred batch size and a largest queue delay), every model on every GPU.
//!
//! A lane is ready when it holds the fixed batch or when its head has waited the fixed time. Ready lanes are
//! served first come, first served, by the arrival of their heads. Nothing here knows of deadlines, so
//! batches may be late; a request is only refused once its deadline has passed while it waited.

use crate::{Context, GpuId, LaneId, LatencyTable, Policy, Span, Time, Tournament};

/// The preferred batch, where the latency table reaches that far.
const BATCH: usize = 8;
/// How long a head waits for others to join it.
const WAIT: Span = Span::from_millis(2);

/// A fixed batch, a fixed wait, in the order of arrival.
#[derive(Debug)]
pub struct TimeShare {
    /// When the heads of lanes that are not ready will have waited.
    waiting: Tournament,
}

impl Default for TimeShare {
    fn default() -> TimeShare {
        TimeShare { waiting: Tournament::new(0) }
    }
}

impl TimeShare {
    /// When the head of a lane came, if the lane is ready.
    fn ready(context: &Context, lane: LaneId) -> Option<Time> {
        let queue = context.cluster.queue(lane);
        let head = queue.head()?;
        let tables = &context.cluster.models[context.cluster.model_of(lane).index()].tables;
        let full = tables.iter().map(LatencyTable::max_batch).max().map_or(BATCH, |largest| largest.min(BATCH));
        (queue.len() >= full || head.arrival + WAIT <= context.now).then_some(head.arrival)
    }

    /// Sets when a lane's head will have waited, and says whether the lane is ready already.
    fn file(&mut self, context: &Context, lane: LaneId) -> bool {
        let ready = TimeShare::ready(context, lane).is_some();
        let head = context.cluster.queue(lane).head().filter(|_| !ready);
        self.waiting.set(lane.index(), head.map_or(Time::NEVER, |head| head.arrival + WAIT));
        ready
    }

    /// The ready lane whose head came first, among those that a free GPU can run, and that GPU.
    fn next(context: &Context) -> Option<(LaneId, GpuId)> {
        let cluster = &*context.cluster;
        if cluster.available_count() == 0 {
            return None;
        }
        let lanes = (0..cluster.lanes.len()).map(LaneId::new);
        let ready = lanes.filter_map(|lane| Some((TimeShare::ready(context, lane)?, lane)));
        let able = ready.filter_map(|(came, lane)| Some((came, lane, cluster.available_for(cluster.model_of(lane))?)));
        able.min().map(|(_, lane, gpu)| (lane, gpu))
    }

    fn serve(&mut self, context: &mut Context) {
        while let Some((lane, gpu)) = TimeShare::next(context) {
            let largest = context.cluster.table(context.cluster.model_of(lane), gpu).max_batch();
            context.run(gpu, lane, context.cluster.queue(lane).len().min(BATCH).min(largest));
            self.file(context, lane);
        }
    }
}

impl Policy for TimeShare {
    fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
        // A lane that has to wait leaves the others as they were.
        if self.file(context, lane) {
            self.serve(context);
        }
    }

    fn on_gpu(&mut self, context: &mut Context, _gpu: GpuId) {
        self.serve(context);
    }

    fn on_timer(&mut self, context: &mut Context) {
        while let Some((at, lane)) = self.waiting.first()
            && at <= context.now
        {
            self.file(context, LaneId::new(lane));
        }
        self.serve(context);
    }

    fn next_timer(&self) -> Time {
        self.waiting.earliest()
    }

    fn ignores_deadlines(&self) -> bool {
        true
    }
}
