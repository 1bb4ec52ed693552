//! A lock for what is looked at rarely and held for a few instructions, never across a call of the driver.
//!
//! It is the process's own, so that a process that is killed holds up nobody else; and it can be forced open in a child
//! after `fork`, where the thread that held it is not.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, and `held` lets one guard exist at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

pub(crate) struct Guard<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Lock<T> {
        Lock { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let free = self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // A guard must not be made where the lock is not free: dropping it would free another's.
        free.then(|| Guard(self))
    }

    /// Only for a child after `fork`, which has one thread: whoever held the lock does not exist here.
    pub(crate) fn force_open(&self) {
        self.held.store(false, Ordering::Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (`held` was free when it was made and is freed when it is dropped).
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and `&mut self` makes this the only reference through it.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_cannot_have_it_leaves_it_held() {
        let lock = Lock::new(0);
        let held = lock.lock();
        assert!(lock.try_lock().is_none() && lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn one_thread_at_a_time_has_it() {
        let lock = Lock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 40_000);
    }
}
