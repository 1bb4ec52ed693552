//! Channel groups, and the resource manager's calls on them.
//!
//! When a context is made, the real driver asks the kernel for channel groups through `ioctl` on its device file, and the
//! groups take the calls that set time slices. So does this one: it calls libc's `ioctl`, where others may watch, on a file
//! of its own, and [`trap`](crate::trap) brings calls on any file that look like the resource manager's back here.
//!
//! A context has four groups. The first is the one its kernels run in; what is set on the others is kept and has no effect.
//! Taking a group off the schedule holds its process's queue. The interleave level is kept, and refused to ordinary users.

use crate::driver;
use crate::trap;
use std::os::fd::RawFd;
use std::sync::{Mutex, OnceLock, PoisonError};

/// `_IOWR('F', 0x2b)` with 48 bytes.
const ALLOCATE: u64 = 0xc030_462b;
const CHANNEL_GROUP: u32 = 0xa06c;
const GROUPS: u32 = 4;

const SUCCESS: u32 = 0;
const INSUFFICIENT_PERMISSIONS: u32 = 0x1b;
const INVALID_ARGUMENT: u32 = 0x1f;
const INVALID_OBJECT: u32 = 0x33;
const NOT_SUPPORTED: u32 = 0x56;

/// What `CONTROL` takes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Control {
    client: u32,
    object: u32,
    command: u32,
    flags: u32,
    parameters: u64,
    parameter_bytes: u32,
    status: u32,
}

/// What `ALLOCATE` takes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Allocate {
    client: u32,
    parent: u32,
    object: u32,
    class: u32,
    parameters: u64,
    rights: u64,
    parameter_bytes: u32,
    flags: u32,
    status: u32,
    padding: u32,
}

#[derive(Clone, Copy)]
struct Group {
    client: u32,
    object: u32,
    device: i32,
    slice_us: u64,
    /// Whether kernels run in it.
    compute: bool,
}

static GROUPS_MADE: Mutex<Vec<Group>> = Mutex::new(Vec::new());

fn groups() -> std::sync::MutexGuard<'static, Vec<Group>> {
    GROUPS_MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that stands for the device's.
fn device_file() -> RawFd {
    static FILE: OnceLock<RawFd> = OnceLock::new();
    *FILE.get_or_init(|| {
        // SAFETY: the name is text that ends with a zero byte.
        unsafe { libc::memfd_create(c"nvidiactl".as_ptr(), libc::MFD_CLOEXEC) }
    })
}

/// Makes a context's channel groups.
pub(crate) fn open(device: i32) {
    if !trap::install() {
        return;
    }
    let client = 0xc1d0_0000 | std::process::id() & 0xffff;
    let first = 0x5c00_0000 | groups().len() as u32;
    for number in 0..GROUPS {
        let parent = 0x5c00_8000 | device as u32;
        let mut call = Allocate { client, parent, object: first + number, class: CHANNEL_GROUP, ..Allocate::default() };
        // SAFETY: the call's argument is a whole `Allocate`, which whoever answers reads and writes; it outlives the call.
        unsafe { libc::ioctl(device_file(), ALLOCATE, &raw mut call) };
    }
}

/// Whether a call is the resource manager's, whatever the size it says its argument has.
pub(crate) fn is_ours(request: u64) -> bool {
    matches!(request & 0xffff, 0x462a | 0x462b)
}

/// Answers an allocation.
pub(crate) fn allocate(call: &mut Allocate) {
    call.status = SUCCESS;
    if call.class != CHANNEL_GROUP {
        return;
    }
    let device = (call.parent & 0xff) as i32;
    let compute = call.object & 3 == 0;
    let slice_us = if compute { crate::book::SLICE_NS / 1000 } else { 1024 };
    groups().push(Group { client: call.client, object: call.object, device, slice_us, compute });
}

/// What the parameters of a control are, as a number, and what becomes of it.
pub(crate) struct Parameters {
    pub(crate) value: u64,
}

/// The address and the size of a control's parameters.
pub(crate) fn parameters(call: &Control) -> (u64, usize) {
    (call.parameters, call.parameter_bytes as usize)
}

/// Answers a control. The parameters' first bytes come as a number, and a number that was asked for goes back.
pub(crate) fn control(call: &mut Control, parameters: &mut Parameters) {
    call.status = answer(call, parameters).err().unwrap_or(SUCCESS);
}

fn answer(call: &Control, parameters: &mut Parameters) -> Result<(), u32> {
    let mut groups = groups();
    let group = groups.iter_mut().find(|group| group.client == call.client && group.object == call.object);
    let group = group.ok_or(INVALID_OBJECT)?;
    let first_byte = parameters.value as u8;
    match call.command {
        0xa06c_0103 if driver::refuses("slices") => return Err(INSUFFICIENT_PERMISSIONS),
        0xa06c_0103 => {
            if parameters.value == 0 || parameters.value > 1_000_000_000 {
                return Err(INVALID_ARGUMENT);
            }
            group.slice_us = parameters.value;
            let slice_ns = parameters.value * 1000;
            change(group, |book, slot| book.slots[slot].slice_ns = slice_ns);
        }
        0xa06c_0104 => parameters.value = group.slice_us,
        0xa06c_0105 => change(group, crate::book::Book::preempt),
        0xa06c_0101 => change(group, |book, slot| book.slots[slot].held = u32::from(first_byte == 0)),
        0xa06c_0107 => {
            // SAFETY: reads this process's user id, and cannot fail.
            if unsafe { libc::geteuid() } != 0 {
                return Err(INSUFFICIENT_PERMISSIONS);
            }
            let level = parameters.value & 0xffff_ffff;
            if level > 2 {
                return Err(INVALID_ARGUMENT);
            }
            change(group, |book, slot| book.slots[slot].interleave = level);
        }
        _ => return Err(NOT_SUPPORTED),
    }
    Ok(())
}

fn change(group: &Group, change: impl FnOnce(&mut crate::book::Book, usize)) {
    if !group.compute {
        return;
    }
    if let (Ok(gpu), Ok(slot)) = (driver::gpu(group.device), driver::slot(group.device)) {
        gpu.update(|book| change(book, slot));
    }
}
