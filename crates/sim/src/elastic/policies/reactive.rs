//! How many workers there are where nothing else is said: Knative's autoscaler with its defaults, counting requests a
//! second. A stable window of a minute and a panic window of six seconds, workers at 70% of what they can do, looked at
//! every two seconds; panic when the short window asks for twice of what there is, and no scaling down for a minute
//! after; at most half of the workers go at a time; none are left when a minute was silent and half of one more went by.

use super::Shape;
use crate::elastic::latency::Latency;
use crate::elastic::scenario::Function;
use policy::autoscale::{Action, HandOver, Replicas, State, View, Why};
use policy::surface::Share;
use policy::{Span, Time};
use std::collections::VecDeque;

const STABLE: Span = Span::from_secs(60);
const PANIC: Span = Span::from_secs(6);
const GRACE: Span = Span::from_secs(30);
const UTILISATION: f64 = 0.7;
const PANIC_AT: f64 = 2.0;

/// One function's autoscaler.
#[derive(Debug)]
pub(super) struct Reactive {
    shape: Option<Shape>,
    replicas: Replicas,
    /// Arrivals between looks, the last one last.
    counts: VecDeque<u64>,
    panicked: Option<Time>,
    silent_since: Option<Time>,
}

impl Reactive {
    /// How often it looks.
    pub(super) const EVERY: Span = Span::from_secs(2);

    /// One for each function.
    pub(super) fn each(
        functions: &[Function],
        latencies: &[Latency],
        shapes: impl Fn(&Function, &Latency) -> Vec<Shape>,
    ) -> Vec<Reactive> {
        let each = |(function, latency): (&Function, &Latency)| Reactive {
            shape: shapes(function, latency).last().copied(),
            replicas: function.replicas,
            counts: VecDeque::new(),
            panicked: None,
            silent_since: None,
        };
        functions.iter().zip(latencies).map(each).collect()
    }

    fn rate(&self, window: Span) -> f64 {
        let looks = ((window.nanos() / Self::EVERY.nanos()) as usize).min(self.counts.len());
        let last: u64 = self.counts.range(self.counts.len() - looks..).sum();
        last as f64 / (looks.max(1) as f64 * Self::EVERY.seconds())
    }

    /// What to do about the function.
    pub(super) fn look(&mut self, now: Time, view: &View) -> Vec<Action> {
        let Some(shape) = self.shape else { return Vec::new() };
        if self.counts.len() as u64 == STABLE.nanos() / Self::EVERY.nanos() {
            self.counts.pop_front();
        }
        self.counts.push_back(view.arrivals);
        let living: Vec<_> = view.workers.iter().filter(|worker| worker.state != State::Draining).collect();
        let ready = living.iter().filter(|worker| worker.state == State::Ready).count();
        let wanted = |rate: f64| (rate / (shape.throughput * UTILISATION)).ceil();
        let (stable, panic) = (wanted(self.rate(STABLE)), wanted(self.rate(PANIC)));
        if panic >= PANIC_AT * ready.max(1) as f64 {
            self.panicked = Some(now);
        }
        let panicking = self.panicked.is_some_and(|since| now - since < STABLE);
        let mut desired = if panicking { stable.max(panic).max(living.len() as f64) } else { stable };
        desired = desired.max((living.len() / 2) as f64);
        if self.counts.iter().any(|count| *count > 0) || view.waiting > 0 {
            self.silent_since = None;
            desired = desired.max(1.0);
        } else if now - *self.silent_since.get_or_insert(now) < GRACE {
            desired = desired.max(living.len().min(1) as f64);
        }
        let desired = (desired as usize).clamp(self.replicas.min as usize, self.replicas.max as usize);
        let given = shape.throughput * living.len() as f64;
        let needed = desired as f64 * shape.throughput;
        if desired > living.len() {
            let hand_over = HandOver {
                expected: self.rate(if panicking { PANIC } else { STABLE }),
                needed,
                given,
                workers: living.len() as u32,
                horizon: Span::ZERO,
                overrun: false,
            };
            return (living.len()..desired).map(|_| add(0, &shape, Why::Behind(hand_over))).collect();
        }
        let mut leaving: Vec<_> = living.iter().map(|worker| (worker.state == State::Ready, worker.id)).collect();
        // Who is not ready yet goes first, then who came last.
        leaving.sort_by_key(|(ready, id)| (*ready, std::cmp::Reverse(*id)));
        let surplus = leaving.into_iter().take(living.len() - desired);
        surplus.map(|(_, worker)| Action::Remove { worker, why: Why::Surplus { needed, given } }).collect()
    }
}

/// A worker of this shape.
pub(super) fn add(size: usize, shape: &Shape, why: Why) -> Action {
    let share = |permille| Share::from_permille(permille).unwrap_or(Share::ALL);
    Action::Add { size, request: share(shape.request), limit: share(shape.limit), why }
}
