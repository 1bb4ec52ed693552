//! The C library's own `dlsym`, and which addresses are ours.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The C library's `dlsym`, once it was looked for.
pub(crate) static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The real `dlsym`, asked by us.
pub(crate) fn real_dlsym(handle: *mut c_void, name: &CStr) -> *mut () {
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    let real = find_real_dlsym();
    if real.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: what the C library gives for `dlsym` is a function of this type.
    let real = unsafe { std::mem::transmute::<*mut c_void, Dlsym>(real) };
    // SAFETY: the handle is the caller's or the driver's, the name a C string.
    unsafe { real(handle, name.as_ptr()) }.cast()
}

pub(crate) fn find_real_dlsym() -> *mut c_void {
    let mut real = REAL_DLSYM.load(Ordering::Acquire);
    if real.is_null() {
        let version = if cfg!(target_arch = "aarch64") { c"GLIBC_2.17" } else { c"GLIBC_2.2.5" };
        // SAFETY: both are C strings. Only the C library has a `dlsym` with a version, so this is never ours.
        real = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        REAL_DLSYM.store(real, Ordering::Release);
    }
    real
}

/// Whether an address is in this library.
pub(crate) fn is_ours(address: *mut ()) -> bool {
    let own = object_of(is_ours as *const ());
    own.is_some() && object_of(address) == own
}

/// Where the library or program that an address is in was loaded.
fn object_of(address: *const ()) -> Option<usize> {
    // SAFETY: all bytes zero are a `Dl_info` of null pointers.
    let mut information = unsafe { std::mem::zeroed::<libc::Dl_info>() };
    // SAFETY: the address is not dereferenced, and the information is ours to write.
    let found = unsafe { libc::dladdr(address.cast(), &mut information) };
    (found != 0).then_some(information.dli_fbase as usize)
}
