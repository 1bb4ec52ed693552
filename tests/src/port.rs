//! Ports for servers that are started by tests.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below those that Linux gives to whoever connects: between being found and being listened on, such a one may become the
/// near end of somebody's connection, all the sooner when most are taken.
const PORTS: std::ops::Range<u32> = 12_000..32_000;

/// A port that nobody listens on, and that is found once.
pub fn free_port() -> u16 {
    static FOUND: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(101);
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let candidate = |_| {
        let number = first.wrapping_add(FOUND.fetch_add(1, Ordering::Relaxed));
        (PORTS.start + number % (PORTS.end - PORTS.start)) as u16
    };
    PORTS.map(candidate).find(free).expect("one of twenty thousand ports is free")
}
