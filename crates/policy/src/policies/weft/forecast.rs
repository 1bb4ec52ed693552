//! What will become of the batches that wait, if each GPU takes the most urgent one as it becomes free.
//!
//! A look ahead over what is known: batches in the order of their latest starts, and the times at which GPUs
//! will be free. It sees trouble while there is still a choice about whom it hits.

use crate::{Candidate, LaneId, Span, Time};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A lane's batch in the forecast.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) lane: LaneId,
    pub(super) formed: Candidate,
    /// Until when it gains more by waiting than a GPU loses by idling.
    pub(super) until: Time,
    /// How long it takes.
    pub(super) takes: Span,
}

impl Job {
    /// When it starts if it gets a GPU at `slot`.
    fn start(&self, slot: Time, hurry: bool) -> Time {
        if hurry { slot } else { slot.max(self.until) }
    }
}

/// Room for a forecast, kept between forecasts.
#[derive(Clone, Debug, Default)]
pub(super) struct Forecast {
    /// When GPUs become free.
    pub(super) free: Vec<Time>,
    slots: BinaryHeap<Reverse<Time>>,
}

impl Forecast {
    fn reset(&mut self) {
        self.slots.clear();
        self.slots.extend(self.free.iter().map(|time| Reverse(*time)));
    }

    /// Walks jobs in order and calls `late` with every job that will not start in time and when it could;
    /// stops when that returns a value. Jobs that wait start when they are due, unless `hurry`.
    pub(super) fn first_late<T>(
        &mut self,
        jobs: &[Job],
        hurry: bool,
        mut late: impl FnMut(usize, Time) -> Option<T>,
    ) -> Option<T> {
        self.reset();
        for (index, job) in jobs.iter().enumerate() {
            let mut slot = self.slots.peek_mut()?;
            if slot.0 > job.formed.latest {
                if let Some(found) = late(index, slot.0) {
                    return Some(found);
                }
            } else {
                slot.0 = job.start(slot.0, hurry) + job.takes;
            }
        }
        None
    }

    /// Whether all other jobs start in time when `chosen` runs now.
    pub(super) fn all_on_time_after(&mut self, jobs: &[Job], chosen: usize, now: Time, hurry: bool) -> bool {
        self.reset();
        match self.slots.peek_mut() {
            Some(mut slot) => slot.0 = slot.0.max(now) + jobs[chosen].takes,
            None => return false,
        }
        let others = jobs.iter().enumerate().filter(|(index, _)| *index != chosen);
        for (_, job) in others {
            let mut slot = self.slots.peek_mut().expect("there is a GPU");
            if slot.0 > job.formed.latest {
                return false;
            }
            slot.0 = job.start(slot.0, hurry) + job.takes;
        }
        true
    }
}
