//! Language models: which sequences get a token next, on which GPU, and when.
//!
//! A sequence waits, its prompt is processed in chunks (*prefill*), then it gets a token in each step that it takes part in
//! (*decode*), until it ends. A *step* is one pass of one model on one worker. The client was promised a time to the first
//! token (TTFT) and a time per token after it (TPOT): token `k` is due at `first + k * tpot`.
//!
//! [`Generation`] is the state machine: [`Event`] in, [`Action`] out, time as an argument. It keeps the books ([`Books`]):
//! every sequence ends once, a worker runs one step at a time, and no cache holds more than it can. A [`Policy`] only chooses
//! the next step of a worker that is free, or until when it stays free. The policies are in [`policies`], Weft's own and those
//! to compare with; [`journal`] writes what happened and replays it.
//!
//! What it does not do: read a clock, move tensors, know what a token says.

mod sequence;
mod event;
mod step_time;
mod lengths;
mod books;
mod context;
mod machine;
pub mod policies;
pub mod journal;

pub use books::{Books, ModelState, Running, Worker};
pub use context::{Context, Policy};
pub use event::{Action, Event, Reason};
pub use lengths::Lengths;
pub use machine::{Generation, Model};
pub use sequence::{Request, Sequence, Stage};
pub use step_time::{Learned, Load, StepTime, Terms};
