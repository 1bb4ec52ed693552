//! `weft run`, `weft set`, `weft jobs`, `weft top`, `weft doctor`: programs that share a GPU.

pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod top;
pub(crate) mod jobs;
pub(crate) mod supervise;
mod job;
pub(crate) mod doctor;
mod asked;
pub(crate) mod daemon;
pub(crate) mod library;
mod program;
mod whereabouts;

pub(crate) use asked::ShareArguments;
pub(crate) use whereabouts::Whereabouts;
