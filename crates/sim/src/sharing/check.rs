//! What must hold in every run, checked during every run.
//!
//! 1. No kernel is lost: every launch is done once, or still on the GPU at the end.
//! 2. A tenant's kernels are done in the order of their launches.
//! 3. GPU time is conserved: work done is work launched less work left, and busy, switching and idle time add up to
//!    the time that passed.
//! 4. Time never goes back.
//!
//! The books are the run's own; the GPU model's are compared with them. A broken rule is a panic, because a result
//! from such a run is worth nothing.

use super::gpu::{Gpu, Job};
use policy::Time;

#[derive(Debug)]
pub(super) struct InvariantChecker {
    clock: Time,
    launched: Vec<u64>,
    done: Vec<u64>,
    /// Nanoseconds launched.
    work: Vec<u64>,
}

impl InvariantChecker {
    pub(super) fn new(tenants: usize) -> InvariantChecker {
        InvariantChecker {
            clock: Time::ZERO,
            launched: vec![0; tenants],
            done: vec![0; tenants],
            work: vec![0; tenants],
        }
    }

    pub(super) fn tick(&mut self, now: Time) {
        assert!(now >= self.clock, "time went back from {} to {} ns", self.clock.nanos(), now.nanos());
        self.clock = now;
    }

    /// The number of the tenant's next launch.
    pub(super) fn next(&self, tenant: usize) -> u64 {
        self.launched[tenant]
    }

    pub(super) fn launched(&mut self, job: &Job) {
        assert_eq!(job.number, self.launched[job.tenant], "tenant {} launched out of order", job.tenant);
        self.launched[job.tenant] += 1;
        self.work[job.tenant] += job.duration.nanos();
    }

    pub(super) fn done(&mut self, job: &Job) {
        let (tenant, now) = (job.tenant, self.clock.nanos());
        assert_eq!(job.number, self.done[tenant], "tenant {tenant}: a kernel overtook another at {now} ns");
        assert!(job.number < self.launched[tenant], "tenant {tenant}: a kernel ran that was not launched");
        self.done[tenant] += 1;
    }

    pub(super) fn finish(&self, gpu: &Gpu) {
        for tenant in 0..self.launched.len() {
            let queued = gpu.queued(tenant) as u64;
            assert_eq!(self.launched[tenant], self.done[tenant] + queued, "tenant {tenant}: a kernel was lost");
            let (work, left) = (self.work[tenant] * 1_000, gpu.left(tenant));
            assert_eq!(work, gpu.done[tenant] + left, "tenant {tenant}: GPU time was lost");
        }
        let all = gpu.busy + gpu.switching + gpu.idle;
        assert_eq!(all, self.clock - Time::ZERO, "busy, switching and idle do not add up");
    }
}
