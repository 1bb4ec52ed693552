//! Which context is current in which thread.

use crate::code::Code;
use crate::driver::{self, Handle, Process, process};
use std::cell::RefCell;

thread_local!(pub(crate) static CURRENT: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) });

/// The current context's handle.
pub(crate) fn current() -> Result<Handle, Code> {
    driver::require_initialized()?;
    let top = CURRENT.with_borrow(|stack| stack.last().copied());
    top.filter(|handle| *handle != 0).ok_or(Code::INVALID_CONTEXT)
}

/// The device of the current context.
pub(crate) fn current_device(process: &Process) -> Result<i32, Code> {
    match process.contexts.get(current()?) {
        Ok(context) => Ok(context.device),
        Err(_) => Err(Code::CONTEXT_IS_DESTROYED),
    }
}

/// The device of the current context, where the caller has no other use for the process's objects.
pub(crate) fn device() -> Result<i32, Code> {
    let process = process()?;
    current_device(&process)
}
