//! What the program is told there is: the tenant's own view of the GPU's memory.

#![deny(unsafe_code)]

use crate::boundary::Driver;
use crate::gpu::{self, Gpu};
use crate::types::{CuResult, Device, NvmlMemory, NvmlMemory2, Out, SUCCESS};
use crate::{current, real};

/// Total and free bytes as the tenant is to see them, from what the GPU has.
fn view(gpu: &Gpu, total: u64, free: u64) -> Option<(u64, u64)> {
    let total = gpu.memory_total()?.min(total);
    let limit = gpu.memory_limit().min(total);
    Some((total, limit.saturating_sub(gpu.tenant_used()).min(free)))
}

pub(crate) fn info(driver: &Driver<'_>, free: Out<usize>, total: Out<usize>) -> CuResult {
    let result = driver.call();
    if result == SUCCESS
        && let Some(gpu) = current::current()
        && let (Some(there), Some(left)) = (total.get(), free.get())
        && let Some((there, left)) = view(gpu, there as u64, left as u64)
    {
        total.set(there as usize);
        free.set(left as usize);
    }
    result
}

pub(crate) fn total(driver: &Driver<'_>, total: Out<usize>, device: Device) -> CuResult {
    let result = driver.call();
    if result == SUCCESS
        && let Some(gpu) = current::of(device)
        && let Some(there) = total.get()
        && let Some((there, _)) = view(gpu, there as u64, 0)
    {
        total.set(there as usize);
    }
    result
}

pub(crate) fn nvml(driver: &Driver<'_>, device: usize, memory: Out<NvmlMemory>) -> CuResult {
    let result = driver.call();
    if result == SUCCESS
        && let Some(gpu) = real::nvml_uuid(device).and_then(gpu::with_uuid)
        && let Some(real) = memory.get()
        && let Some((total, free)) = view(gpu, real.total, real.free)
    {
        memory.set(NvmlMemory { total, free, used: gpu.tenant_used().min(total) });
    }
    result
}

pub(crate) fn nvml_2(driver: &Driver<'_>, device: usize, memory: Out<NvmlMemory2>) -> CuResult {
    let result = driver.call();
    if result == SUCCESS
        && let Some(gpu) = real::nvml_uuid(device).and_then(gpu::with_uuid)
        && let Some(real) = memory.get()
        && let Some((total, free)) = view(gpu, real.total, real.free)
    {
        memory.set(NvmlMemory2 { total, free, used: gpu.tenant_used().min(total), reserved: 0, ..real });
    }
    result
}
