//! Whether a model that answers does so within its objective, and why nobody would answer for it.
//!
//! A model's first worker says how long batches took in its warm-up. Where one request alone takes longer than the
//! objective allows, an order that brought the model is refused, with the objective that would do. What becomes of the
//! deployment then is `policy::deployment`'s.

use crate::deployment::{Deployment, NOBODY_EMULATES};
use crate::driver::Driver;
use crate::objective::too_slow;
use crate::placing::is_virtual;
use policy::{Network, Span};
use rpc::WorkerState;

impl Deployment {
    /// Why it is not fast enough, given what its worker measured; none where it is.
    pub(crate) fn too_slow(&self, network: &Network, measured: &[(usize, Span)]) -> Option<String> {
        let (_, latency) = measured.iter().find(|(size, _)| *size == 1)?;
        too_slow(&self.spec, *latency, network)
    }

    /// Why nobody would answer a request, now or after a start that takes its time; none where somebody would.
    pub(crate) fn trouble(&self, emulates: bool) -> Option<String> {
        if is_virtual(&self.spec) {
            return (!emulates).then(|| NOBODY_EMULATES.to_owned());
        }
        (self.wanted > 0 && self.life.is_troubled()).then(|| self.life.trouble()).flatten()
    }

    /// Why no worker of it could take a batch right now, where none could.
    pub(crate) fn has_nobody(&self, emulates: impl FnOnce() -> bool) -> Option<String> {
        let why = match is_virtual(&self.spec) {
            true => (!emulates()).then(|| NOBODY_EMULATES.to_owned()),
            false => self.life.trouble(),
        };
        Some(format!("model `{}` has no worker right now: {}", self.spec.name, why?))
    }
}

impl Driver {
    /// Whether there is a GPU that virtual models run on.
    pub(crate) fn emulates(&self) -> bool {
        self.workers.values().any(|worker| worker.model.is_none() && worker.state == WorkerState::Ready)
    }
}
