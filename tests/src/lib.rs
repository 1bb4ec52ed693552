//! What tests of the `weft` command share that has nothing to do with it. The tests are in `tests/`.

mod calm;
mod port;

pub use calm::when_calm;
pub use port::free_port;
