//! What wakes the scheduler's own thread.
//!
//! A timer of the kernel's: whoever decides sets it for what is due next, and the thread sleeps until then, or a little
//! less. Setting it does not wake the thread, so a busy scheduler, which moves what is due next with every batch, leaves
//! it asleep.

use anyhow::{Context, Result};
use policy::{Span, Time};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is due within this is near.
const NEAR: Span = Span::from_millis(2);

pub(crate) struct Alarm {
    timer: OwnedFd,
    set: Mutex<Set>,
}

struct Set {
    /// What the timer is set for, if it is.
    due: Option<Time>,
    /// The thread is wanted at once, whatever is due when.
    rung: bool,
}

impl Alarm {
    /// An alarm that goes off when it is set or rung.
    pub(crate) fn new() -> Result<Alarm> {
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC);
        let timer = timer.context("create the scheduler's timer")?;
        Ok(Alarm { timer, set: Mutex::new(Set { due: None, rung: false }) })
    }

    /// Sets it for a time, instead of what it was set for before. It may go off sooner, but not soon: what is far away
    /// moves with every request, and is set anew when it comes near.
    pub(crate) fn set(&self, now: Time, due: Time) {
        let mut set = self.lock();
        let near = now + NEAR;
        let stays = set.due.is_some_and(|before| before == due || (before < due && before > near));
        if !set.rung && !stays {
            set.due = Some(due);
            self.arm(Duration::from_nanos(due.nanos().saturating_sub(now.nanos())));
        }
    }

    /// Has it go off now. Setting it does not take that back.
    pub(crate) fn ring(&self) {
        let mut set = self.lock();
        set.rung = true;
        self.arm(Duration::ZERO);
    }

    /// Sleeps until it goes off.
    pub(crate) fn wait(&self) {
        let mut times = [0; 8];
        while rustix::io::read(&self.timer, &mut times) == Err(Errno::INTR) {}
        *self.lock() = Set { due: None, rung: false };
    }

    fn arm(&self, wait: Duration) {
        // A timer set for no time at all would be off.
        let wait = wait.max(Duration::from_nanos(1));
        let value =
            Timespec { tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: wait.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)
            .expect("a timer of our own takes any time that is not negative");
    }

    fn lock(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const FAR: Time = Time::from_nanos(u64::MAX);

    #[test]
    fn it_goes_off_when_what_is_due_is() {
        let (alarm, start) = (Alarm::new().unwrap(), Instant::now());
        alarm.set(Time::ZERO, FAR);
        alarm.set(Time::ZERO, Time::from_nanos(2_000_000));
        alarm.wait();
        assert!(start.elapsed() >= Duration::from_millis(2));
    }

    #[test]
    fn what_moves_away_is_waited_for_when_it_is_near() {
        let (alarm, start) = (Alarm::new().unwrap(), Instant::now());
        alarm.set(Time::ZERO, Time::from_nanos(1_000_000));
        alarm.set(Time::ZERO, Time::from_nanos(5_000_000));
        alarm.wait();
        assert!(start.elapsed() >= Duration::from_millis(5), "it was near, and was moved");
        alarm.set(Time::ZERO, Time::from_nanos(3_000_000));
        alarm.set(Time::ZERO, FAR);
        alarm.wait();
        // It was far, and went off when it was first due.
    }

    #[test]
    fn what_is_past_is_due_at_once() {
        let alarm = Alarm::new().unwrap();
        alarm.set(FAR, Time::ZERO);
        alarm.wait();
    }

    #[test]
    fn a_ring_is_not_taken_back() {
        let alarm = Alarm::new().unwrap();
        alarm.ring();
        alarm.set(Time::ZERO, FAR);
        alarm.wait();
        // It was for once: the next is what is due.
        alarm.set(Time::ZERO, Time::from_nanos(1));
        alarm.wait();
    }
}
