//! What would become of the same requests under another setting: a dispatcher of its own with the same models and GPUs,
//! told of the same arrivals, whose batches end exactly when they should.
//!
//! It does a bounded amount of work at a time. What it has no time for yet waits in its inbox, in order, so that what it
//! decides does not depend on how far it lags.

use super::prices::Prices;
use super::setting::Setting;
use crate::{Action, Actions, Cluster, Dispatcher, Event, GpuId, Network, Request, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Models and GPUs that are copied at a time.
const COPIED: usize = 64;

/// A setting that is tried in the shadow.
pub(super) struct Shadow {
    dispatcher: Dispatcher<Prices>,
    /// Requests it was told of and when they came, and has not got to yet.
    inbox: VecDeque<(Time, Request)>,
    /// When its batches end.
    ends: BinaryHeap<Reverse<(Time, u64, GpuId)>>,
    actions: Actions,
}

impl Shadow {
    /// A shadow of a cluster without models and GPUs.
    pub(super) fn new(setting: Setting, network: Network) -> Shadow {
        Shadow {
            dispatcher: Dispatcher::of(Vec::new(), &[], network, Prices::new(setting)),
            inbox: VecDeque::new(),
            ends: BinaryHeap::new(),
            actions: Actions::default(),
        }
    }

    /// Copies some more of the models and GPUs that are there; whether it has them all.
    pub(super) fn copy(&mut self, now: Time, cluster: &Cluster) -> bool {
        self.dispatcher.parts().0.mirror(now, cluster, COPIED)
    }

    /// Knows from now on what the one that serves has learned.
    pub(super) fn learn(&mut self, cluster: &Cluster, from: &Prices) {
        let (own, prices) = self.dispatcher.parts();
        own.rates.clone_from(&cluster.rates);
        prices.learn(from, &own.offered, &own.refused);
    }

    /// Tells of a request.
    pub(super) fn tell(&mut self, now: Time, request: Request) {
        self.inbox.push_back((now, request));
    }

    /// Does what is due by now, at most so many things. As in the simulator, at one instant batches end before requests
    /// come, and those come before timers.
    pub(super) fn catch_up(&mut self, now: Time, most: usize) {
        for _ in 0..most {
            let end = self.ends.peek().map_or(Time::NEVER, |Reverse((at, ..))| *at);
            let arrival = self.inbox.front().map_or(Time::NEVER, |(at, _)| *at);
            let timer = self.dispatcher.next_timer().unwrap_or(Time::NEVER);
            let at = end.min(arrival).min(timer);
            if at > now {
                return;
            }
            if end == at {
                let Reverse((_, batch, gpu)) = self.ends.pop().expect("a batch ends");
                self.dispatcher.on_event(at, Event::BatchDone { gpu, batch }, &mut self.actions);
            } else if arrival == at {
                let (_, request) = self.inbox.pop_front().expect("a request came");
                self.dispatcher.on_event(at, Event::Arrived(request), &mut self.actions);
            } else {
                self.dispatcher.on_timer(at, &mut self.actions);
            }
            let control = self.cluster().network.control;
            for action in &self.actions.list {
                if let Action::Run { gpu, batch, finish, .. } = action {
                    self.ends.push(Reverse((*finish + control, *batch, *gpu)));
                }
            }
            self.actions.clear();
        }
    }

    /// Whether nobody waits and nothing runs.
    pub(super) fn is_idle(&self) -> bool {
        self.inbox.is_empty() && self.ends.is_empty() && self.dispatcher.next_timer().is_none()
    }

    /// Its books.
    pub(super) fn cluster(&self) -> &Cluster {
        self.dispatcher.cluster()
    }
}
