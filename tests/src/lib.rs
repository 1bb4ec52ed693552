//! What tests of all crates share that has nothing to do with any. Those of the `weft` command are in `tests/`.

mod port;
mod server;

pub use port::free_port;
pub use server::{Server, ask, outcome};
