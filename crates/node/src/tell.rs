//! Whom a node tells what happens.

use rpc::FromNode;
use std::sync::Arc;

/// Whom a node tells what happens. Called from many threads; it must not wait.
pub(crate) type Tell = Arc<dyn Fn(FromNode) + Send + Sync>;
