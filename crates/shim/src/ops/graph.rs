//! Graphs: how many kernels the launch of one is.

#![deny(unsafe_code)]

use crate::boundary::Driver;
use crate::gpu::Gpu;
use crate::identity::{KERNELS, graph_key};
use crate::types::{CuResult, Graph, GraphExec, Opaque, Out, SUCCESS};
use crate::{capture, current, notes, real};
use std::ffi::{c_int, c_ulonglong};

/// `CU_GRAPH_NODE_TYPE_KERNEL`, `CU_GRAPH_NODE_TYPE_GRAPH`.
const KERNEL: c_int = 0;
const CHILD: c_int = 4;
/// The depth of graphs within graphs that are counted.
const DEEPEST: u32 = 16;

pub(crate) fn instantiate_logged(
    driver: &Driver<'_>,
    out: Out<GraphExec>,
    graph: Graph,
    _: Opaque,
    _: Opaque,
    _: usize,
) -> CuResult {
    instantiate(driver, out, graph)
}

pub(crate) fn instantiate_flags(driver: &Driver<'_>, out: Out<GraphExec>, graph: Graph, _: c_ulonglong) -> CuResult {
    instantiate(driver, out, graph)
}

pub(crate) fn instantiate_parameters(driver: &Driver<'_>, out: Out<GraphExec>, graph: Graph, _: Opaque) -> CuResult {
    instantiate(driver, out, graph)
}

fn instantiate(driver: &Driver<'_>, out: Out<GraphExec>, graph: Graph) -> CuResult {
    let result = driver.call();
    if result == SUCCESS
        && let Some(made) = out.get()
    {
        // Another's graph with this handle was destroyed out of our sight.
        KERNELS.forget(graph_key(made.0));
        let kernels = capture::ask().map_or(0, |_asking| kernels(graph, 0));
        let record = KERNELS.record(KERNELS.find(graph_key(made.0)));
        record.set_kernels(kernels);
        let identity = notes::of_next_graph(kernels);
        if let Some(window) = current::current().and_then(Gpu::window) {
            notes::introduce(window, record, Some(identity));
        }
    }
    result
}

fn kernels(graph: Graph, depth: u32) -> u32 {
    let mut count = 0u32;
    for node in real::nodes(graph) {
        let mut kind = -1;
        if real::cuGraphNodeGetType(node, &mut kind) != SUCCESS {
            continue;
        }
        let mut child = 0;
        if kind == KERNEL {
            count = count.saturating_add(1);
        } else if kind == CHILD && depth < DEEPEST && real::cuGraphChildGraphNodeGetGraph(node, &mut child) == SUCCESS {
            count = count.saturating_add(kernels(Graph(child), depth + 1));
        }
    }
    count
}

pub(crate) fn destroy(driver: &Driver<'_>, graph: GraphExec) -> CuResult {
    KERNELS.forget(graph_key(graph.0));
    driver.call()
}
