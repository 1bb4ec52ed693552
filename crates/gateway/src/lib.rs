//! The front of Weft: what clients say becomes a request, and what became of it an answer.
//!
//! `core` knows models, requests in flight and refusals, and nothing of HTTP or gRPC; `http` and `grpc` are two ways
//! to reach it. Tensors are decoded once, here, and never cross the scheduler. `metrics` shows what became of requests,
//! to machines and, with `ui`, to people.

#![forbid(unsafe_code)]

pub mod flights;
mod links;
mod shelf;
pub mod core;
mod readiness;
mod error;
pub mod check;
pub mod statistics;
pub mod admin;
pub mod remote;
pub mod config;
pub mod shared_memory;
pub mod settings;
pub mod traces;
pub mod classification;
pub mod keys;
pub mod origin;
pub mod http;
pub mod grpc;
pub mod metrics;
mod ui;
#[cfg(test)]
mod fixture;

pub use crate::core::{Gateway, Inference, Response};
pub use error::ServeError;
pub use links::{Links, OrderOutcome};
