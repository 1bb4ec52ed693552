//! One service's scaling: the state machine around forecast, gaps and choice.

use super::choose::choose;
use super::idle::{GAP_MIN, Gaps};
use super::{Action, Forecast, HandOver, Service, Size, State, View, Why, Worker};
use crate::surface::Share;
use crate::{InstanceId, Span, Time};
use std::collections::BTreeMap;

/// How often to look.
pub const LOOK: Span = Span::from_millis(100);

/// Workers should be busy for this part of the time at most, or requests wait too long.
const BUSY: f64 = 0.85;
/// A worker goes only where the others would be busy for less than this part.
const BUSY_WITHOUT: f64 = 0.8;
/// How long a shortage lasts before a worker is added for it, where the reserve would still cover it.
const PATIENCE: Span = Span::from_secs(1);
/// Workers are asked for again after this long where none came.
const ASK_AGAIN: Span = Span::from_secs(1);
/// What is looked ahead beyond a start.
const BEYOND: Span = Span::from_secs(2);
/// A share shrinks after this long, and grows at once.
const SHRINK_AFTER: Span = Span::from_millis(500);
/// Shares differ by this many thousandths before they are changed.
const STEP: u32 = 20;
/// All workers are busy for this part of the time, in thousandths.
const BUSY_ALL: u32 = 950;
/// The part of a start by which starts are thought to differ until one was seen.
const DIFFERS_GUESS: (u64, u64) = (1, 4);
/// The shortest time in which nothing is removed after an addition.
const SETTLE_MIN: Span = Span::from_secs(10);

/// How many times further than for an addition is looked ahead before a worker goes.
const AHEAD: usize = 3;
/// The part of the last burst that workers who stay can do, stretched.
const BURST: f64 = 0.5;
/// How many times longer a worker is kept whose GPU is in use without it.
const FREE: usize = 10;

/// What becomes of a request that meets no worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It waits, and is answered in time.
    Wait {
        /// How long until a worker is there.
        expected: Span,
    },
    /// It is refused now: it could not be answered in time.
    Refuse {
        /// How long until a worker is there, for whoever wants to ask again.
        expected: Span,
    },
}

/// Scales one service.
#[derive(Clone, Debug)]
pub struct Autoscaler {
    service: Service,
    forecast: Forecast,
    gaps: Gaps,
    cold_start: Span,
    /// By how much starts differ from that.
    differs: Span,
    learned: bool,
    /// When each worker that starts was first seen.
    starting: BTreeMap<InstanceId, Time>,
    first_look: Option<Time>,
    last_look: Option<Time>,
    last_arrival: Option<Time>,
    /// Since when workers do not do what is needed, stretched as far as they can be.
    short_since: Option<Time>,
    /// Since when workers are busy all the time and requests wait.
    overrun_since: Option<Time>,
    /// Since when some worker could go.
    surplus_since: Option<Time>,
    /// Since when less share would do.
    slack_since: Option<Time>,
    last_added: Option<Time>,
}

impl Autoscaler {
    /// Begins with nothing known but the service.
    pub fn new(service: Service) -> Autoscaler {
        let cold_start = service.cold_start();
        Autoscaler {
            service,
            forecast: Forecast::default(),
            gaps: Gaps::default(),
            cold_start,
            differs: cold_start.scale(DIFFERS_GUESS.0, DIFFERS_GUESS.1),
            learned: false,
            starting: BTreeMap::new(),
            first_look: None,
            last_look: None,
            last_arrival: None,
            short_since: None,
            overrun_since: None,
            surplus_since: None,
            slack_since: None,
            last_added: None,
        }
    }

    /// Changes bounds or sizes; what was learned stays.
    pub fn set_service(&mut self, service: Service) {
        self.service = service;
    }

    /// What is scaled.
    pub fn service(&self) -> &Service {
        &self.service
    }

    /// What is known of arrivals.
    pub fn forecast(&self) -> &Forecast {
        &self.forecast
    }

    /// How long a start takes, as far as is known.
    pub fn cold_start(&self) -> Span {
        self.cold_start
    }

    /// How long nothing is removed after an addition, and how long a surplus lasts before it is believed.
    pub fn settle(&self) -> Span {
        SETTLE_MIN.max(self.cold_start * 2)
    }

    /// How long a worker stays while nobody calls.
    pub fn keep_alive(&self) -> Span {
        self.service.keep_alive().unwrap_or_else(|| self.gaps.keep_alive(self.cold_start))
    }

    /// What becomes of a request with `left` until its deadline that finds no ready worker. The caller looks right after,
    /// so that a worker starts at once. It is told when a worker is expected and waits only where it would still be in
    /// time if the start took longer by as much as starts differ.
    pub fn admit(&self, now: Time, left: Span) -> Admission {
        let begun = self.starting.values().min().map_or(now, |since| (*since).min(now));
        // A start that takes longer than it should is done any moment, as far as anybody can tell.
        let expected = (begun + self.cold_start) - now;
        // A batch takes up to half of an objective; that much is left when the worker is there.
        let fits = expected + self.differs + self.service.objective().scale(1, 2) <= left;
        if fits { Admission::Wait { expected } } else { Admission::Refuse { expected } }
    }

    /// What to do, given what happened since the last look.
    pub fn look(&mut self, now: Time, view: &View) -> Vec<Action> {
        let now = self.last_look.map_or(now, |last| now.max(last));
        self.learn_starts(now, view);
        self.learn_arrivals(now, view);
        self.first_look.get_or_insert(now);
        self.last_look = Some(now);
        let mut actions = Vec::new();
        let living: Vec<&Worker> = view.workers.iter().filter(|worker| worker.state != State::Draining).collect();
        let bounded = self.keep_bounds(now, &living, &mut actions);
        if !bounded && !self.start_from_zero(now, view, &living, &mut actions) {
            self.horizontal(now, view, &living, &mut actions);
        }
        self.vertical(now, view, &mut actions);
        actions
    }

    fn learn_starts(&mut self, now: Time, view: &View) {
        for worker in &view.workers {
            match worker.state {
                State::Starting => {
                    self.starting.entry(worker.id).or_insert(now);
                }
                State::Ready => {
                    if let Some(since) = self.starting.remove(&worker.id) {
                        let took = now - since;
                        let off = Span::from_nanos(took.nanos().abs_diff(self.cold_start.nanos()));
                        self.differs = if self.learned { (self.differs * 3 + off).scale(1, 4) } else { off };
                        self.cold_start = if self.learned { (self.cold_start * 3 + took).scale(1, 4) } else { took };
                        self.learned = true;
                    }
                }
                State::Draining => {}
            }
        }
        self.starting
            .retain(|id, _| view.workers.iter().any(|worker| worker.id == *id && worker.state == State::Starting));
    }

    fn learn_arrivals(&mut self, now: Time, view: &View) {
        self.forecast.record(self.last_look.unwrap_or(now), now, view.arrivals, self.horizon());
        if view.arrivals > 0 {
            if let Some(last) = self.last_arrival {
                self.gaps.record(now - last);
            }
            self.last_arrival = Some(now);
        }
    }

    /// A worker that is asked for now is there by then.
    fn horizon(&self) -> Span {
        self.cold_start + BEYOND
    }

    fn size(&self, worker: &Worker) -> &Size {
        let sizes = self.service.sizes();
        &sizes[worker.size.min(sizes.len() - 1)]
    }

    /// Requests a second of a worker that is stretched as far as it can be.
    fn most(&self, worker: &Worker) -> f64 {
        let ceiling = if worker.state == State::Starting { self.size(worker).limit } else { worker.ceiling };
        self.size(worker).at(ceiling)
    }

    /// Adds or removes what the bounds ask for, whatever the load is. Whether the number of workers is settled by that.
    fn keep_bounds(&mut self, now: Time, living: &[&Worker], actions: &mut Vec<Action>) -> bool {
        let (count, bounds) = (living.len() as u32, self.service.replicas());
        if count > bounds.max {
            let mut removable: Vec<&Worker> = living.to_vec();
            // What does not answer yet goes first, then the least efficient.
            removable.sort_by(|left, right| {
                let key = |worker: &Worker| worker.state != State::Starting;
                let efficiency = |worker: &Worker| self.size(worker).efficiency();
                key(left)
                    .cmp(&key(right))
                    .then(efficiency(left).total_cmp(&efficiency(right)))
                    .then(right.id.cmp(&left.id))
            });
            for worker in removable.into_iter().take((count - bounds.max) as usize) {
                actions.push(Action::Remove { worker: worker.id, why: Why::AtMost(bounds.max) });
            }
            return true;
        }
        if count < bounds.min {
            let missing = (bounds.min - count) as usize;
            let each = self.forecast.expected(self.horizon()) / f64::from(bounds.min);
            let size = choose(self.service.sizes(), each.max(f64::MIN_POSITIVE), 1);
            self.add(now, &vec![size[0]; missing], Why::AtLeast(bounds.min), actions);
            return true;
        }
        bounds.min == bounds.max
    }

    /// The first worker of a service that has none: because requests came, or are about to.
    fn start_from_zero(&mut self, now: Time, view: &View, living: &[&Worker], actions: &mut Vec<Action>) -> bool {
        if !living.is_empty() {
            return false;
        }
        let why = if view.arrivals + view.waiting > 0 {
            Some(Why::FromZero { requests: view.arrivals.max(view.waiting) })
        } else {
            self.foretold(now).map(|within| Why::Prewarm { within })
        };
        if let Some(why) = why {
            let needed = self.needed(self.horizon()).max(f64::MIN_POSITIVE);
            let most = self.service.replicas().max as usize;
            let sizes = choose(self.service.sizes(), needed, most);
            self.add(now, &sizes, why, actions);
        }
        true
    }

    /// When a call is expected, where that is so soon that a worker has to start now.
    fn foretold(&self, now: Time) -> Option<Span> {
        let horizon = self.horizon();
        let since = now - self.last_arrival?;
        if let Some((early, late)) = self.gaps.regular(self.cold_start) {
            return (since + horizon >= early && since <= late).then(|| early - since);
        }
        (self.forecast.period().is_some() && self.forecast.expected(horizon) >= 1.0).then_some(horizon)
    }

    /// Requests a second that workers must be able to do for a time to come, bursts and waiting included.
    fn needed(&self, horizon: Span) -> f64 {
        self.forecast.expected(horizon) * self.forecast.reserve() / BUSY
    }

    fn horizontal(&mut self, now: Time, view: &View, living: &[&Worker], actions: &mut Vec<Action>) {
        let given: f64 = living.iter().map(|worker| self.most(worker)).sum();
        let (expected, needed) = (self.forecast.expected(self.horizon()), self.needed(self.horizon()));
        let starting = living.iter().any(|worker| worker.state == State::Starting);
        let overrun = self.overrun(now, view, given) && !starting;
        if needed > given || overrun {
            self.surplus_since = None;
            let since = *self.short_since.get_or_insert(now);
            let lasts = now - since >= PATIENCE;
            if overrun || lasts || expected > given {
                let needed = if overrun { needed.max(given * 1.25) } else { needed };
                let (workers, horizon) = (living.len() as u32, self.horizon());
                let why = Why::Behind(HandOver { expected, needed, given, workers, horizon, overrun });
                let most = self.service.replicas().max as usize - living.len();
                let sizes = choose(self.service.sizes(), needed - given, most);
                self.add(now, &sizes, why, actions);
            }
            return;
        }
        self.short_since = None;
        self.shrink(now, view, living, actions);
    }

    /// Whether workers have been busy all the time and requests waited for longer than their objective lets them.
    fn overrun(&mut self, now: Time, view: &View, given: f64) -> bool {
        let mut ready = view.workers.iter().filter(|worker| worker.state == State::Ready).peekable();
        let some = ready.peek().is_some();
        let late = view.waiting as f64 > given * self.service.objective().seconds();
        if !(some && ready.all(|worker| worker.busy >= BUSY_ALL) && late) {
            self.overrun_since = None;
            return false;
        }
        now - *self.overrun_since.get_or_insert(now) >= PATIENCE
    }

    /// Lets workers go that the others do without.
    fn shrink(&mut self, now: Time, view: &View, living: &[&Worker], actions: &mut Vec<Action>) {
        let idle = self.idle(now, view, living);
        let needed = self.needed(self.horizon() * AHEAD) * BUSY / BUSY_WITHOUT;
        let needed = needed.max(self.forecast.burst() * BURST);
        let mut order: Vec<&Worker> = living.to_vec();
        // Who has a GPU to itself goes first, then the least efficient, then who came last.
        order.sort_by(|left, right| {
            let efficiency = |worker: &Worker| self.size(worker).efficiency();
            let alone = right.alone.cmp(&left.alone);
            alone.then(efficiency(left).total_cmp(&efficiency(right))).then(right.id.cmp(&left.id))
        });
        let mut given: f64 = living.iter().map(|worker| self.most(worker)).sum();
        let mut ready = living.iter().filter(|worker| worker.state == State::Ready).count();
        let mut left = living.len() as u32;
        let mut leaving: Vec<(InstanceId, Why)> = Vec::new();
        for worker in order {
            let most = self.most(worker);
            let last = ready <= 1 && worker.state == State::Ready;
            let why = match idle {
                _ if left <= self.service.replicas().min => break,
                // The last to answer goes only when nobody calls.
                Some(why) if left == 1 => why,
                _ if left == 1 || last && left > 1 => continue,
                _ if given - most < needed => continue,
                _ => Why::Surplus { needed, given: given - most },
            };
            leaving.push((worker.id, why));
            given -= most;
            left -= 1;
            ready -= usize::from(worker.state == State::Ready);
        }
        if leaving.is_empty() || view.waiting > 0 && ready == 0 {
            self.surplus_since = None;
            return;
        }
        let lasts = now - *self.surplus_since.get_or_insert(now) >= self.settle();
        let settled = self.last_added.is_none_or(|added| now - added >= self.settle());
        // Who has kept a worker alive for long enough need not be patient as well.
        let ends = leaving.iter().all(|(_, why)| matches!(why, Why::Idle { .. }));
        if settled && (lasts || ends) {
            actions.extend(leaving.into_iter().map(|(worker, why)| Action::Remove { worker, why }));
            self.surplus_since = None;
        }
    }

    /// Why nobody needs the last worker, if nobody does.
    fn idle(&self, now: Time, view: &View, living: &[&Worker]) -> Option<Why> {
        if view.waiting > 0 || view.arrivals > 0 || self.foretold(now).is_some() {
            return None;
        }
        let costs = living.iter().any(|worker| worker.alone);
        let keep_alive = match self.service.keep_alive() {
            Some(asked) => asked,
            None if costs => self.keep_alive(),
            None => self.keep_alive() * FREE,
        };
        let idle = now - self.last_arrival.or(self.last_added).or(self.first_look)?;
        (idle >= keep_alive && idle >= GAP_MIN).then_some(Why::Idle { idle, keep_alive })
    }

    fn add(&mut self, now: Time, sizes: &[usize], why: Why, actions: &mut Vec<Action>) {
        if self.last_added.is_some_and(|last| now - last < ASK_AGAIN) {
            return;
        }
        for index in sizes {
            let Size { request, limit, .. } = self.service.sizes()[*index];
            actions.push(Action::Add { size: *index, request, limit, why });
        }
        if !sizes.is_empty() {
            self.last_added = Some(now);
            self.short_since = None;
            self.overrun_since = None;
            self.surplus_since = None;
        }
    }

    /// Stretches ready workers alike, as far as the present load asks for.
    fn vertical(&mut self, now: Time, view: &View, actions: &mut Vec<Action>) {
        let goes = |worker: &&Worker| {
            actions.iter().any(|action| matches!(action, Action::Remove { worker: id, .. } if *id == worker.id))
        };
        let ready = view.workers.iter().filter(|worker| worker.state == State::Ready);
        let ready: Vec<&Worker> = ready.filter(|worker| !goes(worker)).collect();
        // What waits is to be gone within an objective.
        let waiting = view.waiting as f64 / self.service.objective().seconds().max(1e-3);
        let expected = self.forecast.expected(Span::from_secs(1)).max(self.forecast.level()) + waiting;
        let needed = expected / BUSY;
        let least: f64 = ready.iter().map(|worker| self.size(worker).throughput).sum();
        let most: f64 = ready.iter().map(|worker| self.size(worker).throughput_limit).sum();
        let part = if most > least { ((needed - least) / (most - least)).clamp(0.0, 1.0) } else { 0.0 };
        let wanted = |worker: &Worker| {
            let Size { request, limit, .. } = self.size(worker);
            let more = f64::from(limit.permille() - request.permille()) * part;
            let share = Share::from_permille(request.permille() + more.ceil() as u32).unwrap_or(*limit);
            share.min(worker.ceiling).max(*request)
        };
        let changes: Vec<(&Worker, Share)> = ready.iter().map(|worker| (*worker, wanted(worker))).collect();
        let grows = changes.iter().any(|(worker, share)| *share > worker.share);
        let slack = !grows && changes.iter().any(|(worker, share)| *share < worker.share);
        let shrinks = slack && now - *self.slack_since.get_or_insert(now) >= SHRINK_AFTER;
        if !slack || shrinks {
            self.slack_since = None;
        }
        for (worker, share) in changes {
            let far = worker.share.permille().abs_diff(share.permille()) >= STEP;
            let end = share == self.size(worker).request || share == self.size(worker).limit;
            let due = if share > worker.share { true } else { shrinks };
            if share != worker.share && due && (far || end) {
                actions.push(Action::Stretch { worker: worker.id, share, expected });
            }
        }
    }
}
