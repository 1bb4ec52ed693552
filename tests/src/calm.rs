//! Checks about time, on machines that now and then do something else.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a check is tried while the machine keeps it from running.
const TRIES: usize = 4;
/// A thread that wants to run later than it said by more than this was kept from it.
const SLACK: Duration = Duration::from_millis(20);

/// Checks what holds only where programs run when they want to. A failure counts at once where they did. Where they did
/// not, that is said and it is checked again, a few times.
#[expect(clippy::print_stderr, reason = "a test tells whoever reads its output")]
pub fn when_calm(check: impl Fn()) {
    for tried in 1.. {
        let (outcome, kept_for) = watched(|| catch_unwind(AssertUnwindSafe(&check)));
        match outcome {
            Ok(()) => return,
            Err(failure) if counts(kept_for, tried) => resume_unwind(failure),
            Err(_) => eprintln!("checked again: nothing ran for {kept_for:?} meanwhile (try {tried} of {TRIES})"),
        }
    }
}

/// Whether a failure does.
fn counts(kept_for: Duration, tried: usize) -> bool {
    kept_for < SLACK || tried >= TRIES
}

/// What was done, and for how long at most a thread was kept from running meanwhile.
fn watched<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    const TICK: Duration = Duration::from_millis(1);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let began = Instant::now();
                std::thread::sleep(TICK);
                longest = longest.max(began.elapsed().saturating_sub(TICK));
            }
            longest
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        (done, watch.join().expect("a watch does not panic"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_failure_counts_where_programs_ran_and_in_the_end_everywhere() {
        assert!(counts(Duration::ZERO, 1) && !counts(Duration::from_secs(1), 1));
        assert!(counts(Duration::from_secs(1), TRIES));
        assert!(catch_unwind(|| when_calm(|| panic!("always"))).is_err());
    }

    #[test]
    fn what_passes_is_not_tried_again() {
        let tries = AtomicUsize::new(0);
        when_calm(|| assert_eq!(tries.fetch_add(1, Ordering::Relaxed), 0));
        assert_eq!(tries.into_inner(), 1);
    }
}
