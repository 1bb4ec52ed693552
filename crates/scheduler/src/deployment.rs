//! One version of one model that is being served, or was asked to be.

use crate::profile::Profile;
use crate::scaling::{self, Scaling};
use config::ModelSpec;
use policy::deployment::{Life, Phase};
use policy::{Admission, ModelId, Span, Time};
use rpc::{Entry, Health, ModelInfo, OrderError, Source, State, WorkerId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Why nobody answers for a virtual model.
pub(crate) const NOBODY_EMULATES: &str = "no node emulates a GPU; set `virtual_gpus` under [node]";

/// Tells whoever gave an order how it went.
pub(crate) type Reply = Box<dyn FnOnce(Result<(), OrderError>) + Send>;

pub(crate) struct Deployment {
    pub(crate) number: u32,
    pub(crate) spec: Arc<ModelSpec>,
    /// Who asked for it.
    pub(crate) source: Source,
    /// Why its record in the store cannot be read: its specification is then only what could be made out.
    pub(crate) unreadable: Option<String>,
    /// Where its requests are queued; none while it is not loaded.
    pub(crate) place: Option<Place>,
    pub(crate) info: Option<Arc<ModelInfo>>,
    pub(crate) profile: Option<Profile>,
    /// What its first worker measured: batch sizes and nanoseconds.
    pub(crate) measured: Vec<(usize, u64)>,
    pub(crate) admission: Admission,
    pub(crate) workers: Vec<WorkerId>,
    /// How many workers it is to have now.
    pub(crate) wanted: usize,
    /// What that follows, where it is not always the same and something is known of its batches.
    pub(crate) scaling: Option<Scaling>,
    /// How long its first worker took to start.
    pub(crate) first_start: Option<Span>,
    /// Where in its life it is.
    pub(crate) life: Life,
    /// What was known of nodes when none had room for its next worker.
    pub(crate) no_room_at: Option<u64>,
    /// Nodes where a worker that was to take another's place could not start.
    pub(crate) failed_on: BTreeSet<u32>,
    /// Who waits for its first worker.
    pub(crate) replies: Vec<Reply>,
    /// The deployment of the same version that it takes over from once it is ready.
    pub(crate) replaces: Option<u32>,
}

/// A model's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) pool: u32,
    pub(crate) model: ModelId,
}

impl Deployment {
    /// `on_trial`: an order that fails takes it away again.
    pub(crate) fn new(number: u32, spec: Arc<ModelSpec>, on_trial: bool) -> Deployment {
        // The first worker tells what the model takes and how long.
        let wanted = spec.workers.min().max(1);
        Deployment {
            number,
            spec,
            source: Source::default(),
            unreadable: None,
            place: None,
            info: None,
            profile: None,
            measured: Vec::new(),
            admission: Admission::default(),
            workers: Vec::new(),
            wanted,
            scaling: None,
            first_start: None,
            life: Life::new(on_trial),
            no_room_at: None,
            failed_on: BTreeSet::new(),
            replies: Vec::new(),
            replaces: None,
        }
    }

    /// Follows bounds and batches as they are now.
    pub(crate) fn update_scaling(&mut self, now: Time) {
        let Some(profile) = &self.profile else { return };
        let (workers, table) = (self.spec.workers, profile.table());
        let (request, limit) = scaling::bounds(&self.spec);
        match (workers.fixed(), &mut self.scaling) {
            (Some(count), scaling) if request == limit => (self.wanted, *scaling) = (count, None),
            (count, Some(scaling)) => {
                self.wanted = count.unwrap_or(self.wanted);
                scaling.update(&self.spec, &table);
            }
            (_, scaling @ None) => {
                self.wanted = self.wanted.clamp(workers.min().max(1), workers.max());
                *scaling = Scaling::new(now, &self.spec, &table, self.first_start);
            }
        }
    }

    /// How clients see it, where `emulates` says whether there is a GPU that virtual models run on.
    pub(crate) fn entry(&self, emulates: bool) -> Entry {
        let state = match self.life.phase() {
            Phase::Unloaded => {
                State::Unavailable(self.unreadable.clone().unwrap_or_else(|| rpc::catalog::UNLOADED.into()))
            }
            Phase::Starting | Phase::Proving => State::Loading,
            Phase::Failed(reason) => State::Unavailable(reason.clone()),
            Phase::Serving | Phase::Draining { .. } | Phase::Gone => State::Ready,
        };
        let (spec, info) = (rpc::catalog::without_secrets(&self.spec), self.info.clone());
        let (workers_ready, workers_wanted, source) = (self.life.ready(), self.wanted, self.source);
        let (trouble, on_trial) = (self.trouble(emulates), self.life.is_on_trial());
        let health = Health { measured: self.measured.clone(), trouble, on_trial };
        Entry { model: self.number, spec, info, state, workers_ready, workers_wanted, source, health }
    }

    /// Whether clients see it: not while it waits to take over, nor once it only finishes what it has.
    pub(crate) fn is_listed(&self) -> bool {
        !self.life.is_retired() && self.replaces.is_none()
    }

    /// What people call it.
    pub(crate) fn label(&self) -> String {
        format!("{}:{}", self.spec.name, self.spec.version)
    }
}
