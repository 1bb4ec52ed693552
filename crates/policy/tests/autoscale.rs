//! What holds of scaling whatever comes: loads that jump, workers that take their time or never come, clocks that step.

use policy::autoscale::{Action, Admission, Autoscaler, LOOK, Replicas, Service, Size, State, View, Why, Worker};
use policy::surface::Share;
use policy::{InstanceId, Span, Time};
use proptest::prelude::*;

fn share(percent: f64) -> Share {
    Share::from_percent(percent).unwrap()
}

/// Three sizes that stretch to half a GPU.
fn sizes() -> Vec<Size> {
    let size =
        |percent, throughput| Size { request: share(percent), limit: share(50.0), throughput, throughput_limit: 150.0 };
    vec![size(10.0, 25.0), size(20.0, 60.0), size(30.0, 100.0)]
}

fn service(min: u32, max: u32, sizes: Vec<Size>) -> Service {
    Service::new(Span::from_millis(100), Replicas { min, max }, sizes, Span::from_secs(4)).unwrap()
}

/// A service that does what it is told, with a queue that is served at the rate of its workers.
struct World {
    scaler: Autoscaler,
    now: Time,
    cold_start: Span,
    workers: Vec<(Worker, Time)>,
    queue: f64,
    owed: f64,
    next: u32,
    log: Vec<(Time, Action)>,
}

impl World {
    fn new(service: Service, cold_start: Span) -> World {
        World {
            scaler: Autoscaler::new(service),
            now: Time::ZERO,
            cold_start,
            workers: Vec::new(),
            queue: 0.0,
            owed: 0.0,
            next: 0,
            log: Vec::new(),
        }
    }

    fn capacity(&self) -> f64 {
        let sizes = self.scaler.service().sizes();
        let ready = self.workers.iter().filter(|(worker, _)| worker.state == State::Ready);
        ready.map(|(worker, _)| sizes[worker.size].at(worker.share)).sum()
    }

    fn living(&self) -> usize {
        self.workers.iter().filter(|(worker, _)| worker.state != State::Draining).count()
    }

    /// Goes on for a look at this many requests a second. `room`: whether workers can be placed.
    fn step(&mut self, rate: f64, room: bool) {
        self.now += LOOK;
        let now = self.now;
        for (worker, begun) in &mut self.workers {
            if worker.state == State::Starting && now - *begun >= self.cold_start {
                worker.state = State::Ready;
            }
        }
        self.owed += rate * LOOK.seconds();
        let arrivals = self.owed.floor();
        self.owed -= arrivals;
        let can = self.capacity() * LOOK.seconds();
        let busy = if can > 0.0 { ((self.queue + arrivals) / can).min(1.0) } else { 0.0 };
        self.queue = (self.queue + arrivals - can).max(0.0);
        // Nobody waits for longer than an objective or so.
        self.queue = self.queue.min(rate * 0.2 + 1.0);
        for (worker, _) in &mut self.workers {
            worker.busy = if worker.state == State::Ready { (busy * 1e3) as u32 } else { 0 };
        }
        let view = View {
            arrivals: arrivals as u64,
            waiting: self.queue as u64,
            workers: self.workers.iter().map(|(worker, _)| *worker).collect(),
        };
        let actions = self.scaler.look(now, &view);
        self.check(&view, &actions);
        self.apply(&actions, room);
    }

    fn check(&self, view: &View, actions: &[Action]) {
        let ready: Vec<InstanceId> =
            view.workers.iter().filter(|worker| worker.state == State::Ready).map(|worker| worker.id).collect();
        let gone = |id: &InstanceId| {
            actions.iter().any(|action| matches!(action, Action::Remove { worker, .. } if worker == id))
        };
        if view.waiting > 0 && !ready.is_empty() {
            assert!(ready.iter().any(|id| !gone(id)), "the last ready worker went while requests waited: {actions:?}");
        }
        for action in actions {
            assert!(!action.to_string().is_empty());
            match action {
                Action::Stretch { worker, share, .. } => {
                    let worker = view.workers.iter().find(|other| other.id == *worker).expect("it is there");
                    let size = self.scaler.service().sizes()[worker.size];
                    assert!((size.request..=size.limit).contains(share), "{action}");
                    assert!(worker.state == State::Ready && !gone(&worker.id), "{action}");
                }
                Action::Remove { worker, .. } => {
                    let worker = view.workers.iter().find(|other| other.id == *worker).expect("it is there");
                    assert_ne!(worker.state, State::Draining, "it goes already");
                }
                Action::Add { size, .. } => assert!(*size < self.scaler.service().sizes().len()),
            }
        }
    }

    fn apply(&mut self, actions: &[Action], room: bool) {
        // Who drained is gone by the next look.
        self.workers.retain(|(worker, _)| worker.state != State::Draining);
        for action in actions {
            self.log.push((self.now, action.clone()));
            match action {
                Action::Stretch { worker, share, .. } => {
                    let worker = self.workers.iter_mut().find(|(other, _)| other.id == *worker);
                    worker.expect("it is there").0.share = *share;
                }
                Action::Add { size, request, limit, .. } if room => {
                    let id = InstanceId(self.next);
                    self.next += 1;
                    let (state, share) = (State::Starting, *request);
                    let worker = Worker { id, state, size: *size, share, ceiling: *limit, alone: true, busy: 0 };
                    self.workers.push((worker, self.now));
                }
                Action::Add { .. } => {}
                Action::Remove { worker, .. } => {
                    let worker = self.workers.iter_mut().find(|(other, _)| other.id == *worker);
                    worker.expect("it is there").0.state = State::Draining;
                }
            }
        }
        let bounds = self.scaler.service().replicas();
        assert!(self.living() <= bounds.max as usize, "more than {} workers", bounds.max);
        if room {
            assert!(self.living() >= bounds.min as usize, "fewer than {} workers", bounds.min);
        }
    }

    fn run(&mut self, seconds: u64, rate: f64) {
        (0..seconds * 10).for_each(|_| self.step(rate, true));
    }

    fn removals(&self) -> usize {
        self.log.iter().filter(|(_, action)| matches!(action, Action::Remove { .. })).count()
    }

    fn additions(&self) -> Vec<Why> {
        let why = |(_, action): &(Time, Action)| match action {
            Action::Add { why, .. } => Some(*why),
            _ => None,
        };
        self.log.iter().filter_map(why).collect()
    }
}

#[test]
fn a_burst_is_stretched_for_first_and_a_step_says_what_stretching_could_not_give() {
    let mut world = World::new(service(1, 8, sizes()), Span::from_secs(4));
    world.run(60, 40.0);
    assert_eq!(world.workers.len(), 1);
    // Within its limit: no second worker.
    world.run(60, 80.0);
    assert_eq!(world.workers.len(), 1, "{:?}", world.log.last());
    assert!(world.workers[0].0.share > share(20.0));
    world.run(60, 400.0);
    assert!(world.living() >= 3 && world.capacity() >= 400.0, "{} {}", world.living(), world.capacity());
    let steps = world.additions();
    let Some(Why::Behind(step)) = steps.get(1) else { panic!("{steps:?}") };
    assert!(step.needed > step.given && step.workers == 1, "{step:?}");
    let told = steps[1].to_string();
    assert!(told.contains("requests/s are expected within 5.9s") && told.contains("1 workers do 150"), "{told}");
}

#[test]
fn a_constant_load_settles_and_stays_settled() {
    for rate in [1.0, 12.0, 60.0, 130.0, 333.0, 700.0] {
        let mut world = World::new(service(0, 20, sizes()), Span::from_secs(4));
        world.run(120, rate);
        let settled = (world.living(), world.log.iter().filter(|(_, action)| !stretches(action)).count());
        world.run(600, rate);
        let later = (world.living(), world.log.iter().filter(|(_, action)| !stretches(action)).count());
        assert_eq!(settled, later, "{rate}: {:?}", world.log.last());
        assert!(world.queue < rate * 0.2 + 1.0, "{rate}: {}", world.queue);
    }
}

fn stretches(action: &Action) -> bool {
    matches!(action, Action::Stretch { .. })
}

#[test]
fn a_service_that_nobody_calls_goes_to_zero_and_comes_back() {
    let mut world = World::new(service(0, 4, sizes()), Span::from_secs(4));
    assert_eq!(world.workers.len(), 0);
    world.run(10, 20.0);
    assert!(matches!(world.additions()[0], Why::FromZero { requests } if requests > 0));
    world.run(119, 0.0);
    assert_eq!(world.living(), 1, "kept for two minutes while nothing is known");
    world.run(5, 0.0);
    assert_eq!(world.living(), 0);
    let (_, last) = world.log.last().unwrap();
    assert!(matches!(last, Action::Remove { why: Why::Idle { .. }, .. }), "{last}");
    world.run(1, 10.0);
    assert_eq!(world.living(), 1);
}

#[test]
fn calls_at_equal_times_find_a_worker_that_was_started_for_them() {
    let mut world = World::new(service(0, 4, sizes()), Span::from_secs(4));
    for _ in 0..12 {
        world.run(1, 20.0);
        world.run(89, 0.0);
    }
    let prewarmed = world.additions().iter().filter(|why| matches!(why, Why::Prewarm { .. })).count();
    assert!(prewarmed >= 2, "{:?}", world.additions());
    let ready = |world: &World| world.workers.iter().any(|(worker, _)| worker.state == State::Ready);
    assert!(ready(&world), "there by the time of the next call");
    world.run(30, 0.0);
    assert!(!ready(&world), "and not for long after");
}

#[test]
fn a_request_without_a_worker_waits_only_if_that_helps() {
    let mut world = World::new(service(0, 4, sizes()), Span::from_secs(4));
    let admit = |world: &World, seconds| world.scaler.admit(world.now, Span::from_secs(seconds));
    assert_eq!(admit(&world, 1), Admission::Refuse { expected: Span::from_secs(4) });
    // No start was seen yet: this one may take a quarter longer.
    assert_eq!(admit(&world, 5), Admission::Refuse { expected: Span::from_secs(4) });
    assert_eq!(admit(&world, 6), Admission::Wait { expected: Span::from_secs(4) });
    // Three seconds into a start there is one left.
    world.step(10.0, true);
    (0..30).for_each(|_| world.step(0.0, true));
    assert_eq!(admit(&world, 2), Admission::Refuse { expected: Span::from_millis(1_100) });
    assert_eq!(admit(&world, 3), Admission::Wait { expected: Span::from_millis(1_100) });
}

#[test]
fn starts_are_learned() {
    let mut world = World::new(service(1, 4, sizes()), Span::from_secs(9));
    world.run(20, 10.0);
    assert!((8.9..9.2).contains(&world.scaler.cold_start().seconds()), "{}", world.scaler.cold_start());
}

#[test]
fn fixed_replicas_are_held_whatever_comes() {
    let mut world = World::new(service(2, 2, sizes()), Span::from_secs(2));
    world.run(100, 900.0);
    world.run(100, 0.0);
    assert_eq!((world.living(), world.removals()), (2, 0));
    world.scaler.set_service(service(0, 1, sizes()));
    world.step(1.0, true);
    assert_eq!(world.living(), 1);
}

#[test]
fn workers_that_are_slower_than_their_profile_get_company() {
    let mut scaler = Autoscaler::new(service(1, 4, vec![Size::fixed(Share::ALL, 100.0)]));
    let worker = |busy| Worker {
        id: InstanceId(0),
        state: State::Ready,
        size: 0,
        share: Share::ALL,
        ceiling: Share::ALL,
        alone: true,
        busy,
    };
    let mut added = Vec::new();
    for look in 1..=40u64 {
        let view = View { arrivals: 4, waiting: 30, workers: vec![worker(1_000)] };
        added.extend(scaler.look(Time::ZERO + LOOK * look as usize, &view));
    }
    let Some(Action::Add { why, .. }) = added.first() else { panic!("{added:?}") };
    assert_eq!(why.to_string(), "1 workers are busy all the time and requests wait, though they should do 100/s");
}

fn loads() -> impl Strategy<Value = Vec<(u64, f64, bool)>> {
    let rate = prop_oneof![2 => Just(0.0), 3 => 0.1..30.0, 3 => 30.0..300.0, 1 => 300.0..3_000.0];
    prop::collection::vec((1..60u64, rate, prop::bool::weighted(0.9)), 1..12)
}

fn kinds() -> impl Strategy<Value = Vec<Size>> {
    prop_oneof![Just(sizes()), Just(vec![Size::fixed(Share::ALL, 40.0)])]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bounds_hold_and_nobody_who_waits_loses_the_last_worker(
        loads in loads(), kinds in kinds(), min in 0..3u32, more in 0..6u32, cold in 1..100u64,
    ) {
        let mut world = World::new(service(min, (min + more).max(1), kinds), Span::from_millis(cold * 100));
        for (seconds, rate, room) in loads {
            (0..seconds * 10).for_each(|_| world.step(rate, room));
        }
    }

    #[test]
    fn nothing_is_removed_soon_after_an_addition(loads in loads(), kinds in kinds(), cold in 1..80u64) {
        let mut world = World::new(service(0, 9, kinds), Span::from_millis(cold * 100));
        for (seconds, rate, _) in loads {
            (0..seconds * 10).for_each(|_| world.step(rate, true));
        }
        let mut added: Option<Time> = None;
        for (at, action) in &world.log {
            match action {
                Action::Add { .. } => added = Some(*at),
                Action::Remove { .. } => {
                    let since = added.map_or(Span::MAX, |added| *at - added);
                    prop_assert!(since >= Span::from_secs(10), "{since} after an addition: {action}");
                }
                Action::Stretch { .. } => {}
            }
        }
    }

    #[test]
    fn one_history_has_one_outcome(loads in loads()) {
        let run = || {
            let mut world = World::new(service(0, 9, sizes()), Span::from_secs(3));
            for (seconds, rate, room) in &loads {
                (0..seconds * 10).for_each(|_| world.step(*rate, *room));
            }
            world.log
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn any_clock_and_any_view_is_taken(
        looks in prop::collection::vec((0..5_000_000_000_000u64, 0..10_000u64, 0..1_000u64), 1..60),
    ) {
        let mut scaler = Autoscaler::new(service(0, 3, sizes()));
        let worker = Worker {
            id: InstanceId(7),
            state: State::Ready,
            size: 99,
            share: share(1.0),
            ceiling: Share::ALL,
            alone: false,
            busy: 4_000,
        };
        for (nanos, arrivals, waiting) in looks {
            let view = View { arrivals, waiting, workers: vec![worker; (arrivals % 3) as usize] };
            scaler.look(Time::from_nanos(nanos), &view);
            scaler.admit(Time::from_nanos(nanos), Span::from_millis(waiting));
        }
    }
}
