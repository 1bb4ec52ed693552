//! Drives the life of each deployment: tells it what happened, and does what it says.
//!
//! What a deployment's life is like is `policy::deployment`'s.

use crate::driver::Driver;
use crate::store::Stored;
use policy::Time;
use policy::deployment::{Action, Answer, Event, Phase};
use rpc::{OrderError, WorkerId};

impl Driver {
    /// Something happened to a deployment.
    pub(crate) fn live(&mut self, now: Time, number: u32, event: Event) {
        let Some(deployment) = self.models.get_mut(&number) else { return };
        let before = deployment.life.clone();
        let mut actions = Vec::new();
        deployment.life.on_event(now, event, &mut actions);
        if deployment.life != before {
            self.changed = true;
            match deployment.life.phase() {
                phase if phase == before.phase() => {}
                Phase::Serving => tracing::info!(model = deployment.label(), "ready"),
                Phase::Failed(reason) => tracing::warn!(model = deployment.label(), reason, "not ready"),
                _ => {}
            }
        }
        self.follow_life(now, number, actions);
    }

    /// Lets deployments go on that wait for something, and takes those away that have nothing left to do.
    pub(crate) fn live_on(&mut self, now: Time) {
        for number in self.models.keys().copied().collect::<Vec<_>>() {
            let Some(deployment) = self.models.get_mut(&number) else { continue };
            if deployment.life.next_timer().is_some_and(|at| at <= now) {
                let mut actions = Vec::new();
                deployment.life.on_timer(now, &mut actions);
                self.changed = true;
                self.follow_life(now, number, actions);
            }
            let Some(deployment) = self.models.get(&number).filter(|deployment| deployment.life.is_retired()) else {
                continue;
            };
            let pool = deployment.place.and_then(|place| Some((self.pools.get(&place.pool)?, place.model)));
            if pool.is_none_or(|(pool, model)| pool.is_idle(model)) {
                self.live(now, number, Event::Idle);
            }
        }
    }

    fn follow_life(&mut self, now: Time, number: u32, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Stop(worker) => self.stop_worker(now, WorkerId(worker)),
                Action::Keep => {
                    let kept = self.keep(number);
                    self.live(now, number, Event::Kept(kept));
                }
                Action::TakeOver => self.take_over(now, number),
                Action::Answer(answer) => self.answer_all(number, &answer),
                Action::Remove => self.remove(now, number),
            }
        }
    }

    /// Writes down a deployment that works. Not before: a server that is killed while a new deployment is tried comes back
    /// with the one that worked.
    fn keep(&mut self, number: u32) -> Result<(), String> {
        let Some(deployment) = self.models.get(&number) else { return Ok(()) };
        let stored = Stored { spec: (*deployment.spec).clone(), loaded: true };
        self.store.put(&[stored]).map_err(|error| format!("{error:#}"))
    }

    /// The deployment that this one replaces takes no more requests.
    fn take_over(&mut self, now: Time, number: u32) {
        let Some(deployment) = self.models.get_mut(&number) else { return };
        deployment.replaces = None;
        let spec = deployment.spec.clone();
        self.changed = true;
        for before in self.listed(&spec.name, Some(spec.version)).into_iter().filter(|other| *other != number) {
            self.live(now, before, Event::Retire);
        }
    }

    /// Has all answered who wait for a deployment.
    fn answer_all(&mut self, number: u32, answer: &Answer) {
        let Some(deployment) = self.models.get_mut(&number) else { return };
        let name = &deployment.spec.name;
        let outcome = match answer {
            Answer::Ready => Ok(()),
            Answer::Failed(reason) => Err(OrderError::Invalid(format!("model `{name}`: {reason}"))),
            Answer::NotKept(reason) => Err(OrderError::Storage(reason.clone())),
            Answer::TakenAway => Err(OrderError::Invalid(format!("model `{name}` was taken away meanwhile"))),
        };
        for reply in std::mem::take(&mut deployment.replies) {
            self.answer(reply, outcome.clone());
        }
    }
}
