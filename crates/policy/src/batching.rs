//! Which requests can still share a batch, and by when it must start.
//!
//! Deferred batching after Symphony: a batch is worth waiting for until one more request could not join it
//! anyway. All functions here are about one queue and one latency table; who gets which GPU is decided
//! elsewhere.

use crate::{LatencyTable, Queue, Span, Time};

/// What lies between a decision and its effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// From the scheduler's decision to the GPU's worker.
    pub control: Span,
    /// Moving one request's input to the GPU.
    pub data_per_request: Span,
    /// From the GPU back to the client.
    pub response: Span,
    /// How late a timer or a message may be.
    pub jitter: Span,
}

/// The largest batch worth waiting for when requests come `gap` apart.
///
/// With `n` GPUs busy on the model, batches start `latency / n` apart, so a request waits that long, is moved
/// and then run: `l(b) * (1 + 1/n) <= budget - data * b` with `n = rate * l(b) / b`. Written out that is
/// `l(b) + b * gap + data * b <= budget`, which is also the rule for a single GPU.
pub fn target_batch(table: &LatencyTable, gap: Span, objective: Span, network: &Network) -> usize {
    let budget = objective - network.control - network.response;
    let fits = |size: usize| {
        let waiting = gap.nanos().saturating_mul(size as u64);
        table.latency(size) + Span::from_nanos(waiting) + network.data_per_request * size <= budget
    };
    let (mut low, mut high) = (0, table.max_batch());
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low.max(1)
}

/// When a batch would be over, if it were sent off now.
#[derive(Clone, Copy, Debug)]
pub struct Outlook<'a> {
    /// The moment of the decision.
    pub now: Time,
    /// When the GPU it would run on is free.
    pub gpu_free: Time,
    /// How long batches take there.
    pub table: &'a LatencyTable,
    /// What lies in between.
    pub network: &'a Network,
}

impl Outlook<'_> {
    /// When a batch of this size would be over: `max(now + control + data * size, gpu_free) + l(size)`.
    #[inline]
    pub fn finish(&self, size: usize) -> Time {
        self.start(size) + self.table.latency(size)
    }

    /// When a batch of this size would start.
    #[inline]
    pub fn start(&self, size: usize) -> Time {
        (self.now + self.network.control + self.network.data_per_request * size).max(self.gpu_free)
    }

    /// The largest batch, up to `limit`, that is over by `deadline`; zero when none is.
    #[inline]
    pub fn largest(&self, deadline: Time, limit: usize) -> usize {
        let limit = limit.min(self.table.max_batch());
        if limit > 0 && self.finish(limit) <= deadline {
            return limit;
        }
        if self.network.data_per_request == Span::ZERO {
            let start = self.start(0);
            return if start > deadline { 0 } else { self.table.largest_within(deadline - start).min(limit) };
        }
        let (mut low, mut high) = (0, limit);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.finish(middle) <= deadline { low = middle } else { high = middle - 1 }
        }
        low
    }
}

/// What a queue could send off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Heads to refuse first: they cannot finish in a batch of this size.
    pub drop: usize,
    /// Requests in the batch, those behind the dropped ones.
    pub size: usize,
    /// When it is worth starting: from here on one more request could not join anyway.
    pub due: Time,
    /// The last moment at which it can start and be on time.
    pub latest: Time,
}

/// The batch a queue is waiting to send, or `None` when nothing in it can be saved.
///
/// Heads that cannot finish together with all that wait behind them are sacrificed when that lets the rest
/// run as a batch of the target size (window drop): few are refused so that the batch stays large.
pub fn candidate(queue: &Queue, target: usize, outlook: &Outlook) -> Option<Candidate> {
    let limit = outlook.table.max_batch();
    if queue.is_empty() || limit == 0 {
        return None;
    }
    let prefix = tight_heads(queue, outlook);
    let mut size = (queue.len() - prefix).min(target).clamp(1, limit);
    let hopeful = |index: usize, size: usize| queue.deadline(index) >= outlook.finish(size);
    let mut drop = 0;
    while drop < queue.len() && drop <= prefix && !hopeful(drop, size.min(queue.len() - drop)) {
        drop += 1;
    }
    if drop == queue.len() {
        return None;
    }
    let deadline = queue.deadline(drop);
    size = outlook.largest(deadline, queue.len() - drop);
    if size == 0 {
        return None;
    }
    let network = outlook.network;
    let joined = if size < limit { outlook.table.latency(size + 1) } else { outlook.table.latency(size) };
    let frontrun = deadline - joined - network.data_per_request - network.jitter;
    let latest = deadline - outlook.table.latency(size) - network.jitter;
    Some(Candidate { drop, size, due: frontrun.min(latest), latest })
}

/// How many heads could not finish in a batch of everything from them on.
fn tight_heads(queue: &Queue, outlook: &Outlook) -> usize {
    let limit = outlook.table.max_batch();
    let tight = |index: usize| queue.deadline(index) < outlook.finish((queue.len() - index).min(limit));
    // Deadlines rise along the queue and what remains behind shrinks, so tightness ends once and for all.
    if !tight(0) {
        return 0;
    }
    let (mut low, mut high) = (1, queue.len());
    while low < high {
        let middle = (low + high) / 2;
        if tight(middle) { low = middle + 1 } else { high = middle }
    }
    low
}
