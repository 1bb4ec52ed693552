//! Shepherd's Flex (NSDI 2023, section 4.2): always the largest feasible batch, with preemption.
//!
//! A GPU that becomes free runs the largest batch any model can still finish on time. When a batch becomes
//! possible that is at least 3.03 times the smallest one running, that one is stopped and its requests wait
//! again: the factor with the best competitive ratio. All models and GPUs here are one group.

use crate::{Context, GpuId, LaneId, Policy};

/// Preempt at this multiple, in hundredths.
const FACTOR: usize = 303;

/// The largest batch first.
#[derive(Debug, Default)]
pub struct Shepherd;

impl Shepherd {
    /// The largest batch a lane could run on a GPU that is free now.
    fn feasible(context: &Context, lane: LaneId, gpu: GpuId) -> usize {
        let queue = context.cluster.queue(lane);
        let mut outlook = context.cluster.outlook(context.now, lane, gpu);
        outlook.gpu_free = context.now;
        queue.head().map_or(0, |head| outlook.largest(head.deadline, queue.len()))
    }
}

impl Policy for Shepherd {
    fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
        if let Some(gpu) = context.cluster.available_for(context.cluster.model_of(lane)) {
            return self.on_gpu(context, gpu);
        }
        let running =
            |gpu: &GpuId| context.cluster.gpus[gpu.index()].flights.iter().map(|flight| flight.size).sum::<usize>();
        let stoppable = context.cluster.live().filter(|gpu| !context.cluster.gpus[gpu.index()].stopping);
        let Some(smallest) = stoppable.min_by_key(running) else { return };
        if Shepherd::feasible(context, lane, smallest) * 100 >= running(&smallest) * FACTOR {
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
