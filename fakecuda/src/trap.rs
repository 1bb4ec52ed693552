//! A kernel driver without a kernel driver: calls of `ioctl` with the resource manager's numbers, by anybody in the process
//! and on any file, are answered here.
//!
//! A seccomp filter has the kernel turn just those calls into a signal, whose handler answers them as if the kernel had.
//! Whoever watches `ioctl` on its way sees what it would see with the real driver, result and all. All other calls pass.
//!
//! Children inherit the filter, also over `exec`. One that makes such a call without having started this driver dies of
//! SIGSYS; nothing but a CUDA driver has a reason to. `FAKECUDA_CHANNELS=off` leaves all of this out, for tools that do
//! not get along with it: there are no channel groups then.

use crate::channel::{self, Allocate, Control, Parameters};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

const ALLOW: u32 = 0x7fff_0000;
const TRAP: u32 = 0x0003_0000;
const SET_MODE_FILTER: usize = 1;
const ALL_THREADS: usize = 1;

/// Installs it once. `false` where that cannot be done, or was not wanted.
pub(crate) fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let wanted = std::env::var_os("FAKECUDA_CHANNELS").is_none_or(|value| value != "off");
        wanted && set_handler() && set_filter()
    })
}

fn set_handler() -> bool {
    // SAFETY: all zeros is a whole `sigaction`: no flags, an empty mask, the default action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: `action` is whole, and its handler has the type that `SA_SIGINFO` says.
    unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) == 0 }
}

fn set_filter() -> bool {
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    // The second argument's lower half, on machines that keep it first.
    let request = std::mem::offset_of!(libc::seccomp_data, args) as u32 + 8;
    let load = |offset| libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: offset };
    let equal = |value, jt, jf| libc::sock_filter { code: 0x15, jt, jf, k: value };
    let answer = |value| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: value };
    let mut program = [
        load(number),
        equal(libc::SYS_ioctl as u32, 0, 5),
        load(request),
        libc::sock_filter { code: 0x54, jt: 0, jf: 0, k: 0xffff },
        equal(0x462a, 1, 0),
        equal(0x462b, 0, 1),
        answer(TRAP),
        answer(ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: takes four numbers; it makes this process unable to gain privileges, which a filter requires.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return false;
    }
    // SAFETY: `program` and the instructions it points at outlive the call, which copies them.
    unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, ALL_THREADS, &raw const program) == 0 }
}

/// Answers a call that was turned into a signal.
///
/// The signal comes where a system call was about to be made, not in the middle of anything else, so that it may take
/// locks: whoever makes such a call holds none of this driver's.
extern "C" fn handle(_signal: c_int, _information: *mut libc::siginfo_t, context: *mut c_void) {
    let context: *mut libc::ucontext_t = context.cast();
    // SAFETY: the kernel passes the interrupted thread's context, which nobody else uses while the handler runs.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let request = registers[libc::REG_RSI as usize] as u64;
    let argument = registers[libc::REG_RDX as usize] as u64;
    let file = registers[libc::REG_RDI as usize] as i32;
    registers[libc::REG_RAX as usize] = answer(file, request, argument);
}

/// What the system call returns.
fn answer(file: i32, request: u64, argument: u64) -> i64 {
    // SAFETY: asks about a number that may or may not be a file; it reads or writes no memory of ours.
    if unsafe { libc::fcntl(file, libc::F_GETFD) } < 0 {
        return i64::from(-libc::EBADF);
    }
    if argument == 0 || !channel::is_ours(request) {
        return i64::from(-libc::EFAULT);
    }
    let bytes = (request >> 16) as usize & 0x3fff;
    if request & 0xff == 0x2b && bytes == size_of::<Allocate>() {
        // SAFETY: the caller passes an `Allocate`, whose size is in the request's number and was just compared.
        channel::allocate(unsafe { &mut *(argument as *mut Allocate) });
        return 0;
    }
    if request & 0xff == 0x2a && bytes == size_of::<Control>() {
        // SAFETY: the caller passes a `Control`, whose size is in the request's number and was just compared.
        control(unsafe { &mut *(argument as *mut Control) });
        return 0;
    }
    i64::from(-libc::EINVAL)
}

/// Carries the parameters, wherever they are, in and out; the first eight bytes as one number.
fn control(call: &mut Control) {
    let (address, bytes) = channel::parameters(call);
    let all = if address == 0 { 0 } else { bytes.min(size_of_val(&Parameters::EMPTY.words)) };
    let place = address as *mut u8;
    let mut parameters = Parameters::EMPTY;
    // SAFETY: the caller says that `bytes` are readable there, of which there are at most as many as there is room for.
    unsafe { std::ptr::copy_nonoverlapping(place, parameters.words.as_mut_ptr().cast(), all) };
    parameters.value = u64::from(parameters.words[0]) | u64::from(parameters.words[1]) << 32;
    channel::control(call, &mut parameters);
    (parameters.words[0], parameters.words[1]) = (parameters.value as u32, (parameters.value >> 32) as u32);
    // SAFETY: as above, and writable, as the resource manager's parameters go both ways.
    unsafe { std::ptr::copy_nonoverlapping(parameters.words.as_ptr().cast(), place, all) };
}
