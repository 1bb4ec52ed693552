//! Language models on GPUs in virtual time: text that is generated step by step, under each policy.
//!
//! [`run`] is the whole of it: a [`Scenario`] and the name of a policy in, a [`Report`] out, with the very machine that is to
//! schedule live requests ([`policy::generation`]). One seed gives identical bytes, and every policy meets the same requests.
//!
//! What is modelled, and how simply:
//! - A step takes a floor (all weights are read), and more for each token of a prompt, each sequence, each token of cache that
//!   is read and each pair of tokens that attends in prefill; with noise. The policies know none of these: they learn.
//! - Cache is counted in tokens, not in blocks. There is no prefix caching.
//! - GPUs hold the models that the scenario says, all the time. Models on one GPU run one step at a time.
//! - A sequence ends when it has as many tokens as the trace says, which no policy knows before.
//!
//! Checked in every run, in books of its own (`check`): every request ends once, no cache holds more than it can, a worker runs
//! one step at a time and none before it may, nobody decodes without a cache, time never goes back.

mod scenario;
mod file;
mod requests;
mod check;
mod run;
mod report;
mod bound;
mod goodput;

pub use bound::bound;
pub use file::parse;
pub use goodput::{Goodput, goodput};
pub use policy::generation::policies::NAMES;
pub use report::{ModelReport, Quantiles, Report};
pub use requests::{Arrival, requests};
pub use run::{Recording, run, run_recorded};
pub use scenario::{Failure, Gpu, Lengths, Model, Recorded, Scenario, Source, Truth};
