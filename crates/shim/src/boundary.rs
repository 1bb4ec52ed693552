//! How a call of the program comes in and goes on to the driver.
//!
//! Invariants:
//! 1. The driver is called at most once for a call of the program, and exactly once unless our answer takes its place.
//! 2. While one of our functions runs on a thread, calls that come back to us on that thread go straight to the driver.
//! 3. A panic of ours ends here: what the driver answered is the answer, or it is asked now.

use crate::real;
use crate::settings::settings;
use crate::table::{Entry, HOOKS};
use crate::types::CuResult;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// What the driver answers when it cannot be found: `CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND`; for NVML, which has
/// nothing of this number, an unknown error.
const NOT_FOUND: CuResult = 302;

/// The driver, to be called with what the program passed.
pub(crate) struct Driver<'a> {
    call: &'a dyn Fn() -> CuResult,
    answer: &'a Cell<Option<CuResult>>,
}

impl Driver<'_> {
    /// Lets the driver do it. Called again, answers what it answered.
    #[inline(always)]
    pub(crate) fn call(&self) -> CuResult {
        if let Some(answer) = self.answer.get() {
            return answer;
        }
        let answer = (self.call)();
        self.answer.set(Some(answer));
        answer
    }

    /// Does something else, unless that answers nothing: then the driver does what was asked.
    #[inline(always)]
    pub(crate) fn instead(&self, other: impl FnOnce() -> Option<CuResult>) -> CuResult {
        match other() {
            Some(answer) => {
                self.answer.set(Some(answer));
                answer
            }
            None => self.call(),
        }
    }
}

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    /// It never came by.
    Unknown,
    /// In the program.
    Outside,
    /// In one of our functions, and in the driver from there, or to be let through for ever.
    Inside,
}

thread_local! {
    static WHERE: Cell<Where> = const { Cell::new(Where::Unknown) };
}

/// Runs a function of ours in the driver's place.
#[inline(always)]
pub(crate) fn enter(
    entry: Entry,
    call: impl Fn(*mut ()) -> CuResult,
    op: impl FnOnce(&Driver<'_>) -> CuResult,
) -> CuResult {
    let mut real = HOOKS.real[entry as usize].load(Ordering::Acquire);
    if real.is_null() {
        real = real::find(entry);
        if real.is_null() {
            return NOT_FOUND;
        }
    }
    let answer = Cell::new(None);
    // A thread that is ending has no thread-locals any more; it is let through.
    let mut at = WHERE.try_with(|at| at.replace(Where::Inside)).unwrap_or(Where::Inside);
    if at == Where::Unknown {
        at = first_seen();
    }
    if at == Where::Inside {
        return call(real);
    }
    let driver = Driver { call: &|| call(real), answer: &answer };
    let result = catch_unwind(AssertUnwindSafe(|| op(&driver)));
    leave();
    match result {
        Ok(result) => result,
        Err(_) => driver.call(),
    }
}

/// Where the library is to let everything pass, threads are inside from their first call on.
#[cold]
fn first_seen() -> Where {
    if settings().disabled { Where::Inside } else { Where::Outside }
}

#[inline(always)]
fn leave() {
    let _ = WHERE.try_with(|at| at.set(Where::Outside));
}
