//! What is to be done about a service, and why.

use crate::surface::Share;
use crate::{InstanceId, Span};
use std::fmt;

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A worker's share changes, between its request and its limit.
    Stretch {
        /// Which.
        worker: InstanceId,
        /// To this.
        share: Share,
        /// Requests a second that the service is to answer with it.
        expected: f64,
    },
    /// A worker starts.
    Add {
        /// Index of its size.
        size: usize,
        /// Its request.
        request: Share,
        /// Its limit.
        limit: Share,
        /// Why.
        why: Why,
    },
    /// A worker finishes what it has and goes.
    Remove {
        /// Which.
        worker: InstanceId,
        /// Why.
        why: Why,
    },
}

/// What vertical scaling could no longer give when horizontal scaling took over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HandOver {
    /// Requests a second that are expected at most within `horizon`.
    pub expected: f64,
    /// The same with the reserve for bursts, and with workers as busy as they should be at most.
    pub needed: f64,
    /// Requests a second that all workers can do, stretched as far as they can be.
    pub given: f64,
    /// Workers, starting ones included.
    pub workers: u32,
    /// How far ahead was looked: a start and some more.
    pub horizon: Span,
    /// Whether workers were busy and requests waited all the same, whatever the profile says.
    pub overrun: bool,
}

/// Why a worker is added or removed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// Stretching does not give what is expected.
    Behind(HandOver),
    /// Requests came and there was no worker.
    FromZero {
        /// Requests that wait or were refused.
        requests: u64,
    },
    /// Requests are expected.
    Prewarm {
        /// In this time.
        within: Span,
    },
    /// So many were asked for.
    AtLeast(u32),
    /// No more were asked for.
    AtMost(u32),
    /// The others will do.
    Surplus {
        /// Requests a second that are needed, reserve included, for the time to come.
        needed: f64,
        /// Requests a second that the others can do.
        given: f64,
    },
    /// No request came for longer than it is worth waiting.
    Idle {
        /// How long none came.
        idle: Span,
        /// How long is worth it, from the gaps there were.
        keep_alive: Span,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Behind(HandOver { given, workers, overrun: true, .. }) => {
                write!(
                    f,
                    "{workers} workers are busy all the time and requests wait, though they should do {given:.0}/s"
                )
            }
            Why::Behind(HandOver { expected, needed, given, workers, horizon, .. }) => write!(
                f,
                "{expected:.0} requests/s are expected within {}, {needed:.0} with reserve; {workers} workers do {given:.0} \
                 stretched as far as they can be",
                tenths(*horizon)
            ),
            Why::FromZero { requests } => write!(f, "{requests} requests came and there was no worker"),
            Why::Prewarm { within } => write!(f, "requests are expected within {}", tenths(*within)),
            Why::AtLeast(workers) => write!(f, "at least {workers} workers were asked for"),
            Why::AtMost(workers) => write!(f, "at most {workers} workers were asked for"),
            Why::Surplus { needed, given } => {
                write!(f, "{needed:.0} requests/s are needed, reserve included; the others do {given:.0}")
            }
            Why::Idle { idle, keep_alive } => {
                write!(f, "no request for {}, which of past gaps few lasted ({})", tenths(*idle), tenths(*keep_alive))
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Stretch { worker, share, expected } => {
                write!(f, "worker {} has {share} now: {expected:.0} requests/s are to be answered", worker.0)
            }
            Action::Add { request, limit, why, .. } if request == limit => {
                write!(f, "a worker of {request} starts: {why}")
            }
            Action::Add { request, limit, why, .. } => write!(f, "a worker of {request} to {limit} starts: {why}"),
            Action::Remove { worker, why } => write!(f, "worker {} finishes and goes: {why}", worker.0),
        }
    }
}

/// To a tenth of a second.
fn tenths(span: Span) -> String {
    format!("{:.1}s", span.seconds())
}
