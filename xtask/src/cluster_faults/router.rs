//! What a load balancer knows: which gateways answer their health check.

use super::fault::GATEWAYS;
use crate::connection::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How often a gateway is asked how it is, and how long it may take to say so.
const EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_millis(400);

/// Which gateway gets the next request. Its checks end when this goes out of scope.
#[derive(Debug)]
pub(super) struct Router {
    ports: [u16; GATEWAYS],
    up: [AtomicBool; GATEWAYS],
    over: AtomicBool,
}

impl Router {
    /// Watches gateways that listen for HTTP there.
    pub(super) fn start(ports: [u16; GATEWAYS]) -> Arc<Router> {
        let up = [const { AtomicBool::new(true) }; GATEWAYS];
        let router = Arc::new(Router { ports, up, over: AtomicBool::new(false) });
        for gateway in 0..GATEWAYS {
            let router = router.clone();
            std::thread::spawn(move || {
                while !router.over.load(Relaxed) {
                    router.up[gateway].store(router.is_well(gateway), Relaxed);
                    std::thread::sleep(EVERY);
                }
            });
        }
        router
    }

    pub(super) fn port(&self, gateway: usize) -> u16 {
        self.ports[gateway]
    }

    /// The gateway whose turn it is, or the next one that is up.
    pub(super) fn choose(&self, turn: u64) -> usize {
        let turn = turn as usize % GATEWAYS;
        let in_turn = (0..GATEWAYS).map(|step| (turn + step) % GATEWAYS);
        in_turn.into_iter().find(|gateway| self.up[*gateway].load(Relaxed)).unwrap_or(turn)
    }

    /// A gateway hung up: it gets nothing until its next health check.
    pub(super) fn take_out(&self, gateway: usize) {
        self.up[gateway].store(false, Relaxed);
    }

    pub(super) fn end(&self) {
        self.over.store(true, Relaxed);
    }

    fn is_well(&self, gateway: usize) -> bool {
        let Ok(mut connection) = Connection::open(self.ports[gateway], PATIENCE) else { return false };
        connection.get("/v2/health/live").is_ok_and(|answer| answer.status == 200)
    }
}
