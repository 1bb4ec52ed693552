//! The clock of the pages.

/// Nanoseconds of `CLOCK_MONOTONIC`: the same in all processes of a machine, and no system call. By the C library, which
/// is set up in every process this may be loaded into.
#[inline]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours to be written; the clock exists on every Linux, so there is no error to look at.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
