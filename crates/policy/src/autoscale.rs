//! How much of how many GPUs a service has now.
//!
//! Two dimensions with an explicit hand-over. *Vertical* is fast: a worker's share is stretched between its request and
//! its limit at every look. *Horizontal* is lazy: a worker is added only for what stretching can no longer give, and the
//! step says what that was ([`HandOver`]); one is removed when what is left would do for longer than a start takes. A
//! service without a vertical dimension, such as workers on CPUs, has sizes whose request is their limit.
//!
//! An [`Autoscaler`] is one service's. Its driver calls [`Autoscaler::look`] every hundred milliseconds or so with what
//! happened since, carries out the [`Action`]s, and asks [`Autoscaler::admit`] about a request that meets no worker. A
//! dry run is a driver that carries nothing out. Invariants, whatever the view:
//!
//! 1. With its own actions carried out, there are never more workers than the most, nor fewer than the fewest.
//! 2. The last ready worker is not removed while requests wait, nor before its keep-alive has passed.
//! 3. Nothing is removed within [`Autoscaler::settle`] of an addition.
//! 4. Time that goes back is no time; arrivals after a pause in looking are spread over it.
//!
//! What it does not do: place workers, or know other services. Who finds no room for a worker leaves it out of the next
//! view, and is asked again a second later.

mod service;
mod view;
mod action;
mod forecast;
mod idle;
mod choose;
mod scaler;

pub use action::{Action, HandOver, Why};
pub use forecast::Forecast;
pub use scaler::{Admission, Autoscaler, LOOK};
pub use service::{Nonsense, Replicas, Service, Size, profiled, sizes};
pub use view::{State, View, Worker};
