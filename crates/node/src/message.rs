//! What a link is told.

use crate::connection::Broken;
use config::Percent;
use rpc::Part;

/// What a link is told.
pub(crate) enum Message {
    /// Requests to run.
    Part(Part),
    /// Have this much of the GPU.
    Stretch(Percent),
    /// Finish and end.
    Stop,
    /// The process of this life has ended.
    Ended(u64),
    /// That of this life cannot be talked to any more.
    Broken(u64, Broken),
    /// That of this life has done all it had to, and was to stop.
    Finished(u64),
}
