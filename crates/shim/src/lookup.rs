//! The C library's own `dlsym`.

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
