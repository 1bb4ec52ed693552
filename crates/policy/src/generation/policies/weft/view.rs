//! What there is to do on a worker: prompts with their deadlines, and tokens that are due, by model.

use crate::generation::{Context, Stage, Terms};
use crate::{GpuId, ModelId, RequestId, Span, Time};

/// A step with prompts takes at most this part of the shortest TTFT on its worker, because who comes while it runs waits for its
/// end; or eight floors, of which one is then wasted, if that is longer.
pub(super) const LONGEST: u64 = 8;

/// A prompt, or the rest of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) id: RequestId,
    pub(super) model: ModelId,
    /// When the token that it leads to is due.
    pub(super) deadline: Time,
    /// How long it takes alone.
    pub(super) alone: Span,
    /// Whether it can still be refused.
    pub(super) unseen: bool,
    /// Whether it holds cache.
    begun: bool,
    /// What it adds to steps, in nanoseconds.
    cost: f64,
    /// What it is like when it decodes.
    then: Due,
    remaining: u32,
    /// Bytes of cache that it is expected to need in the end.
    bytes: u64,
}

impl Job {
    /// The part of the worker that it has to have once it decodes, in thousandths.
    fn promised(&self) -> f64 {
        1e3 * self.then.own / self.then.tpot
    }
}

/// Tokens that are due at equal times, of one sequence.
#[derive(Clone, Copy, Debug)]
struct Due {
    deadline: Time,
    /// Between tokens, in nanoseconds.
    tpot: f64,
    /// What a token costs, in nanoseconds.
    own: f64,
    /// Tokens that are expected to come.
    left: f64,
}

impl Due {
    /// Tokens due by then.
    fn tokens(&self, until: Time) -> f64 {
        if self.deadline > until {
            return 0.0;
        }
        (((until - self.deadline).nanos() as f64 / self.tpot).floor() + 1.0).min(self.left)
    }

    /// The part of the worker that it has to have from now on, in thousandths.
    fn promised(&self, now: Time) -> f64 {
        let ahead = (self.deadline - now).nanos() as f64;
        1e3 * self.own * self.left / (ahead + self.left * self.tpot)
    }
}

/// A sequence that decodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) id: RequestId,
    /// When its next token is due; where that cannot be met any more, when it would be if it had been met.
    pub(super) deadline: Time,
    /// What its next token costs, in nanoseconds.
    pub(super) own: f64,
    due: Due,
}

/// Sequences of one model that decode.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) model: ModelId,
    pub(super) terms: Terms,
    /// By deadline.
    pub(super) tokens: Vec<Token>,
    /// The earliest of their deadlines.
    pub(super) deadline: Time,
    /// By how much steps are expected to last longer than predicted, as a part of the prediction.
    pub(super) guard: f64,
    /// How long a step with all of them takes, in nanoseconds.
    pub(super) step: f64,
    /// The shortest time between tokens, in nanoseconds.
    tpot: f64,
}

impl Group {
    /// Of a model of which nothing decodes.
    pub(super) fn none(context: &Context, worker: GpuId, model: ModelId) -> Group {
        let learned = context.books.learned(model, worker);
        let (terms, guard) = (learned.terms(), learned.guard());
        let (tokens, deadline) = (Vec::new(), Time::NEVER);
        Group { model, terms, tokens, deadline, guard, step: terms.floor, tpot: f64::INFINITY }
    }

    /// How long a step with all of them takes, when it takes long.
    pub(super) fn rest(&self) -> Span {
        Span::from_nanos((self.step * (1.0 + self.guard)) as u64)
    }
}

/// Which prompts run now.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// By deadline.
    pub(super) ready: Vec<Job>,
    /// Those that give way to others, the shortest last.
    pub(super) left_out: Vec<Job>,
    /// Whether somebody waits for room in the cache.
    pub(super) blocked: bool,
}

/// Everything there is to do on a worker.
#[derive(Debug)]
pub(super) struct View {
    start: Time,
    /// Models with sequences that decode.
    pub(super) groups: Vec<Group>,
    /// By deadline.
    pub(super) jobs: Vec<Job>,
    /// The shortest TTFT of anybody who is there.
    pub(super) ttft: Span,
    /// Bytes of cache that those who hold some are expected to need in the end.
    committed: u64,
}

impl View {
    pub(super) fn new(context: &Context, worker: GpuId) -> View {
        let there = &context.books.workers[worker.index()];
        let start = context.start();
        let mut view = View { start, groups: Vec::new(), jobs: Vec::new(), ttft: Span::from_secs(60), committed: 0 };
        for id in there.active.iter().chain(&there.waiting) {
            let sequence = context.books.sequence(*id);
            view.ttft = view.ttft.min(sequence.request.ttft.max(Span::from_micros(1)));
            if sequence.stage == Stage::Decode {
                view.decodes(context, worker, *id);
            } else {
                let job = job(context, worker, *id);
                if sequence.stage == Stage::Prefill {
                    view.committed += job.bytes;
                }
                view.jobs.push(job);
            }
        }
        // Of those due at one time the shortest comes first, so that the order of their arrival decides nothing.
        view.jobs.sort_unstable_by_key(|job| (job.deadline, job.remaining, job.id));
        for group in &mut view.groups {
            group.finish(start);
        }
        view
    }

    fn decodes(&mut self, context: &Context, worker: GpuId, id: RequestId) {
        let sequence = context.books.sequence(id);
        let model = sequence.request.model;
        let place = match self.groups.iter().position(|group| group.model == model) {
            Some(place) => place,
            None => {
                self.groups.push(Group::none(context, worker, model));
                self.groups.len() - 1
            }
        };
        let group = &mut self.groups[place];
        let left = context.books.models[model.index()].lengths.expected(sequence.generated, sequence.limit);
        self.committed += context.books.bytes(id, sequence.cached + left);
        let due = due(&group.terms, sequence.deadline(), sequence.request.tpot, sequence.cached, left);
        group.tpot = group.tpot.min(due.tpot);
        let own = group.terms.decode(u64::from(sequence.cached));
        group.tokens.push(Token { id, deadline: sequence.deadline(), own, due });
    }

    pub(super) fn group(&self, model: ModelId) -> Option<&Group> {
        self.groups.iter().find(same(model))
    }

    /// The model whose tokens are due first.
    pub(super) fn most_urgent(&self) -> Option<ModelId> {
        self.groups.iter().min_by_key(|group| (group.deadline, group.model)).map(|group| group.model)
    }

    /// When the first of the steps of all models, but for one of them, has to start so that all due tokens are in time:
    /// steps laid out backwards, the last one first.
    pub(super) fn latest_start(&self, but: Option<ModelId>) -> Time {
        let mut steps: Vec<(Time, Span)> = self
            .groups
            .iter()
            .filter(|group| Some(group.model) != but)
            .map(|group| (group.deadline, group.rest()))
            .collect();
        steps.sort_unstable();
        steps.iter().rev().fold(Time::NEVER, |next, (deadline, takes)| next.min(*deadline) - *takes)
    }

    /// Nanoseconds that tokens due by then take.
    pub(super) fn due_until(&self, until: Time) -> f64 {
        self.groups.iter().map(|group| group.due_until(until)).sum()
    }

    /// How long all that waits takes.
    pub(super) fn backlog(&self, now: Time) -> Span {
        let work: f64 = self.jobs.iter().map(|job| job.cost).sum();
        let free = (1.0 - self.promised(now) / 1e3).max(0.05);
        Span::from_nanos((work / free) as u64)
    }

    fn promised(&self, now: Time) -> f64 {
        let tokens = self.groups.iter().flat_map(|group| &group.tokens).map(|token| token.due.promised(now));
        tokens.sum::<f64>() + self.groups.iter().map(|group| 1e3 * group.terms.floor / group.tpot).sum::<f64>()
    }

    /// What a worker would have to do before the first token of a sequence, in nanoseconds, and the part of it that would be
    /// promised, in thousandths.
    pub(super) fn burden(&self, context: &Context, worker: GpuId, id: RequestId) -> (f64, f64) {
        let sequence = context.books.sequence(id);
        let runs = context.books.workers[worker.index()].running.as_ref();
        let runs = runs.map_or(Span::ZERO, |running| running.finish - self.start);
        let own = job(context, worker, id);
        let work: f64 = self.jobs.iter().map(|job| job.cost).sum();
        let ahead = runs.nanos() as f64 + work + own.cost + self.due_until(self.start + sequence.request.ttft);
        let floor = match self.group(own.model) {
            None => 1e3 * Group::none(context, worker, own.model).terms.floor / own.then.tpot,
            Some(_) => 0.0,
        };
        (ahead, self.promised(self.start) + own.promised() + floor)
    }

    /// Chooses the prompts that run: as many as can be in time together, as far as tokens and cache are not promised twice.
    pub(super) fn choose(&self, context: &Context, worker: GpuId, limit: f64) -> Chosen {
        let mut chosen = Chosen::default();
        let mut promised = self.promised(self.start);
        let mut models: Vec<ModelId> = self.groups.iter().map(|group| group.model).collect();
        let mut work = 0.0;
        for index in 0..self.jobs.len() {
            let job = self.jobs[index];
            let floor = match models.contains(&job.model) {
                true => 0.0,
                false => 1e3 * Group::none(context, worker, job.model).terms.floor / job.then.tpot,
            };
            let own = job.promised() + floor;
            if promised + own > limit && job.unseen && !job.begun && promised > 0.0 {
                chosen.left_out.push(job);
                continue;
            }
            promised += own;
            models.push(job.model);
            chosen.ready.push(job);
            work += job.cost;
            // Resumed sequences are late already: they come first, and nobody gives way to them.
            while job.unseen && !self.in_time(context, worker, &chosen.ready, work, job.deadline) {
                let fresh = chosen.ready.iter().enumerate().filter(|(_, other)| other.unseen && !other.begun);
                let Some((place, _)) = fresh.max_by(|left, right| left.1.cost.total_cmp(&right.1.cost)) else { break };
                let out = chosen.ready.remove(place);
                work -= out.cost;
                promised -= out.promised();
                chosen.left_out.push(out);
                if out.id == job.id {
                    break;
                }
            }
        }
        chosen.left_out.sort_by(|left, right| right.cost.total_cmp(&left.cost));
        self.fit(context, worker, &mut chosen);
        chosen
    }

    /// Whether so much work and the tokens that are due before it ends are done by a deadline.
    fn in_time(&self, context: &Context, worker: GpuId, ready: &[Job], work: f64, deadline: Time) -> bool {
        let mut ends = self.start;
        let mut due = self.due_until(deadline);
        for job in ready {
            ends += Span::from_nanos(job.cost as u64);
            due += Due { deadline: ends + Span::from_nanos(job.then.tpot as u64), ..job.then }.tokens(deadline)
                * job.then.own;
        }
        let step = self.ttft.scale(1, LONGEST);
        let margin = ready.first().map_or(Span::ZERO, |job| context.books.learned(job.model, worker).margin(step));
        self.start + Span::from_nanos((work + due) as u64) + margin <= deadline
    }

    /// Leaves out those for whom the cache has no room beside what the others are expected to need.
    fn fit(&self, context: &Context, worker: GpuId, chosen: &mut Chosen) {
        let cache = context.books.workers[worker.index()].cache;
        let mut committed = self.committed;
        let mut held_up = false;
        chosen.ready.retain(|job| {
            if job.begun {
                return true;
            }
            let fits = !held_up && (committed == 0 || committed + job.bytes <= cache);
            if fits {
                committed += job.bytes;
            } else {
                chosen.blocked = true;
                // Who has been seen is not overtaken.
                held_up |= !job.unseen;
            }
            fits
        });
    }
}

impl Group {
    fn due_until(&self, until: Time) -> f64 {
        let (mut steps, mut work) = (0.0f64, 0.0);
        for token in &self.tokens {
            let tokens = token.due.tokens(until);
            steps = steps.max(tokens);
            work += token.due.own * tokens;
        }
        work + steps * self.terms.floor
    }

    /// Sorts, and finds out who can be in time.
    fn finish(&mut self, start: Time) {
        self.step = self.terms.floor + self.tokens.iter().map(|token| token.own).sum::<f64>();
        for token in &mut self.tokens {
            let soonest = start + Span::from_nanos((self.terms.floor + token.own) as u64);
            if token.deadline < soonest {
                // Too late already: as if the token before had come just now.
                // At the times at which it would be due again, which do not move: else it would wait for ever.
                let period = (token.due.tpot.max(self.step) as u64).max(1);
                let missed = (soonest - token.deadline).nanos().div_ceil(period);
                token.deadline += Span::from_nanos(period * missed);
            }
        }
        self.tokens.sort_unstable_by_key(|token| (token.deadline, token.id));
        self.deadline = self.tokens.first().map_or(Time::NEVER, |token| token.deadline);
    }
}

fn due(terms: &Terms, deadline: Time, tpot: Span, cached: u32, left: u32) -> Due {
    // The cache grows while it decodes: half of what comes, on average.
    let own = terms.decode(u64::from(cached) + u64::from(left) / 2);
    Due { deadline, tpot: (tpot.nanos() as f64).max(1.0), own, left: f64::from(left) }
}

fn job(context: &Context, worker: GpuId, id: RequestId) -> Job {
    let sequence = context.books.sequence(id);
    let model = sequence.request.model;
    let terms = context.books.learned(model, worker).terms();
    let left = context.books.models[model.index()].lengths.expected(sequence.generated, sequence.limit);
    let whole = sequence.cached + sequence.remaining();
    let tpot = sequence.request.tpot;
    Job {
        id,
        model,
        deadline: sequence.deadline(),
        alone: alone(context, worker, id),
        unseen: sequence.is_unseen(),
        begun: sequence.stage != Stage::Waiting,
        cost: terms.chunk(sequence.cached, sequence.remaining()) + terms.decode(u64::from(sequence.cached)),
        then: due(&terms, sequence.deadline() + tpot, tpot, whole, left),
        remaining: sequence.remaining(),
        bytes: context.books.bytes(id, whole + left),
    }
}

/// How long the rest of a prompt takes with the worker to itself.
pub(super) fn alone(context: &Context, worker: GpuId, id: RequestId) -> Span {
    let sequence = context.books.sequence(id);
    let learned = context.books.learned(sequence.request.model, worker);
    let terms = learned.terms();
    let nanos =
        terms.floor + terms.decode(u64::from(sequence.cached)) + terms.chunk(sequence.cached, sequence.remaining());
    Span::from_nanos(nanos as u64)
}

/// Models by what they have to do on a worker are looked up by id.
fn same(model: ModelId) -> impl Fn(&&Group) -> bool {
    move |group| group.model == model
}
