//! Memory that processes of Weft share.
//!
//! A [`Segment`] is a stretch of memory without a name in the file system: one process makes it and hands the file
//! descriptor to another. What lies where in it, and whose turn it is, is agreed elsewhere.

mod code;
mod segment;

pub use code::give_back;
pub use segment::{Access, Segment};
