//! The real driver: where its functions are, and the few that we call ourselves.
//!
//! The driver is opened by its name, as runtimes do it, which finds the one that is loaded already; programs load it late
//! and out of sight of `RTLD_NEXT`.

use crate::lookup::{is_ours, real_dlsym};
use crate::table::{Entry, HOOKS, Library, TABLE};
use crate::types::{Context, CuResult, Device, Event, Function, Graph, LaunchConfig, Opaque, SUCCESS, Stream};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The real function of a row; null when its library has none of this name.
#[cold]
pub(crate) fn find(entry: Entry) -> *mut () {
    let row = &TABLE[entry as usize];
    let Ok(name) = CString::new(row.name) else { return std::ptr::null_mut() };
    let found = symbol(row.library, &name, true);
    if !found.is_null() {
        HOOKS.real[entry as usize].store(found, Ordering::Release);
    }
    found
}

/// The real function of a row if its library is loaded.
pub(crate) fn known(index: usize) -> *mut () {
    let found = HOOKS.real[index].load(Ordering::Acquire);
    if !found.is_null() {
        return found;
    }
    let Ok(name) = CString::new(TABLE[index].name) else { return std::ptr::null_mut() };
    let found = symbol(TABLE[index].library, &name, false);
    if !found.is_null() {
        HOOKS.real[index].store(found, Ordering::Release);
    }
    found
}

fn symbol(library: Library, name: &CStr, load: bool) -> *mut () {
    static CUDA: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    static NVML: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let (slot, file) = match library {
        Library::Cuda => (&CUDA, c"libcuda.so.1"),
        Library::Nvml => (&NVML, c"libnvidia-ml.so.1"),
    };
    let mut handle = slot.load(Ordering::Acquire);
    if handle.is_null() {
        let flags = libc::RTLD_LAZY | if load { 0 } else { libc::RTLD_NOLOAD };
        // SAFETY: the name is a C string. Loading the driver runs what it runs when the program loads it.
        handle = unsafe { libc::dlopen(file.as_ptr(), flags) };
        if handle.is_null() {
            return std::ptr::null_mut();
        }
        slot.store(handle, Ordering::Release);
    }
    let found = real_dlsym(handle, name);
    // With a stub of the driver that is ourselves under another name there is no driver.
    if is_ours(found) { std::ptr::null_mut() } else { found }
}

macro_rules! driver_calls {
    ($($(#[$doc:meta])* $library:ident fn $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        $(#[$doc])*
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's name and signature")]
        pub(crate) fn $name($($argument: $type),*) -> CuResult {
            static SLOT: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
            let mut real = SLOT.load(Ordering::Acquire);
            if real.is_null() {
                let name = concat!(stringify!($name), "\0");
                let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else { return MISSING };
                real = symbol(Library::$library, name, true);
                if real.is_null() {
                    return MISSING;
                }
                SLOT.store(real, Ordering::Release);
            }
            type Real = unsafe extern "C" fn($($type),*) -> CuResult;
            // SAFETY: `real` is what the driver's library gives for this name, whose type in its header is `Real`.
            let real = unsafe { std::mem::transmute::<*mut (), Real>(real) };
            // SAFETY: handles came from the driver, and pointers are to values of the callers below that live until the
            // call returns.
            unsafe { real($($argument),*) }
        }
    )*};
}

/// The driver has no such function.
const MISSING: CuResult = -1;

driver_calls! {
    Cuda fn cuCtxGetDevice(device: &mut c_int);
    Cuda fn cuCtxGetCurrent(context: &mut usize);
    Cuda fn cuDeviceGetUuid(uuid: &mut [u8; 16], device: Device);
    Cuda fn cuDeviceGetUuid_v2(uuid: &mut [u8; 16], device: Device);
    Cuda fn cuEventCreate(event: &mut usize, flags: c_uint);
    Cuda fn cuEventRecord(event: Event, stream: Stream);
    Cuda fn cuEventQuery(event: Event);
    Cuda fn cuEventElapsedTime(milliseconds: &mut f32, start: Event, end: Event);
    Cuda fn cuStreamWaitEvent(stream: Stream, event: Event, flags: c_uint);
    Cuda fn cuStreamSynchronize(stream: Stream);
    Cuda fn cuStreamQuery(stream: Stream);
    Cuda fn cuStreamGetDevice(stream: Stream, device: &mut c_int);
    Cuda fn cuCtxPushCurrent_v2(context: usize);
    Cuda fn cuCtxPopCurrent_v2(context: &mut usize);
    Cuda fn cuDeviceGetDevResource(device: Device, resource: &mut SmResource, kind: c_uint);
    Cuda fn cuDevSmResourceSplitByCount(some: &mut SmResource, groups: &mut c_uint, all: &SmResource, rest: &mut SmResource, flags: c_uint, least: c_uint);
    Cuda fn cuDevResourceGenerateDesc(description: &mut usize, resources: &mut SmResource, count: c_uint);
    Cuda fn cuGreenCtxCreate(context: &mut usize, description: usize, device: Device, flags: c_uint);
    Cuda fn cuGreenCtxStreamCreate(stream: &mut usize, context: usize, flags: c_uint, priority: c_int);
    Cuda fn cuCtxFromGreenCtx(context: &mut usize, green: usize);
    Cuda fn cuLaunchKernel(
        f: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Stream, parameters: Opaque, extra: Opaque);
    Cuda fn cuLaunchKernelEx(config: &LaunchConfig, f: Function, parameters: Opaque, extra: Opaque);
    Cuda fn cuGraphGetNodes(graph: Graph, nodes: *mut usize, count: &mut usize);
    Cuda fn cuGraphNodeGetType(node: usize, kind: &mut c_int);
    Cuda fn cuGraphChildGraphNodeGetGraph(node: usize, graph: &mut usize);
    Nvml fn nvmlDeviceGetUUID(device: usize, text: *mut c_char, length: c_uint);
}

/// `CUdevResource` for SMs, with room for what later drivers add.
#[repr(C, align(8))]
pub(crate) struct SmResource([u32; 64]);

impl SmResource {
    pub(crate) const NONE: SmResource = SmResource([0; 64]);

    /// How many SMs: the first word after the type and what is the driver's own.
    pub(crate) fn sms(&self) -> u32 {
        self.0[24]
    }
}

/// The device of the current context.
pub(crate) fn current_device() -> Option<Device> {
    let mut device = -1;
    (cuCtxGetDevice(&mut device) == SUCCESS).then_some(Device(device))
}

/// The device of a stream.
pub(crate) fn device_of(stream: Stream) -> Option<Device> {
    let mut device = -1;
    (cuStreamGetDevice(stream, &mut device) == SUCCESS).then_some(Device(device))
}

/// The current context.
pub(crate) fn current_context() -> Option<Context> {
    let mut context = 0;
    (cuCtxGetCurrent(&mut context) == SUCCESS && context != 0).then_some(Context(context))
}

/// The UUID of a device. The newer call knows parts of a GPU apart.
pub(crate) fn uuid(device: Device) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    let found = cuDeviceGetUuid_v2(&mut uuid, device) == SUCCESS || cuDeviceGetUuid(&mut uuid, device) == SUCCESS;
    found.then_some(uuid)
}

/// The UUID of a device of NVML, which says it as text: `GPU-` and 32 digits in groups.
pub(crate) fn nvml_uuid(device: usize) -> Option<[u8; 16]> {
    let mut text = [0u8; 96];
    if nvmlDeviceGetUUID(device, text.as_mut_ptr().cast(), text.len() as c_uint) != SUCCESS {
        return None;
    }
    parse_uuid(CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?)
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let mut digits = text.strip_prefix("GPU-")?.chars().filter(|character| *character != '-');
    let mut uuid = [0; 16];
    for byte in &mut uuid {
        let (high, low) = (digits.next()?.to_digit(16)?, digits.next()?.to_digit(16)?);
        *byte = (high * 16 + low) as u8;
    }
    digits.next().is_none().then_some(uuid)
}

/// The nodes of a graph, none when it has more than can be looked at.
pub(crate) fn nodes(graph: Graph) -> Vec<usize> {
    const MOST: usize = 1 << 20;
    let mut count = 0;
    if cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) != SUCCESS || count == 0 || count > MOST {
        return Vec::new();
    }
    let mut nodes = vec![0; count];
    if cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) != SUCCESS {
        return Vec::new();
    }
    nodes.truncate(count);
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_read_from_text() {
        let text = "GPU-00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(parse_uuid(text).unwrap()[..3], [0x00, 0x11, 0x22]);
        for bad in ["", "GPU-", "MIG-00112233-4455-6677-8899-aabbccddeeff", "GPU-0011", &format!("{text}0")] {
            assert_eq!(parse_uuid(bad), None, "{bad}");
        }
    }
}
