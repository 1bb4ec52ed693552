//! Target batches by model, worked out again when the rate may have changed.

use crate::{Context, LaneId, Span, Time, target_batch};

const FRESH: Span = Span::from_millis(50);

/// The last target of each model and until when it holds.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    by_model: Vec<(Time, usize)>,
}

impl Targets {
    /// The batch worth waiting for in this lane's model.
    pub(crate) fn of(&mut self, context: &mut Context, lane: LaneId) -> usize {
        let model = context.cluster.model_of(lane);
        if self.by_model.len() < context.cluster.models.len() {
            self.by_model.resize(context.cluster.models.len(), (Time::ZERO, 1));
        }
        let (until, target) = self.by_model[model.index()];
        if context.now < until {
            return target;
        }
        let gap = context.cluster.gap(context.now, model);
        let state = &context.cluster.models[model.index()];
        let target = target_batch(state.fastest(), gap, state.objective, &context.cluster.network);
        self.by_model[model.index()] = (context.now + FRESH, target);
        target
    }
}
