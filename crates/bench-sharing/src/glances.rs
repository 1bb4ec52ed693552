//! What Weft does about best-effort programs while something is measured: its daemon is asked now and then.

use crate::results::Given;
use harness::now_ns;
use policy::sharing::Class;
use share_client::{Client, DaemonPaths, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often.
const EVERY: Duration = Duration::from_millis(20);

/// Somebody who looks, until it is told to end.
#[derive(Debug)]
pub(super) struct Glances {
    over: Arc<AtomicBool>,
    looking: JoinHandle<Sums>,
}

/// What was seen, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    best_effort: u64,
    held: u64,
    space_permille: u64,
    slice_us: u64,
    latency: u64,
    takes_permille: u64,
}

impl Glances {
    /// Looks at the daemon there from a time on, for the tenants that these processes belong to.
    pub(super) fn start(place: DaemonPaths, from_ns: u64, processes: Vec<u32>) -> Glances {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let looking = std::thread::spawn(move || {
            let mut sums = Sums::default();
            let client = Client::connect(&place);
            while !ended.load(Ordering::Relaxed) {
                if let Ok(Some(client)) = &client
                    && now_ns() >= from_ns
                    && let Ok(status) = client.status()
                {
                    sums.add(&status, &processes);
                }
                std::thread::sleep(EVERY);
            }
            sums
        });
        Glances { over, looking }
    }

    /// The means of what was seen; `None` of nothing.
    pub(super) fn end(self) -> Option<Given> {
        self.over.store(true, Ordering::Relaxed);
        self.looking.join().ok().and_then(Sums::means)
    }
}

impl Sums {
    /// Others are there and do nothing, as those that are suspended do.
    fn add(&mut self, status: &Status, processes: &[u32]) {
        let tenants = status.gpus.iter().flat_map(|gpu| &gpu.tenants).filter(|tenant| !tenant.share.suspended);
        for tenant in tenants.filter(|tenant| tenant.processes.iter().any(|process| processes.contains(process))) {
            match tenant.share.class {
                Class::BestEffort => {
                    self.best_effort += 1;
                    self.held += u64::from(tenant.held);
                    self.space_permille += u64::from(tenant.space_permille);
                    self.slice_us += u64::from(tenant.slice_us);
                }
                Class::Latency if tenant.takes_permille > 0 => {
                    self.latency += 1;
                    self.takes_permille += u64::from(tenant.takes_permille);
                }
                Class::Latency | Class::Standard => {}
            }
        }
    }

    fn means(self) -> Option<Given> {
        if self.best_effort == 0 {
            return None;
        }
        let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
        Some(Given {
            held: mean(self.held, self.best_effort),
            space: mean(self.space_permille, self.best_effort) / 1e3,
            slice_us: mean(self.slice_us, self.best_effort),
            takes: (self.latency > 0).then(|| mean(self.takes_permille, self.latency) / 1e3),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Share;
    use share_client::{GpuStatus, TenantStatus};

    #[test]
    fn means_are_of_those_that_are_measured() {
        let tenant = |class, process, held, takes_permille| TenantStatus {
            share: Share { class, ..Share::default() },
            processes: vec![process],
            held,
            takes_permille,
            space_permille: if held { 250 } else { 750 },
            ..TenantStatus::default()
        };
        let tenants = |held| {
            vec![
                tenant(Class::BestEffort, 1, held, 0),
                tenant(Class::BestEffort, 9, true, 0),
                tenant(Class::Latency, 2, false, 1_100),
                tenant(Class::Latency, 3, false, 0),
            ]
        };
        let mut sums = Sums::default();
        assert_eq!(sums.means(), None);
        for held in [true, false] {
            let gpus = vec![GpuStatus { tenants: tenants(held), ..GpuStatus::default() }];
            sums.add(&Status { gpus, ..Status::default() }, &[1, 2, 3]);
        }
        assert_eq!(sums.means(), Some(Given { held: 0.5, space: 0.5, slice_us: 0.0, takes: Some(1.1) }));
    }
}
