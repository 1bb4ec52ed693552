//! Programs that are measured: started, listened to, told what to do, and ended.

pub(crate) mod program;
pub(crate) mod process;
pub(crate) mod interrupt;
