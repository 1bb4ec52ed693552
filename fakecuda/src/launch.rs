//! Launching kernels and host functions.

use crate::boundary::{In, Out};
use crate::capture;
use crate::code::{Code, Status};
use crate::driver::{Handle, process};
use crate::graph::Kind;
use crate::green::SMS;
use crate::queue::{self, Work};
use crate::stream;

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: Handle,
    attributes: usize,
    attribute_count: u32,
}

fn launch(function: Handle, grid: [u32; 3], block: [u32; 3], stream: Handle) -> Status {
    if grid.iter().chain(&block).any(|extent| *extent == 0) {
        return Err(Code::INVALID_VALUE);
    }
    let device = {
        let mut process = process()?;
        let stream = stream::resolve(&mut process, stream)?;
        process.streams.get(stream)?.device
    };
    queue::wait_for_room(device)?;
    let mut process = process()?;
    let stream = stream::resolve(&mut process, stream)?;
    let blocks = grid.iter().map(|extent| u64::from(*extent)).product();
    let alone_ns = process.functions.get(function)?.duration.of_launch(blocks);
    let sms = process.streams.get(stream)?.sms.unwrap_or(SMS);
    let duration_ns = alone_ns * u64::from(SMS) / u64::from(sms);
    if capture::record(&mut process, stream, Kind::Kernel { function, duration_ns })? {
        return Ok(());
    }
    let end = queue::submit(&mut process, device, Work::Kernel { duration_ns })?;
    process.streams.get_mut(stream)?.end = end;
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the driver's own list of arguments")]
pub(crate) fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    _shared_bytes: u32,
    stream: Handle,
    _parameters: In<usize>,
    _extra: In<usize>,
) -> Status {
    launch(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream)
}

pub(crate) fn cuLaunchKernelEx(
    config: In<LaunchConfig>,
    function: Handle,
    _parameters: In<usize>,
    _extra: In<usize>,
) -> Status {
    let config = config.get()?;
    launch(function, config.grid, config.block, config.stream)
}

#[allow(clippy::too_many_arguments, reason = "the driver's own list of arguments")]
pub(crate) fn cuLaunchCooperativeKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    _shared_bytes: u32,
    stream: Handle,
    _parameters: In<usize>,
) -> Status {
    launch(function, [grid_x, grid_y, grid_z], [block_x, block_y, block_z], stream)
}

pub(crate) fn cuLaunchHostFunc(stream: Handle, function: usize, argument: usize) -> Status {
    if function == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut process = process()?;
    let stream = stream::resolve(&mut process, stream)?;
    if capture::record(&mut process, stream, Kind::HostFunction { function, argument })? {
        return Ok(());
    }
    let device = process.streams.get(stream)?.device;
    let end = queue::submit_host_function(&mut process, device, function, argument)?;
    process.streams.get_mut(stream)?.end = end;
    Ok(())
}

/// Launches the parts of a graph that can be launched: its kernels as one piece of work, then its host functions.
pub(crate) fn cuGraphLaunch(executable: Handle, stream: Handle) -> Status {
    let (device, nodes) = {
        let mut process = process()?;
        let stream = stream::resolve(&mut process, stream)?;
        let nodes = process.executables.get(executable)?.nodes.clone();
        (process.streams.get(stream)?.device, nodes)
    };
    queue::wait_for_room(device)?;
    let mut process = process()?;
    let stream = stream::resolve(&mut process, stream)?;
    if capture::record(&mut process, stream, Kind::Child { nodes: nodes.clone() })? {
        return Ok(());
    }
    let (kernels, duration_ns) = nodes.kernels();
    let mut end = queue::submit(&mut process, device, Work::Graph { duration_ns, kernels })?;
    for (function, argument) in nodes.host_functions() {
        end = queue::submit_host_function(&mut process, device, function, argument)?;
    }
    process.streams.get_mut(stream)?.end = end;
    Ok(())
}

pub(crate) fn cuGraphUpload(executable: Handle, stream: Handle) -> Status {
    let mut process = process()?;
    stream::resolve(&mut process, stream)?;
    process.executables.get(executable).map(|_| ())
}

/// The occupancy that a launch like this reaches, which nothing here depends on.
pub(crate) fn cuOccupancyMaxActiveClusters(out: Out<i32>, function: Handle, config: In<LaunchConfig>) -> Status {
    config.get()?;
    process()?.functions.get(function)?;
    out.set(1)
}
