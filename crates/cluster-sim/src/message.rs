//! What is said on connections.

use rpc::cluster::proto;
use rpc::{Answer, Catalog, FromNode, Incarnation, NodeHello, ToGateway, ToNode, WorkerId};
use scheduler::Arrived;

/// What is said on connections.
pub(crate) enum Message {
    /// A gateway joins its scheduler.
    JoinGateway,
    Welcome(u32),
    Catalog(Catalog),
    Decision(ToGateway),
    Arrival(Arrived),
    Undelivered(WorkerId, u64, bool),
    GatewayHeartbeat,
    /// A node joins its scheduler.
    Hello(NodeHello),
    Accepted,
    News(FromNode),
    Instruction(ToNode),
    /// A gateway comes to this start of a node.
    Open(Incarnation),
    Part(proto::Part),
    Answer(u64, u64, Answer),
}
