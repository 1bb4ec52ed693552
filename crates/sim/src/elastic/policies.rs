//! Ways to scale functions and to share GPUs by name, a file for each rule.

mod contract;
mod profiled;
mod fixed;
mod mps;
mod timeshare;
mod fast_gshare;
mod dilu;
mod weft;
mod reactive;

use super::latency::Latency;
use super::scenario::Function;
use fixed::{Fixed, Size};

pub(super) use contract::{Batch, Claim, Grant, Policy, Shape};

/// Names of all policies, in the order of reports.
pub const NAMES: [&str; 8] = ["exclusive", "timeshare", "limit", "request", "mps", "fast-gshare", "dilu", "weft"];

/// The policy of this name.
pub(super) fn by_name(name: &str, functions: &[Function], latencies: &[Latency]) -> Option<Box<dyn Policy>> {
    Some(match name {
        "exclusive" => Box::new(Fixed::new(Size::Whole, functions, latencies)),
        "timeshare" => Box::new(timeshare::TimeShare::new(functions, latencies)),
        "limit" => Box::new(Fixed::new(Size::Limit, functions, latencies)),
        "request" => Box::new(Fixed::new(Size::Request, functions, latencies)),
        "mps" => Box::new(mps::Mps::new(functions, latencies)),
        "fast-gshare" => Box::new(fast_gshare::FastGShare::new(functions, latencies)),
        "dilu" => Box::new(dilu::Dilu::new(functions, latencies)),
        "weft" => Box::new(weft::Weft::new(functions, latencies)),
        _ => return None,
    })
}
