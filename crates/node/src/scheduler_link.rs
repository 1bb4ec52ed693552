//! How a node reaches its scheduler.

use rpc::FromNode;

/// How a node reaches its scheduler. Called from many threads; no call may wait.
pub trait SchedulerLink: Send + Sync {
    /// Reports what became of a worker or a batch.
    fn report(&self, news: FromNode);
}
