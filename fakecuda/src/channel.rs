//! Channel groups, and the resource manager's calls on them.
//!
//! When a context is made, the real driver asks the kernel for channel groups through `ioctl` on its device file, and the
//! groups take the calls that set time slices. So does this one: it calls libc's `ioctl`, where others may watch, on a file
//! of its own, and [`trap`](crate::trap) brings calls on any file that look like the resource manager's back here.
//!
//! A context has four groups. The first is the one its kernels run in; what is set on the others is kept and has no effect.
//! Taking a group off the schedule holds its process's queue. The interleave level is kept, and refused to ordinary users.
//!
//! Each group has two channels. Those of the first have an object for kernels each. Disabling them, by a control of the
//! subdevice, holds the process's queue as well, when all of the first group's are.
//!
//! A real GPU whose channels were disabled with `scheduling_only`, and whose group was not preempted since, now and then does
//! not go on when they are enabled (`bench/hardware/doorbell.c`). This one never does: whoever forgets to preempt the group
//! is found out.

use crate::driver;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// `_IOWR('F', 0x2b)` with 48 bytes.
const ALLOCATE: u64 = 0xc030_462b;
const CHANNEL_GROUP: u32 = 0xa06c;
const CHANNEL: u32 = 0xc86f;
const COMPUTE: u32 = 0xcbc0;
const SUBDEVICE: u32 = 0x2080;
const GROUPS: u32 = 4;
const CHANNELS: u32 = 2;

const DISABLE_CHANNELS: u32 = 0x2080_110b;
/// As many as one call takes, and how many bytes that is.
const DISABLED_MOST: usize = 64;
const DISABLE_BYTES: usize = 536;
const GET_IDENTITY: u32 = 0x2080_014a;
const IDENTITY_BYTES: usize = 268;
/// Of what is asked for there, as bytes.
const BINARY: u32 = 2;

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
    /// Its channels were disabled with `scheduling_only`, and it was not preempted since.
    unsettled: bool,
}

#[derive(Clone, Copy)]
struct Channel {
    client: u32,
    object: u32,
    group: u32,
    disabled: bool,
}

#[derive(Clone, Copy)]
struct Subdevice {
    client: u32,
    object: u32,
    device: i32,
}

static GROUPS_MADE: Mutex<Vec<Group>> = Mutex::new(Vec::new());
static CHANNELS_MADE: Mutex<Vec<Channel>> = Mutex::new(Vec::new());
static SUBDEVICES_MADE: Mutex<Vec<Subdevice>> = Mutex::new(Vec::new());

fn groups() -> MutexGuard<'static, Vec<Group>> {
    GROUPS_MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn channels() -> MutexGuard<'static, Vec<Channel>> {
    CHANNELS_MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn subdevices() -> MutexGuard<'static, Vec<Subdevice>> {
    SUBDEVICES_MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that stands for the device's.
fn device_file() -> RawFd {
    static FILE: OnceLock<RawFd> = OnceLock::new();
    *FILE.get_or_init(|| {
        // SAFETY: the name is text that ends with a zero byte.
        unsafe { libc::memfd_create(c"nvidiactl".as_ptr(), libc::MFD_CLOEXEC) }
    })
}

/// Makes a context's channel groups, where calls on them are answered.
pub(crate) fn open(device: i32) {
    // Objects are numbered by how many there are.
    static OPENING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    let client = 0xc1d0_0000 | std::process::id() & 0xffff;
    let first = 0x5c00_0000 | groups().len() as u32;
    let make = |parent: u32, object: u32, class: u32| {
        let mut call = Allocate { client, parent, object, class, ..Allocate::default() };
        // SAFETY: the call's argument is a whole `Allocate`, which whoever answers reads and writes; it outlives the call.
        unsafe { libc::ioctl(device_file(), ALLOCATE, &raw mut call) };
    };
    let parent = 0x5c00_8000 | device as u32;
    make(parent, parent | 0x1_0000, SUBDEVICE);
    for number in 0..GROUPS {
        let group = first + number;
        make(parent, group, CHANNEL_GROUP);
        for channel in 0..CHANNELS {
            let channel = 0x5d00_0000 | (group & 0xff_ffff) << 4 | channel;
            make(group, channel, CHANNEL);
            if number == 0 {
                make(channel, channel | 0x0200_0000, COMPUTE);
            }
        }
    }
}

/// Whether a call is the resource manager's, whatever the size it says its argument has.
pub(crate) fn is_ours(request: u64) -> bool {
    matches!(request & 0xffff, 0x462a | 0x462b)
}

/// Answers an allocation.
pub(crate) fn allocate(call: &mut Allocate) {
    call.status = SUCCESS;
    let Allocate { client, object, parent, .. } = *call;
    match call.class {
        CHANNEL_GROUP => {
            let device = (parent & 0xff) as i32;
            let compute = object & 3 == 0;
            let slice_us = if compute { crate::book::SLICE_NS / 1000 } else { 1024 };
            groups().push(Group { client, object, device, slice_us, compute, unsettled: false });
        }
        CHANNEL => channels().push(Channel { client, object, group: parent, disabled: false }),
        SUBDEVICE => subdevices().push(Subdevice { client, object, device: (parent & 0xff) as i32 }),
        _ => {}
    }
}

/// What the parameters of a control are, as a number, and what becomes of it; and all of them, for those that have more.
pub(crate) struct Parameters {
    pub(crate) value: u64,
    pub(crate) words: [u32; DISABLE_BYTES / 4],
}

impl Parameters {
    pub(crate) const EMPTY: Parameters = Parameters { value: 0, words: [0; DISABLE_BYTES / 4] };
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
    let is_it = |subdevice: &Subdevice| subdevice.client == call.client && subdevice.object == call.object;
    let subdevice = subdevices().iter().copied().find(is_it);
    match (call.command, subdevice) {
        (DISABLE_CHANNELS, Some(subdevice)) => return disable(call, subdevice, &parameters.words),
        (GET_IDENTITY, Some(subdevice)) => return identity(call, subdevice, &mut parameters.words),
        _ => {}
    }
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
        0xa06c_0105 if driver::refuses("group") => return Err(INSUFFICIENT_PERMISSIONS),
        0xa06c_0105 => {
            group.unsettled = false;
            let held = is_disabled(group, &channels());
            change(group, |book, slot| {
                book.slots[slot].held = u32::from(held);
                book.preempt(slot);
            });
        }
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

/// The UUID of a subdevice's GPU, as bytes.
fn identity(call: &Control, subdevice: Subdevice, words: &mut [u32]) -> Result<(), u32> {
    if driver::refuses("identity") {
        return Err(INSUFFICIENT_PERMISSIONS);
    }
    if call.parameter_bytes as usize != IDENTITY_BYTES || words[1] & 3 != BINARY {
        return Err(INVALID_ARGUMENT);
    }
    let uuid = driver::gpu(subdevice.device).map_err(|_| INVALID_OBJECT)?.uuid();
    words[2] = uuid.len() as u32;
    for (word, bytes) in words[3..].iter_mut().zip(uuid.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    Ok(())
}

fn disable(call: &Control, subdevice: Subdevice, words: &[u32]) -> Result<(), u32> {
    if driver::refuses("preempt") {
        return Err(INSUFFICIENT_PERMISSIONS);
    }
    let (off, count, scheduling_only) = (words[0] & 0xff != 0, words[1] as usize, words[2] & 0xff != 0);
    if call.parameter_bytes as usize != DISABLE_BYTES || count > DISABLED_MOST {
        return Err(INVALID_ARGUMENT);
    }
    let named: Vec<(u32, u32)> = (0..count).map(|index| (words[6 + index], words[6 + DISABLED_MOST + index])).collect();
    let mut groups = groups();
    let mut channels = channels();
    let is_there = |channel: &(u32, u32)| channels.iter().any(|other| (other.client, other.object) == *channel);
    let is_its = |channel: &(u32, u32)| {
        let group = channels.iter().find(|other| (other.client, other.object) == *channel).map(|other| other.group);
        groups.iter().any(|other| Some(other.object) == group && other.device == subdevice.device)
    };
    if !named.iter().all(|channel| is_there(channel) && is_its(channel)) {
        return Err(INVALID_OBJECT);
    }
    for channel in channels.iter_mut().filter(|channel| named.contains(&(channel.client, channel.object))) {
        channel.disabled = off;
    }
    for group in groups.iter_mut() {
        let disabled = is_disabled(group, &channels);
        if off && disabled {
            group.unsettled = scheduling_only;
        }
        let held = disabled || group.unsettled;
        change(group, |book, slot| book.slots[slot].held = u32::from(held));
    }
    Ok(())
}

fn is_disabled(group: &Group, channels: &[Channel]) -> bool {
    channels.iter().filter(|channel| channel.group == group.object).all(|channel| channel.disabled)
}

fn change(group: &Group, change: impl FnOnce(&mut crate::book::Book, usize)) {
    if !group.compute {
        return;
    }
    if let (Ok(gpu), Ok(slot)) = (driver::gpu(group.device), driver::slot(group.device)) {
        gpu.update(|book| change(book, slot));
    }
}
