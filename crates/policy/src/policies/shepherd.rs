//! Shepherd's Flex (NSDI 2023, section 4.2): always the largest feasible batch, with preemption.
//!
//! A GPU that becomes free runs the largest batch any model can still finish on time. When a batch becomes
//! possible that is at least 3.03 times the smallest one running, that one is stopped and its requests wait
//! again: the factor with the best competitive ratio. All models and GPUs here are one group.

use crate::{Context, GpuId, LaneId, Policy, Time};

/// Preempt at this multiple, in hundredths.
const FACTOR: usize = 303;

/// The largest batch first.
#[derive(Debug, Default)]
pub struct Shepherd;

impl Shepherd {
    /// The largest batch a lane could run on a GPU that is free now.
    fn feasible(context: &Context, lane: LaneId, gpu: GpuId) -> usize {
        let queue = context.cluster.queue(lane);
        queue.head().map_or(0, |head| Shepherd::largest(context, lane, gpu, head.deadline, queue.len()))
    }

    /// The same if the GPU stopped what it runs. Requests of this lane that it runs would wait again, and the
    /// tightest of them may be what made that batch small: without a look at them the same two batches could
    /// take turns for ever.
    fn feasible_after_preemption(context: &Context, lane: LaneId, gpu: GpuId) -> usize {
        let cluster = &*context.cluster;
        let queue = cluster.queue(lane);
        let Some(head) = queue.head() else { return 0 };
        let running = cluster.gpus[gpu.index()].requests.iter().filter(|request| request.model == head.model);
        let back = running.filter(|request| cluster.has_a_chance(context.now, request));
        let (limit, deadline) =
            back.fold((queue.len(), head.deadline), |(limit, first), back| (limit + 1, first.min(back.deadline)));
        Shepherd::largest(context, lane, gpu, deadline, limit)
    }

    fn largest(context: &Context, lane: LaneId, gpu: GpuId, deadline: Time, limit: usize) -> usize {
        let mut outlook = context.cluster.outlook(context.now, lane, gpu);
        outlook.gpu_free = context.now;
        outlook.largest(deadline, limit)
    }
}

impl Policy for Shepherd {
    fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
        if let Some(gpu) = context.cluster.available_for(context.cluster.model_of(lane)) {
            return self.on_gpu(context, gpu);
        }
        let cluster = &*context.cluster;
        let running = |gpu: &GpuId| cluster.gpus[gpu.index()].requests.len();
        let able = |gpu: &GpuId| cluster.table(cluster.model_of(lane), *gpu).max_batch() > 0;
        let stoppable = cluster.live().filter(|gpu| !cluster.gpus[gpu.index()].stopping && able(gpu));
        let Some(smallest) = stoppable.min_by_key(running) else { return };
        if Shepherd::feasible_after_preemption(context, lane, smallest) * 100 >= running(&smallest) * FACTOR {
            context.preempt(smallest);
        }
    }

    fn on_gpu(&mut self, context: &mut Context, gpu: GpuId) {
        while context.cluster.is_available(gpu) {
            let mut best = (0, LaneId(0));
            for lane in (0..context.cluster.lanes.len()).map(LaneId::new) {
                let size = Shepherd::feasible(context, lane, gpu);
                if size > best.0 {
                    best = (size, lane);
                }
            }
            let (size, lane) = best;
            if size == 0 {
                return;
            }
            context.run(gpu, lane, size);
        }
    }
}
