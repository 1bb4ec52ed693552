//! Modules and libraries, the functions and kernels in them, and their global variables.
//!
//! Any image is accepted, and has a function of every name except those that begin with `missing`. A kernel of a library
//! and the function made from it are two handles; both can be launched.

use crate::boundary::{In, Out, Text};
use crate::code::{Code, Status};
use crate::current;
use crate::driver::{Handle, Process, process};
use crate::duration::Duration;
use crate::memory;
pub(crate) use crate::objects::{Function, Module};
use std::collections::BTreeMap;
use std::ffi::CString;

const GLOBAL_BYTES: usize = 4096;

fn load(out: Out<Handle>, context: Handle) -> Status {
    let mut process = process()?;
    let handle = process.new_handle();
    process.modules.0.insert(handle, Module { context, functions: BTreeMap::new(), globals: BTreeMap::new() });
    out.set(handle)
}

fn function(out: Out<Handle>, module: Handle, name: &Text) -> Status {
    let name = name.get()?;
    let mut process = process()?;
    let known = process.modules.get(module)?.functions.get(&name).copied();
    if let Some(handle) = known {
        return out.set(handle);
    }
    if name.is_empty() || name.starts_with("missing") {
        return Err(Code::NOT_FOUND);
    }
    let handle = insert(&mut process, module, &name)?;
    process.modules.get_mut(module)?.functions.insert(name, handle);
    out.set(handle)
}

fn insert(process: &mut Process, module: Handle, name: &str) -> Result<Handle, Code> {
    let handle = process.new_handle();
    let duration = Duration::of_name(name);
    let name = CString::new(name).map_err(|_| Code::INVALID_VALUE)?;
    process.functions.0.insert(handle, Function { name, module, function: 0, duration });
    Ok(handle)
}

fn global(address: Out<u64>, bytes: Out<usize>, module: Handle, name: &Text) -> Status {
    let name = name.get()?;
    if name.starts_with("missing") {
        return Err(Code::NOT_FOUND);
    }
    let known = process()?.modules.get(module)?.globals.get(&name).copied();
    let place = match known {
        Some(place) => place,
        None => {
            // Part of the image, so it is counted to nobody.
            let place = memory::uncounted(GLOBAL_BYTES)?;
            process()?.modules.get_mut(module)?.globals.insert(name, place);
            place
        }
    };
    address.offer(place);
    bytes.offer(GLOBAL_BYTES);
    Ok(())
}

fn unload(module: Handle) -> Status {
    let mut process = process()?;
    process.modules.remove(module)?;
    process.functions.0.retain(|_, function| function.module != module);
    Ok(())
}

pub(crate) fn cuModuleLoad(out: Out<Handle>, _path: Text) -> Status {
    load(out, current::current()?)
}

pub(crate) fn cuModuleLoadData(out: Out<Handle>, image: In<u8>) -> Status {
    image.get()?;
    load(out, current::current()?)
}

pub(crate) fn cuModuleLoadDataEx(
    out: Out<Handle>,
    image: In<u8>,
    _count: u32,
    _options: In<u32>,
    _values: In<usize>,
) -> Status {
    cuModuleLoadData(out, image)
}

pub(crate) fn cuModuleLoadFatBinary(out: Out<Handle>, image: In<u8>) -> Status {
    cuModuleLoadData(out, image)
}

pub(crate) fn cuModuleUnload(module: Handle) -> Status {
    unload(module)
}

pub(crate) fn cuModuleGetFunction(out: Out<Handle>, module: Handle, name: Text) -> Status {
    function(out, module, &name)
}

pub(crate) fn cuModuleGetGlobal(address: Out<u64>, bytes: Out<usize>, module: Handle, name: Text) -> Status {
    global(address, bytes, module, &name)
}

pub(crate) fn cuModuleGetLoadingMode(out: Out<u32>) -> Status {
    out.set(2)
}

#[allow(clippy::too_many_arguments, reason = "the driver's own list of arguments")]
pub(crate) fn cuLibraryLoadData(
    out: Out<Handle>,
    image: In<u8>,
    _options: In<u32>,
    _values: In<usize>,
    _count: u32,
    _library_options: In<u32>,
    _library_values: In<usize>,
    _library_count: u32,
) -> Status {
    image.get()?;
    load(out, 0)
}

#[allow(clippy::too_many_arguments, reason = "the driver's own list of arguments")]
pub(crate) fn cuLibraryLoadFromFile(
    out: Out<Handle>,
    path: Text,
    _options: In<u32>,
    _values: In<usize>,
    _count: u32,
    _library_options: In<u32>,
    _library_values: In<usize>,
    _library_count: u32,
) -> Status {
    path.get()?;
    load(out, 0)
}

pub(crate) fn cuLibraryUnload(library: Handle) -> Status {
    unload(library)
}

pub(crate) fn cuLibraryGetKernel(out: Out<Handle>, library: Handle, name: Text) -> Status {
    function(out, library, &name)
}

pub(crate) fn cuLibraryGetModule(out: Out<Handle>, library: Handle) -> Status {
    process()?.modules.get(library)?;
    out.set(library)
}

pub(crate) fn cuLibraryGetGlobal(address: Out<u64>, bytes: Out<usize>, library: Handle, name: Text) -> Status {
    global(address, bytes, library, &name)
}

pub(crate) fn cuKernelGetFunction(out: Out<Handle>, kernel: Handle) -> Status {
    let mut process = process()?;
    let found = process.functions.get(kernel)?;
    let (known, module, name) = (found.function, found.module, found.name.to_string_lossy().into_owned());
    if known != 0 {
        return out.set(known);
    }
    let function = insert(&mut process, module, &name)?;
    process.functions.get_mut(kernel)?.function = function;
    out.set(function)
}

pub(crate) fn cuKernelGetLibrary(out: Out<Handle>, kernel: Handle) -> Status {
    out.set(process()?.functions.get(kernel)?.module)
}

pub(crate) fn cuKernelGetName(out: Out<usize>, kernel: Handle) -> Status {
    out.set(process()?.functions.get(kernel)?.name.as_ptr() as usize)
}

pub(crate) fn cuFuncGetName(out: Out<usize>, function: Handle) -> Status {
    cuKernelGetName(out, function)
}

pub(crate) fn cuFuncGetModule(out: Out<Handle>, function: Handle) -> Status {
    out.set(process()?.functions.get(function)?.module)
}

pub(crate) fn cuFuncGetAttribute(out: Out<i32>, attribute: u32, function: Handle) -> Status {
    process()?.functions.get(function)?;
    // Threads of a block, registers, and the architecture that it was made for; nothing else is used.
    out.set(match attribute {
        0 => 1024,
        4 => 32,
        5 | 6 => 90,
        _ => 0,
    })
}

pub(crate) fn cuFuncSetAttribute(function: Handle, _attribute: u32, _value: i32) -> Status {
    process()?.functions.get(function).map(|_| ())
}

pub(crate) fn cuFuncSetCacheConfig(function: Handle, _config: u32) -> Status {
    process()?.functions.get(function).map(|_| ())
}

pub(crate) fn cuFuncIsLoaded(out: Out<u32>, function: Handle) -> Status {
    process()?.functions.get(function)?;
    out.set(1)
}

pub(crate) fn cuFuncLoad(function: Handle) -> Status {
    process()?.functions.get(function).map(|_| ())
}

pub(crate) fn cuKernelGetAttribute(out: Out<i32>, attribute: u32, kernel: Handle, _device: i32) -> Status {
    cuFuncGetAttribute(out, attribute, kernel)
}

pub(crate) fn cuKernelSetAttribute(_attribute: u32, _value: i32, kernel: Handle, _device: i32) -> Status {
    process()?.functions.get(kernel).map(|_| ())
}

pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    out: Out<i32>,
    function: Handle,
    threads: i32,
    _shared: usize,
) -> Status {
    process()?.functions.get(function)?;
    out.set(if threads <= 0 { return Err(Code::INVALID_VALUE) } else { (2048 / threads).clamp(1, 32) })
}

pub(crate) fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    out: Out<i32>,
    function: Handle,
    threads: i32,
    shared: usize,
    _flags: u32,
) -> Status {
    cuOccupancyMaxActiveBlocksPerMultiprocessor(out, function, threads, shared)
}
