//! A cluster in virtual time: one scheduler or two, gateways and nodes, and a network that delays, stalls and breaks.
//!
//! The machines are those that run live: [`scheduler::Driver`], [`gateway::Gateway`] with its flights, and of a node its
//! roster and the assembly of batches. Only what carries their messages is played here, and what models compute. One
//! seed is one run: the same seed gives the same run to the last event, so a failure is a number.
//!
//! What must hold in every run, whatever crashes, hangs, ends or loses its connection:
//! 1. Every request that a gateway accepted is answered once, at the latest [`rpc::timing::ANSWER_MARGIN`] after its
//!    deadline; a gateway that was killed is excused, and one that hangs answers when it wakes.
//! 2. Somebody who is there has every request that is not answered: it is not forgotten and left to its clock.
//! 3. A request is run by a worker of the model that it asks for.
//! 4. Whoever was told to end has ended [`rpc::timing::DRAIN`] later.
//! 5. A model that is served is never unknown to a gateway that has heard of it.
//! 6. Two seconds after everything is back, requests are answered, and every model has the workers it should have.
//! 7. When all is quiet, nothing is left: no request in flight, no batch, no worker that only one side knows; and workers
//!    are spread: no node has two more than its part of them.
//! 8. A member follows no scheduler that led before one that it has followed, and a node takes no batch that such a one
//!    granted.
//! 9. With another scheduler on standby, the death or the end of the one that leads costs no request that has half a
//!    second.

#![forbid(unsafe_code)]

mod bug;
mod checks;
mod message;
mod network;
mod node;
mod parts;
mod plan;
mod world;

pub use bug::Bug;
pub use plan::{Fault, Plan, Takeover, Who};
pub use world::{Report, Violation, run, run_plan};
