//! Independent jobs on all cores. What comes back is in the order of the jobs, whichever ends first.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Works through the jobs, with a bar on stderr if that is a terminal. `what` says what they are.
pub(super) fn map<J: Sync, T: Send>(what: &'static str, jobs: &[J], work: impl Fn(&J) -> T + Sync) -> Vec<T> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let bar = bar(what, jobs.len());
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..cores.min(jobs.len()) {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(job) = jobs.get(index)
                {
                    let result = work(job);
                    done.lock().expect("nothing panics while it is locked").push((index, result));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().expect("nothing panics while it is locked");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn bar(what: &'static str, jobs: usize) -> ProgressBar {
    let target = match std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let bar = ProgressBar::with_draw_target(Some(jobs as u64), target).with_message(what);
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos} of {len} in {elapsed}");
    bar.set_style(style.expect("the template is well formed").progress_chars("━╸ "));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..50).collect();
        let slow_first = |job: &u64| {
            thread::sleep(Duration::from_micros(50 * (50 - job)));
            job * 2
        };
        assert_eq!(map("jobs", &jobs, slow_first), jobs.iter().map(|job| job * 2).collect::<Vec<_>>());
        assert!(map("jobs", &[], slow_first).is_empty());
    }
}
