//! The connection of one GPU to the daemon; [`attach`](crate::attach) makes it.

#![deny(unsafe_code)]

use crate::lock::Lock;
use shm::Connection;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How one GPU is connected to the daemon. What a launch reads comes first.
#[repr(C)]
pub(crate) struct Link {
    pub(crate) state: AtomicU32,
    /// The generation that the daemon gave us.
    pub(crate) generation: AtomicU64,
    pub(crate) next_try_ns: AtomicU64,
    pub(crate) uuid: OnceLock<Option<[u8; 16]>>,
    pub(crate) wire: Lock<Wire>,
}

pub(crate) struct Wire {
    pub(crate) connection: Option<Connection>,
    /// When we asked over it, while there is no answer.
    pub(crate) asked_ns: Option<u64>,
}

pub(crate) const ABSENT: u32 = 0;
pub(crate) const ATTACHED: u32 = 1;
pub(crate) const REFUSED: u32 = 2;

impl Link {
    pub(crate) const fn new() -> Link {
        Link {
            state: AtomicU32::new(ABSENT),
            generation: AtomicU64::new(0),
            next_try_ns: AtomicU64::new(0),
            uuid: OnceLock::new(),
            wire: Lock::new(Wire { connection: None, asked_ns: None }),
        }
    }

    /// Whether there are pages of a daemon, alive or not.
    #[inline]
    pub(crate) fn attached(&self) -> bool {
        self.state.load(Ordering::Acquire) == ATTACHED
    }

    /// Whether it is time to look for a daemon: there is none, or the one there was is in `doubt`.
    #[inline]
    pub(crate) fn due(&self, now_ns: u64, doubt: bool) -> bool {
        (doubt || self.state.load(Ordering::Relaxed) == ABSENT) && now_ns >= self.next_try_ns.load(Ordering::Relaxed)
    }

    /// The generation that the daemon gave us.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    pub(crate) fn uuid(&self) -> Option<[u8; 16]> {
        self.uuid.get().copied().flatten()
    }

    /// In a child after `fork`: the connection is the parent's, and closed here.
    pub(crate) fn forget(&self) {
        self.wire.force_open();
        *self.wire.lock() = Wire { connection: None, asked_ns: None };
        self.state.store(ABSENT, Ordering::Release);
        self.next_try_ns.store(0, Ordering::Relaxed);
    }
}
