//! NVML: how much memory the GPUs have, who uses it, how busy they are. It needs no context, and takes no slot.

use crate::boundary::{Out, Text};
use crate::code::Code;
use crate::device::{DRIVER_TEXT, DRIVER_VERSION, NAME};
use crate::driver::state;
use crate::state::Gpu;
use std::sync::atomic::{AtomicU32, Ordering};

type Device = usize;
type Answer = Result<(), i32>;

const UNINITIALIZED: i32 = 1;
const INVALID_ARGUMENT: i32 = 2;
const NOT_FOUND: i32 = 6;
const INSUFFICIENT_SIZE: i32 = 7;
const UNKNOWN: i32 = 999;

static USERS: AtomicU32 = AtomicU32::new(0);

/// `nvmlMemory_t`.
#[repr(C)]
pub(crate) struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub(crate) struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// `nvmlUtilization_t`.
#[repr(C)]
pub(crate) struct Utilization {
    gpu: u32,
    memory: u32,
}

/// `nvmlProcessInfo_t`.
#[repr(C)]
pub(crate) struct ProcessInfo {
    pid: u32,
    used_bytes: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

macro_rules! exports {
    ($($(#[doc = $text:literal])? fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "` of NVML's API.")]
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $name($($argument: $type),*) -> i32 {
                let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| -> Answer { $body }));
                answer.unwrap_or(Err(UNKNOWN)).err().unwrap_or(0)
            }
        )*
    };
}

exports! {
    fn nvmlInit_v2() { start() }
    fn nvmlInit() { start() }
    fn nvmlInitWithFlags(_flags: u32) { start() }

    fn nvmlShutdown() {
        let left = USERS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |users| users.checked_sub(1));
        left.map(|_| ()).map_err(|_| UNINITIALIZED)
    }

    fn nvmlSystemGetDriverVersion(out: Out<u8>, room: u32) { started()?; text(out, DRIVER_TEXT, room) }
    fn nvmlSystemGetNVMLVersion(out: Out<u8>, room: u32) { started()?; text(out, "13.580.00", room) }
    fn nvmlSystemGetCudaDriverVersion(out: Out<i32>) { set(out, DRIVER_VERSION) }
    fn nvmlSystemGetCudaDriverVersion_v2(out: Out<i32>) { set(out, DRIVER_VERSION) }

    fn nvmlDeviceGetCount_v2(out: Out<u32>) { started()?; set(out, machine()?.gpus() as u32) }
    fn nvmlDeviceGetCount(out: Out<u32>) { started()?; set(out, machine()?.gpus() as u32) }
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, out: Out<Device>) { by_index(index, out) }
    fn nvmlDeviceGetHandleByIndex(index: u32, out: Out<Device>) { by_index(index, out) }

    fn nvmlDeviceGetHandleByUUID(uuid: Text, out: Out<Device>) {
        started()?;
        let wanted = uuid.get().map_err(|_| INVALID_ARGUMENT)?;
        let mut all = (1..=machine()?.gpus()).filter_map(|device| Some((device, gpu(device).ok()?)));
        let (device, _) = all.find(|(_, gpu)| gpu.uuid_text() == wanted).ok_or(NOT_FOUND)?;
        set(out, device)
    }

    fn nvmlDeviceGetIndex(device: Device, out: Out<u32>) { set(out, gpu(device)?.index() as u32) }
    fn nvmlDeviceGetMinorNumber(device: Device, out: Out<u32>) { set(out, gpu(device)?.index() as u32) }
    fn nvmlDeviceGetName(device: Device, out: Out<u8>, room: u32) { gpu(device)?; text(out, NAME, room) }
    fn nvmlDeviceGetUUID(device: Device, out: Out<u8>, room: u32) { text(out, &gpu(device)?.uuid_text(), room) }

    fn nvmlDeviceGetMemoryInfo(device: Device, out: Out<Memory>) {
        let (total, used) = memory(device)?;
        set(out, Memory { total, free: total - used, used })
    }

    fn nvmlDeviceGetMemoryInfo_v2(device: Device, out: Out<MemoryV2>) {
        let (total, used) = memory(device)?;
        let version = size_of::<MemoryV2>() as u32 | 2 << 24;
        set(out, MemoryV2 { version, total, reserved: 0, free: total - used, used })
    }

    fn nvmlDeviceGetUtilizationRates(device: Device, out: Out<Utilization>) {
        let percent = gpu(device)?.update(|book| book.utilization()) as u32;
        set(out, Utilization { gpu: percent, memory: percent })
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Device, count: Out<u32>, out: Out<ProcessInfo>) {
        let (living, _) = gpu(device)?.everybody();
        let room = count.get().map_err(|_| INVALID_ARGUMENT)? as usize;
        set(count, living.len() as u32)?;
        if living.len() > room {
            return Err(INSUFFICIENT_SIZE);
        }
        for (index, slot) in living.iter().enumerate() {
            let (gpu_instance, compute_instance) = (u32::MAX, u32::MAX);
            let info = ProcessInfo { pid: slot.pid, used_bytes: slot.used_bytes, gpu_instance, compute_instance };
            out.put(index, info).map_err(|_| INVALID_ARGUMENT)?;
        }
        Ok(())
    }
}

/// `nvmlErrorString` of NVML's API.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlErrorString(code: i32) -> *const std::ffi::c_char {
    let text = match code {
        0 => c"Success",
        UNINITIALIZED => c"Uninitialized",
        INVALID_ARGUMENT => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        NOT_FOUND => c"Not Found",
        INSUFFICIENT_SIZE => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

fn machine() -> Result<&'static crate::state::State, i32> {
    state().map_err(|Code(_)| UNKNOWN)
}

fn start() -> Answer {
    machine()?;
    USERS.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

fn started() -> Answer {
    if USERS.load(Ordering::Acquire) > 0 { Ok(()) } else { Err(UNINITIALIZED) }
}

/// A handle is a GPU's number plus one.
fn gpu(device: Device) -> Result<Gpu<'static>, i32> {
    started()?;
    device.checked_sub(1).and_then(|index| machine().ok()?.gpu(index)).ok_or(INVALID_ARGUMENT)
}

fn by_index(index: u32, out: Out<Device>) -> Answer {
    let device = index as usize + 1;
    gpu(device)?;
    set(out, device)
}

fn memory(device: Device) -> Result<(u64, u64), i32> {
    let gpu = gpu(device)?;
    Ok((gpu.total_bytes(), gpu.look()))
}

fn set<T>(out: Out<T>, value: T) -> Answer {
    out.set(value).map_err(|_| INVALID_ARGUMENT)
}

fn text(out: Out<u8>, text: &str, room: u32) -> Answer {
    if text.len() >= room as usize {
        return Err(INSUFFICIENT_SIZE);
    }
    out.text(text, room as usize).map_err(|_| INVALID_ARGUMENT)
}
