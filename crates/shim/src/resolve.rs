//! How programs come to call us: `dlsym`, and the driver's own resolver.
//!
//! Runtimes open the driver and ask `dlsym` for `cuGetProcAddress_v2`, and that for everything else, itself included.
//! Both are answered the same way: the real resolver first, and ours in place of exactly those functions that are in the
//! table. What is not found stays not found, and what another library calls by a name of ours stays that library's.
//!
//! `dlsym` looks at who called it to know what `RTLD_NEXT` is next to. So ours jumps to the real one with the caller's
//! return address in place, and calls it only for names in the table. It is exported without a version: the dynamic
//! linker lets that stand for `GLIBC_2.2.5` and `GLIBC_2.34` alike. The real one is looked up by version, which only the
//! C library has.

#![cfg_attr(test, allow(dead_code, reason = "what is exported is called from outside, and not by unit tests"))]

use crate::boundary::Driver;
use crate::lookup::{find_real_dlsym, real_dlsym};
use crate::real;
use crate::settings::settings;
use crate::table::{DefaultStream, Library, TABLE, is_ours};
use crate::types::{CuResult, Opaque, Out, SUCCESS, Text, bytes};
use std::ffi::{CStr, c_char, c_int, c_ulonglong, c_void};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which rows were handed out, one bit each.
static HANDED_OUT: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// The answers of [`choose`] that are not addresses.
const ASK_REAL: usize = 0;
const NOT_THERE: usize = 1;

/// The newest version that the table knows; what a later one means by a name we cannot know.
const NEWEST: c_int = 13_999;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: c_ulonglong = 2;

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
        return hand_out(index) as usize;
    }
    found as usize
}

fn hand_out(index: usize) -> *mut () {
    HANDED_OUT[index / 64].fetch_or(1 << (index % 64), Ordering::Relaxed);
    TABLE[index].ours.cast_mut()
}

/// Which rows were handed out, for the page.
pub(crate) fn handed_out() -> [u64; 4] {
    HANDED_OUT.each_ref().map(|word| word.load(Ordering::Relaxed))
}

/// `cuGetProcAddress` as of CUDA 11.3.
pub(crate) fn get_proc_address(
    driver: &Driver<'_>,
    symbol: Text,
    function: Out<*mut ()>,
    version: c_int,
    flags: c_ulonglong,
) -> CuResult {
    let result = driver.call();
    if result == SUCCESS {
        replace(symbol, function, version, flags);
    }
    result
}

/// `cuGetProcAddress` as of CUDA 12.
pub(crate) fn get_proc_address_2(
    driver: &Driver<'_>,
    symbol: Text,
    function: Out<*mut ()>,
    version: c_int,
    flags: c_ulonglong,
    _: Opaque,
) -> CuResult {
    get_proc_address(driver, symbol, function, version, flags)
}

fn replace(symbol: Text, function: Out<*mut ()>, version: c_int, flags: c_ulonglong) {
    let Some(found) = function.get().filter(|found| !found.is_null()) else { return };
    let Some(symbol) = bytes(symbol) else { return };
    // The address says exactly which function it is. Where a driver hands out other addresses than it exports, what was
    // asked for does.
    let named = TABLE.iter().any(|row| row.base.as_bytes() == symbol);
    if !named {
        return;
    }
    let same = (0..TABLE.len()).find(|index| real::known(*index) == found);
    if let Some(index) = same.or_else(|| variant(symbol, version, flags)) {
        if same.is_none() && !exported(found) {
            crate::table::HOOKS.real[index].store(found, Ordering::Release);
        } else if same.is_none() {
            return;
        }
        function.set(hand_out(index));
    }
}

/// Whether an address is a function that its library exports, under whatever name: then it is known by that.
fn exported(address: *mut ()) -> bool {
    // SAFETY: all bytes zero are a `Dl_info` of null pointers.
    let mut information = unsafe { std::mem::zeroed::<libc::Dl_info>() };
    // SAFETY: the address is not dereferenced, and the information is ours to write.
    let found = unsafe { libc::dladdr(address.cast(), &mut information) };
    found != 0 && std::ptr::eq(information.dli_saddr, address.cast())
}

/// Which row a version of the driver's interface means by a name.
fn variant(symbol: &[u8], version: c_int, flags: c_ulonglong) -> Option<usize> {
    if version > NEWEST {
        return None;
    }
    // The one name that went over to another function.
    let moved = symbol == b"cuGraphInstantiate" && version >= 12000;
    let symbol = if moved { b"cuGraphInstantiateWithFlags" } else { symbol };
    let default = if flags & PER_THREAD != 0 { DefaultStream::PerThread } else { DefaultStream::Legacy };
    let named = |index: &usize| {
        let row = &TABLE[*index];
        row.library == Library::Cuda && row.base.as_bytes() == symbol && row.since <= version
    };
    let rows = || (0..TABLE.len()).filter(named);
    // Functions without a stream have one variant for both.
    let of_stream = rows().any(|index| TABLE[index].default == DefaultStream::PerThread);
    rows().filter(|index| !of_stream || TABLE[*index].default == default).max_by_key(|index| TABLE[*index].since)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(symbol: &str, version: c_int, flags: c_ulonglong) -> &'static str {
        variant(symbol.as_bytes(), version, flags).map_or("the driver's", |index| TABLE[index].name)
    }

    #[test]
    fn a_name_a_version_and_a_flag_choose_a_function() {
        assert_eq!(check("cuMemAlloc", 12000, 0), "cuMemAlloc_v2");
        assert_eq!(check("cuMemAlloc", 12000, 2), "cuMemAlloc_v2");
        assert_eq!(check("cuMemAlloc", 2000, 0), "the driver's");
        assert_eq!(check("cuLaunchKernel", 12000, 0), "cuLaunchKernel");
        assert_eq!(check("cuLaunchKernel", 12000, 1), "cuLaunchKernel");
        assert_eq!(check("cuLaunchKernel", 12000, 2), "cuLaunchKernel_ptsz");
        assert_eq!(check("cuLaunchKernelEx", 11000, 0), "the driver's");
        assert_eq!(check("cuGetProcAddress", 11030, 0), "cuGetProcAddress");
        assert_eq!(check("cuGetProcAddress", 13000, 0), "cuGetProcAddress_v2");
        assert_eq!(check("cuCtxCreate", 12000, 0), "cuCtxCreate_v3");
        assert_eq!(check("cuCtxCreate", 13000, 0), "cuCtxCreate_v4");
        assert_eq!(check("cuGraphInstantiate", 11040, 0), "cuGraphInstantiate_v2");
        assert_eq!(check("cuGraphInstantiate", 12000, 0), "cuGraphInstantiateWithFlags");
        assert_eq!(check("cuMemAlloc", 20000, 0), "the driver's");
        assert_eq!(check("cublasCreate", 12000, 0), "the driver's");
        assert_eq!(check("cuMemAll", 12000, 0), "the driver's");
        assert_eq!(check("", 12000, 0), "the driver's");
    }
}
