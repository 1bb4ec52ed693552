//! Ways to choose steps by name, a file each.

mod fill;
pub mod weft;
mod vllm_like;
mod sarathi_like;
mod request_level;

use super::context::Policy;

/// Names of all policies, in the order of reports.
pub const NAMES: [&str; 5] = ["weft", "vllm-like", "vllm-like-512", "sarathi-like", "request-level"];

/// The policy of this name.
pub fn by_name(name: &str) -> Option<Box<dyn Policy>> {
    Some(match name {
        "weft" => Box::new(weft::Weft::default()),
        "vllm-like" => Box::new(vllm_like::VllmLike::new(2_048)),
        "vllm-like-512" => Box::new(vllm_like::VllmLike::new(512)),
        "sarathi-like" => Box::new(sarathi_like::SarathiLike::default()),
        "request-level" => Box::new(request_level::RequestLevel::default()),
        _ => return None,
    })
}
