//! One version of one model that is being served, or was asked to be.

use crate::objective::Again;
use crate::profile::Profile;
use crate::scaling::{self, Scaling};
use policy::{Admission, ModelId, Span, Time};
use rpc::{Entry, Health, ModelInfo, ModelSpec, OrderError, Source, State, WorkerId};
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
    /// When it is measured again, where it was too slow for its objective.
    pub(crate) again: Option<Again>,
    pub(crate) admission: Admission,
    pub(crate) workers: Vec<WorkerId>,
    pub(crate) ready: usize,
    /// How many workers it is to have now.
    pub(crate) wanted: usize,
    /// What that follows, where it is not always the same and something is known of its batches.
    pub(crate) scaling: Option<Scaling>,
    /// How long its first worker took to start.
    pub(crate) first_start: Option<Span>,
    /// Whether any worker was ever ready.
    pub(crate) proven: bool,
    pub(crate) last_error: Option<String>,
    /// Who waits for its first worker.
    pub(crate) replies: Vec<Reply>,
    /// The deployment of the same version that it takes over from once it is ready.
    pub(crate) replaces: Option<u32>,
    /// Whether an order that fails takes it away again.
    pub(crate) on_trial: bool,
    /// Since when it takes no more requests and only finishes what it has.
    pub(crate) retiring: Option<Time>,
}

/// A model's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) pool: u32,
    pub(crate) model: ModelId,
}

impl Deployment {
    pub(crate) fn new(number: u32, spec: Arc<ModelSpec>) -> Deployment {
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
            again: None,
            admission: Admission::default(),
            workers: Vec::new(),
            ready: 0,
            wanted,
            scaling: None,
            first_start: None,
            proven: false,
            last_error: None,
            replies: Vec::new(),
            replaces: None,
            on_trial: false,
            retiring: None,
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

    /// How clients see it.
    pub(crate) fn entry(&self) -> Entry {
        let state = match (&self.place, self.unreadable.as_ref().or(self.last_error.as_ref())) {
            (None, Some(reason)) if self.unreadable.is_some() => State::Unavailable(reason.clone()),
            (None, _) => State::Unavailable(rpc::catalog::UNLOADED.into()),
            (Some(_), _) if self.proven => State::Ready,
            (Some(_), Some(error)) => State::Unavailable(error.clone()),
            (Some(_), None) => State::Loading,
        };
        let (spec, info) = (rpc::catalog::without_secrets(&self.spec), self.info.clone());
        let (workers_ready, workers_wanted, source) = (self.ready, self.wanted, self.source);
        let health = Health { measured: self.measured.clone(), trouble: self.trouble(), on_trial: self.on_trial };
        Entry { model: self.number, spec, info, state, workers_ready, workers_wanted, source, health }
    }

    /// Whether clients see it: not while it waits to take over, nor once it only finishes what it has.
    pub(crate) fn is_listed(&self) -> bool {
        self.retiring.is_none() && self.replaces.is_none()
    }

    /// What people call it.
    pub(crate) fn label(&self) -> String {
        format!("{}:{}", self.spec.name, self.spec.version)
    }
}
