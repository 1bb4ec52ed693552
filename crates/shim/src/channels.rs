//! What the driver made for this process: channel groups, the channels in them, and what controls them.
//!
//! The driver makes them through `ioctl` on files of its own. We see each being made and remember where, so that the
//! driver's own controls can be used on the same file: [`slice`](crate::slice) and [`preempt`](crate::preempt) do.
//!
//! In a process that uses several GPUs, an object is of the GPU whose subdevice has the same parent; a subdevice is asked
//! for its GPU's UUID. What cannot be told apart is left alone.

#![cfg_attr(test, allow(dead_code, reason = "what is exported is called from outside, and not by unit tests"))]

use crate::gpu::{self, Gpu};
use crate::lookup::real_dlsym;
use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// `_IOC_TYPE` and `_IOC_NR` of a request to the resource manager, whatever its size.
const REQUEST: c_ulong = 0xffff;
const FREE: c_ulong = 0x4629;
const CONTROL: c_ulong = 0x462a;
const ALLOCATE: c_ulong = 0x462b;
/// `_IOWR('F', 0x2a, 32 bytes)`.
const CONTROL_REQUEST: c_ulong = 0xc020_462a;

/// Objects that are remembered; a process of PyTorch makes some thirty.
const OBJECTS: usize = 256;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Group,
    Channel,
    /// What makes its channel one for kernels.
    Compute,
    Subdevice,
}

impl Kind {
    /// Of an object of this class, if it is one that is remembered.
    fn of(class: u32) -> Option<Kind> {
        match class {
            0xa06c => Some(Kind::Group),
            0x2080 => Some(Kind::Subdevice),
            // Every generation of GPUs has its own: 0xc46f and 0xc5c0, 0xc56f and 0xc6c0, 0xc86f and 0xcbc0.
            0xa06f.. if class & 0xff == 0x6f => Some(Kind::Channel),
            0xa0c0.. if class & 0xff == 0xc0 => Some(Kind::Compute),
            _ => None,
        }
    }
}

/// Something that the driver made.
pub(crate) struct Object {
    /// Client and object handle; 0 for nobody.
    handles: AtomicU64,
    parent: AtomicU32,
    file: AtomicI32,
    /// 0 until the rest is there.
    class: AtomicU32,
    /// What the driver had set as its slice; 0 while it was not asked.
    pub(crate) own_us: AtomicU64,
}

static SEEN: [Object; OBJECTS] = [const {
    Object {
        handles: AtomicU64::new(0),
        parent: AtomicU32::new(0),
        file: AtomicI32::new(-1),
        class: AtomicU32::new(0),
        own_us: AtomicU64::new(0),
    }
}; OBJECTS];

impl Object {
    pub(crate) fn client(&self) -> u32 {
        (self.handles.load(Ordering::Acquire) >> 32) as u32
    }

    pub(crate) fn handle(&self) -> u32 {
        self.handles.load(Ordering::Acquire) as u32
    }

    /// The device that it is of, if it is a group or a subdevice: client and handle.
    fn device(&self) -> (u32, u32) {
        (self.client(), self.parent.load(Ordering::Relaxed))
    }

    /// The UUID of a subdevice's GPU.
    fn uuid(&self) -> Option<[u8; 16]> {
        let mut identity = Identity { index: 0, flags: BINARY, length: 0, data: [0; 256] };
        let status = self.control(GET_IDENTITY, &mut identity);
        let known = status == 0 && identity.length as usize == size_of::<[u8; 16]>();
        known.then(|| identity.data.first_chunk().copied()).flatten()
    }

    /// Calls a control of it. What the driver answered, or all ones when it could not be asked.
    pub(crate) fn control<T>(&self, command: u32, parameters: &mut T) -> u32 {
        let mut control = Control {
            client: self.client(),
            object: self.handle(),
            command,
            flags: 0,
            parameters: std::ptr::from_mut(parameters).cast(),
            bytes: size_of::<T>() as u32,
            status: 0,
        };
        let result = next_ioctl(self.file.load(Ordering::Acquire), CONTROL_REQUEST, (&raw mut control).cast());
        if result == 0 { control.status } else { u32::MAX }
    }
}

/// All of a kind that are there.
pub(crate) fn all(kind: Kind) -> impl Iterator<Item = &'static Object> {
    SEEN.iter().filter(move |object| Kind::of(object.class.load(Ordering::Acquire)) == Some(kind))
}

/// All of a kind, groups or channels, that are of this GPU.
pub(crate) fn all_of(kind: Kind, gpu: &Gpu) -> impl Iterator<Item = &'static Object> {
    let subdevices = subdevices_of(gpu);
    all(kind).filter(move |object| {
        let Some(subdevices) = &subdevices else { return true };
        let device = match kind {
            Kind::Channel => group_of((object.client(), object.handle())).and_then(device_of),
            _ => Some(object.device()),
        };
        device.is_some_and(|device| subdevices.iter().any(|subdevice| subdevice.device() == device))
    })
}

/// The subdevice of a GPU that this client has.
pub(crate) fn subdevice(gpu: &Gpu, client: u32) -> Option<&'static Object> {
    let of_gpu = subdevices_of(gpu).unwrap_or_else(|| all(Kind::Subdevice).collect());
    of_gpu.into_iter().find(|subdevice| subdevice.client() == client)
}

/// The subdevices of a GPU; `None` where there is no need to tell them apart.
fn subdevices_of(gpu: &Gpu) -> Option<Vec<&'static Object>> {
    let uuid = gpu.link.uuid();
    let of_gpu = |subdevice: &&Object| uuid.is_some() && subdevice.uuid() == uuid;
    (!gpu::is_only(gpu)).then(|| all(Kind::Subdevice).filter(of_gpu).collect())
}

/// The device that a group is of, by client and handle.
fn device_of(group: (u32, u32)) -> Option<(u32, u32)> {
    let found = all(Kind::Group).find(|other| (other.client(), other.handle()) == group)?;
    Some(found.device())
}

/// Whether there is an object of this kind, by its client and handle.
pub(crate) fn is_there(kind: Kind, object: (u32, u32)) -> bool {
    all(kind).any(|other| (other.client(), other.handle()) == object)
}

/// The group of a channel, by client and handle.
pub(crate) fn group_of(channel: (u32, u32)) -> Option<(u32, u32)> {
    let found = all(Kind::Channel).find(|other| (other.client(), other.handle()) == channel)?;
    Some((channel.0, found.parent.load(Ordering::Relaxed)))
}

/// How many of a kind there are.
pub(crate) fn count(kind: Kind) -> u32 {
    all(kind).count() as u32
}

/// `NV2080_CTRL_CMD_GPU_GET_GID_INFO`, and its answer as bytes.
const GET_IDENTITY: u32 = 0x2080_014a;
const BINARY: u32 = 2;

/// Parameters of [`GET_IDENTITY`].
#[repr(C)]
struct Identity {
    index: u32,
    flags: u32,
    length: u32,
    data: [u8; 256],
}

const _: () = assert!(size_of::<Identity>() == 268);

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
    parameters: *mut c_void,
    bytes: u32,
    status: u32,
}

const _: () = assert!(size_of::<Control>() == 32);
const _: () = assert!(CONTROL_REQUEST & REQUEST == CONTROL);

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
        next = real_dlsym(libc::RTLD_NEXT, c"ioctl");
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
    if status == 0 && Kind::of(made.class).is_some() {
        remember(file, made);
    }
}

fn remember(file: c_int, made: Allocate) {
    let handles = u64::from(made.client) << 32 | u64::from(made.object);
    for object in &SEEN {
        if object.handles.compare_exchange(0, handles, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            object.own_us.store(0, Ordering::Relaxed);
            object.parent.store(made.parent, Ordering::Relaxed);
            object.file.store(file, Ordering::Relaxed);
            object.class.store(made.class, Ordering::Release);
            show();
            return;
        }
    }
}

fn forget(client: u32, handle: u32) {
    for object in &SEEN {
        let handles = object.handles.load(Ordering::Acquire);
        let its = handles as u32 == handle || object.parent.load(Ordering::Relaxed) == handle;
        // When a client is freed, all it had is.
        let gone = (handles >> 32) as u32 == client && (its || client == handle);
        if handles != 0 && gone {
            object.class.store(0, Ordering::Release);
            let _ = object.handles.compare_exchange(handles, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
    show();
}

fn show() {
    for gpu in gpu::in_use() {
        if let Some(window) = gpu.window() {
            show_in(window.own());
            // What was set holds for the groups that were there; a new one is set at the next launch.
            gpu.revision.store(0, Ordering::Relaxed);
        }
    }
}

/// Says on a page what there is.
pub(crate) fn show_in(page: &shm::TenantPage) {
    page.channel_groups.store(count(Kind::Group), Ordering::Relaxed);
    page.channels.store(count(Kind::Channel), Ordering::Relaxed);
}

/// The channels of the groups that kernels run in; all of them where that is not known. What the others do is copy.
pub(crate) fn of_kernels(gpu: &Gpu) -> impl Iterator<Item = &'static Object> {
    let parent = |object: &Object| object.parent.load(Ordering::Relaxed);
    let knows = count(Kind::Compute) > 0;
    all_of(Kind::Channel, gpu).filter(move |channel| {
        let same_group = |other: &&Object| other.client() == channel.client() && parent(other) == parent(channel);
        let computes = |other: &Object| {
            all(Kind::Compute).any(|object| object.client() == other.client() && parent(object) == other.handle())
        };
        !knows || all(Kind::Channel).filter(same_group).any(computes)
    })
}
