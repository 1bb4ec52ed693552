//! How the scheduler reaches those who joined.

use rpc::{Catalog, Overview, ToGateway, ToNode};

/// How the scheduler reaches a gateway: by calls in the same process, and otherwise over a stream. No call may wait.
pub trait GatewayLink: Send {
    /// Tells it what to do with requests.
    fn send(&self, message: ToGateway);

    /// Tells it which models there are.
    fn publish_catalog(&self, catalog: Catalog);

    /// Tells it how workers and queues are.
    fn publish_overview(&self, overview: Overview);

    /// Ends its session, and says why.
    fn close(&self, why: &str);

    /// Whether it must say that it is there, and is taken for gone when it does not.
    fn is_leased(&self) -> bool;
}

/// How the scheduler reaches a node: by calls in the same process, and otherwise over a stream. No call may wait.
pub trait NodeLink: Send {
    /// Tells it what to start and stop.
    fn send(&self, instruction: ToNode);

    /// Ends its session, and says why.
    fn close(&self, why: &str);

    /// Whether it must say that it is there, and is taken for gone when it does not.
    fn is_leased(&self) -> bool;
}
