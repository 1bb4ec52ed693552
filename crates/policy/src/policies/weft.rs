//! Weft's own policy: several ways of serving, of which the best for what comes is found out by trying.
//!
//! Every way of serving is a setting of one policy (see `prices` and `setting`): it decides by prices of GPU time and of
//! refusals, or it waits as long as it may, or not at all. None of them is best on every workload. So while requests are
//! refused, all of them are run in the shadow on the same arrivals (see `trial` and `shadow`), and the one with the
//! fewest refusals serves. The strongest rules known elsewhere, deferral and eager least slack, are among them, so that
//! Weft is behind none of them for longer than it takes to find out.
//!
//! While nobody is refused there is no shadow, and the first setting serves: it leaves whole GPUs idle.
//!
//! Invariants:
//! 1. Shadows decide nothing: without a change of setting, Weft does what its setting would do alone.
//! 2. All work follows from events and their times, a bounded amount from each. So a journal replays to the same actions.

mod budget;
mod load;
mod forecast;
mod gaps;
mod setting;
mod prices;
mod shadow;
mod trial;
#[cfg(test)]
mod tests;

use crate::{Context, GpuId, LaneId, Policy, Request, Time};
use prices::Prices;
use setting::{SETTINGS, Setting};
use trial::{PARAMETERS, Parameters, Trial};

/// Weft's policy.
pub struct Weft {
    live: Prices,
    /// The number of the setting in use.
    used: usize,
    trial: Trial,
}

impl Default for Weft {
    fn default() -> Weft {
        Weft::of(&SETTINGS, PARAMETERS)
    }
}

impl Weft {
    fn of(settings: &[Setting], parameters: Parameters) -> Weft {
        Weft { live: Prices::new(settings[0]), used: 0, trial: Trial::new(settings, parameters) }
    }

    /// One of Weft's settings alone, to be compared with the others.
    pub(crate) fn alone(name: &str) -> Option<Box<dyn Policy>> {
        let setting = SETTINGS.into_iter().find(|setting| setting.name == name)?;
        Some(Box::new(Prices::new(setting)))
    }
}

impl Policy for Weft {
    fn route(&mut self, context: &mut Context, request: &Request) -> LaneId {
        let Weft { live, used, trial } = self;
        if let Some(better) = trial.on_arrival(live, *used, context.cluster, context.now, request) {
            *used = better;
            live.turn_to(context, trial.settings()[better]);
        }
        live.route(context, request)
    }

    fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
        self.live.on_queue(context, lane);
    }

    fn on_gpu(&mut self, context: &mut Context, gpu: GpuId) {
        self.live.on_gpu(context, gpu);
    }

    fn on_cluster(&mut self, context: &mut Context) {
        self.trial.forget_cluster(context.now);
        self.live.on_cluster(context);
    }

    fn on_timer(&mut self, context: &mut Context) {
        self.live.on_timer(context);
    }

    fn next_timer(&self) -> Time {
        self.live.next_timer()
    }
}
