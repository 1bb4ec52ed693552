//! Deferred batching as Symphony states it: formulas against brute force, decisions as text.

use policy::{
    Action, Actions, Candidate, Context, Dispatcher, Event, GpuId, GpuType, LaneId, LatencyTable, Model, ModelId,
    Network, Outlook, Policy, Request, RequestId, Span, Time, candidate, policies, target_batch,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Plays a script to the deferred policy and compares what it decided.
///
/// The script: `gpus x x y` gives GPUs their types; `network control=.. data=.. response=.. jitter=..`; `model a
/// slo=25ms gap=9ms x=1ms+5ms y=2ms+9ms` is a model that takes `1ms * size + 5ms` on type x and the like; then
/// what happens and when: `3ms a a b` are requests, `3ms a@9ms` is one with its own deadline, `3ms lose 0`,
/// `3ms join 0 x`, `3ms done 0` ends the first batch of GPU 0 early. Batches end as planned, else.
#[track_caller]
fn check(script: &str, expected: &str) {
    let tidy = |text: &str| text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    assert_eq!(tidy(&play(script)), tidy(expected));
}

fn span(text: &str) -> Span {
    text.parse().unwrap_or_else(|_| panic!("no span: {text}"))
}

fn at(time: Time) -> Span {
    time - Time::ZERO
}

#[derive(Default)]
struct Player {
    dispatcher: Option<Dispatcher>,
    out: Actions,
    objectives: Vec<Span>,
    response: Span,
    arrived: u64,
    ends: BTreeMap<(Time, u64), GpuId>,
    story: String,
}

fn play(script: &str) -> String {
    let lines: Vec<_> = script.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let first_event =
        lines.iter().position(|line| line.starts_with(|c: char| c.is_ascii_digit())).unwrap_or(lines.len());
    let (mut types, mut network, mut models) = (Vec::new(), Network::default(), Vec::new());
    for line in &lines[..first_event] {
        let mut words = line.split_whitespace();
        match words.next().expect("a line has a word") {
            "gpus" => types = words.map(kind).collect(),
            "network" => {
                for (key, value) in words.map(|word| word.split_once('=').expect("key=value")) {
                    match key {
                        "control" => network.control = span(value),
                        "data" => network.data_per_request = span(value),
                        "response" => network.response = span(value),
                        "jitter" => network.jitter = span(value),
                        _ => panic!("no such delay: {key}"),
                    }
                }
            }
            "model" => models.push(model(words)),
            word => panic!("neither gpus, network nor model: {word}"),
        }
    }
    let mut player = Player {
        objectives: models.iter().map(|model| model.objective).collect(),
        response: network.response,
        ..Player::default()
    };
    let deferred = policies::by_name("deferred").expect("there is such a policy");
    player.dispatcher = Some(Dispatcher::new(models, &types, network, deferred));
    for line in &lines[first_event..] {
        let (when, what) = line.split_once(' ').expect("a time and an event");
        let now = Time::ZERO + span(when);
        player.advance(now);
        player.happen(now, what);
    }
    player.advance(Time::NEVER);
    player.story
}

fn kind(letter: &str) -> GpuType {
    GpuType(u32::from(letter.as_bytes()[0] - b'x'))
}

fn model<'a>(words: impl Iterator<Item = &'a str>) -> Model {
    let mut model = Model { objective: Span::ZERO, tables: vec![LatencyTable::default(); 2], expected_gap: Span::MAX };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        match key {
            "slo" => model.objective = span(value),
            "gap" => model.expected_gap = span(value),
            letter => {
                let (alpha, beta) = value.split_once('+').expect("alpha+beta");
                model.tables[kind(letter).index()] =
                    LatencyTable::line(span(alpha), span(beta), 64).within(model.objective);
            }
        }
    }
    model
}

impl Player {
    fn machine(&mut self) -> (&mut Dispatcher, &mut Actions) {
        (self.dispatcher.as_mut().expect("it was made"), &mut self.out)
    }

    /// GPUs first, then what is scripted, then timers.
    fn advance(&mut self, until: Time) {
        loop {
            let end = self.ends.keys().next().copied();
            let timer = self.machine().0.next_timer().unwrap_or(Time::NEVER);
            match end {
                Some((end, batch)) if end <= timer && end <= until => {
                    let gpu = self.ends.remove(&(end, batch)).expect("just seen");
                    self.tell(end, Event::BatchDone { gpu, batch });
                }
                _ if timer < until => {
                    let (dispatcher, out) = self.machine();
                    dispatcher.on_timer(timer, out);
                    self.act(timer);
                }
                _ => return,
            }
        }
    }

    fn tell(&mut self, now: Time, event: Event) {
        let (dispatcher, out) = self.machine();
        dispatcher.on_event(now, event, out);
        self.act(now);
    }

    fn happen(&mut self, now: Time, what: &str) {
        let gpu = |word: &str| GpuId(word.parse().expect("a GPU's number"));
        match what.split_whitespace().collect::<Vec<_>>()[..] {
            ["lose", which] => {
                self.ends.retain(|_, gpu_of_batch| *gpu_of_batch != gpu(which));
                self.tell(now, Event::GpuLost(gpu(which)));
            }
            ["join", which, letter] => self.tell(now, Event::GpuJoined { gpu: gpu(which), kind: kind(letter) }),
            ["done", which] => {
                let end = *self.ends.iter().find(|(_, gpu_of_batch)| **gpu_of_batch == gpu(which)).expect("it runs").0;
                self.ends.remove(&end);
                self.tell(now, Event::BatchDone { gpu: gpu(which), batch: end.1 });
            }
            ref requests => {
                for word in requests {
                    let (name, own) = word.split_once('@').map_or((*word, None), |(name, own)| (name, Some(span(own))));
                    let model = ModelId(u32::from(name.as_bytes()[0] - b'a'));
                    let objective = own.unwrap_or(self.objectives[model.index()]);
                    let deadline = now + (objective - self.response);
                    let id = RequestId(self.arrived);
                    self.arrived += 1;
                    self.tell(now, Event::Arrived(Request { id, model, arrival: now, deadline }));
                }
            }
        }
    }

    fn act(&mut self, now: Time) {
        let out = std::mem::take(&mut self.out);
        for action in &out.list {
            match action {
                Action::Run { gpu, model, batch, requests, finish } => {
                    let name = char::from(b'a' + model.0 as u8);
                    let ids: Vec<_> = out.requests[requests.clone()].iter().map(|id| id.0.to_string()).collect();
                    let (ids, gpu_id) = (ids.join(" "), gpu.0);
                    writeln!(self.story, "{}: run {name} ({ids}) on {gpu_id} until {}", at(now), at(*finish))
                        .expect("text can be written");
                    self.ends.insert((*finish, *batch), *gpu);
                }
                Action::Reject { request, reason, .. } => {
                    writeln!(self.story, "{}: refuse {}, {}", at(now), request.0, reason.name())
                        .expect("text can be written");
                }
                Action::Preempt { .. } => unreachable!("deferred batching does not preempt"),
            }
        }
    }
}

#[test]
fn a_request_waits_until_no_other_could_join_it() {
    // Alone until 25 - l(2) = 18; three of them until 25 - l(4) = 16.
    check("gpus x\nmodel a slo=25ms x=1ms+5ms\n0s a", "18ms: run a (0) on 0 until 24ms");
    check("gpus x\nmodel a slo=25ms x=1ms+5ms\n0s a\n1ms a\n2ms a", "16ms: run a (0 1 2) on 0 until 24ms");
}

#[test]
fn the_batch_leaves_at_once_when_the_last_that_fits_has_come() {
    // At 17 ms a batch of three would be over at 25 ms and four would not: waiting longer gains nothing.
    check(
        "gpus x\nmodel a slo=25ms x=1ms+5ms\n0s a\n15ms a\n17ms a a",
        "
        17ms: run a (0 1 2) on 0 until 25ms
        35ms: run a (3) on 0 until 41ms
    ",
    );
}

#[test]
fn the_free_gpu_with_the_lowest_id_is_taken() {
    check(
        "gpus x x x\nmodel a slo=25ms x=1ms+5ms\nmodel b slo=25ms x=1ms+5ms\nmodel c slo=25ms x=1ms+5ms
        0s a\n1ms b\n7ms c",
        "
        18ms: run a (0) on 0 until 24ms
        19ms: run b (1) on 1 until 25ms
        25ms: run c (2) on 0 until 31ms
    ",
    );
}

#[test]
fn who_finds_no_gpu_waits_and_the_least_slack_goes_first() {
    // The GPU is free at 24 ms. By then b has been ready for longer, but c must start sooner.
    check(
        "gpus x
        model a slo=25ms x=1ms+15ms
        model b slo=34ms x=4ms+5ms
        model c slo=32ms x=4ms+5ms
        0s a b
        1ms c",
        "8ms: run a (0) on 0 until 24ms
        24ms: run c (2) on 0 until 33ms
        25.000001ms: refuse 1, too_late",
    );
}

#[test]
fn a_candidate_that_nobody_served_is_formed_anew_and_smaller() {
    // Four requests would have to start by 40 - l(4) = 31. The GPU is free at 33, when two still fit.
    check(
        "gpus x
        model a slo=31ms x=1ms+5ms
        model b slo=33ms x=0ms+30ms
        0s b
        9ms a a a a",
        "3ms: run b (0) on 0 until 33ms
        33ms: run a (1 2) on 0 until 40ms
        34.000001ms: refuse 3, too_late
        34.000001ms: refuse 4, too_late",
    );
}

#[test]
fn a_head_is_sacrificed_for_a_batch_of_the_target_size() {
    // The GPU is free at 20 ms. The first request could then run alone, the other two together without it.
    check(
        "gpus x
        model a slo=25ms gap=1ms x=1ms+5ms
        model b slo=20ms x=0ms+20ms
        0s b
        1ms a
        2ms a a",
        "0us: run b (0) on 0 until 20ms
        2ms: refuse 1, sacrificed
        20ms: run a (2 3) on 0 until 27ms",
    );
}

#[test]
fn a_tighter_deadline_of_its_own_goes_to_the_front() {
    check("gpus x\nmodel a slo=25ms x=1ms+5ms\n0s a\n1ms a@10ms", "3ms: run a (1 0) on 0 until 10ms");
}

#[test]
fn a_gpu_of_a_type_that_cannot_run_the_model_is_passed_over() {
    check(
        "gpus y x\nmodel a slo=25ms x=1ms+5ms\nmodel b slo=25ms x=1ms+5ms y=2ms+5ms\n0s a b",
        "
        16ms: run b (1) on 0 until 23ms
        18ms: run a (0) on 1 until 24ms
    ",
    );
}

#[test]
fn a_ready_lane_that_no_free_gpu_can_run_does_not_hold_up_the_others() {
    // From 26 ms on a is ready, and less patient than b; but only x can run it, and x is busy until 29 ms.
    check(
        "gpus x y
        model a slo=37ms x=4ms+5ms
        model b slo=37ms y=4ms+5ms
        model c slo=29ms x=0ms+19ms
        0s c
        2ms a
        3ms b",
        "10ms: run c (0) on 0 until 29ms
        27ms: run b (2) on 1 until 36ms
        29ms: run a (1) on 0 until 38ms",
    );
}

#[test]
fn a_batch_is_sent_before_it_is_due_by_what_the_network_takes() {
    // Due at 25 - 2 - l(3) - 0.05 - 0.1 = 14.85 ms, sent 0.1 + 2 * 0.05 before that, and starts on arrival.
    check(
        "gpus x\nnetwork control=100us data=50us response=2ms jitter=100us\nmodel a slo=25ms x=1ms+5ms\n0s a a",
        "
        14.65ms: run a (0 1) on 0 until 21.85ms
    ",
    );
}

#[test]
fn a_batch_may_be_sent_to_a_gpu_that_will_be_free_when_it_gets_there() {
    check(
        "gpus x\nnetwork control=2ms\nmodel a slo=25ms x=1ms+5ms\nmodel b slo=30ms x=1ms+5ms\n0s a b",
        "
        16ms: run a (0) on 0 until 24ms
        22ms: run b (1) on 0 until 30ms
    ",
    );
}

#[test]
fn requests_that_sat_out_an_outage_are_served_when_a_gpu_returns() {
    check("gpus x\nmodel a slo=25ms x=1ms+5ms\n0s lose 0\n1ms a\n9ms join 0 x", "19ms: run a (0) on 0 until 25ms");
    check(
        "gpus x\nmodel a slo=25ms x=1ms+5ms\n0s lose 0\n1ms a\n19.5ms join 0 x",
        "19.5ms: run a (0) on 0 until 25.5ms",
    );
    check("gpus x\nmodel a slo=25ms x=1ms+5ms\n0s lose 0\n1ms a\n21ms join 0 x", "20.000001ms: refuse 0, too_late");
}

#[test]
fn a_gpu_that_is_done_early_serves_whom_the_plan_had_given_up() {
    check(
        "gpus x\nmodel a slo=25ms x=1ms+5ms\nmodel b slo=40ms x=0ms+30ms\n0s b@30ms\n1ms a\n15ms done 0",
        "
        0us: run b (0) on 0 until 30ms
        19ms: run a (1) on 0 until 25ms
    ",
    );
}

#[test]
fn requests_of_a_gpu_that_died_run_again_while_there_is_time() {
    check(
        "gpus x x
        model a slo=25ms x=1ms+5ms
        0s a
        2ms a
        18ms lose 0
        19.5ms lose 1",
        "17ms: run a (0 1) on 0 until 24ms
        18ms: run a (0 1) on 1 until 25ms
        19.5ms: refuse 0, gpu_lost
        21.000001ms: refuse 1, too_late",
    );
}

/// The largest batch by the two cases of the rule, size by size and without rewriting it.
fn target_by_the_book(table: &LatencyTable, gap: Span, objective: Span, network: &Network) -> usize {
    let budget =
        i128::from(objective.nanos()) - i128::from(network.control.nanos()) - i128::from(network.response.nanos());
    let fits = |size: &usize| {
        let (latency, size) = (i128::from(table.latency(*size).nanos()), *size as i128);
        let left = budget - i128::from(network.data_per_request.nanos()) * size;
        // n = rate * latency / size, as a fraction.
        let (n, of) = (latency, size * i128::from(gap.nanos()));
        if n > of { latency * (n + of) <= left * n } else { latency + size * i128::from(gap.nanos()) <= left }
    };
    (1..=table.max_batch()).filter(fits).max().unwrap_or(1)
}

/// The candidate by the numbered steps, one request at a time.
fn candidate_by_the_book(deadlines: &[Time], target: usize, outlook: &Outlook) -> Option<Candidate> {
    let Outlook { now, gpu_free, table, network } = *outlook;
    let limit = table.max_batch();
    let finish = |size: usize| {
        let there = now + network.control + network.data_per_request * size;
        there.max(gpu_free) + table.latency(size)
    };
    // 1. Heads that cannot finish in a batch of everything behind them.
    let rest = |index: usize| (deadlines.len() - index).min(limit);
    let prefix = (0..deadlines.len()).take_while(|index| deadlines[*index] < finish(rest(*index))).count();
    // 2. Those of them that cannot finish in a batch of the target size are dropped.
    let mut size = target.min(deadlines.len() - prefix).min(limit).max(1);
    let drop = (0..prefix).take_while(|index| deadlines[*index] < finish(size)).count();
    let deadline = *deadlines.get(drop)?;
    // 3. Grow.
    while size < rest(drop) && deadline >= finish(size + 1) {
        size += 1;
    }
    // 4. Until one more could not join.
    let latest = deadline - table.latency(size) - network.jitter;
    let one_more = table.latency((size + 1).min(limit));
    let frontrun = deadline - one_more - network.data_per_request - network.jitter;
    Some(Candidate { drop, size, due: frontrun.min(latest), latest })
}

/// Lets requests wait.
struct Idle;

impl Policy for Idle {
    fn on_queue(&mut self, _context: &mut Context, _lane: LaneId) {}
    fn on_gpu(&mut self, _context: &mut Context, _gpu: GpuId) {}
}

/// A dispatcher in whose only lane requests with these deadlines wait.
fn waiting(deadlines: &[Time]) -> Dispatcher {
    let model = Model { objective: Span::MAX, tables: vec![LatencyTable::default()], expected_gap: Span::MAX };
    let mut dispatcher = Dispatcher::new(vec![model], &[], Network::default(), Box::new(Idle));
    for (id, deadline) in deadlines.iter().enumerate() {
        let id = RequestId(id as u64);
        let request = Request { id, model: ModelId(0), arrival: Time::ZERO, deadline: *deadline };
        dispatcher.on_event(Time::ZERO, Event::Arrived(request), &mut Actions::default());
    }
    dispatcher
}

fn table() -> impl Strategy<Value = LatencyTable> {
    let steps = prop::collection::vec(prop_oneof![Just(0u64), 1..3_000u64], 1..40);
    (200..9_000u64, steps).prop_map(|(first, steps)| {
        let mut total = first;
        LatencyTable::from_sizes(steps.into_iter().map(|step| {
            total += step;
            Span::from_micros(total)
        }))
    })
}

fn network() -> impl Strategy<Value = Network> {
    let span = |most: u64| prop_oneof![Just(0), 0..most].prop_map(Span::from_micros);
    (span(2_000), span(300), span(3_000), span(500)).prop_map(|(control, data_per_request, response, jitter)| Network {
        control,
        data_per_request,
        response,
        jitter,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_target_batch_is_the_largest_that_fits(
        table in table(), network in network(), gap in 0..5_000u64, objective in 0..150_000u64,
    ) {
        let (gap, objective) = (Span::from_micros(gap), Span::from_micros(objective));
        let expected = target_by_the_book(&table, gap, objective, &network);
        prop_assert_eq!(target_batch(&table, gap, objective, &network), expected);
    }

    #[test]
    fn the_candidate_follows_the_steps(
        table in table(), network in network(), target in 1..50usize, free in 0..60_000u64,
        deadlines in prop::collection::vec(0..100_000u64, 0..60),
    ) {
        let now = Time::ZERO + Span::from_millis(20);
        let micros = |micros: u64| Time::ZERO + Span::from_micros(micros);
        let mut deadlines: Vec<_> = deadlines.into_iter().map(micros).collect();
        let dispatcher = waiting(&deadlines);
        deadlines.sort_unstable();
        let outlook = Outlook { now, gpu_free: micros(free), table: &table, network: &network };
        let expected = candidate_by_the_book(&deadlines, target, &outlook);
        prop_assert_eq!(candidate(dispatcher.cluster().queue(LaneId(0)), target, &outlook), expected);
    }
}
