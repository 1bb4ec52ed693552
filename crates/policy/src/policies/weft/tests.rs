//! What holds of shadows and of changes of setting, whatever comes.

use super::Weft;
use super::prices::Prices;
use super::setting::{SETTINGS, Setting};
use super::shadow::Shadow;
use super::trial::{PARAMETERS, Parameters};
use crate::journal::write_actions;
use crate::{
    Action, Actions, Context, Dispatcher, Event, GpuId, GpuType, LaneId, LatencyTable, Model, ModelId, Network, Policy,
    Request, RequestId, Span, Time,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

const MODELS: u32 = 4;
const OBJECTIVE: Span = Span::from_millis(20);

fn models() -> Vec<Model> {
    let line = |beta: u32| LatencyTable::line(Span::from_micros(300), Span::from_millis(u64::from(beta)), 16);
    let model = |index: u32| Model {
        objective: OBJECTIVE,
        tables: vec![line(4 + index).within(OBJECTIVE)],
        expected_gap: Span::from_millis(1),
    };
    (0..MODELS).map(model).collect()
}

/// Requests: how long after the one before, in microseconds, and of which model.
fn requests(arrivals: &[(u64, u32)]) -> Vec<(Time, Request)> {
    let mut now = Time::from_nanos(1);
    let request = |(index, (gap, model)): (usize, &(u64, u32))| {
        now += Span::from_micros(*gap);
        let id = RequestId(index as u64);
        (now, Request { id, model: ModelId(model % MODELS), arrival: now, deadline: now + OBJECTIVE })
    };
    arrivals.iter().enumerate().map(request).collect()
}

/// Serves all of them on three GPUs and returns all that was done. Every request is answered once.
fn serve(policy: Box<dyn Policy>, network: Network, arrivals: &[(u64, u32)]) -> String {
    let mut dispatcher = Dispatcher::new(models(), &[GpuType(0); 3], network, policy);
    let (mut actions, mut text) = (Actions::default(), String::new());
    let mut ends: BTreeSet<(Time, u64, GpuId)> = BTreeSet::new();
    let requests = requests(arrivals);
    let (mut next, mut answered) = (0, BTreeSet::new());
    while answered.len() < requests.len() || next < requests.len() {
        let end = ends.first().map_or(Time::NEVER, |(at, ..)| *at);
        let arrival = requests.get(next).map_or(Time::NEVER, |(at, _)| *at);
        let timer = dispatcher.next_timer().unwrap_or(Time::NEVER);
        let at = end.min(arrival).min(timer);
        assert!(at != Time::NEVER, "requests wait and nothing will ever happen");
        if end == at {
            let (_, batch, gpu) = ends.pop_first().expect("a batch ends");
            dispatcher.on_event(at, Event::BatchDone { gpu, batch }, &mut actions);
        } else if arrival == at {
            next += 1;
            dispatcher.on_event(at, Event::Arrived(requests[next - 1].1), &mut actions);
        } else {
            dispatcher.on_timer(at, &mut actions);
        }
        write_actions(&mut text, &actions);
        for action in &actions.list {
            match action {
                Action::Run { gpu, batch, finish, requests: range, .. } => {
                    ends.insert((*finish + network.control, *batch, *gpu));
                    for id in &actions.requests[range.clone()] {
                        assert!(answered.insert(*id), "{id:?} is answered twice");
                        assert!(*finish <= requests[id.0 as usize].1.deadline, "{id:?} is late");
                    }
                }
                Action::Reject { request, .. } => assert!(answered.insert(*request), "{request:?} is answered twice"),
                Action::Preempt { .. } => panic!("nobody preempts"),
            }
        }
        actions.clear();
    }
    text
}

/// Turns to another setting at every few requests.
struct Restless {
    live: Prices,
    came: usize,
    every: usize,
}

impl Policy for Restless {
    fn route(&mut self, context: &mut Context, request: &Request) -> LaneId {
        self.came += 1;
        if self.came.is_multiple_of(self.every) {
            self.live.turn_to(context, SETTINGS[self.came / self.every % SETTINGS.len()]);
        }
        self.live.route(context, request)
    }

    fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
        self.live.on_queue(context, lane);
    }

    fn on_gpu(&mut self, context: &mut Context, gpu: GpuId) {
        self.live.on_gpu(context, gpu);
    }

    fn on_timer(&mut self, context: &mut Context) {
        self.live.on_timer(context);
    }

    fn next_timer(&self) -> Time {
        self.live.next_timer()
    }
}

fn network() -> impl Strategy<Value = Network> {
    let micros = |range: std::ops::Range<u64>| range.prop_map(Span::from_micros);
    let far = (micros(0..300), micros(0..30), micros(0..500));
    let far = far.prop_map(|(control, data_per_request, jitter)| Network {
        control,
        data_per_request,
        jitter,
        ..Network::default()
    });
    prop_oneof![Just(Network::default()), far]
}

/// Bursts and gaps.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let gap = prop_oneof![6 => 0..50u64, 6 => 50..2_000u64, 1 => 2_000..60_000u64];
    prop::collection::vec((gap, 0..MODELS), 1..400)
}

/// Shadows run from the first request on, judge often and never rest.
const ALWAYS: Parameters = Parameters { period: Span::from_millis(5), trouble: 0, told: u64::MAX, ..PARAMETERS };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn one_setting_in_a_trial_decides_as_it_does_alone(arrivals in arrivals(), network in network(), index in 0..SETTINGS.len()) {
        let setting = SETTINGS[index];
        let alone = serve(Box::new(Prices::new(setting)), network, &arrivals);
        let tried = serve(Box::new(Weft::of(&[setting], ALWAYS)), network, &arrivals);
        prop_assert_eq!(alone, tried);
    }

    #[test]
    fn nobody_is_lost_or_late_when_settings_change(arrivals in arrivals(), network in network(), every in 1..20usize) {
        let restless = Restless { live: Prices::new(SETTINGS[0]), came: 0, every };
        serve(Box::new(restless), network, &arrivals);
    }

    #[test]
    fn the_same_requests_are_served_the_same_way(arrivals in arrivals(), network in network()) {
        let weft = || Box::new(Weft::of(&SETTINGS, ALWAYS));
        prop_assert_eq!(serve(weft(), network, &arrivals), serve(weft(), network, &arrivals));
    }

    #[test]
    fn a_shadow_decides_the_same_however_far_it_lags(arrivals in arrivals(), steps in 1..6usize, index in 0..SETTINGS.len()) {
        prop_assert_eq!(in_the_shadow(SETTINGS[index], &arrivals, steps), in_the_shadow(SETTINGS[index], &arrivals, 100_000));
    }
}

/// Requests offered and refused by model, with so many steps for each arrival.
fn in_the_shadow(setting: Setting, arrivals: &[(u64, u32)], steps: usize) -> (Vec<u64>, Vec<u64>) {
    let live = Dispatcher::new(models(), &[GpuType(0); 3], Network::default(), Box::new(Prices::new(setting)));
    let mut shadow = Shadow::new(setting, Network::default());
    while !shadow.copy(Time::ZERO, live.cluster()) {}
    let mut now = Time::ZERO;
    for (at, request) in requests(arrivals) {
        now = at;
        shadow.tell(now, request);
        shadow.catch_up(now, steps);
    }
    let mut rounds = 0;
    while !shadow.is_idle() {
        now += OBJECTIVE;
        shadow.catch_up(now, steps);
        rounds += 1;
        assert!(rounds < 100_000, "a shadow never comes to rest");
    }
    (shadow.cluster().offered.clone(), shadow.cluster().refused.clone())
}
