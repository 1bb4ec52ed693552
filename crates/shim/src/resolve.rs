//! Which function a program means when it asks the driver's resolver, or `dlsym`, for one.
//!
//! Runtimes open the driver and ask [`dlsym`](crate::dlsym) for `cuGetProcAddress_v2`, and that for everything else, itself
//! included. Both are answered the same way: the real resolver first, and then ours in place of exactly the functions in
//! the table. What is not found stays not found, and what another library calls by one of these names stays that library's.

use crate::boundary::Driver;
use crate::real;
use crate::table::{COUNT, DefaultStream, Export, HOOKS, Library, TABLE};
use crate::types::{CuResult, Out, SUCCESS, Text, bytes};
use std::ffi::{c_int, c_ulonglong};
use std::sync::atomic::{AtomicU64, Ordering};

/// Which rows were handed out, one bit each.
static HANDED_OUT: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// The newest version that the table knows; what a later one means by a name we cannot know.
const NEWEST: c_int = 13_999;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: c_ulonglong = 2;

/// Notes that a program got our function, and returns it.
pub(crate) fn hand_out(ours: &[Export; COUNT], index: usize) -> *mut () {
    HANDED_OUT[index / 64].fetch_or(1 << (index % 64), Ordering::Relaxed);
    ours[index].0.cast_mut()
}

/// Which rows were handed out, for the page.
pub(crate) fn handed_out() -> [u64; 4] {
    HANDED_OUT.each_ref().map(|word| word.load(Ordering::Relaxed))
}

/// Asks the driver's resolver, and puts our function in place of the driver's.
pub(crate) fn get_proc_address(
    driver: &Driver<'_>,
    ours: &[Export; COUNT],
    symbol: Text,
    function: Out<*mut ()>,
    version: c_int,
    flags: c_ulonglong,
) -> CuResult {
    let result = driver.call();
    if result == SUCCESS {
        replace(ours, symbol, function, version, flags);
    }
    result
}

fn replace(ours: &[Export; COUNT], symbol: Text, function: Out<*mut ()>, version: c_int, flags: c_ulonglong) {
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
            HOOKS.real[index].store(found, Ordering::Release);
        } else if same.is_none() {
            return;
        }
        function.set(hand_out(ours, index));
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
