//! Room that is being made.

use policy::GpuId;
use rpc::Share;

/// Room that others make for somebody, which is nobody else's meanwhile.
#[derive(Debug)]
pub(super) struct Reserved {
    /// Who it is for.
    pub(super) name: String,
    pub(super) share: Share,
    pub(super) on: Vec<GpuId>,
    /// Whoever waits for it asks again before that.
    pub(super) until_ns: u64,
}
