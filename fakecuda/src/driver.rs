//! The driver in one process: what it opened, and every object it handed out.
//!
//! A child of a fork inherits its parent's memory but not its place on the GPU; as with the real driver, every call in it
//! fails from then on.

use crate::code::Code;
pub(crate) use crate::objects::Handle;
use crate::objects::{
    Allocation, Capture, Context, Event, Executable, Function, Graph, Green, Module, Physical, Pool, Queue,
    Reservation, Stream, Table,
};
use crate::state::{GPUS, Gpu, State, default_path, machine_from_environment};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, OnceLock};

/// Everything that this process made.
#[derive(Default)]
pub(crate) struct Process {
    last_handle: Handle,
    pub(crate) contexts: Table<Context>,
    pub(crate) primary: [Primary; GPUS],
    pub(crate) queues: [Queue; GPUS],
    pub(crate) modules: Table<Module>,
    pub(crate) functions: Table<Function>,
    pub(crate) streams: Table<Stream>,
    pub(crate) greens: Table<Green>,
    /// The default streams of threads that asked for one of their own, by context and thread.
    pub(crate) thread_streams: HashMap<(Handle, u64), Handle>,
    pub(crate) events: Table<Event>,
    pub(crate) captures: Table<Capture>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) executables: Table<Executable>,
    /// Device memory, arrays and memory opened from other processes, by address.
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    pub(crate) host_allocations: BTreeMap<u64, usize>,
    pub(crate) pools: Table<Pool>,
    pub(crate) default_pools: [Handle; GPUS],
    pub(crate) physical: Table<Physical>,
    pub(crate) reservations: BTreeMap<u64, Reservation>,
}

/// Whether this driver is one that refuses something, by its name in `FAKECUDA_REFUSES`.
pub(crate) fn refuses(what: &str) -> bool {
    std::env::var("FAKECUDA_REFUSES").is_ok_and(|names| names.split(',').any(|name| name == what))
}

/// A device's context that everybody in the process shares.
#[derive(Clone, Copy, Default)]
pub(crate) struct Primary {
    pub(crate) context: Handle,
    pub(crate) users: u32,
    pub(crate) flags: u32,
}

impl Process {
    /// A handle that was never used.
    pub(crate) fn new_handle(&mut self) -> Handle {
        // Far from small numbers, which stand for the default streams, and aligned as pointers are.
        self.last_handle += 16;
        0x0000_7fa0_0000_0000 + self.last_handle
    }
}

static INITIALIZED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);
static STATE: OnceLock<Option<State>> = OnceLock::new();
static PROCESS: LazyLock<Mutex<Process>> = LazyLock::new(Mutex::default);
static SLOTS: [OnceLock<Option<usize>>; GPUS] = [const { OnceLock::new() }; GPUS];

/// What all processes share. Opened by whoever asks first, be it NVML.
pub(crate) fn state() -> Result<&'static State, Code> {
    let opened = STATE.get_or_init(|| State::open(&default_path(), machine_from_environment()).ok());
    opened.as_ref().ok_or(Code::NO_DEVICE)
}

/// Starts the driver.
pub(crate) fn initialize() -> Result<(), Code> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Code::NOT_INITIALIZED);
    }
    state()?;
    if !INITIALIZED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler is a function of this library, and stores to an atomic, which a forked child may.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork)) };
    }
    Ok(())
}

extern "C" fn after_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Fails unless the driver was started in this very process.
pub(crate) fn require_initialized() -> Result<(), Code> {
    if INITIALIZED.load(Ordering::Acquire) && !FORKED.load(Ordering::Relaxed) {
        Ok(())
    } else {
        Err(Code::NOT_INITIALIZED)
    }
}

/// This process's objects.
pub(crate) fn process() -> Result<MutexGuard<'static, Process>, Code> {
    require_initialized()?;
    Ok(PROCESS.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Numbers of the GPUs that this process sees, in the order in which it sees them.
pub(crate) fn visible() -> Result<&'static [usize], Code> {
    static VISIBLE: OnceLock<Vec<usize>> = OnceLock::new();
    let state = state()?;
    Ok(VISIBLE.get_or_init(|| match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(list) => read_visible(state, &list),
        Err(_) => (0..state.gpus()).collect(),
    }))
}

/// Numbers and beginnings of UUIDs; the first that means no GPU ends the list, as it does with the real driver.
fn read_visible(state: &State, list: &str) -> Vec<usize> {
    let named = |word: &str| {
        let is = |index: &usize| state.gpu(*index).is_some_and(|gpu| gpu.uuid_text().starts_with(word));
        let number = word.parse().ok().filter(|index| *index < state.gpus());
        number.or_else(|| (0..state.gpus()).find(|index| word.starts_with("GPU-") && is(index)))
    };
    list.split(',').map_while(|word| named(word.trim())).collect()
}

/// A GPU by its ordinal.
pub(crate) fn gpu(device: i32) -> Result<Gpu<'static>, Code> {
    require_initialized()?;
    let index = usize::try_from(device).ok().and_then(|ordinal| visible().ok()?.get(ordinal).copied());
    index.and_then(|index| state().ok()?.gpu(index)).ok_or(Code::INVALID_DEVICE)
}

/// This process's slot on a GPU, taken when it is first needed.
pub(crate) fn slot(device: i32) -> Result<usize, Code> {
    let gpu = gpu(device)?;
    SLOTS[gpu.index()].get_or_init(|| gpu.attach()).ok_or(Code::OUT_OF_MEMORY)
}

/// Gives back what this process has, at once rather than when others notice that it ended.
fn leave() {
    if require_initialized().is_err() {
        return;
    }
    let Ok(state) = state() else { return };
    for (index, slot) in SLOTS.iter().enumerate() {
        if let (Some(Some(slot)), Some(gpu)) = (slot.get(), state.gpu(index)) {
            gpu.detach(*slot);
        }
    }
    INITIALIZED.store(false, Ordering::Release);
}

extern "C" fn at_exit() {
    let _ = std::panic::catch_unwind(leave);
}

/// Run by the loader when the process exits or the library is unloaded.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
