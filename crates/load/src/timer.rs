//! Waiting until a point in time, to some tens of microseconds and without spinning.
//!
//! The runtime's own timers are good to a millisecond, which is longer than a whole request may take. A timer of the
//! system that is watched like a socket costs one call to set.

use std::io;
use std::time::Instant;

#[cfg(target_os = "linux")]
mod system {
    use super::*;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use std::os::fd::OwnedFd;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// Rings once at a time.
    #[derive(Debug)]
    pub(crate) struct Timer {
        descriptor: AsyncFd<OwnedFd>,
    }

    impl Timer {
        pub(crate) fn new() -> io::Result<Timer> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            // Deprecated because a type may name another descriptor each time it is asked. An `OwnedFd` cannot, and
            // what replaces it is unsafe.
            #[expect(deprecated)]
            let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
            Ok(Timer { descriptor })
        }

        /// Waits until then. Gives way to other tasks even if that is past.
        pub(crate) async fn until(&mut self, then: Instant) -> io::Result<()> {
            let left = then.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tokio::task::yield_now().await;
                return Ok(());
            }
            let it_value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
            timerfd_settime(self.descriptor.get_ref(), TimerfdTimerFlags::empty(), &once)?;
            loop {
                // Setting it anew forgets that it rang, so nothing has to be read from it.
                self.descriptor.readable().await?.clear_ready();
                // A ring of an earlier wait that was given up may have been left over.
                if Instant::now() >= then {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::*;

    /// Rings once at a time, to the millisecond.
    #[derive(Debug)]
    pub(crate) struct Timer;

    impl Timer {
        pub(crate) fn new() -> io::Result<Timer> {
            Ok(Timer)
        }

        pub(crate) async fn until(&mut self, then: Instant) -> io::Result<()> {
            tokio::time::sleep_until(then.into()).await;
            Ok(())
        }
    }
}

pub(crate) use system::Timer;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn it_never_rings_early_and_is_not_confused_by_a_wait_given_up() {
        let mut timer = Timer::new().unwrap();
        for micros in [0, 1, 300, 2_000, 20_000] {
            let then = Instant::now() + Duration::from_micros(micros);
            let soon = Instant::now() + Duration::from_micros(50);
            let given_up = tokio::time::timeout(Duration::ZERO, timer.until(soon)).await;
            assert!(given_up.is_err() || micros == 0 || Instant::now() >= soon);
            timer.until(then).await.unwrap();
            assert!(Instant::now() >= then);
        }
    }
}
