//! Contexts: the primary one of each device, and those that programs make.

use crate::boundary::{In, Out};
use crate::capture;
use crate::code::{Code, Status};
use crate::current::{CURRENT, current, device};
use crate::driver::{self, Handle, process};
pub(crate) use crate::objects::Context;
use crate::stream::Stream;
use crate::{channel, queue, trap};

pub(crate) fn create(device: i32, flags: u32) -> Result<Handle, Code> {
    driver::slot(device)?;
    if trap::install() {
        channel::open(device);
    }
    let mut process = process()?;
    let handle = process.new_handle();
    let default_stream = process.new_handle();
    process.streams.0.insert(default_stream, Stream::new(handle, device, 0, 0));
    process.contexts.0.insert(handle, Context { device, flags, default_stream });
    Ok(handle)
}

/// Takes a context and what was made in it away. Its memory goes with it; its work is waited for.
fn destroy(handle: Handle) -> Status {
    let device = process()?.contexts.get(handle).map_err(|_| Code::INVALID_CONTEXT)?.device;
    queue::synchronize(queue::end(device)?)?;
    let mut process = process()?;
    process.contexts.remove(handle).map_err(|_| Code::INVALID_CONTEXT)?;
    process.streams.0.retain(|_, stream| stream.context != handle);
    process.thread_streams.retain(|(context, _), _| *context != handle);
    process.modules.0.retain(|_, module| module.context != handle);
    crate::memory::free_context(&mut process, handle)
}

pub(crate) fn cuCtxCreate(out: Out<Handle>, flags: u32, device: i32) -> Status {
    let handle = create(device, flags)?;
    CURRENT.with_borrow_mut(|stack| stack.push(handle));
    out.set(handle)
}

pub(crate) fn cuCtxCreate_v3(out: Out<Handle>, _affinity: In<u64>, _count: i32, flags: u32, device: i32) -> Status {
    cuCtxCreate(out, flags, device)
}

pub(crate) fn cuCtxCreate_v4(out: Out<Handle>, _parameters: In<u64>, flags: u32, device: i32) -> Status {
    cuCtxCreate(out, flags, device)
}

pub(crate) fn cuCtxDestroy(context: Handle) -> Status {
    if process()?.primary.iter().any(|primary| primary.context == context) {
        return Err(Code::INVALID_CONTEXT);
    }
    destroy(context)?;
    CURRENT.with_borrow_mut(|stack| stack.pop_if(|top| *top == context));
    Ok(())
}

pub(crate) fn cuCtxPushCurrent(context: Handle) -> Status {
    require(context)?;
    CURRENT.with_borrow_mut(|stack| stack.push(context));
    Ok(())
}

pub(crate) fn cuCtxPopCurrent(out: Out<Handle>) -> Status {
    driver::require_initialized()?;
    let popped = CURRENT.with_borrow_mut(Vec::pop).ok_or(Code::INVALID_CONTEXT)?;
    out.offer(popped);
    Ok(())
}

pub(crate) fn cuCtxSetCurrent(context: Handle) -> Status {
    driver::require_initialized()?;
    if context != 0 {
        require(context)?;
    }
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        if context != 0 {
            stack.push(context);
        }
    });
    Ok(())
}

pub(crate) fn cuCtxGetCurrent(out: Out<Handle>) -> Status {
    driver::require_initialized()?;
    out.set(current().unwrap_or(0))
}

pub(crate) fn cuCtxGetDevice(out: Out<i32>) -> Status {
    out.set(device()?)
}

pub(crate) fn cuCtxGetDevice_v2(out: Out<i32>, context: Handle) -> Status {
    out.set(of(context)?)
}

pub(crate) fn cuCtxGetFlags(out: Out<u32>) -> Status {
    let handle = current()?;
    out.set(process()?.contexts.get(handle)?.flags)
}

pub(crate) fn cuCtxSetFlags(flags: u32) -> Status {
    let handle = current()?;
    process()?.contexts.get_mut(handle)?.flags = flags;
    Ok(())
}

pub(crate) fn cuCtxGetId(context: Handle, out: Out<u64>) -> Status {
    let handle = if context == 0 { current()? } else { context };
    require(handle)?;
    out.set(handle as u64)
}

pub(crate) fn cuCtxGetApiVersion(context: Handle, out: Out<u32>) -> Status {
    if context != 0 {
        require(context)?;
    }
    out.set(3020)
}

pub(crate) fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> Status {
    current()?;
    least.offer(0);
    greatest.offer(-5);
    Ok(())
}

pub(crate) fn cuCtxGetLimit(out: Out<usize>, _limit: u32) -> Status {
    current()?;
    out.set(8 << 20)
}

pub(crate) fn cuCtxSetLimit(_limit: u32, _value: usize) -> Status {
    current().map(|_| ())
}

pub(crate) fn cuCtxGetCacheConfig(out: Out<u32>) -> Status {
    current()?;
    out.set(0)
}

pub(crate) fn cuCtxSetCacheConfig(_config: u32) -> Status {
    current().map(|_| ())
}

pub(crate) fn cuCtxSynchronize() -> Status {
    let device = device()?;
    capture::forbid_everywhere(&mut *process()?)?;
    queue::synchronize(queue::end(device)?)
}

pub(crate) fn cuCtxSynchronize_v2(context: Handle) -> Status {
    let device = of(context)?;
    capture::forbid_everywhere(&mut *process()?)?;
    queue::synchronize(queue::end(device)?)
}

pub(crate) fn cuCtxEnablePeerAccess(peer: Handle, _flags: u32) -> Status {
    require(peer)
}

pub(crate) fn cuCtxDisablePeerAccess(peer: Handle) -> Status {
    require(peer)
}

pub(crate) fn cuDevicePrimaryCtxRetain(out: Out<Handle>, device: i32) -> Status {
    let index = driver::gpu(device)?.index();
    let primary = process()?.primary[index];
    if primary.context == 0 {
        let context = create(device, primary.flags)?;
        let mut process = process()?;
        if process.primary[index].context == 0 {
            process.primary[index].context = context;
        }
    }
    let mut process = process()?;
    process.primary[index].users += 1;
    out.set(process.primary[index].context)
}

pub(crate) fn cuDevicePrimaryCtxRelease(device: i32) -> Status {
    let index = driver::gpu(device)?.index();
    let last = {
        let primary = &mut process()?.primary[index];
        primary.users = primary.users.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
        primary.users == 0
    };
    if last { cuDevicePrimaryCtxReset(device) } else { Ok(()) }
}

pub(crate) fn cuDevicePrimaryCtxReset(device: i32) -> Status {
    let index = driver::gpu(device)?.index();
    let context = std::mem::take(&mut process()?.primary[index].context);
    if context == 0 { Ok(()) } else { destroy(context) }
}

pub(crate) fn cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) -> Status {
    let index = driver::gpu(device)?.index();
    process()?.primary[index].flags = flags;
    Ok(())
}

pub(crate) fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) -> Status {
    let index = driver::gpu(device)?.index();
    let primary = process()?.primary[index];
    flags.offer(primary.flags);
    active.offer(i32::from(primary.context != 0));
    Ok(())
}

fn require(context: Handle) -> Status {
    process()?.contexts.get(context).map(|_| ()).map_err(|_| Code::INVALID_CONTEXT)
}

/// The device of a context, or of the current one for zero.
fn of(context: Handle) -> Result<i32, Code> {
    if context == 0 {
        return device();
    }
    process()?.contexts.get(context).map(|context| context.device).map_err(|_| Code::INVALID_CONTEXT)
}
