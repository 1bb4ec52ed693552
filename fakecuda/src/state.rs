//! What all processes share: a file with a record for every GPU, mapped by each of them.
//!
//! Any process may be killed at any moment, also in the middle of a change. Invariants:
//! 1. A record is only touched under its lock, a robust mutex: when its owner dies, the kernel hands it to whoever waits.
//! 2. There are two books, and `active` names the one that counts. A change is made in the other, a copy, and counts from
//!    the one store that flips `active`. A process that dies before that has changed nothing.
//! 3. Histories and graves are rings whose lengths are in the book (`turns`, `buried`): an entry past the length does not
//!    exist yet, and writing it changes nothing until the book counts it.
//! 4. The file appears under its name complete, by one `link`.
//!
//! What they do not cover: a process stopped by SIGSTOP inside a change, which takes less than a microsecond, holds up the
//! others until it goes on.

use crate::book::{Book, SLOTS, Slot, Turn};
use crate::clock::now_ns;
use crate::liveness;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The most GPUs a machine can have here.
pub const GPUS: usize = 16;
/// Processes that left and are still remembered, for each GPU.
pub const GRAVES: usize = 1024;
/// Turns that are remembered, for each process; more are needed only to date events that nobody asked about for long.
const HISTORY: usize = 1024;
/// How often it is looked whether processes are alive.
const LOOK_NS: u64 = 1_000_000;
const MAGIC: u64 = u64::from_le_bytes(*b"fakecuda");
const VERSION: u32 = 1;

#[repr(C)]
struct Header {
    magic: u64,
    version: u32,
    gpus: u32,
}

/// The beginning of a turn.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Beginning {
    began_ns: u64,
    given_ns: u64,
}

#[repr(C, align(64))]
struct Record {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    total_bytes: u64,
    uuid: [u8; 16],
    active: AtomicU32,
    books: [UnsafeCell<Book>; 2],
    histories: UnsafeCell<[[Beginning; HISTORY]; SLOTS]>,
    graves: UnsafeCell<[Slot; GRAVES]>,
}

/// The mapped file.
pub struct State {
    header: &'static Header,
    records: *const Record,
    file: File,
}

// SAFETY: `records` points into a mapping that is never unmapped, and records are only touched under their locks
// (invariant 1), so that any thread may hold and use the value.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

/// One GPU of the state.
#[derive(Clone, Copy)]
pub struct Gpu<'a> {
    index: usize,
    record: &'a Record,
    file: RawFd,
}

/// How the machine is made up, for whoever makes the file.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// How many GPUs.
    pub gpus: usize,
    /// Memory of each, in bytes.
    pub memory_bytes: u64,
}

/// The file that `FAKECUDA_STATE` names, else one for the user in memory.
pub fn default_path() -> PathBuf {
    if let Some(path) = std::env::var_os("FAKECUDA_STATE") {
        return path.into();
    }
    // SAFETY: reads this process's user id, and cannot fail.
    let user = unsafe { libc::getuid() };
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    folder.join(format!("fakecuda-{user}"))
}

impl State {
    /// Opens the file, and makes it if there is none. The machine is what its first process said.
    pub fn open(path: &Path, machine: Machine) -> Result<State> {
        for _ in 0..16 {
            match OpenOptions::new().read(true).write(true).open(path) {
                Ok(file) if file.metadata()?.len() == file_bytes() => {
                    let state = State::map(file)?;
                    if state.header.magic == MAGIC && state.header.version == VERSION {
                        return Ok(state);
                    }
                    std::fs::remove_file(path)?;
                }
                // Another version's: its processes keep theirs, new ones begin anew.
                Ok(_) => std::fs::remove_file(path)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => State::create(path, machine)?,
                Err(error) => return Err(error),
            }
        }
        Err(Error::other("the state file keeps changing"))
    }

    /// How many GPUs the machine has.
    pub fn gpus(&self) -> usize {
        self.header.gpus as usize
    }

    /// One of its GPUs.
    pub fn gpu(&self, index: usize) -> Option<Gpu<'_>> {
        if index >= self.gpus() {
            return None;
        }
        let record = self.records.wrapping_add(index);
        // SAFETY: `records` are `GPUS` records in a mapping that is never unmapped, `gpus()` is at most that, and a
        // record's parts are atomics, constants, or cells that are only touched under the record's lock.
        let record = unsafe { &*record };
        Some(Gpu { index, record, file: self.file.as_raw_fd() })
    }

    fn create(path: &Path, machine: Machine) -> Result<()> {
        let temporary = path.with_extension(format!("{}-{}", std::process::id(), now_ns()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o666).open(&temporary)?;
        let made = State::fill(file, machine).and_then(|()| {
            match std::fs::hard_link(&temporary, path) {
                // Somebody else was quicker; theirs is as good.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
                other => other,
            }
        });
        std::fs::remove_file(&temporary)?;
        made
    }

    fn fill(file: File, machine: Machine) -> Result<()> {
        file.set_len(file_bytes())?;
        let start = map(&file)?;
        for index in 0..GPUS {
            let record = record_at(start, index);
            // SAFETY: `record` is a place for a record in a mapping as large as the file, which no other process can
            // find yet; the lock's address is inside it.
            let lock = unsafe { &raw mut (*record).lock };
            init_lock(lock.cast())?;
            let total = record.cast::<u8>().wrapping_add(offset_of!(Record, total_bytes)).cast::<u64>();
            // SAFETY: as above, the place of the record's total.
            unsafe { total.write(machine.memory_bytes) };
            let identity = record.cast::<u8>().wrapping_add(offset_of!(Record, uuid)).cast::<[u8; 16]>();
            // SAFETY: as above, the place of the record's identity.
            unsafe { identity.write(uuid(index)) };
            let books = record.cast::<u8>().wrapping_add(offset_of!(Record, books)).cast::<Book>();
            for book in 0..2 {
                // SAFETY: as above, the place of one of the record's two books.
                unsafe { books.wrapping_add(book).write(Book::new(now_ns())) };
            }
        }
        let gpus = machine.gpus.clamp(1, GPUS) as u32;
        // SAFETY: the mapping begins with a place for the header.
        unsafe { start.cast::<Header>().write(Header { magic: MAGIC, version: VERSION, gpus }) };
        // SAFETY: exactly the mapping made above, to which nothing refers any more.
        unsafe { libc::munmap(start.cast(), file_bytes() as usize) };
        Ok(())
    }

    fn map(file: File) -> Result<State> {
        let start = map(&file)?;
        // SAFETY: the file is complete (invariant 4) and begins with a header that nobody changes; the mapping stays.
        let header = unsafe { &*start.cast::<Header>() };
        Ok(State { header, records: record_at(start, 0), file })
    }
}

impl Gpu<'_> {
    /// Its number.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its memory.
    pub fn total_bytes(&self) -> u64 {
        self.record.total_bytes
    }

    /// Its identity.
    pub fn uuid(&self) -> [u8; 16] {
        self.record.uuid
    }

    /// `GPU-` and the identity as people write it.
    pub fn uuid_text(&self) -> String {
        let digits: String = self.uuid().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("GPU-{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
    }

    /// Changes the books, after they were brought up to the present and the dead were taken out.
    pub fn update<R>(&self, change: impl FnOnce(&mut Book) -> R) -> R {
        let _locked = Locked::new(self.record);
        let active = self.record.active.load(Ordering::Acquire) as usize & 1;
        self.copy_book(active);
        // SAFETY: we hold the lock (invariant 1), so nobody else refers to the book that does not count.
        let book = unsafe { &mut *self.record.books[1 - active].get() };
        let now = now_ns();
        if now >= book.looked_ns + LOOK_NS {
            self.bury_the_dead(book, now);
        }
        book.advance(now, |turn| self.write_turn(turn));
        let result = change(book);
        self.record.active.store(1 - active as u32, Ordering::Release);
        result
    }

    /// Takes a slot for this process.
    pub fn attach(&self) -> Option<usize> {
        self.update(|book| {
            let slot = book.occupy(std::process::id(), liveness::started())?;
            liveness::hold(self.file, self.sign_of_life(slot));
            Some(slot)
        })
    }

    /// Gives a slot of this process back.
    pub fn detach(&self, slot: usize) {
        self.update(|book| self.bury(book, slot));
    }

    /// Looks at once whether processes died, and says how much memory is used.
    pub fn look(&self) -> u64 {
        self.update(|book| {
            let now = book.now_ns;
            self.bury_the_dead(book, now);
            book.used_bytes()
        })
    }

    /// When `slot` passed `position_ns`, if it did and that is still remembered.
    pub fn passed_at(&self, slot: usize, position_ns: u64) -> Option<u64> {
        self.update(|book| {
            let held = &book.slots[slot];
            if held.given_ns < position_ns {
                return None;
            }
            let oldest = held.turns.saturating_sub(HISTORY as u64);
            let mut turns = (oldest..held.turns).rev().map(|number| self.read_turn(slot, number));
            let turn = turns.find(|turn| turn.given_ns < position_ns)?;
            Some(turn.began_ns + (position_ns - turn.given_ns))
        })
    }

    /// Everybody on the GPU, and everybody who was, oldest first, as far as remembered.
    pub fn everybody(&self) -> (Vec<Slot>, Vec<Slot>) {
        self.update(|book| {
            let now = book.now_ns;
            self.bury_the_dead(book, now);
            let living = book.occupied().map(|(_, slot)| *slot).collect();
            let oldest = book.buried.saturating_sub(GRAVES as u64);
            let dead = (oldest..book.buried).map(|number| self.read_grave(number)).collect();
            (living, dead)
        })
    }

    fn bury_the_dead(&self, book: &mut Book, now: u64) {
        book.looked_ns = now;
        for slot in 0..book.high as usize {
            let held = book.slots[slot];
            if held.pid != 0 && !liveness::alive(self.file, self.sign_of_life(slot), held.pid, held.started) {
                self.bury(book, slot);
            }
        }
    }

    fn bury(&self, book: &mut Book, slot: usize) {
        let left = book.vacate(slot);
        let place = self.record.graves.get().cast::<Slot>().wrapping_add(book.buried as usize % GRAVES);
        // SAFETY: `place` is in the ring, as its index is below `GRAVES`; we hold the lock, being called from a change.
        unsafe { place.write(left) };
        book.buried += 1;
    }

    fn read_grave(&self, number: u64) -> Slot {
        let place = self.record.graves.get().cast::<Slot>().wrapping_add(number as usize % GRAVES);
        // SAFETY: `place` is in the ring, which is plain numbers; we hold the lock, being called from a change.
        unsafe { place.read() }
    }

    fn history(&self, slot: usize, number: u64) -> *mut Beginning {
        let start = self.record.histories.get().cast::<Beginning>();
        start.wrapping_add(slot * HISTORY + number as usize % HISTORY)
    }

    fn write_turn(&self, turn: Turn) {
        let place = self.history(turn.slot, turn.number);
        // SAFETY: `place` is in the slot's ring; we hold the lock, being called from a change.
        unsafe { place.write(Beginning { began_ns: turn.began_ns, given_ns: turn.given_ns }) };
    }

    fn read_turn(&self, slot: usize, number: u64) -> Beginning {
        let place = self.history(slot, number);
        // SAFETY: `place` is in the slot's ring, which is plain numbers; we hold the lock, being called from a change.
        unsafe { place.read() }
    }

    /// Copies the book that counts over the other, as far as slots are in use: nobody looks at those above.
    fn copy_book(&self, active: usize) {
        let source: *const Book = self.record.books[active].get();
        let target: *mut Book = self.record.books[1 - active].get();
        // SAFETY: we hold the lock (invariant 1), and both pointers are to whole books.
        let high = unsafe { (*source).high } as usize;
        let bytes = offset_of!(Book, slots) + high.min(SLOTS) * size_of::<Slot>();
        // SAFETY: as above; the two books are apart, and `bytes` is at most the size of one, of which the slots are the
        // last part.
        unsafe { std::ptr::copy_nonoverlapping(source.cast::<u8>(), target.cast::<u8>(), bytes) };
    }

    /// Which byte of the file a slot's process keeps locked while it lives.
    fn sign_of_life(&self, slot: usize) -> i64 {
        (self.index * SLOTS + slot) as i64
    }
}

/// Holding a record's lock.
struct Locked<'a>(&'a Record);

impl<'a> Locked<'a> {
    fn new(record: &'a Record) -> Locked<'a> {
        // SAFETY: the lock was initialised before the file got its name (invariant 4).
        let result = unsafe { libc::pthread_mutex_lock(record.lock.get()) };
        if result == libc::EOWNERDEAD {
            // SAFETY: this thread was just given the lock of one who died; what it protects is whole (invariant 2).
            unsafe { libc::pthread_mutex_consistent(record.lock.get()) };
        }
        Locked(record)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: the value exists only while this thread holds the lock.
        unsafe { libc::pthread_mutex_unlock(self.0.lock.get()) };
    }
}

fn init_lock(lock: *mut libc::pthread_mutex_t) -> Result<()> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    // SAFETY: a place for attributes.
    check(unsafe { libc::pthread_mutexattr_init(attributes.as_mut_ptr()) })?;
    // SAFETY: initialised by the call above.
    check(unsafe { libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED) })?;
    // SAFETY: as above.
    check(unsafe { libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST) })?;
    // SAFETY: `lock` is a place for a mutex that no other process can find yet.
    check(unsafe { libc::pthread_mutex_init(lock, attributes.as_ptr()) })
}

fn check(result: c_int) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(Error::from_raw_os_error(result)) }
}

fn map(file: &File) -> Result<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let bytes = file_bytes() as usize;
    // SAFETY: a null hint lets the kernel choose addresses that are free, so no memory of ours is replaced.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(start.cast()) }
}

fn record_at(start: *mut u8, index: usize) -> *mut Record {
    start.wrapping_add(4096 + index * size_of::<Record>()).cast()
}

fn file_bytes() -> u64 {
    (4096 + GPUS * size_of::<Record>()) as u64
}

/// The same for the same number on every machine.
fn uuid(index: usize) -> [u8; 16] {
    let mut uuid = *b"\xfa\xce\xcd\xa0fakecuda-GPU";
    uuid[15] = index as u8;
    uuid
}

/// What the environment says of the machine.
pub fn machine_from_environment() -> Machine {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| parse_bytes(&text));
    Machine {
        gpus: number("FAKECUDA_GPUS").unwrap_or(1) as usize,
        memory_bytes: number("FAKECUDA_MEMORY").unwrap_or(8 << 30),
    }
}

/// A number of bytes: `1048576`, `512MiB`, `8GiB`.
fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[digits..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}
