//! `weft run`, `weft set`, `weft top`, `weft doctor`: programs that share a GPU.

pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod top;
pub(crate) mod doctor;
mod asked;
pub(crate) mod daemon;
pub(crate) mod library;
mod program;

pub(crate) use asked::ShareArguments;
