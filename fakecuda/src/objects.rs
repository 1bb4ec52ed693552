//! Everything that the driver hands out: what a process holds by handles.
//!
//! The calls on each kind of object are in a file of their own; they begin with the [`process`](crate::driver::process).

use crate::arena::Piece;
use crate::code::Code;
use crate::duration::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::sync::Arc;

/// A stream that does not wait for the default stream.
pub(crate) const NON_BLOCKING: u32 = 1;

/// A number that stands for an object; the caller sees a pointer.
pub(crate) type Handle = usize;

/// Objects of one kind by their handles.
pub(crate) struct Table<T>(pub(crate) BTreeMap<Handle, T>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table(BTreeMap::new())
    }
}

impl<T> Table<T> {
    pub(crate) fn get(&self, handle: Handle) -> Result<&T, Code> {
        self.0.get(&handle).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Result<&mut T, Code> {
        self.0.get_mut(&handle).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Result<T, Code> {
        self.0.remove(&handle).ok_or(Code::INVALID_HANDLE)
    }
}

/// When something is done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Point {
    pub(crate) device: i32,
    pub(crate) position_ns: u64,
    pub(crate) host_functions: u64,
}

/// What is remembered of the queue of one GPU.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) outstanding: VecDeque<Point>,
}

/// A context.
pub(crate) struct Context {
    pub(crate) device: i32,
    pub(crate) flags: u32,
    /// The stream that handle zero stands for.
    pub(crate) default_stream: Handle,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) context: Handle,
    pub(crate) device: i32,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    /// SMs that its kernels run on, where that is not all.
    pub(crate) sms: Option<u32>,
    pub(crate) end: Point,
    /// The capture that it is part of.
    pub(crate) capture: Option<Handle>,
}

impl Stream {
    pub(crate) fn new(context: Handle, device: i32, flags: u32, priority: i32) -> Stream {
        let end = Point { device, ..Point::default() };
        Stream { context, device, flags, priority, sms: None, end, capture: None }
    }

    pub(crate) fn is_blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0
    }
}

/// Where it was recorded last.
#[derive(Clone, Copy)]
pub(crate) struct Recorded {
    pub(crate) point: Point,
    pub(crate) at_ns: u64,
    /// When it was passed, once that is known.
    pub(crate) passed_ns: Option<u64>,
}

/// An event.
pub(crate) struct Event {
    pub(crate) flags: u32,
    pub(crate) recorded: Option<Recorded>,
    /// The capture and the stream it was last recorded in.
    pub(crate) captured: Option<(Handle, Handle)>,
}

/// A capture that goes on.
pub(crate) struct Capture {
    pub(crate) origin: Handle,
    pub(crate) mode: u32,
    pub(crate) thread: u64,
    pub(crate) graph: Handle,
    /// The streams in it, and whether they have work that nobody joined.
    pub(crate) streams: BTreeMap<Handle, bool>,
    pub(crate) spoiled: bool,
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum NodeKind {
    Kernel { function: Handle, duration_ns: u64 },
    HostFunction { function: usize, argument: usize },
    Copy,
    Set,
    Empty,
    Child { nodes: Nodes },
}

/// The nodes of a graph that can be launched.
#[derive(Clone, Default)]
pub(crate) struct Nodes(pub(crate) Arc<Vec<NodeKind>>);

impl Nodes {
    /// How many kernels, and how long they take together.
    pub(crate) fn kernels(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(count, sum), kind| match kind {
            NodeKind::Kernel { duration_ns, .. } => (count + 1, sum + duration_ns),
            NodeKind::Child { nodes } => {
                let (kernels, duration_ns) = nodes.kernels();
                (count + kernels, sum + duration_ns)
            }
            _ => (count, sum),
        })
    }

    /// The host functions and their arguments.
    pub(crate) fn host_functions(&self) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for kind in self.0.iter() {
            match kind {
                NodeKind::HostFunction { function, argument } => found.push((*function, *argument)),
                NodeKind::Child { nodes } => found.extend(nodes.host_functions()),
                _ => {}
            }
        }
        found
    }
}

/// A graph.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<(Handle, NodeKind)>,
}

impl Graph {
    pub(crate) fn add(&mut self, node: Handle, kind: NodeKind) {
        self.nodes.push((node, kind));
    }

    pub(crate) fn freeze(&self) -> Nodes {
        Nodes(Arc::new(self.nodes.iter().map(|(_, kind)| kind.clone()).collect()))
    }
}

/// A graph that can be launched.
pub(crate) struct Executable {
    pub(crate) nodes: Nodes,
}

/// A green context.
pub(crate) struct Green {
    pub(crate) context: Handle,
    pub(crate) device: i32,
    pub(crate) sms: u32,
}

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    Device,
    Managed,
    Array,
    Opened,
}

/// Memory at an address.
#[derive(Clone, Copy)]
pub(crate) struct Allocation {
    pub(crate) device: i32,
    pub(crate) context: Handle,
    /// As the caller sees it.
    pub(crate) bytes: usize,
    /// As it counts: zero for memory of another process.
    pub(crate) counted: u64,
    /// Where it is in this process's file; `None` for another process's.
    pub(crate) piece: Option<Piece>,
    pub(crate) kind: MemoryKind,
    /// The pool that it came from, or zero.
    pub(crate) pool: Handle,
}

/// A module, or a library, which belongs to no context.
pub(crate) struct Module {
    pub(crate) context: Handle,
    pub(crate) functions: BTreeMap<String, Handle>,
    pub(crate) globals: BTreeMap<String, u64>,
}

/// A function or a kernel.
pub(crate) struct Function {
    pub(crate) name: CString,
    pub(crate) module: Handle,
    /// For a kernel, the function made from it.
    pub(crate) function: Handle,
    pub(crate) duration: Duration,
}

/// A pool.
#[derive(Clone, Copy)]
pub(crate) struct Pool {
    pub(crate) device: i32,
    pub(crate) threshold: u64,
    pub(crate) used_bytes: u64,
    pub(crate) peak_bytes: u64,
}

/// Memory without an address.
pub(crate) struct Physical {
    pub(crate) device: i32,
    pub(crate) piece: Piece,
    /// Handles and mappings that keep it.
    pub(crate) users: u32,
}

/// Addresses without memory.
pub(crate) struct Reservation {
    pub(crate) bytes: usize,
    /// What is mapped into it, by address.
    pub(crate) mapped: BTreeMap<u64, (usize, Handle)>,
}
