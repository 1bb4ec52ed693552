//! The life of a deployment: from the order to serve a model to the moment it is taken away.
//!
//! ```text
//!  Unloaded ── Load ──> Starting ── Ordered ──> Proving ── Ready, fast enough ──> Serving ── Retire ──> Draining ──> Gone
//!                           ^                     │                                  ^                     ^
//!                           └──── Left, none left ┤                                  │                     │
//!                                                 └─ Lost, or Ready and too slow ──> Failed ── on trial ───┘
//! ```
//!
//! A deployment is *proven* when one of its workers has loaded the model and answers within the objective. Until then
//! whoever ordered it waits. One that was ordered *on trial* is taken away again when it fails before it is proven; one
//! of the configuration, or of before a restart, stays, says why, and is tried again.
//!
//! A [`Life`] is a machine with three verbs: [`on_event`](Life::on_event), [`on_timer`](Life::on_timer) and
//! [`next_timer`](Life::next_timer). It reads no clock and does nothing itself. Who starts workers asks
//! [`may_start`](Life::may_start); how many there should be is `autoscale`'s, and where they go is `placement::nodes`'.
//!
//! Invariants, whatever the order of events:
//! 1. Whoever waits is answered once: when the deployment is proven, when it fails, when it is taken away, or after
//!    [`PATIENCE`] or [`ROOM_PATIENCE`].
//! 2. A worker counts as ready once, from `Ready` or `Heard` until `Silent`, `Lost` or `Left`.
//! 3. A deployment without a ready worker says why ([`Life::trouble`]), unless nobody asked for one.
//! 4. It takes over at most once, and one on trial only after it was written down.
//! 5. `Gone` is the end: there is no action after [`Action::Remove`].

use crate::{Span, Time};
use std::collections::BTreeMap;

/// After so long a model that was too slow is measured again the first time. The wait doubles each time, because a machine
/// that is busy makes every model slow.
const AGAIN_FIRST: Span = Span::from_secs(3);
/// The longest wait.
const AGAIN_MOST: Span = Span::from_secs(300);
/// How long a deployment that takes no more requests stays: one may be on its way from a client who still saw it.
pub const GRACE: Span = Span::from_secs(1);
/// How long whoever waits for a deployment waits while its workers load. Longer than a node lets a worker load (two
/// minutes, unless it is set otherwise), so that the node's reason is heard first.
pub const PATIENCE: Span = Span::from_secs(600);
/// How long whoever waits for a deployment waits for a node that takes its worker. Longer than a node that was started
/// together with its scheduler takes to join.
pub const ROOM_PATIENCE: Span = Span::from_secs(60);

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is to be served.
    Load,
    /// Somebody waits until it can be asked.
    Asked,
    /// It needs no workers of its own: it is proven, or cannot meet its objective and why.
    Emulated(Result<(), String>),
    /// No node takes workers.
    NoNode,
    /// No node has room for its next worker, and why.
    NoRoom(String),
    /// A worker was ordered, or a node brought one along.
    Ordered(u64),
    /// A worker has loaded the model. Before the deployment is proven: whether it is fast enough, and if not, why.
    Ready(u64, Result<(), String>),
    /// A worker died, and its node starts it again.
    Lost(u64, String),
    /// A worker that was ready has not been heard of.
    Silent(u64),
    /// A worker that was silent is there.
    Heard(u64),
    /// A worker is gone, or was told to stop.
    Left(u64),
    /// [`Action::Keep`] was carried out, or could not be and why.
    Kept(Result<(), String>),
    /// It is to take no more requests.
    Retire,
    /// Nobody waits in its queue and nothing of it runs.
    Idle,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell this worker to stop: it is too slow.
    Stop(u64),
    /// Write the deployment down, and say how that went ([`Event::Kept`]).
    Keep,
    /// Other deployments of the same version take no more requests from now on.
    TakeOver,
    /// Answer everybody who waits.
    Answer(Answer),
    /// It has nothing left to do: forget it.
    Remove,
}

/// What whoever waited is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It can be asked.
    Ready,
    /// It failed, and why.
    Failed(String),
    /// It works and could not be written down.
    NotKept(String),
    /// Somebody took it away meanwhile.
    TakenAway,
}

/// Where in its life a deployment is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It is known, and nobody asked for workers.
    Unloaded,
    /// It has no worker yet.
    Starting,
    /// Its first workers load the model and measure it.
    Proving,
    /// It could not be proven, and why.
    Failed(String),
    /// It was proven.
    Serving,
    /// It takes no more requests and finishes what it has.
    Draining {
        /// Since when.
        since: Time,
        /// Whether it was ever proven.
        proven: bool,
    },
    /// It was taken away.
    Gone,
}

/// What a worker does, as far as its deployment cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worker {
    Loading,
    Ready,
    Silent,
}

/// When a model that was too slow is measured again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Again {
    at: Time,
    wait: Span,
}

/// Somebody waits until it can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    since: Time,
    /// Since when it has had no worker, where it has none.
    vacant: Option<Time>,
}

/// The life of one deployment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life {
    phase: Phase,
    on_trial: bool,
    workers: BTreeMap<u64, Worker>,
    /// How many of them are ready, so that requests need not count.
    ready: usize,
    /// What its workers died of the last time; none since one was ready.
    last_error: Option<String>,
    /// Why its next worker was not started.
    no_room: Option<String>,
    again: Option<Again>,
    waiting: Option<Waiting>,
}

/// Why no worker was started where no node takes any.
const NO_NODE: &str = "no node takes workers: start one with `weft node`";

impl Life {
    /// A deployment that is known and not loaded. `on_trial`: it is taken away again if it never works.
    pub fn new(on_trial: bool) -> Life {
        Life {
            phase: Phase::Unloaded,
            on_trial,
            workers: BTreeMap::new(),
            ready: 0,
            last_error: None,
            no_room: None,
            again: None,
            waiting: None,
        }
    }

    /// Where in its life it is.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Whether it is taken away again if it never works. Not any more once it was written down.
    pub fn is_on_trial(&self) -> bool {
        self.on_trial
    }

    /// Whether it can be asked, or could before it was retired.
    pub fn is_proven(&self) -> bool {
        matches!(self.phase, Phase::Serving | Phase::Draining { proven: true, .. })
    }

    /// Whether it takes no more requests.
    pub fn is_retired(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. } | Phase::Gone)
    }

    /// Workers that can take batches.
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// Whether workers that it lacks are to be started now.
    pub fn may_start(&self, now: Time) -> bool {
        let alive = match self.phase {
            Phase::Unloaded | Phase::Gone | Phase::Draining { proven: false, .. } => false,
            Phase::Starting | Phase::Proving | Phase::Failed(_) | Phase::Serving | Phase::Draining { .. } => true,
        };
        alive && self.again.is_none_or(|again| now >= again.at)
    }

    /// What its workers died of the last time, where none has been ready since.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Why no worker of it can take a batch; none where one can, or where nobody asked for workers.
    pub fn trouble(&self) -> Option<String> {
        if self.ready() > 0 || matches!(self.phase, Phase::Unloaded | Phase::Gone) {
            return None;
        }
        let known = self.last_error.clone().or_else(|| self.no_room.clone());
        Some(known.unwrap_or_else(|| match self.workers.is_empty() {
            true => "no node runs a worker of it".into(),
            false => "one is being started, or its node is not there".into(),
        }))
    }

    /// Whether [`Life::trouble`] is more than a start that takes its time.
    pub fn is_troubled(&self) -> bool {
        self.ready() == 0 && (self.last_error.is_some() || self.no_room.is_some() || self.workers.is_empty())
    }

    /// When `on_timer` is next due.
    pub fn next_timer(&self) -> Option<Time> {
        let Waiting { since, vacant } = self.waiting?;
        let last = since + PATIENCE;
        Some(vacant.map_or(last, |vacant| last.min(vacant + ROOM_PATIENCE)))
    }

    /// Does what is due by now. Calling it early does nothing.
    pub fn on_timer(&mut self, now: Time, out: &mut Vec<Action>) {
        let Some(Waiting { since, vacant }) = self.waiting.filter(|_| self.next_timer().is_some_and(|at| now >= at))
        else {
            return;
        };
        let why = self.trouble().unwrap_or_else(|| "it is not loaded".into());
        let waited = now - vacant.unwrap_or(since);
        self.fail(now, format!("it has no worker after {waited}: {why}"), out);
    }

    /// Takes note of what happened.
    pub fn on_event(&mut self, now: Time, event: Event, out: &mut Vec<Action>) {
        self.happen(now, event, out);
        self.ready = self.workers.values().filter(|worker| **worker == Worker::Ready).count();
    }

    fn happen(&mut self, now: Time, event: Event, out: &mut Vec<Action>) {
        if self.phase == Phase::Gone {
            // Whoever asks for what is gone is told so.
            return if event == Event::Asked {
                out.push(Action::Answer(Answer::TakenAway))
            };
        }
        match event {
            Event::Load => {
                if self.phase == Phase::Unloaded {
                    self.phase = Phase::Starting;
                }
            }
            Event::Asked => self.on_asked(now, out),
            Event::Emulated(Ok(())) => self.on_worked(out),
            Event::Emulated(Err(reason)) => {
                self.last_error = Some(reason.clone());
                self.fail(now, reason, out);
            }
            Event::NoNode => self.no_room = Some(NO_NODE.into()),
            Event::NoRoom(reason) => {
                self.no_room = Some(reason.clone());
                if self.is_unproven() && self.workers.is_empty() {
                    self.fail(now, reason, out);
                }
            }
            Event::Ordered(worker) => {
                self.workers.entry(worker).or_insert(Worker::Loading);
                self.no_room = None;
                let failed_for_room = matches!(self.phase, Phase::Failed(_)) && self.last_error.is_none();
                if self.phase == Phase::Starting || failed_for_room {
                    self.phase = Phase::Proving;
                }
                self.note_vacancy(now);
            }
            Event::Ready(worker, fit) => self.on_ready(now, worker, fit, out),
            Event::Lost(worker, reason) => {
                let Some(state) = self.workers.get_mut(&worker) else { return };
                *state = Worker::Loading;
                self.last_error = Some(reason.clone());
                if self.is_unproven() {
                    self.fail(now, reason, out);
                }
            }
            Event::Silent(worker) => {
                if let Some(state) = self.workers.get_mut(&worker).filter(|state| **state == Worker::Ready) {
                    *state = Worker::Silent;
                }
            }
            Event::Heard(worker) => {
                if let Some(state) = self.workers.get_mut(&worker).filter(|state| **state == Worker::Silent) {
                    *state = Worker::Ready;
                }
            }
            Event::Left(worker) => {
                self.workers.remove(&worker);
                if self.workers.is_empty() && self.phase == Phase::Proving {
                    self.phase = Phase::Starting;
                }
                self.note_vacancy(now);
            }
            Event::Kept(outcome) => self.on_kept(now, outcome, out),
            Event::Retire => {
                self.answer(Answer::TakenAway, out);
                self.drain(now);
            }
            Event::Idle => {
                if let Phase::Draining { since, .. } = self.phase
                    && now - since > GRACE
                {
                    self.phase = Phase::Gone;
                    out.push(Action::Remove);
                }
            }
        }
    }

    fn is_unproven(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Proving | Phase::Failed(_))
    }

    fn on_asked(&mut self, now: Time, out: &mut Vec<Action>) {
        self.waiting.get_or_insert(Waiting { since: now, vacant: None });
        self.note_vacancy(now);
        match &self.phase {
            Phase::Serving => self.answer(Answer::Ready, out),
            Phase::Draining { .. } | Phase::Gone => self.answer(Answer::TakenAway, out),
            // Nothing is under way that could change it.
            Phase::Failed(reason) if self.workers.is_empty() && self.again.is_none() && self.no_room.is_none() => {
                let reason = reason.clone();
                self.answer(Answer::Failed(reason), out);
            }
            Phase::Unloaded | Phase::Starting | Phase::Proving | Phase::Failed(_) => {}
        }
    }

    fn on_ready(&mut self, now: Time, worker: u64, fit: Result<(), String>, out: &mut Vec<Action>) {
        if !self.workers.contains_key(&worker) {
            return;
        }
        match fit {
            // It is about to be taken away, and never worked.
            _ if matches!(self.phase, Phase::Draining { proven: false, .. }) => {
                self.workers.remove(&worker);
                out.push(Action::Stop(worker));
            }
            Err(reason) if self.is_unproven() => self.on_too_slow(now, worker, reason, out),
            _ => {
                self.workers.insert(worker, Worker::Ready);
                (self.last_error, self.no_room) = (None, None);
                self.on_worked(out);
            }
        }
    }

    /// It works, and is proven once it is written down.
    fn on_worked(&mut self, out: &mut Vec<Action>) {
        match self.on_trial && self.is_unproven() {
            true => out.push(Action::Keep),
            false => self.on_proof(out),
        }
    }

    /// It is measured again after a while, unless it is on trial or another of its workers may do better.
    fn on_too_slow(&mut self, now: Time, worker: u64, reason: String, out: &mut Vec<Action>) {
        let held = self.again.filter(|again| now < again.at);
        let wait = self.again.map_or(AGAIN_FIRST, |again| (again.wait * 2).min(AGAIN_MOST));
        let again = held.unwrap_or(Again { at: now + wait, wait });
        self.again = Some(again);
        let told = if self.on_trial { String::new() } else { format!("; it is measured again in {}", again.at - now) };
        self.last_error = Some(format!("{reason}{told}"));
        self.phase = Phase::Failed(format!("{reason}{told}"));
        self.workers.remove(&worker);
        out.push(Action::Stop(worker));
        if self.workers.is_empty() {
            self.answer(Answer::Failed(reason), out);
            if self.on_trial {
                self.drain(now);
            }
        }
    }

    fn on_kept(&mut self, now: Time, outcome: Result<(), String>, out: &mut Vec<Action>) {
        if !self.on_trial {
            return;
        }
        self.on_trial = false;
        match outcome {
            Ok(()) => self.on_proof(out),
            Err(reason) => {
                self.answer(Answer::NotKept(reason), out);
                self.drain(now);
            }
        }
    }

    /// It works and is kept.
    fn on_proof(&mut self, out: &mut Vec<Action>) {
        if !self.is_unproven() {
            return;
        }
        self.phase = Phase::Serving;
        (self.last_error, self.no_room, self.again) = (None, None, None);
        out.push(Action::TakeOver);
        self.answer(Answer::Ready, out);
    }

    /// It did not work: whoever waits is told, and what was tried only goes.
    fn fail(&mut self, now: Time, reason: String, out: &mut Vec<Action>) {
        self.answer(Answer::Failed(reason.clone()), out);
        if self.is_unproven() {
            match self.on_trial {
                true => self.drain(now),
                false => self.phase = Phase::Failed(reason),
            }
        }
    }

    fn drain(&mut self, now: Time) {
        if !self.is_retired() {
            self.phase = Phase::Draining { since: now, proven: self.is_proven() };
        }
    }

    fn answer(&mut self, answer: Answer, out: &mut Vec<Action>) {
        if self.waiting.take().is_some() {
            out.push(Action::Answer(answer));
        }
    }

    /// Whoever waits does so for a worker that is under way, or for a node that takes one.
    fn note_vacancy(&mut self, now: Time) {
        let empty = self.workers.is_empty();
        if let Some(Waiting { vacant, .. }) = &mut self.waiting {
            *vacant = empty.then(|| vacant.unwrap_or(now));
        }
    }
}
