//! The benchmark behind `weft bench sharing`: pairs of programs, one latency-sensitive and one best-effort, on one GPU in
//! every way to share it, compared with what each does alone.
//!
//! A [`Plan`] says which pairs are measured in which [`Setting`]s, how often and for how long. [`measure`] runs it and adds
//! to [`Results`], which hold every latency; a [`Report`] makes figures, tables and charts of results and can be made
//! again from a file. Reading arguments and writing files belong to the caller.
//!
//! Ratios compare runs of one round, so that a machine that drifts changes nothing. What cannot be measured is refused
//! with a reason and is absent from every figure, never zero.
//!
//! Suggested reading order is the order of the modules below.

#![forbid(unsafe_code)]

mod pairs;
mod prediction;
mod settings;
mod plan;
mod measure;
mod daemons;
mod latencies;
mod results;
mod figures;
mod glances;
mod alternation;
mod columns;
mod text;
mod markdown;
mod plot;
mod summary;

pub use measure::measure;
pub use pairs::{BUILT_IN, Group, MANY, Pair, read as read_pairs};
pub use plan::Plan;
pub use results::{Options, Results};
pub use settings::{Setting, all as all_settings, select as select_settings};
pub use summary::Report;
pub use text::list as list_plan;
