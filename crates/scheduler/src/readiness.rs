//! Whether a model that answers does so within its objective: only then is it ready.
//!
//! A model's first worker says how long batches took in its warm-up. Where one request alone takes longer than the
//! objective allows, an order that brought the model is refused, with the objective that would do. A model of the
//! configuration or of before a restart stays, without a worker, and says why; it is measured again after a while that
//! grows, because a machine that is busy makes every model slow.

use crate::deployment::{Deployment, NOBODY_EMULATES};
use crate::driver::Driver;
use crate::objective::{Again, too_slow};
use policy::{Network, Span, Time};
use rpc::{Kind, OrderError, WorkerId, WorkerState};

/// After so long a model that was too slow is measured again the first time. The wait doubles each time.
const AGAIN_FIRST: Span = Span::from_secs(3);
/// The longest wait.
const AGAIN_MOST: Span = Span::from_secs(300);

impl Deployment {
    /// Whether no worker of it is to be started now: it was too slow a moment ago.
    pub(crate) fn is_held(&self, now: Time) -> bool {
        self.again.is_some_and(|again| now < again.at)
    }

    /// Why it is not ready, given what its worker measured; none where it is.
    pub(crate) fn too_slow(&self, network: &Network, measured: &[(usize, Span)]) -> Option<String> {
        let (_, latency) = measured.iter().find(|(size, _)| *size == 1)?;
        too_slow(&self.spec, *latency, network)
    }

    /// Why nobody would answer a request now, though it was ready once.
    pub(crate) fn trouble(&self) -> Option<String> {
        let expected = self.proven && self.place.is_some() && self.wanted > 0;
        let lacks = expected && self.ready == 0 && !matches!(self.spec.kind, Kind::Virtual { .. });
        let why = || self.last_error.clone().or(self.workers.is_empty().then(|| "no node runs a worker of it".into()));
        lacks.then(why).flatten()
    }
}

impl Driver {
    /// Whether there is a GPU that virtual models run on.
    pub(crate) fn emulates(&self) -> bool {
        self.workers.values().any(|worker| worker.model.is_none() && worker.state == WorkerState::Ready)
    }

    /// Why no worker of a model could take a batch right now, where none could.
    pub(crate) fn has_nobody(&self, deployment: &Deployment) -> Option<String> {
        let is_virtual = matches!(deployment.spec.kind, Kind::Virtual { .. });
        let why = match is_virtual {
            true => (!self.emulates()).then(|| NOBODY_EMULATES.to_owned()),
            false => (deployment.ready == 0).then(|| {
                deployment.last_error.clone().unwrap_or_else(|| "one is being started, or its node is not there".into())
            }),
        };
        Some(format!("model `{}` has no worker right now: {}", deployment.spec.name, why?))
    }

    /// The worker of a model that was never ready is too slow for the objective: it ends. When it was the last that
    /// could have done, whoever waits is told.
    pub(crate) fn on_too_slow(&mut self, now: Time, id: WorkerId, number: u32, reason: String) {
        let Some(deployment) = self.models.get_mut(&number) else { return };
        tracing::warn!(model = deployment.label(), reason, "a model is too slow for its objective");
        let wait = deployment.again.map_or(AGAIN_FIRST, |again| (again.wait * 2).min(AGAIN_MOST));
        if !deployment.is_held(now) {
            deployment.again = Some(Again { at: now + wait, wait });
        }
        let failed = OrderError::Invalid(format!("model `{}`: {reason}", deployment.spec.name));
        // Models that come with a start are measured while the others start, too.
        let again = if deployment.on_trial { String::new() } else { format!("; it is measured again in {wait}") };
        deployment.last_error = Some(reason + &again);
        deployment.workers.retain(|worker| *worker != id);
        let (last, on_trial) = (deployment.workers.is_empty(), deployment.on_trial);
        self.changed = true;
        self.stop_worker(now, id);
        if last {
            self.answer_all(number, &Err(failed));
            if on_trial {
                self.withdraw(now, number);
            }
        }
    }
}
