//! Arrays: memory with a shape. Only its size matters here.

use crate::boundary::{In, Out};
use crate::capture;
use crate::code::{Code, Status};
use crate::current;
use crate::driver::{Handle, process};
use crate::memory::{self, Kind};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Descriptor {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Descriptor3d {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

/// Bytes of an array with every extent halved `level` times.
fn bytes(shape: &Descriptor3d, level: u32) -> Result<usize, Code> {
    let element: usize = match shape.format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return Err(Code::INVALID_VALUE),
    };
    if shape.width == 0 || !matches!(shape.channels, 1 | 2 | 4) {
        return Err(Code::INVALID_VALUE);
    }
    let extent = |extent: usize| extent.max(1).checked_shr(level).unwrap_or(0).max(1);
    [extent(shape.width), extent(shape.height), extent(shape.depth), shape.channels as usize]
        .into_iter()
        .try_fold(element, usize::checked_mul)
        .ok_or(Code::OUT_OF_MEMORY)
}

fn create(out: Out<Handle>, bytes: usize) -> Status {
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    current::current()?;
    capture::forbid_unsafe(&mut *process()?)?;
    out.set(memory::allocate(bytes, Kind::Array)? as Handle)
}

fn destroy(array: Handle) -> Status {
    match process()?.allocations.get(&(array as u64)) {
        Some(found) if found.kind == Kind::Array => {}
        _ => return Err(Code::INVALID_HANDLE),
    }
    memory::free(array as u64)
}

pub(crate) fn cuArrayCreate(out: Out<Handle>, shape: In<Descriptor>) -> Status {
    let Descriptor { width, height, format, channels } = shape.get()?;
    create(out, bytes(&Descriptor3d { width, height, depth: 0, format, channels, flags: 0 }, 0)?)
}

pub(crate) fn cuArray3DCreate(out: Out<Handle>, shape: In<Descriptor3d>) -> Status {
    create(out, bytes(&shape.get()?, 0)?)
}

pub(crate) fn cuArrayDestroy(array: Handle) -> Status {
    destroy(array)
}

pub(crate) fn cuMipmappedArrayCreate(out: Out<Handle>, shape: In<Descriptor3d>, levels: u32) -> Status {
    if levels == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let shape = shape.get()?;
    let sum = (0..levels.min(32))
        .try_fold(0_usize, |sum, level| sum.checked_add(bytes(&shape, level)?).ok_or(Code::OUT_OF_MEMORY));
    create(out, sum?)
}

pub(crate) fn cuMipmappedArrayDestroy(array: Handle) -> Status {
    destroy(array)
}
