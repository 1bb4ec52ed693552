//! How a gateway reaches the rest of Weft.

use crate::flights::Session;
use rpc::{Arrival, Order, OrderError, Part, WorkerId};
use tokio::sync::oneshot;

/// Gets the outcome of an order once it is carried out; dropped without one when there is no scheduler.
pub type OrderOutcome = oneshot::Receiver<Result<(), OrderError>>;

/// How a gateway reaches the scheduler and the nodes: by calls where they are in the same process, and otherwise over
/// streams between machines. No call may wait.
pub trait Links: Send + Sync {
    /// Announces a request to the scheduler of this session; `false`: the session is over. What one scheduler calls a model
    /// or a session may be another one there, so that nothing may reach the wrong one.
    fn announce(&self, session: Session, arrival: Arrival) -> bool;

    /// Hands requests to the node of their worker.
    fn send_part(&self, part: Part);

    /// Tells the scheduler that nobody waits any more for the answer to a request, of the model with this number.
    fn withdraw(&self, request: u64, model: u32);

    /// Tells the scheduler that a batch could not be handed to the node of its worker, or that no request of it is left
    /// (`nobody`).
    fn undelivered(&self, worker: WorkerId, batch: u64, nobody: bool);

    /// Gives the scheduler an order.
    fn order(&self, order: Order) -> OrderOutcome;
}
