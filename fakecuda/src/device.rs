//! Devices, the driver's start and its version.

use crate::boundary::{In, Out, Text};
use crate::code::{CODES, Code, Status};
use crate::driver::{self, gpu, visible};

/// CUDA 13.0.
pub(crate) const DRIVER_VERSION: i32 = 13000;
/// What NVML calls the driver.
pub(crate) const DRIVER_TEXT: &str = "580.00-fakecuda";
/// What a device is called.
pub(crate) const NAME: &str = "Weft stand-in GPU";
/// Streaming multiprocessors of a device.
pub(crate) const MULTIPROCESSORS: i32 = 132;

pub(crate) fn cuInit(flags: u32) -> Status {
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    driver::initialize()
}

pub(crate) fn cuDriverGetVersion(out: Out<i32>) -> Status {
    out.set(DRIVER_VERSION)
}

pub(crate) fn cuDeviceGetCount(out: Out<i32>) -> Status {
    driver::require_initialized()?;
    out.set(visible()?.len() as i32)
}

pub(crate) fn cuDeviceGet(out: Out<i32>, ordinal: i32) -> Status {
    gpu(ordinal)?;
    out.set(ordinal)
}

pub(crate) fn cuDeviceGetName(out: Out<u8>, room: i32, device: i32) -> Status {
    gpu(device)?;
    out.text(NAME, usize::try_from(room).unwrap_or(0))
}

pub(crate) fn cuDeviceGetUuid(out: Out<[u8; 16]>, device: i32) -> Status {
    out.set(gpu(device)?.uuid())
}

pub(crate) fn cuDeviceTotalMem(out: Out<usize>, device: i32) -> Status {
    out.set(gpu(device)?.total_bytes() as usize)
}

pub(crate) fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) -> Status {
    gpu(device)?;
    major.set(9)?;
    minor.set(0)
}

pub(crate) fn cuDeviceGetAttribute(out: Out<i32>, attribute: i32, device: i32) -> Status {
    let index = gpu(device)?.index() as i32;
    let value = match attribute {
        1 => 1024,          // threads in a block
        2 | 3 => 1024,      // block x, y
        4 => 64,            // block z
        5 => i32::MAX,      // grid x
        6 | 7 => 65_535,    // grid y, z
        8 | 81 => 48 << 10, // shared memory of a block, of a multiprocessor
        9 => 64 << 10,      // constant memory
        10 => 32,           // threads in a warp
        12 => 65_536,       // registers of a block
        13 => 1_980_000,    // clock in kHz
        15 | 31 | 40 => 1,  // overlap of copies, concurrent kernels, copy engines
        16 => MULTIPROCESSORS,
        19 | 41 | 83 | 89 => 1, // host memory can be mapped, unified addresses, managed memory, and both at once
        33 => index + 1,        // PCI bus
        36 => 2_619_000,        // memory clock in kHz
        37 => 6144,             // memory bus in bits
        38 => 50 << 20,         // second-level cache
        39 => 2048,             // threads on a multiprocessor
        75 => 9,                // compute capability, major
        76 => 0,                // and minor
        78 | 90 | 91 => 1,      // stream priorities, preemption, host pointers
        95 => 1,                // cooperative launch
        97 => 227 << 10,        // shared memory of a block, opted in
        102 | 115 => 1,         // virtual memory management, memory pools
        _ => 0,
    };
    out.set(value)
}

pub(crate) fn cuDeviceGetPCIBusId(out: Out<u8>, room: i32, device: i32) -> Status {
    let index = gpu(device)?.index();
    out.text(&format!("0000:{:02X}:00.0", index + 1), usize::try_from(room).unwrap_or(0))
}

pub(crate) fn cuDeviceGetByPCIBusId(out: Out<i32>, name: Text) -> Status {
    driver::require_initialized()?;
    let name = name.get()?;
    let bus = name.split(':').rev().nth(1).and_then(|bus| i32::from_str_radix(bus, 16).ok());
    let index = usize::try_from(bus.ok_or(Code::INVALID_VALUE)? - 1).map_err(|_| Code::INVALID_DEVICE)?;
    let ordinal = visible()?.iter().position(|visible| *visible == index).ok_or(Code::INVALID_DEVICE)?;
    out.set(ordinal as i32)
}

pub(crate) fn cuDeviceCanAccessPeer(out: Out<i32>, device: i32, peer: i32) -> Status {
    gpu(device)?;
    gpu(peer)?;
    out.set(0)
}

pub(crate) fn cuDeviceGetDefaultMemPool(out: Out<usize>, device: i32) -> Status {
    crate::pool::of_device(device).and_then(|pool| out.set(pool))
}

pub(crate) fn cuGetErrorName(error: i32, out: Out<usize>) -> Status {
    text(error, out, |(_, name, _)| name)
}

pub(crate) fn cuGetErrorString(error: i32, out: Out<usize>) -> Status {
    text(error, out, |(_, _, sentence)| sentence)
}

fn text(error: i32, out: Out<usize>, which: impl Fn(&(i32, &'static str, &'static str)) -> &'static str) -> Status {
    let Some(found) = CODES.iter().find(|(number, ..)| *number == error) else {
        out.set(0)?;
        return Err(Code::INVALID_VALUE);
    };
    out.set(which(found).as_ptr() as usize)
}

/// NVIDIA's private tables of functions, of which there are none.
pub(crate) fn cuGetExportTable(out: Out<usize>, _identity: In<[u8; 16]>) -> Status {
    out.offer(0);
    Err(Code::NOT_FOUND)
}
