//! Graphs: nodes written down by a capture or one by one, and what is made of them to be launched.
//!
//! Nodes run in the order in which they were added, one after the other, since a process's work is one queue; edges are
//! accepted and not kept.

use crate::boundary::{In, Out};
use crate::code::{Code, Status};
use crate::driver::{Handle, process};
pub(crate) use crate::objects::{Executable, Graph, NodeKind as Kind};

/// `CUDA_KERNEL_NODE_PARAMS`, as far as all versions of it agree.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelNodeParameters {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    parameters: usize,
    extra: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct HostNodeParameters {
    function: usize,
    argument: usize,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct InstantiateParameters {
    flags: u64,
    upload_stream: Handle,
    error_node: Handle,
    result: u32,
}

fn kernel(parameters: KernelNodeParameters) -> Result<Kind, Code> {
    let process = process()?;
    let blocks = parameters.grid.iter().map(|extent| u64::from(*extent)).product();
    let duration_ns = process.functions.get(parameters.function)?.duration.of_launch(blocks);
    Ok(Kind::Kernel { function: parameters.function, duration_ns })
}

fn add(out: Out<Handle>, graph: Handle, kind: Kind) -> Status {
    let mut process = process()?;
    let node = process.new_handle();
    process.graphs.get_mut(graph)?.add(node, kind);
    out.set(node)
}

fn instantiate(out: Out<Handle>, graph: Handle) -> Status {
    let mut process = process()?;
    let nodes = process.graphs.get(graph)?.freeze();
    let handle = process.new_handle();
    process.executables.0.insert(handle, Executable { nodes });
    out.set(handle)
}

pub(crate) fn cuGraphCreate(out: Out<Handle>, _flags: u32) -> Status {
    let mut process = process()?;
    let handle = process.new_handle();
    process.graphs.0.insert(handle, Graph::default());
    out.set(handle)
}

pub(crate) fn cuGraphClone(out: Out<Handle>, graph: Handle) -> Status {
    let mut process = process()?;
    let copy = process.graphs.get(graph)?.clone();
    let handle = process.new_handle();
    process.graphs.0.insert(handle, copy);
    out.set(handle)
}

pub(crate) fn cuGraphDestroy(graph: Handle) -> Status {
    process()?.graphs.remove(graph).map(|_| ())
}

pub(crate) fn cuGraphExecDestroy(executable: Handle) -> Status {
    process()?.executables.remove(executable).map(|_| ())
}

pub(crate) fn cuGraphInstantiate(
    out: Out<Handle>,
    graph: Handle,
    error_node: Out<Handle>,
    _log: Out<u8>,
    _room: usize,
) -> Status {
    error_node.offer(0);
    instantiate(out, graph)
}

pub(crate) fn cuGraphInstantiateWithFlags(out: Out<Handle>, graph: Handle, _flags: u64) -> Status {
    instantiate(out, graph)
}

pub(crate) fn cuGraphInstantiateWithParams(
    out: Out<Handle>,
    graph: Handle,
    parameters: Out<InstantiateParameters>,
) -> Status {
    let given = parameters.get()?;
    parameters.set(InstantiateParameters { error_node: 0, result: 0, ..given })?;
    instantiate(out, graph)
}

pub(crate) fn cuGraphExecUpdate(
    executable: Handle,
    graph: Handle,
    error_node: Out<Handle>,
    result: Out<u32>,
) -> Status {
    error_node.offer(0);
    result.offer(0);
    update(executable, graph)
}

/// The result is `CUgraphExecUpdateResultInfo`: a result and two nodes.
pub(crate) fn cuGraphExecUpdate_v2(executable: Handle, graph: Handle, result: Out<[usize; 3]>) -> Status {
    result.offer([0; 3]);
    update(executable, graph)
}

fn update(executable: Handle, graph: Handle) -> Status {
    let mut process = process()?;
    let nodes = process.graphs.get(graph)?.freeze();
    process.executables.get_mut(executable)?.nodes = nodes;
    Ok(())
}

pub(crate) fn cuGraphGetNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) -> Status {
    let process = process()?;
    let graph = process.graphs.get(graph)?;
    if nodes.is_null() {
        return count.set(graph.nodes.len());
    }
    let room = count.get()?;
    for index in 0..room {
        nodes.put(index, graph.nodes.get(index).map_or(0, |(node, _)| *node))?;
    }
    count.set(room.min(graph.nodes.len()))
}

pub(crate) fn cuGraphNodeGetType(node: Handle, out: Out<u32>) -> Status {
    out.set(match find(node)? {
        Kind::Kernel { .. } => 0,
        Kind::Copy => 1,
        Kind::Set => 2,
        Kind::HostFunction { .. } => 3,
        Kind::Child { .. } => 4,
        Kind::Empty => 5,
    })
}

fn find(node: Handle) -> Result<Kind, Code> {
    let process = process()?;
    let mut all = process.graphs.0.values().flat_map(|graph| &graph.nodes);
    all.find(|(handle, _)| *handle == node).map(|(_, kind)| kind.clone()).ok_or(Code::INVALID_HANDLE)
}

pub(crate) fn cuGraphKernelNodeGetParams(node: Handle, out: Out<KernelNodeParameters>) -> Status {
    let Kind::Kernel { function, .. } = find(node)? else { return Err(Code::INVALID_VALUE) };
    let (grid, block) = ([1; 3], [1; 3]);
    out.set(KernelNodeParameters { function, grid, block, shared_bytes: 0, parameters: 0, extra: 0 })
}

pub(crate) fn cuGraphAddKernelNode(
    out: Out<Handle>,
    graph: Handle,
    _dependencies: In<Handle>,
    _count: usize,
    parameters: In<KernelNodeParameters>,
) -> Status {
    add(out, graph, kernel(parameters.get()?)?)
}

pub(crate) fn cuGraphAddHostNode(
    out: Out<Handle>,
    graph: Handle,
    _dependencies: In<Handle>,
    _count: usize,
    parameters: In<HostNodeParameters>,
) -> Status {
    let HostNodeParameters { function, argument } = parameters.get()?;
    add(out, graph, Kind::HostFunction { function, argument })
}

pub(crate) fn cuGraphAddEmptyNode(out: Out<Handle>, graph: Handle, _dependencies: In<Handle>, _count: usize) -> Status {
    add(out, graph, Kind::Empty)
}

pub(crate) fn cuGraphAddChildGraphNode(
    out: Out<Handle>,
    graph: Handle,
    _dependencies: In<Handle>,
    _count: usize,
    child: Handle,
) -> Status {
    let nodes = process()?.graphs.get(child)?.freeze();
    add(out, graph, Kind::Child { nodes })
}

pub(crate) fn cuGraphAddDependencies(graph: Handle, _from: In<Handle>, _to: In<Handle>, _count: usize) -> Status {
    process()?.graphs.get(graph).map(|_| ())
}

pub(crate) fn cuGraphAddDependencies_v2(
    graph: Handle,
    from: In<Handle>,
    to: In<Handle>,
    _edges: In<u64>,
    count: usize,
) -> Status {
    cuGraphAddDependencies(graph, from, to, count)
}
