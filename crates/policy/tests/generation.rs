//! The machine of generated text under every policy, with hostile inputs: a driver that keeps books of its own.

use policy::generation::journal::{Input, Recorder, replay};
use policy::generation::{Action, Event, Model, Reason, Request, StepTime, policies};
use policy::{GpuId, GpuType, ModelId, RequestId, Span, Time};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const WORKERS: usize = 3;
const MODELS: usize = 2;
const TOKEN_BYTES: u64 = 100;

/// One thing that happens from outside.
#[derive(Clone, Debug)]
enum Happening {
    Arrive {
        model: u8,
        prompt: u32,
        max_tokens: u32,
        output: u32,
        ttft_ms: u32,
        tpot_ms: u32,
    },
    ClientGone(u8),
    WorkerGone(u8),
    WorkerJoins {
        worker: u8,
        cache_tokens: u32,
        models: u8,
    },
    /// Steps take so many times as long from now on, in tenths.
    Speed(u8),
}

/// What the driver knows of a request.
#[derive(Clone, Debug)]
struct Entry {
    prompt: u32,
    max_tokens: u32,
    output: u32,
    generated: u32,
    cached: u32,
    worker: Option<usize>,
}

struct Step {
    ends: Time,
    serial: u64,
    took: Span,
    members: Vec<RequestId>,
}

#[derive(Default)]
struct Worker {
    alive: bool,
    cache: u64,
    models: Vec<ModelId>,
    step: Option<Step>,
}

/// More than happens in any of these worlds: some hundred thousand tokens, each in a step of its own and with a look before.
const HAPPENS: usize = 1_000_000;

struct World {
    recorder: Recorder,
    now: Time,
    lead: Span,
    tenths: u64,
    open: BTreeMap<RequestId, Entry>,
    ended: BTreeSet<RequestId>,
    workers: Vec<Worker>,
    asked: usize,
    rejected: Vec<(RequestId, Reason)>,
    evictions: usize,
    /// How much happened by itself.
    happened: usize,
}

impl World {
    fn new(policy: &str, lead: Span) -> World {
        let chosen = policies::by_name(policy).unwrap();
        let mut world = World {
            recorder: Recorder::new(Time::ZERO, policy, chosen, lead, true),
            now: Time::ZERO,
            lead,
            tenths: 10,
            open: BTreeMap::new(),
            ended: BTreeSet::new(),
            workers: (0..WORKERS).map(|_| Worker::default()).collect(),
            asked: 0,
            rejected: Vec::new(),
            evictions: 0,
            happened: 0,
        };
        for _ in 0..MODELS {
            let told = StepTime::default();
            world.tell(Input::Model(Model { context: 4_000, token_bytes: TOKEN_BYTES, told }));
        }
        world
    }

    fn used(&self, worker: usize) -> u64 {
        let there = self.open.values().filter(|entry| entry.worker == Some(worker));
        there.map(|entry| u64::from(entry.cached) * TOKEN_BYTES).sum()
    }

    fn tell(&mut self, input: Input) {
        let actions = self.recorder.tell(self.now, input).to_vec();
        for action in actions {
            self.act(action);
        }
        for worker in 0..WORKERS {
            assert!(self.used(worker) <= self.workers[worker].cache, "too much in the cache of worker {worker}");
            let books = &self.recorder.machine().books().workers;
            let believed = books.get(worker).filter(|there| there.alive).map_or(0, |there| there.used);
            assert_eq!(believed, self.used(worker), "what is free is free at once");
        }
        let runs = self.workers.iter().any(|worker| worker.step.is_some());
        assert!(
            self.open.is_empty() || runs || self.recorder.next_timer().is_some(),
            "work is left and nobody will look at it"
        );
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Step { worker, step, model, prefill, decode, not_before, .. } => {
                let place = worker.index();
                let there = &self.workers[place];
                assert!(there.alive && there.step.is_none(), "a step for a worker that is busy or gone");
                assert!(there.models.contains(&model), "a step of a model that the worker does not have");
                let starts = (self.now + self.lead).max(not_before);
                assert!(not_before >= self.now && starts >= not_before);
                let parts: Vec<(RequestId, u32)> =
                    prefill.iter().copied().chain(decode.iter().map(|id| (*id, 1))).collect();
                let members: Vec<RequestId> = parts.iter().map(|(id, _)| *id).collect();
                assert!(!members.is_empty() && members.iter().collect::<BTreeSet<_>>().len() == members.len());
                let mut tokens = 0;
                for (id, count) in parts {
                    let entry = self.open.get_mut(&id).expect("only those that have not ended take part");
                    assert!(entry.worker.is_none_or(|other| other == place), "a cache is elsewhere");
                    entry.worker = Some(place);
                    entry.cached += count;
                    tokens += u64::from(count);
                    assert!(count > 0 && entry.cached <= entry.prompt + entry.generated, "more than there is");
                }
                for id in &decode {
                    let entry = &self.open[id];
                    assert_eq!(entry.cached, entry.prompt + entry.generated, "decode before all is in the cache");
                }
                let takes = Span::from_micros((3_000 + 30 * tokens + 200 * members.len() as u64) * self.tenths / 10);
                let ends = starts + takes + self.lead;
                self.workers[place].step = Some(Step { ends, serial: step, took: takes, members });
            }
            Action::Reject { request, reason, come_back } => {
                assert!(!reason.is_final() || come_back.is_none());
                self.rejected.push((request, reason));
                self.end(request);
            }
            Action::Evict { request } => {
                let entry = self.open.get_mut(&request).expect("only those that have not ended are evicted");
                assert!(entry.worker.is_some() && entry.cached > 0, "nothing to evict");
                (entry.worker, entry.cached) = (None, 0);
                self.evictions += 1;
            }
            Action::End { request } => {
                let entry = &self.open[&request];
                assert!(entry.generated < entry.output && entry.generated <= entry.max_tokens, "ended without reason");
                self.end(request);
            }
        }
    }

    fn end(&mut self, id: RequestId) {
        assert!(self.open.remove(&id).is_some(), "{id:?} ended and was not there");
        assert!(self.ended.insert(id), "{id:?} ended twice");
    }

    /// The next thing that happens by itself, up to a time. Whether there was one.
    fn advance(&mut self, until: Time) -> bool {
        let step =
            self.workers.iter().enumerate().filter_map(|(place, worker)| Some((worker.step.as_ref()?.ends, place)));
        let step = step.min();
        self.happened += 1;
        if self.happened > HAPPENS {
            let journal = self.recorder.take_journal().unwrap();
            let last: Vec<&str> = journal.lines().collect();
            panic!("it goes on for ever:\n{}", last[last.len().saturating_sub(40)..].join("\n"));
        }
        let timer = self.recorder.next_timer().unwrap_or(Time::NEVER);
        match step {
            Some((ends, place)) if ends <= until && ends <= timer => {
                self.now = self.now.max(ends);
                let Step { serial, took, members, .. } = self.workers[place].step.take().unwrap();
                let mut ended = Vec::new();
                for id in members {
                    let Some(entry) = self.open.get_mut(&id) else { continue };
                    if entry.cached == entry.prompt + entry.generated {
                        entry.generated += 1;
                        if entry.generated >= entry.output {
                            ended.push(id);
                        }
                    }
                }
                ended.iter().for_each(|id| self.end(*id));
                self.tell(Input::Event(Event::StepDone { worker: GpuId::new(place), step: serial, took, ended }));
                true
            }
            _ if timer <= until => {
                assert!(timer >= self.now, "a timer in the past");
                self.now = timer;
                self.tell(Input::Timer);
                assert!(self.recorder.next_timer() != Some(timer), "a timer fires for ever");
                true
            }
            _ => {
                self.now = self.now.max(until);
                false
            }
        }
    }

    fn happen(&mut self, what: &Happening) {
        match *what {
            Happening::Arrive { model, prompt, max_tokens, output, ttft_ms, tpot_ms } => {
                let id = RequestId(self.asked as u64);
                self.asked += 1;
                let entry = Entry { prompt, max_tokens, output: output.max(1), generated: 0, cached: 0, worker: None };
                self.open.insert(id, entry);
                let request = Request {
                    id,
                    model: ModelId::new(usize::from(model) % MODELS),
                    arrival: self.now,
                    prompt,
                    max_tokens,
                    ttft: Span::from_millis(u64::from(ttft_ms)),
                    tpot: Span::from_millis(u64::from(tpot_ms)),
                };
                self.tell(Input::Event(Event::Arrived(request)));
            }
            Happening::ClientGone(which) => {
                let Some(id) = self.open.keys().nth(usize::from(which) % self.open.len().max(1)).copied() else {
                    return;
                };
                self.end(id);
                self.tell(Input::Event(Event::ClientGone(id)));
            }
            Happening::WorkerGone(worker) => {
                let place = usize::from(worker) % WORKERS;
                self.workers[place] = Worker::default();
                for entry in self.open.values_mut().filter(|entry| entry.worker == Some(place)) {
                    (entry.worker, entry.cached) = (None, 0);
                }
                self.tell(Input::Event(Event::WorkerGone(GpuId::new(place))));
            }
            Happening::WorkerJoins { worker, cache_tokens, models } => {
                let place = usize::from(worker) % WORKERS;
                if self.workers[place].alive {
                    self.happen(&Happening::WorkerGone(worker));
                }
                let cache = u64::from(cache_tokens) * TOKEN_BYTES;
                let all = (0..MODELS).map(ModelId::new);
                let models: Vec<ModelId> = all.filter(|model| models & (1 << model.index()) != 0).collect();
                self.workers[place] = Worker { alive: true, cache, models: models.clone(), step: None };
                let (worker, kind) = (GpuId::new(place), GpuType::new(place % 2));
                self.tell(Input::Event(Event::WorkerJoined { worker, kind, cache, models }));
            }
            Happening::Speed(tenths) => self.tenths = u64::from(tenths.max(1)),
        }
    }
}

fn happening() -> impl Strategy<Value = Happening> {
    let prompt = prop_oneof![4 => 1..300u32, 1 => Just(0), 1 => 300..5_000u32, 1 => Just(u32::MAX)];
    let max_tokens = prop_oneof![4 => 1..200u32, 1 => Just(0), 1 => Just(u32::MAX)];
    let tpot = prop_oneof![4 => 5..100u32, 1 => Just(0)];
    let arrive = (any::<u8>(), prompt, max_tokens, 0..150u32, prop_oneof![4 => 50..1_000u32, 1 => 0..5u32], tpot);
    let arrive = arrive.prop_map(|(model, prompt, max_tokens, output, ttft_ms, tpot_ms)| Happening::Arrive {
        model,
        prompt,
        max_tokens,
        output,
        ttft_ms,
        tpot_ms,
    });
    let joins = (any::<u8>(), prop_oneof![1..60u32, 60..2_000u32, Just(100_000)], 0..4u8);
    prop_oneof![
        16 => arrive,
        2 => any::<u8>().prop_map(Happening::ClientGone),
        1 => any::<u8>().prop_map(Happening::WorkerGone),
        2 => joins.prop_map(|(worker, cache_tokens, models)| Happening::WorkerJoins { worker, cache_tokens, models }),
        1 => (5..21u8).prop_map(Happening::Speed),
    ]
}

/// Lets a world live, checking it all the while, and then waits for everybody to end.
fn live(policy: &str, lead: Span, cache_tokens: u32, script: &[(u32, Happening)]) -> World {
    let mut world = World::new(policy, lead);
    world.happen(&Happening::WorkerJoins { worker: 0, cache_tokens, models: 3 });
    for (gap_us, what) in script {
        let until = world.now + Span::from_micros(u64::from(*gap_us));
        while world.advance(until) {}
        world.happen(what);
    }
    let mut steps = 0;
    while !world.open.is_empty() {
        assert!(world.advance(Time::NEVER), "nothing happens any more");
        steps += 1;
        assert!(steps < 2_000_000, "{} requests never end", world.open.len());
    }
    assert_eq!(world.ended.len(), world.asked, "every request ends once");
    world
}

fn script() -> impl Strategy<Value = Vec<(u32, Happening)>> {
    let gap = prop_oneof![3 => 0..20_000u32, 1 => Just(0), 1 => 20_000..2_000_000u32];
    prop::collection::vec((gap, happening()), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn everybody_ends_once_whatever_happens(
        name in prop::sample::select(policies::NAMES.to_vec()),
        lead_us in prop_oneof![Just(0u64), 1..3_000u64],
        cache in prop_oneof![1..100u32, 100..3_000u32, Just(1_000_000u32)],
        script in script(),
    ) {
        live(name, Span::from_micros(lead_us), cache, &script);
    }

    #[test]
    fn what_was_written_replays_to_the_same_actions(
        name in prop::sample::select(policies::NAMES.to_vec()),
        script in script(),
    ) {
        let mut world = live(name, Span::ZERO, 1_500, &script);
        let journal = world.recorder.take_journal().unwrap();
        let actions = journal.lines().filter(|line| line.starts_with('>')).count();
        prop_assert_eq!(replay(&journal).map(|replayed| replayed.actions), Ok(actions));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-z0-9 :|>\n]{0,200}") {
        let _ = replay(&format!("0 generation weft 0\n{text}"));
    }

    /// Who comes at the same time is served by the same rule: the order of the news does not decide who is in time.
    #[test]
    fn the_order_of_equal_arrivals_does_not_matter(
        prompts in prop::collection::vec(1..2_000u32, 2..12),
        seed in any::<u64>(),
    ) {
        let outcome = |order: &[usize]| {
            let mut world = World::new("weft", Span::ZERO);
            world.happen(&Happening::WorkerJoins { worker: 0, cache_tokens: 1_000_000, models: 3 });
            // The worker is busy when they come.
            let first = Happening::Arrive { model: 0, prompt: 50, max_tokens: 1, output: 1, ttft_ms: 500, tpot_ms: 50 };
            world.happen(&first);
            for place in order {
                let prompt = prompts[*place];
                world.happen(&Happening::Arrive { model: 0, prompt, max_tokens: 1, output: 1, ttft_ms: 100, tpot_ms: 50 });
            }
            while !world.open.is_empty() {
                assert!(world.advance(Time::NEVER));
            }
            world.rejected.len()
        };
        let forwards: Vec<usize> = (0..prompts.len()).collect();
        let mut shuffled = forwards.clone();
        shuffled.sort_by_key(|place| (*place as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        prop_assert_eq!(outcome(&forwards), outcome(&shuffled));
    }
}

fn arrive(prompt: u32, max_tokens: u32, output: u32) -> Happening {
    Happening::Arrive { model: 0, prompt, max_tokens, output, ttft_ms: 500, tpot_ms: 25 }
}

#[test]
fn what_can_never_be_is_refused_at_once() {
    for name in policies::NAMES {
        let mut world = World::new(name, Span::ZERO);
        world.happen(&Happening::WorkerJoins { worker: 0, cache_tokens: 1_000, models: 3 });
        let all = [arrive(0, 5, 5), arrive(10, 0, 5), arrive(1_000, 5, 5), arrive(u32::MAX, u32::MAX, 5)];
        all.iter().for_each(|what| world.happen(what));
        let reasons: Vec<Reason> = world.rejected.iter().map(|(_, reason)| *reason).collect();
        assert_eq!(reasons, [Reason::Empty, Reason::Empty, Reason::TooLong, Reason::TooLong], "{name}");
        assert!(world.open.is_empty());
    }
}

#[test]
fn a_text_without_an_end_ends_where_the_cache_does() {
    for name in policies::NAMES {
        let world = live(name, Span::ZERO, 64, &[(0, arrive(60, u32::MAX, u32::MAX))]);
        assert!(world.rejected.is_empty() && world.evictions == 0, "{name}");
    }
}

#[test]
fn a_request_for_which_no_worker_comes_is_refused() {
    let mut world = World::new("weft", Span::ZERO);
    world.happen(&arrive(10, 10, 10));
    assert_eq!(world.recorder.next_timer(), Some(Time::ZERO + Span::from_millis(5_500)));
    while world.advance(Time::NEVER) && !world.open.is_empty() {}
    assert_eq!(world.rejected, [(RequestId(0), Reason::NoWorker)]);
}

#[test]
fn text_goes_on_where_its_worker_vanished() {
    for name in policies::NAMES {
        let joins = Happening::WorkerJoins { worker: 1, cache_tokens: 1_000, models: 3 };
        let world = live(
            name,
            Span::ZERO,
            1_000,
            &[(0, arrive(100, 50, 50)), (60_000, joins), (20_000, Happening::WorkerGone(0))],
        );
        assert!(world.rejected.is_empty(), "{name}: {:?}", world.rejected);
    }
}

#[test]
fn weft_leaves_the_gpu_free_between_tokens_and_says_until_when() {
    let mut world = World::new("weft", Span::ZERO);
    world.happen(&Happening::WorkerJoins { worker: 0, cache_tokens: 100_000, models: 3 });
    for _ in 0..4 {
        world.happen(&arrive(50, 400, 400));
    }
    let (mut busy, mut steps) = (Span::ZERO, 0);
    let begin = world.now;
    let mut free = false;
    while !world.open.is_empty() {
        assert!(world.advance(Time::NEVER));
        if let Some(step) = &world.workers[0].step {
            busy += step.took;
            steps += 1;
        } else if !world.open.is_empty() {
            let until = world.recorder.machine().free_until(GpuId(0));
            assert!(until > world.now && Some(until) == world.recorder.next_timer());
            free = true;
        }
    }
    let part = busy.seconds() / (world.now - begin).seconds();
    assert!(free && part < 0.25, "busy {part} of the time");
    assert!(steps < 1_000, "{steps} looks");
}

#[test]
fn a_changed_decision_is_found_and_named() {
    let mut world = live("weft", Span::ZERO, 1_000, &[(0, arrive(100, 5, 5))]);
    let journal = world.recorder.take_journal().unwrap();
    let changed = journal.replacen("0:100", "0:99", 1);
    let problem = replay(&changed).unwrap_err();
    assert!(problem.contains("written down was") && problem.contains("0:99"), "{problem}");
}
