//! What is said on connections.

use rpc::cluster::proto;
use rpc::{Answer, Catalog, FromNode, Incarnation, NodeHello, Term, ToGateway, ToNode, WorkerId};
use scheduler::Arrived;

/// What is said on connections.
pub(crate) enum Message {
    /// A gateway joins its scheduler, and knows of this term.
    JoinGateway(Term),
    /// Whoever was asked does not lead.
    Away,
    Welcome(u32, Term),
    Catalog(Catalog),
    Decision(ToGateway),
    Arrival(Arrived),
    Undelivered(WorkerId, u64, bool),
    Withdrawn(u64, u32),
    GatewayHeartbeat,
    /// A node joins its scheduler.
    Hello(NodeHello, Term),
    Accepted(Term),
    News(FromNode),
    Instruction(ToNode),
    /// A gateway comes to this start of a node.
    Open(Incarnation),
    Part(proto::Part),
    Answer(u64, u64, Answer),
}
