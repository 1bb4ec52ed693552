//! A stand-in for the CUDA driver (`libcuda.so.1`) and NVML (`libnvidia-ml.so.1`) on machines without a GPU.
//!
//! It executes the protocol in time, between processes: contexts, streams, events, graphs, memory with a total, launches
//! that take as long as the kernel's name says, and time slices. What it does not do is compute: kernels change no memory.
//! For tests only.
//!
//! How time is kept is in [`book`]; how processes share it, and survive each other, in [`state`].

#![allow(non_snake_case, reason = "functions have the names of the API they stand for")]

pub mod book;
pub mod clock;
pub mod virtual_clock;
pub mod state;
pub mod truth;
pub mod install;
mod liveness;
mod code;
mod boundary;
mod entry_points;
mod procaddress;
mod objects;
mod driver;
mod device;
mod current;
mod context;
mod channel;
mod trap;
mod duration;
mod module;
mod queue;
mod thread;
mod stream;
mod wait;
mod green;
mod event;
mod launch;
mod capture;
mod graph;
mod arena;
mod memory;
mod pool;
mod virtual_memory;
mod host_memory;
mod array;
mod ipc;
mod copy;
mod nvml;
