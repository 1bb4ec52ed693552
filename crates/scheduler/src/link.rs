//! How the scheduler reaches those who joined.

use rpc::{Catalog, Overview, ToGateway, ToNode};

/// How the scheduler reaches a gateway. None of these may wait.
pub struct GatewayLink {
    /// Says what to do with requests.
    pub tell: Box<dyn Fn(ToGateway) + Send>,
    /// Says which models there are.
    pub publish: Box<dyn Fn(Catalog) + Send>,
    /// Says how workers and queues are.
    pub look: Box<dyn Fn(Overview) + Send>,
    /// Ends its session, and says why.
    pub close: Box<dyn Fn(&str) + Send>,
    /// Whether it says that it is there, and is taken for gone when it does not.
    pub leased: bool,
}

/// How the scheduler reaches a node.
pub struct NodeLink {
    /// Says what to start and stop. Must not wait.
    pub tell: Box<dyn Fn(ToNode) + Send>,
    /// Ends its session, and says why.
    pub close: Box<dyn Fn(&str) + Send>,
    /// Whether it says that it is there, and is taken for gone when it does not.
    pub leased: bool,
}
