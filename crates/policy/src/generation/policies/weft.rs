//! Weft's own: tokens on time, and the GPU free in between.
//!
//! *Deferred batching, token by token.* A token is early when it comes before `first + k * tpot`, and early tokens are worth
//! nothing to whoever reads them. So a step in which prompts have no part starts as late as the earliest due token allows:
//! fewer steps, each with more sequences, for the same tokens. Steps of several models on one GPU are laid out backwards from
//! their due tokens.
//!
//! *Prompts run at once*, those due first before others, in chunks as long as the due tokens and `LONGEST` leave room for.
//! Sequences that decode come along, because their tokens cost less than a step of their own.
//!
//! *First tokens that cannot all be in time:* the longest prompts give way until the others can be (Moore and Hodgson's rule,
//! which leaves the fewest late). They are tried if time is left after all, and refused once they have no chance.
//!
//! *Tokens per second are promised once:* a prompt begins only if all that decode, and it, can have their tokens in time, and
//! if the cache holds what they are expected to need.
//!
//! *Work ahead is insurance.* What has been decoded early leaves more of the GPU to prompts that come in a burst. When what is
//! due soon and a burst as seen lately do not fit together, steps are not deferred. See `Bursts`.

mod view;
mod bursts;

use self::bursts::Bursts;
use self::view::{Group, Job, LONGEST, View, alone};
use crate::generation::{Context, Policy, Reason, Stage};
use crate::{GpuId, RequestId, Span, Time};

/// What is due sooner than this is due now, and nothing is looked at again sooner: a hundredth of a short step. Without it a worker
/// could be looked at every nanosecond.
const SOON: Span = Span::from_micros(50);
/// The part of a GPU that promised tokens may take, in thousandths. The rest is for prompts, and for what is not foreseen.
const PROMISED: f64 = 950.0;

/// See the module.
#[derive(Debug, Default)]
pub struct Weft {
    bursts: Vec<Bursts>,
}

impl Policy for Weft {
    /// The first worker that can take the request and a burst besides, so that what is idle is idle as a whole; if none can,
    /// the one with the least to do before the first token.
    fn route(&mut self, context: &mut Context, id: RequestId) -> GpuId {
        let sequence = *context.books.sequence(id);
        let fitting = context.books.with_model(sequence.request.model).filter(|worker| context.books.fits(id, *worker));
        let fitting: Vec<GpuId> = fitting.collect();
        if let [only] = fitting[..] {
            return only;
        }
        let mut best = (f64::INFINITY, f64::INFINITY, fitting[0]);
        for worker in fitting {
            let (ahead, promised) = View::new(context, worker).burden(context, worker, id);
            let spare = self.bursts(worker).allowance();
            if promised <= PROMISED / 2.0 && ahead <= spare.min(sequence.request.ttft.nanos() as f64 / 2.0) {
                return worker;
            }
            let own = (if promised > PROMISED { promised } else { 0.0 }, ahead, worker);
            if (own.0, own.1) < (best.0, best.1) {
                best = own;
            }
        }
        best.2
    }

    fn on_arrival(&mut self, context: &mut Context, id: RequestId, worker: GpuId) {
        let request = context.books.sequence(id).request;
        let terms = context.books.learned(request.model, worker).terms();
        let work = terms.chunk(0, request.prompt) + terms.sequence;
        self.bursts(worker).record(context.now, request.ttft, work);
    }

    fn plan(&mut self, context: &mut Context, worker: GpuId) -> Time {
        self.refuse_hopeless(context, worker);
        let view = View::new(context, worker);
        let mut chosen = view.choose(context, worker, PROMISED);
        if chosen.ready.is_empty() {
            if view.groups.is_empty() {
                // Nobody decodes: who was left out has the GPU to himself.
                match chosen.left_out.pop() {
                    Some(job) if !chosen.blocked => chosen.ready.push(job),
                    _ => return self.look_again(context, &view, Time::NEVER),
                }
            } else {
                let begins = self.when(context, worker, &view, chosen.blocked);
                if begins > context.start() + SOON {
                    return self.look_again(context, &view, begins - context.books.lead);
                }
            }
        }
        if !compose(context, worker, &view, &chosen.ready, !chosen.left_out.is_empty()) {
            super::fill::rescue(context, worker, 64);
        }
        Time::NEVER
    }
}

impl Weft {
    fn bursts(&mut self, worker: GpuId) -> &mut Bursts {
        if self.bursts.len() <= worker.index() {
            self.bursts.resize_with(worker.index() + 1, Bursts::default);
        }
        &mut self.bursts[worker.index()]
    }

    /// Refuses those whose first token would be late if they were alone.
    fn refuse_hopeless(&mut self, context: &mut Context, worker: GpuId) {
        let there = &context.books.workers[worker.index()];
        let mut backlog = None;
        let all: Vec<RequestId> = there.waiting.iter().chain(&there.active).copied().collect();
        for id in all {
            let sequence = *context.books.sequence(id);
            if !sequence.is_unseen() || context.start() + alone(context, worker, id) <= sequence.deadline() {
                continue;
            }
            let come_back = *backlog.get_or_insert_with(|| View::new(context, worker).backlog(context.start()));
            context.reject(id, Reason::TooLate, Some(come_back));
        }
    }

    /// When the next step without prompts begins: as late as due tokens allow, unless a burst could then not be borne.
    fn when(&mut self, context: &Context, worker: GpuId, view: &View, blocked: bool) -> Time {
        let start = context.start();
        let latest = view.latest_start(None);
        // Who waits for room in the cache waits for sequences to end.
        if blocked || latest <= start {
            return start;
        }
        let bursts = self.bursts(worker);
        let (window, allowance) = (bursts.window(), bursts.allowance());
        let bearable = |at: Time| view.due_until(at + window) <= allowance;
        if bearable(latest) {
            return latest;
        }
        if !bearable(start) {
            return start;
        }
        let (mut good, mut bad) = (start, latest);
        for _ in 0..6 {
            let middle = good + (bad - good).scale(1, 2);
            if bearable(middle) { good = middle } else { bad = middle }
        }
        good
    }

    /// The next look: when the next step is due, or somebody who waits has no chance any more.
    fn look_again(&self, context: &Context, view: &View, at: Time) -> Time {
        let hopeless =
            view.jobs.iter().filter(|job| job.unseen).map(|job| job.deadline - job.alone - context.books.lead);
        // A nanosecond later it is certain.
        let hopeless = hopeless.map(|at| at + Span::from_nanos(1)).min().unwrap_or(Time::NEVER);
        at.min(hopeless).max(context.now + SOON)
    }
}

/// Chooses what is in the step that begins now, and begins it. Whether there was anything.
fn compose(context: &mut Context, worker: GpuId, view: &View, ready: &[Job], crowded: bool) -> bool {
    let start = context.start();
    let first = ready.first().map(|job| job.model);
    // The model whose prompt is due first, unless the tokens of another cannot wait for a chunk of it.
    let mut model = first.or_else(|| view.most_urgent()).expect("somebody is ready or decodes");
    let urgent = view.latest_start(Some(model));
    let floor = context.books.learned(model, worker).terms().floor;
    let whole = view.group(model).map_or(floor, |group| group.step);
    if urgent < start + Span::from_nanos(whole as u64) {
        model = view.most_urgent().unwrap_or(model);
    }
    let others = view.latest_start(Some(model));
    let fallback = Group::none(context, worker, model);
    let group = view.group(model).unwrap_or(&fallback);
    let jobs: Vec<&Job> = ready.iter().filter(|job| job.model == model).collect();
    let longest = view.ttft.scale(1, LONGEST).max(Span::from_nanos((2.0 * group.step).max(8.0 * floor) as u64));
    let mut end = others.min(group.deadline).min(start + longest);
    // Those that decode come along, as far as all of them are in time.
    let mut decode: Vec<RequestId> = Vec::new();
    let mut takes = group.terms.floor;
    let tight = crowded || jobs.first().is_some_and(|job| start + job.alone + group.rest() > job.deadline);
    for token in &group.tokens {
        let until = start + Span::from_nanos(((takes + token.own) * (1.0 + group.guard)) as u64);
        let late = until > group.deadline && !decode.is_empty();
        // Under pressure only those that the step after this one could not serve in time.
        let may_wait = tight && token.deadline > end + group.rest();
        if late || may_wait {
            break;
        }
        takes += token.own;
        decode.push(token.id);
    }
    if decode.is_empty() && !group.tokens.is_empty() {
        // They need a step of their own after this one.
        end = end.min(group.deadline - group.rest());
    }
    let token = context.books.models[model.index()].token_bytes;
    if !decode.is_empty() && !context.make_room(worker, decode.len() as u64 * token, &[]) {
        return false;
    }
    decode.retain(|id| context.books.sequence(*id).stage == Stage::Decode);
    let mut room = (context.books.free(worker) - decode.len() as u64 * token) / token.max(1);
    let usable = (end - start).nanos() as f64 / (1.0 + group.guard);
    let mut left = usable - takes;
    let mut prefill = Vec::new();
    for job in jobs {
        // An eviction may have changed who holds cache and how much there is to process.
        let sequence = context.books.sequence(job.id);
        let own = group.terms.decode(u64::from(sequence.cached));
        let tokens = group.terms.tokens(sequence.cached, left - own) as u64;
        let tokens = tokens.min(room).min(u64::from(sequence.remaining())) as u32;
        if tokens == 0 {
            break;
        }
        prefill.push((job.id, tokens));
        room -= u64::from(tokens);
        left -= own + group.terms.chunk(sequence.cached, tokens);
        if tokens == sequence.remaining() && job.unseen {
            // What is packed behind it delays it.
            let spare = (job.deadline - start).nanos() as f64 / (1.0 + group.guard) - (usable - left);
            left = left.min(spare);
        }
    }
    if prefill.is_empty() && decode.is_empty() {
        // No time for a chunk before tokens are due: these come first.
        decode = group.tokens.iter().map(|token| token.id).collect();
        if !context.make_room(worker, decode.len() as u64 * token, &[]) {
            return false;
        }
        decode.retain(|id| context.books.sequence(*id).stage == Stage::Decode);
    }
    if prefill.is_empty() && decode.is_empty() {
        // Nothing of this model has time before the tokens of another.
        return !(ready.is_empty() || view.groups.is_empty()) && compose(context, worker, view, &[], crowded);
    }
    context.step(worker, model, prefill, decode, start);
    true
}
