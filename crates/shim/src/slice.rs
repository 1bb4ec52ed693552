//! The hardware's time slices: how long a process's work runs before others get the GPU.
//!
//! The driver makes channel groups through `ioctl` on files of its own. We see each being made and remember where, and
//! set their slices with the driver's own control on the same file, when the control page says so. A slice of 0 gives
//! back what the driver had set. It takes 0.2 to 0.5 ms for each group, and happens in a launch, once per change.
//!
//! In a process that uses several GPUs, groups are not told apart, and slices are left alone.

#![cfg_attr(test, allow(dead_code, reason = "what is exported is called from outside, and not by unit tests"))]

use crate::gpu::{self, Gpu};
use crate::resolve;
use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// `_IOC_TYPE` and `_IOC_NR` of a request to the resource manager, whatever its size.
const REQUEST: c_ulong = 0xffff;
const FREE: c_ulong = 0x4629;
const CONTROL: c_ulong = 0x462a;
const ALLOCATE: c_ulong = 0x462b;
/// `_IOWR('F', 0x2a, 32 bytes)`.
const CONTROL_REQUEST: c_ulong = 0xc020_462a;

/// The class of a channel group.
const CHANNEL_GROUP: u32 = 0xa06c;
const SET_SLICE: u32 = 0xa06c_0103;
const GET_SLICE: u32 = 0xa06c_0104;

/// Channel groups that are remembered; a process of PyTorch makes four.
const GROUPS: usize = 64;

struct Group {
    /// Client and object handle; 0 for nobody.
    handles: AtomicU64,
    file: AtomicI32,
    /// What the driver had set; 0 while it was not asked.
    own_us: AtomicU64,
}

static SEEN: [Group; GROUPS] =
    [const { Group { handles: AtomicU64::new(0), file: AtomicI32::new(-1), own_us: AtomicU64::new(0) } }; GROUPS];
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The beginning of `NVOS21_PARAMETERS` and `NVOS64_PARAMETERS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Allocate {
    client: u32,
    parent: u32,
    object: u32,
    class: u32,
}

/// `NVOS00_PARAMETERS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Free {
    client: u32,
    parent: u32,
    object: u32,
    status: u32,
}

/// `NVOS54_PARAMETERS`.
#[repr(C)]
struct Control {
    client: u32,
    object: u32,
    command: u32,
    flags: u32,
    parameters: *mut u64,
    bytes: u32,
    status: u32,
}

const _: () = assert!(size_of::<Control>() == 32);

/// `ioctl` of the C library; what the driver makes by it is remembered.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn ioctl(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let result = next_ioctl(file, request, argument);
    let kind = request & REQUEST;
    if result == 0 && (kind == ALLOCATE || kind == FREE) && !argument.is_null() {
        notice(file, request, argument);
    }
    result
}

fn next_ioctl(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;
    static NEXT: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
    let mut next = NEXT.load(Ordering::Acquire);
    if next.is_null() {
        next = resolve::real_dlsym(libc::RTLD_NEXT, c"ioctl");
        NEXT.store(next, Ordering::Release);
    }
    if next.is_null() {
        // SAFETY: the kernel is handed the caller's own arguments.
        return unsafe { libc::syscall(libc::SYS_ioctl, file, request, argument) } as c_int;
    }
    // SAFETY: what comes next by the name of `ioctl` is a function of this type; it takes one argument more than two.
    let next = unsafe { std::mem::transmute::<*mut (), Ioctl>(next) };
    // SAFETY: the caller's own arguments.
    unsafe { next(file, request, argument) }
}

#[cold]
fn notice(file: c_int, request: c_ulong, argument: *mut c_void) {
    // Where the answer is depends on which of the two layouts was passed.
    let bytes = (request >> 16) & 0x3fff;
    if request & REQUEST == FREE {
        // SAFETY: the kernel has just read and written this many bytes and more there, by the number of the request.
        let free = unsafe { argument.cast::<Free>().read_unaligned() };
        if bytes == size_of::<Free>() as c_ulong && free.status == 0 {
            forget(free.client, free.object);
        }
        return;
    }
    let status_at = match bytes {
        32 => 28,
        48 => 40,
        _ => return,
    };
    let status = argument.wrapping_byte_add(status_at).cast::<u32>();
    // SAFETY: the kernel has just read and written `bytes` bytes there, of which this is inside.
    let status = unsafe { status.read_unaligned() };
    // SAFETY: as above; both layouts begin so.
    let made = unsafe { argument.cast::<Allocate>().read_unaligned() };
    if status != 0 || made.class != CHANNEL_GROUP {
        return;
    }
    let handles = u64::from(made.client) << 32 | u64::from(made.object);
    for group in &SEEN {
        if group.handles.compare_exchange(0, handles, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            group.own_us.store(0, Ordering::Relaxed);
            group.file.store(file, Ordering::Release);
            COUNT.fetch_add(1, Ordering::Relaxed);
            show();
            return;
        }
    }
}

fn forget(client: u32, object: u32) {
    for group in &SEEN {
        let handles = group.handles.load(Ordering::Acquire);
        // When a client is freed, all it had is.
        let gone = (handles >> 32) as u32 == client && (handles as u32 == object || client == object);
        if handles != 0
            && gone
            && group.handles.compare_exchange(handles, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
    }
    show();
}

/// Channel groups that the process has.
pub(crate) fn groups() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

fn show() {
    for gpu in gpu::in_use() {
        if let Some(window) = gpu.window() {
            window.own().channel_groups.store(groups(), Ordering::Relaxed);
            // What was set holds for the groups that were there; a new one is set at the next launch.
            gpu.revision.store(0, Ordering::Relaxed);
        }
    }
}

/// Sets the slice that the control page asks for.
#[cold]
pub(crate) fn apply(gpu: &Gpu) {
    static BUSY: AtomicBool = AtomicBool::new(false);
    let Some(window) = gpu.window() else { return };
    let control = window.control();
    if BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    let revision = control.half(|page| &page.revision);
    gpu.revision.store(revision, Ordering::Relaxed);
    let wanted = control.half(|page| &page.slice_us);
    let page = window.own();
    let untouched = wanted == 0 && page.slice_us.load(Ordering::Relaxed) == 0;
    if !untouched && gpu::in_use().count() == 1 {
        let mut status = 0;
        for group in SEEN.iter().filter(|group| group.handles.load(Ordering::Acquire) != 0) {
            status = set(group, u64::from(wanted)).max(status);
        }
        page.slice_capability.store(if status == 0 { 1 } else { status }, Ordering::Relaxed);
        if status == 0 {
            page.slice_us.store(wanted, Ordering::Relaxed);
        }
    }
    BUSY.store(false, Ordering::Release);
}

fn set(group: &Group, wanted: u64) -> u32 {
    let mut own = group.own_us.load(Ordering::Relaxed);
    if own == 0 {
        let status = command(group, GET_SLICE, &mut own);
        if status != 0 || own == 0 {
            return status;
        }
        group.own_us.store(own, Ordering::Relaxed);
    }
    let mut slice = if wanted == 0 { own } else { wanted };
    command(group, SET_SLICE, &mut slice)
}

/// What the driver answered, or all ones when it could not be asked.
fn command(group: &Group, command: u32, parameter: &mut u64) -> u32 {
    let handles = group.handles.load(Ordering::Acquire);
    let mut control = Control {
        client: (handles >> 32) as u32,
        object: handles as u32,
        command,
        flags: 0,
        parameters: parameter,
        bytes: size_of::<u64>() as u32,
        status: 0,
    };
    let file = group.file.load(Ordering::Acquire);
    let result = next_ioctl(file, CONTROL_REQUEST, (&raw mut control).cast());
    if result == 0 { control.status } else { u32::MAX }
}

const _: () = assert!(CONTROL_REQUEST & REQUEST == CONTROL);
