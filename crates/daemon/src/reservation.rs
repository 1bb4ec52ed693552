//! GPUs whose memory is being freed.

use config::Share;
use policy::GpuId;

/// Memory that tenants free for one program; no other program gets it meanwhile.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// The program that it is for.
    pub(crate) name: String,
    pub(crate) share: Share,
    pub(crate) on: Vec<GpuId>,
    /// The program asks again before that.
    pub(crate) until_ns: u64,
}
