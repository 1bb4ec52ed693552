//! The profiler behind `weft profile`: which batch and which part of a GPU suit a model or a training program, from few
//! measurements.
//!
//! [`profile_model`] measures a model that a server runs, as its clients would see it. [`profile_training`] runs a program
//! under a share that changes. [`search_grid`] searches measurements that exist already. All three ask `policy::search`
//! what to measure next; this crate measures it. A [`ProfileFile`] keeps what was found until the model, the GPU or the
//! driver changes.
//!
//! Whatever ends a profile, errors and Ctrl-C included, every worker has the share again that it had before. Reading
//! arguments, starting servers and printing profiles belong to the caller.
//!
//! Suggested reading order is the order of the modules below.

#![forbid(unsafe_code)]

mod grid;
mod campaign;
mod subject;
mod store;
mod shares;
mod served;
mod inference;
mod training;

pub use grid::{Found, search_grid};
pub use inference::{ModelRequest, ModelServer, profile_model};
pub use store::{Note, ProfileFile};
pub use training::{TrainingRequest, profile_training};
