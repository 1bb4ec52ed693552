//! Which of several schedulers leads: decided by what lies underneath, never by votes of schedulers.
//!
//! An [`Engine`] lets one process lead at a time, and gives it a [`Term`] that is later than all before. On one machine,
//! or where machines share a folder whose locks work, that is a lock on a file in the state folder: the kernel releases
//! it when its holder dies, and a holder that hangs does not renew it and loses it. A Lease of Kubernetes can be another.
//!
//! Whoever leads may have stopped to without knowing. So nothing depends on the lead alone: members do not follow an
//! earlier term than the latest that they know (`rpc::leader::Fence`), the store is not written by whoever does not lead,
//! and a scheduler that a member tells of a later term ends.

use anyhow::Result;
use rpc::Term;
use std::sync::Arc;

/// Says who leads.
pub trait Engine: Send {
    /// Leads, if nobody else does.
    fn try_lead(&mut self) -> Result<Option<Arc<dyn Lead>>>;
    /// Waits until nobody else leads, and leads. What goes wrong meanwhile is in the log, and tried again.
    fn lead(&mut self) -> Arc<dyn Lead>;
}

/// To be the one that leads, until it is released or the process ends.
pub trait Lead: Send + Sync {
    /// Later than the terms of all who led before.
    fn term(&self) -> Term;
    /// Whether nobody else has begun to lead, for all that is known.
    fn is_held(&self) -> bool;
    /// A member has followed a scheduler of this term: whoever leads next has a later one.
    fn surpass(&self, term: Term) -> Result<()>;
    /// Lets another one lead.
    fn release(&self);
}
