//! An open-loop load generator for servers of the Open Inference Protocol.
//!
//! Open loop: when a request is to be sent is drawn from the seed before anything is sent, and nothing that the
//! server does moves it. Latency counts from that intended time to the last byte of the answer, so a server that
//! stalls is charged for every request that was to come meanwhile, not only for those that were under way. What the
//! generator itself is late by is measured and told.
//!
//! [`run`] is the whole of it: a [`Config`] in, a [`Report`] out. It runs on the thread that calls it, because it
//! usually shares the machine with the server it measures. Beside it stands [`Repeat`], which is a closed loop: it asks
//! how long one request takes, and puts no load on anything.
//!
//! Suggested reading order is the order of the modules below.

#![forbid(unsafe_code)]

mod config;
mod schedule;
mod run;
mod repeat;
mod client;
mod http;
mod grpc;
mod inputs;
mod json;
mod timer;
mod tally;
mod reason;
mod report;
mod error;
mod setup;

pub use config::{Config, Connections, Encoding, Inputs, ModelShare, Protocol, Shape, Url, UrlSyntax};
pub use error::SetupError;
pub use repeat::{Repeat, Repeated};
pub use report::{Failures, ModelReport, Percentiles, Refusals, Report, SendLateness};
pub use run::run;
pub use schedule::{Schedule, Shot};
pub use sim::Spacing;
pub use tally::Moment;
