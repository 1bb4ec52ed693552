//! Where C meets Rust: pointers that callers hand in, and the way out for every result.
//!
//! Raw pointers stop here. An operation receives [`Out`], [`In`] or [`Text`], and what it does with them is safe: null is
//! an ordinary error. That a pointer which is not null points at what the API says is the caller's promise, as with the
//! real driver.

use crate::code::{Code, Status};
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A place where the caller wants a value.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

/// A value, or the first of several, that the caller shows.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

/// Text that the caller shows.
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}
impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T> Out<T> {
    /// No place, for what nobody wants to know.
    pub(crate) fn none() -> Out<T> {
        Out(std::ptr::null_mut())
    }

    /// Whether the caller wants nothing.
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Writes a value that the caller must want.
    pub(crate) fn set(self, value: T) -> Status {
        self.put(0, value)
    }

    /// Writes a value if the caller wants it.
    pub(crate) fn offer(self, value: T) {
        let _ = self.put(0, value);
    }

    /// Writes one of several values.
    pub(crate) fn put(self, index: usize, value: T) -> Status {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let place = self.0.wrapping_add(index);
        // SAFETY: not null (just checked), and the API obliges the caller to give room for `index + 1` values of `T`;
        // operations only count as far as the caller said there is room.
        unsafe { place.write_unaligned(value) };
        Ok(())
    }
}

impl<T: Copy> Out<T> {
    /// Reads what the caller put there, for arguments that go both ways.
    pub(crate) fn get(self) -> Result<T, Code> {
        In(self.0.cast_const()).get()
    }
}

impl Out<u8> {
    /// Writes text and a zero byte, cut to the room there is.
    pub(crate) fn text(self, text: &str, room: usize) -> Status {
        let Some(last) = room.checked_sub(1) else { return Err(Code::INVALID_VALUE) };
        let length = text.len().min(last);
        for (index, byte) in text.as_bytes()[..length].iter().enumerate() {
            self.put(index, *byte)?;
        }
        self.put(length, 0)
    }
}

impl<T: Copy> In<T> {
    /// The value.
    pub(crate) fn get(self) -> Result<T, Code> {
        self.at(0)
    }

    /// One of several values.
    pub(crate) fn at(self, index: usize) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let place = self.0.wrapping_add(index);
        // SAFETY: not null (just checked), and the API obliges the caller to show `index + 1` initialised values of `T`;
        // every `T` used here is plain numbers, for which any bytes are a value.
        Ok(unsafe { place.read_unaligned() })
    }
}

impl Text {
    /// The text, with what is not UTF-8 replaced.
    pub(crate) fn get(&self) -> Result<String, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null (just checked), and the API obliges the caller to end the text with a zero byte.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// Copies bytes from one address to another, both the caller's or ours.
pub(crate) fn copy_bytes(target: u64, source: u64, bytes: usize) -> Status {
    if bytes == 0 {
        return Ok(());
    }
    if target == 0 || source == 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: device memory is ordinary memory of this process, so both addresses are mapped for `bytes` if the caller
    // keeps the API's rule that they lie in allocations; `copy` allows the two to overlap.
    unsafe { std::ptr::copy(source as *const u8, target as *mut u8, bytes) };
    Ok(())
}

/// Calls a host function that the caller gave with its argument.
pub(crate) fn call_host_function(function: usize, argument: usize) {
    if function == 0 {
        return;
    }
    // SAFETY: the caller declared `function` to be a `CUhostFn`, a C function of one pointer, and it is not null.
    let function = unsafe { std::mem::transmute::<usize, extern "C" fn(usize)>(function) };
    function(argument);
}

/// Runs an operation and turns its answer into the driver's number. A panic is ours, and reads as an unknown error.
pub(crate) fn answer(operation: impl FnOnce() -> Status) -> i32 {
    match catch_unwind(AssertUnwindSafe(operation)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => Code::UNKNOWN.0,
    }
}

impl From<Out<u64>> for Out<u32> {
    /// A place whose width depends on what is asked for.
    fn from(wide: Out<u64>) -> Out<u32> {
        Out(wide.0.cast())
    }
}
