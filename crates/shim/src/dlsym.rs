//! `dlsym`, which runtimes ask for driver functions.
//!
//! `dlsym` looks at who called it to know what `RTLD_NEXT` is next to. So ours jumps to the real one with the caller's
//! return address in place, and calls it only for names in the table. It is exported without a version: the dynamic
//! linker lets that stand for `GLIBC_2.2.5` and `GLIBC_2.34` alike. The real one is looked up by version, which only the
//! C library has.

#![cfg_attr(test, allow(dead_code, reason = "what is exported is called from outside, and not by unit tests"))]

use crate::exports::OURS;
use crate::lookup::{find_real_dlsym, is_ours, real_dlsym};
use crate::settings::settings;
use crate::table::TABLE;
use crate::{real, resolve};
use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;

/// The answers of [`choose`] that are not addresses.
const ASK_REAL: usize = 0;
const NOT_THERE: usize = 1;

/// `dlsym` of the C library, for programs and libraries that look up a driver function.
#[cfg(all(not(test), target_arch = "x86_64"))]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "cmp rax, 1",
        "ja 2f",
        "je 3f",
        "mov rax, qword ptr [rip + {real}]",
        "jmp rax",
        "3:",
        "xor eax, eax",
        "2:",
        "ret",
        choose = sym choose,
        real = sym crate::lookup::REAL_DLSYM,
    )
}

/// The answer to a `dlsym`: an address, or what else to do. Makes sure that the real `dlsym` is known.
extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> usize {
    find_real_dlsym();
    if name.is_null() {
        return ASK_REAL;
    }
    // SAFETY: not null, and `dlsym`'s caller passes a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let bytes = name.to_bytes();
    if !bytes.starts_with(b"cu") && !bytes.starts_with(b"nvml") {
        return ASK_REAL;
    }
    catch_unwind(|| answer(handle as usize, name)).unwrap_or(ASK_REAL)
}

fn answer(handle: usize, name: &CStr) -> usize {
    let Some(index) = TABLE.iter().position(|row| row.name.as_bytes() == name.to_bytes()) else { return ASK_REAL };
    if settings().disabled {
        return ASK_REAL;
    }
    let found = real_dlsym(handle as *mut c_void, name);
    if found.is_null() {
        return ASK_REAL;
    }
    let real = real::known(index);
    if is_ours(found) && real.is_null() {
        // Without us it would not be there: the driver is not loaded. Behind us it is not either, and `dlerror` says so.
        real_dlsym(libc::RTLD_NEXT, name);
        return NOT_THERE;
    }
    if found == real || is_ours(found) {
        return resolve::hand_out(&OURS, index) as usize;
    }
    found as usize
}
