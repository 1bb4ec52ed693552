//! One way of serving: every GPU-millisecond and every refusal has a price, and each decision compares prices.
//!
//! What differs between ways of serving is a [`Setting`]; what follows describes the one that Weft begins with.
//!
//! 1. **Wait when waiting pays.** While a lane waits, requests join its batch and each saves a share of the
//!    fixed cost of another batch: `alone / size` GPU-seconds. A GPU kept idle for it loses at most one GPU-second a
//!    second, and nothing while others idle anyway. How likely company is depends on how long ago the last request
//!    came (see `gaps`). So a lane waits while what it gains is above that price, which rises with the load.
//! 2. **Start early whom it costs least.** A batch that starts `slack` before its time shortens its cycle and
//!    so costs `alone * slack / cycle` of future GPU time. When GPUs are scarce, the next one goes to the lane
//!    for which that is least, as long as the forecast shows everybody else still on time; else to the lane
//!    with the least slack.
//! 3. **See trouble early and choose whom it hits.** When the forecast shows a batch that will be late, the
//!    cheapest way out is taken: the requests refused, at their model's price, less the GPU time that saves.
//!    A lone request of an expensive model frees a GPU for many others; the head of a long queue frees nothing.
//! 4. **Every model has an error budget** (see `budget`), so that the cheapest way out is not always the same
//!    model's.
//! 5. **Leave idle what nobody needs** (see `load`). GPUs beyond what the load needs are a reserve, opened only
//!    for a lane that would be late without one, so that they can be given back as a whole. Nobody is
//!    refused to make room while there is a reserve.
//!
//! The forecast looks at the most urgent [`WINDOW`] lanes and is made when few GPUs are left to give away; with
//! more of them, an arrival costs a look at its own lane and nothing else.

use super::budget::{Budgets, ONE};
use super::forecast::{Forecast, Job};
use super::gaps::Gaps;
use super::load;
use super::setting::{Goal, Setting, Wait};
use crate::{
    Candidate, Context, GpuId, LaneId, LatencyTable, ModelId, Policy, Request, Span, Time, Tournament, candidate,
    target_batch,
};

/// How many lanes a forecast looks at.
const WINDOW: usize = 32;
/// How many of them are considered for an early start.
const CHOICES: usize = 4;
/// What a millisecond of GPU time is worth, in requests (of [`ONE`]) refused.
const MILLISECOND: i64 = ONE * 6 / 100;
/// A lane spared by refusing its heads must be able to wait this much longer than the one it makes room for.
const GRACE: Span = Span::from_millis(2);
/// How much dearer than the refusals they prevent others' refusals may be, in requests.
const EXTRA: usize = 3;
/// Of so many waits one must be joined by somebody, or a lane does not wait; and of so many batches that did not wait
/// for that reason the last one does, to find out. Larger batches would save less than this part of the GPU time.
const CHANCE: u32 = 20;
/// A whole, in which the part of waits that were joined is counted.
const WHOLE: u32 = 1 << 10;
/// Patience is worked out for batches of 1, 2, 4, 8, 16 and more requests.
const SIZES: usize = 5;
const TICK: Span = Span::from_millis(50);

/// One way of serving.
#[derive(Clone, Debug)]
pub(crate) struct Prices {
    setting: Setting,
    lanes: Vec<Lane>,
    budgets: Budgets,
    /// Latest starts of lanes that would take a GPU now.
    ready: Tournament,
    /// Latest starts of lanes that gain by waiting.
    waiting: Tournament,
    /// When each lane must be looked at again.
    timers: Tournament,
    next_tick: Time,
    /// So few available GPUs are worth a look ahead.
    scarce: usize,
    forecast: Forecast,
    jobs: Vec<Job>,
    order: Vec<(u64, usize)>,
    urgent: Vec<(Time, usize)>,
}

/// What is remembered of a lane.
#[derive(Clone, Debug)]
struct Lane {
    /// Mean batch, in 256ths.
    batch: u64,
    /// Mean gap between requests.
    gap: Span,
    /// How long one request takes alone: the price of a further batch.
    alone: Span,
    /// The batch that its rate and its objective allow.
    target: usize,
    /// When the last request came.
    last: Time,
    gaps: Gaps,
    /// For how long after a request came waiting for the next one pays, by the size that the batch has by then.
    patience: [Span; SIZES],
    /// Nobody waits who may wait for less than this: company is too unlikely.
    least_wait: Span,
    /// How many waited when the lane began to wait; none while it does not.
    began: Option<usize>,
    /// The part of its waits that were joined by somebody, of [`WHOLE`], fading. Gaps do not tell of a client that sends
    /// its next request when the last one is answered.
    joined: u32,
    /// How many batches may start before it waits again.
    rest: u32,
}

impl Lane {
    /// Mean time from one batch to the next.
    fn cycle(&self) -> Span {
        self.gap.scale(self.batch.max(256), 256)
    }

    /// Takes note of a batch that starts from a queue this long: was it worth waiting for?
    fn started(&mut self, queued: usize) {
        match self.began.take() {
            Some(began) => {
                let whole = if queued > began { WHOLE } else { 0 };
                self.joined = (self.joined * 7 + whole) / 8;
                self.rest = if self.joined * CHANCE < WHOLE { CHANCE } else { 0 };
            }
            None => self.rest = self.rest.saturating_sub(1),
        }
    }

    /// Works out how long waiting pays while an idle GPU-second costs `price` GPU-seconds (of [`ONE`]).
    fn weigh_waiting(&mut self, price: u64) {
        let spread = self.gaps.spread(self.gap);
        self.least_wait = spread.least_wait();
        for (place, patience) in self.patience.iter_mut().enumerate() {
            let gain = self.alone.scale(ONE as u64, price.max(1) << place);
            *patience = spread.patience(gain);
        }
    }
}

impl Prices {
    /// This way of serving, with nothing learned.
    pub(super) fn new(setting: Setting) -> Prices {
        let empty = || Tournament::new(0);
        Prices {
            setting,
            lanes: Vec::new(),
            budgets: Budgets::default(),
            ready: empty(),
            waiting: empty(),
            timers: empty(),
            next_tick: Time::ZERO,
            scarce: 1,
            forecast: Forecast::default(),
            jobs: Vec::new(),
            order: Vec::new(),
            urgent: Vec::new(),
        }
    }

    /// How many of ten thousand requests were refused lately.
    pub(super) fn bad(&self) -> i64 {
        self.budgets.bad()
    }

    /// Whether a model was refused more than it may be.
    pub(super) fn in_debt(&self) -> bool {
        self.budgets.in_debt()
    }

    /// Knows from now on what another has learned about lanes and budgets. Its own counts of requests are those given.
    pub(super) fn learn(&mut self, from: &Prices, offered: &[u64], refused: &[u64]) {
        self.lanes.clone_from(&from.lanes);
        self.lanes.iter_mut().for_each(|lane| lane.began = None);
        self.budgets = from.budgets.counted_from(offered, refused);
        self.next_tick = Time::ZERO;
    }

    /// Serves in another way from now on: looks at who waits anew.
    pub(super) fn turn_to(&mut self, context: &mut Context, setting: Setting) {
        self.setting = setting;
        self.next_tick = Time::ZERO;
        self.tick(context);
        for lane in 0..self.lanes.len() {
            if !context.cluster.queue(LaneId::new(lane)).is_empty() {
                self.look_at(context, LaneId::new(lane));
            }
        }
        self.serve(context);
    }

    /// Looks at rates, budgets and load every 50 ms.
    fn tick(&mut self, context: &mut Context) {
        let known = self.lanes.len();
        if context.now < self.next_tick && known == context.cluster.models.len() {
            return;
        }
        self.next_tick = context.now + TICK;
        let cluster = &mut *context.cluster;
        let new = Lane {
            batch: 256,
            gap: Span::MAX,
            alone: Span::ZERO,
            target: 1,
            last: Time::ZERO,
            gaps: Gaps::default(),
            patience: [Span::ZERO; SIZES],
            least_wait: Span::MAX,
            began: None,
            joined: WHOLE / 8,
            rest: 0,
        };
        self.lanes.resize(cluster.models.len(), new);
        self.budgets.grow(cluster.models.len());
        let mut needed = 0;
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            lane.gap = cluster.gap(context.now, ModelId::new(index));
            let model = &cluster.models[index];
            let table = model.fastest();
            lane.alone = if table.max_batch() > 0 { table.latency(1) } else { Span::ZERO };
            if self.setting.goal == Goal::Target {
                lane.target = target_batch(table, lane.gap, model.objective, &cluster.network);
            }
            needed += load::gpus_needed(table, lane.gap, model.objective, &cluster.network);
        }
        self.scarce = (2 * cluster.live_count().isqrt()).max(1);
        let open =
            if self.setting.reserve { load::gpus_open(needed, cluster.live_count()) } else { cluster.live_count() };
        let reserve = cluster.live().nth(open);
        cluster.set_reserve(reserve);
        if let Wait::Priced(full) = self.setting.wait {
            let price = load::idle_price(needed, open, full);
            self.lanes.iter_mut().for_each(|lane| lane.weigh_waiting(price));
        }
        self.budgets.update(&cluster.offered, &cluster.refused, self.lanes.iter().map(|lane| lane.gap));
    }

    /// Until when a batch had better wait before it is sent off; at most until it is due.
    fn waits_until(&self, context: &Context, lane: LaneId, formed: &Candidate, table: &LatencyTable) -> Time {
        let network = &context.cluster.network;
        // What is sent off now starts this much later.
        let lead = network.control + network.data_per_request * formed.size;
        let due = formed.due - lead;
        match self.setting.wait {
            _ if formed.size == table.max_batch() => Time::ZERO,
            Wait::Never => Time::ZERO,
            Wait::Due => due,
            Wait::Priced(_) => {
                let lane = &self.lanes[lane.index()];
                let patience = lane.patience[(formed.size.ilog2() as usize).min(SIZES - 1)];
                let until = due.min(lane.last + patience);
                // Nobody waits for less than the jitter, because nobody could wake up in time.
                let worth_it =
                    lane.rest == 0 && due >= lane.last + lane.least_wait && until > context.now + network.jitter;
                if worth_it { until } else { Time::ZERO }
            }
        }
    }

    /// The batch a lane aims for.
    fn goal(&self, lane: LaneId) -> usize {
        let lane = &self.lanes[lane.index()];
        match self.setting.goal {
            Goal::Usual => (lane.batch / 256).max(1) as usize,
            Goal::Target => lane.target,
            Goal::One => 1,
        }
    }

    /// Whether so few GPUs are left that a look ahead is worth its while. With a reserve it never is: whoever would
    /// be late opens one.
    fn is_scarce(&self, context: &Context) -> bool {
        self.setting.ahead && context.cluster.open_count() <= self.scarce && !context.cluster.has_reserve()
    }

    /// Looks at a lane anew and files it as waiting or ready; whether this is its last chance to start as large as
    /// it is.
    fn refresh(&mut self, context: &mut Context, lane: LaneId) -> bool {
        context.reject_hopeless(lane);
        let now = context.now;
        let outlook = context.cluster.likely_outlook(now, lane);
        let formed = candidate(context.cluster.queue(lane), self.goal(lane), &outlook);
        let network = &context.cluster.network;
        let mut last_call = false;
        let (ready, waiting, timer) = match formed {
            None => {
                self.lanes[lane.index()].began = None;
                (Time::NEVER, Time::NEVER, Time::NEVER)
            }
            Some(formed) => {
                let lead = network.control + network.data_per_request * formed.size;
                let until = self.waits_until(context, lane, &formed, outlook.table);
                if until > now {
                    let queued = context.cluster.queue(lane).len();
                    self.lanes[lane.index()].began.get_or_insert(queued);
                    (Time::NEVER, formed.latest, until)
                } else {
                    last_call = formed.latest - lead <= now;
                    // Even if nothing were late it could not be on time from then on.
                    let dies = formed.latest + network.jitter + Span::from_nanos(1);
                    (formed.latest, Time::NEVER, if last_call { dies } else { formed.latest - lead })
                }
            }
        };
        self.ready.set(lane.index(), ready);
        self.waiting.set(lane.index(), waiting);
        self.timers.set(lane.index(), timer);
        last_call
    }

    /// Gives GPUs away for as long as there is one and somebody who should have it.
    fn serve(&mut self, context: &mut Context) {
        loop {
            let available = context.cluster.open_count();
            let served = match self.ready.first() {
                _ if available == 0 => false,
                _ if self.is_scarce(context) => self.serve_scarce(context),
                None => false,
                Some((latest, _)) if self.reserved(context, latest) => false,
                Some((_, lane)) => self.serve_first(context, LaneId::new(lane)),
            };
            if !served {
                return;
            }
        }
    }

    /// Looks at a lane anew; one that would be late without a GPU of the reserve gets it.
    fn look_at(&mut self, context: &mut Context, lane: LaneId) {
        if self.refresh(context, lane) {
            self.serve_late(context, lane);
        }
    }

    /// Opens a GPU of the reserve for a lane that would be late without it.
    fn serve_late(&mut self, context: &mut Context, lane: LaneId) {
        if context.cluster.open_count() == 0
            && let Some(gpu) = context.cluster.available_for(context.cluster.model_of(lane))
        {
            self.start(context, gpu, lane);
        }
    }

    /// Whether more urgent lanes that wait need all available GPUs.
    fn reserved(&mut self, context: &Context, latest: Time) -> bool {
        let available = context.cluster.open_count();
        if !self.setting.ahead || available > WINDOW || context.cluster.has_reserve() {
            return false;
        }
        self.waiting.first_few(available, &mut self.urgent);
        self.urgent.len() == available && self.urgent.last().is_some_and(|(other, _)| *other < latest)
    }

    /// Serves the most urgent lane, or, when no available GPU can run it, the next that one can.
    fn serve_first(&mut self, context: &mut Context, lane: LaneId) -> bool {
        if let Some(gpu) = context.cluster.available_for(context.cluster.model_of(lane)) {
            return self.start(context, gpu, lane);
        }
        self.ready.first_few(WINDOW, &mut self.urgent);
        let lanes = self.urgent.iter().map(|(_, lane)| LaneId::new(*lane));
        let able = |lane: LaneId| Some((lane, context.cluster.available_for(context.cluster.model_of(lane))?));
        match lanes.filter_map(able).next() {
            Some((lane, gpu)) => self.start(context, gpu, lane),
            None => false,
        }
    }

    /// Starts a lane's batch on a GPU; whether there was one to start.
    fn start(&mut self, context: &mut Context, gpu: GpuId, lane: LaneId) -> bool {
        let outlook = context.cluster.outlook(context.now, lane, gpu);
        let Some(formed) = candidate(context.cluster.queue(lane), self.goal(lane), &outlook) else {
            self.refresh(context, lane);
            return !context.cluster.queue(lane).is_empty() && self.ready.get(lane.index()) == Time::NEVER;
        };
        let queued = context.cluster.queue(lane).len();
        context.sacrifice(lane, formed.drop);
        context.run(gpu, lane, formed.size);
        let state = &mut self.lanes[lane.index()];
        state.started(queued);
        state.batch = (state.batch * 49 + formed.size as u64 * 256) / 50;
        self.refresh(context, lane);
        true
    }

    /// Gives away one of the last GPUs, with a look ahead; whether anything was done.
    fn serve_scarce(&mut self, context: &mut Context) -> bool {
        let gpu = context.cluster.available().next().expect("a GPU is available");
        self.look_ahead(context, gpu);
        let conflict = self.forecast.first_late(&self.jobs, false, |index, _| Some(index));
        if conflict.is_some()
            && let Some((lane, count)) = self.way_out(context, gpu)
        {
            context.sacrifice(lane, count);
            self.refresh(context, lane);
            return true;
        }
        match self.cheapest_start(context.now, conflict.is_some()) {
            Some(chosen) => self.start(context, gpu, self.jobs[chosen].lane),
            None => false,
        }
    }

    /// Lists the most urgent lanes that this GPU could serve, and when GPUs become free.
    fn look_ahead(&mut self, context: &mut Context, gpu: GpuId) {
        let now = context.now;
        let mut jobs = std::mem::take(&mut self.jobs);
        jobs.clear();
        for tree in [&self.ready, &self.waiting] {
            tree.first_few(WINDOW, &mut self.urgent);
            for (_, lane) in &self.urgent {
                let lane = LaneId::new(*lane);
                let outlook = context.cluster.outlook(now, lane, gpu);
                if let Some(formed) = candidate(context.cluster.queue(lane), self.goal(lane), &outlook) {
                    let until = self.waits_until(context, lane, &formed, outlook.table);
                    let takes = outlook.table.latency(formed.size) + outlook.network.data_per_request * formed.size;
                    jobs.push(Job { lane, formed, until, takes });
                }
            }
        }
        jobs.sort_unstable_by_key(|job| (job.formed.latest, job.lane));
        jobs.truncate(WINDOW);
        context.cluster.busy.first_few(WINDOW, &mut self.urgent);
        // Nothing that is sent off from now on starts sooner than that.
        let soonest = now + context.cluster.network.control;
        let free = |gpu: GpuId| context.cluster.gpus[gpu.index()].free_at.max(soonest);
        self.forecast.free.clear();
        self.forecast.free.extend(context.cluster.available().map(free));
        self.forecast.free.extend(self.urgent.iter().map(|(free_at, _)| (*free_at).max(soonest)));
        self.jobs = jobs;
    }

    /// Whom to refuse, and how many, so that a batch the forecast sees late need not be; `None` when none is
    /// late or it is cheapest to let it lose its own heads.
    fn way_out(&mut self, context: &Context, gpu: GpuId) -> Option<(LaneId, usize)> {
        let Prices { jobs, forecast, budgets, lanes, .. } = self;
        let cluster = &*context.cluster;
        forecast.first_late(jobs, true, |index, slot| {
            let late = &jobs[index];
            let queue = cluster.queue(late.lane);
            let table = cluster.table(cluster.model_of(late.lane), gpu);
            let fits =
                |gone: usize| queue.deadline(gone) >= slot + table.latency((queue.len() - gone).min(table.max_batch()));
            let lost = (0..queue.len()).find(|gone| fits(*gone)).unwrap_or(queue.len());
            let own = lost as i64 * budgets.price(cluster.model_of(late.lane).index());
            let mut best = (own, None);
            for job in &jobs[..=index] {
                let price = budgets.price(cluster.model_of(job.lane).index());
                let lane = &lanes[cluster.model_of(job.lane).index()];
                for count in 1..=job.formed.size.min(lost + EXTRA) {
                    let Some(saved) = spared(context, gpu, job, lane, count, slot) else { continue };
                    let worth = (saved.nanos() as i128 * i128::from(MILLISECOND) / 1_000_000) as i64;
                    let cost = count as i64 * price - worth;
                    if cost < best.0 {
                        best = (cost, Some((job.lane, job.formed.drop + count)));
                    }
                }
            }
            best.1
        })
    }

    /// The job to start now: of those that do not wait, or of all when waiting would make somebody late. The
    /// one whose early start costs least while all others stay on time; else the most urgent.
    fn cheapest_start(&mut self, now: Time, hurry: bool) -> Option<usize> {
        let Prices { jobs, forecast, lanes, order, .. } = self;
        let first = jobs.iter().position(|job| hurry || job.until <= now)?;
        order.clear();
        order.extend(jobs.iter().enumerate().filter(|(_, job)| hurry || job.until <= now).map(|(index, job)| {
            let lane = &lanes[job.lane.index()];
            let slack = job.formed.latest - now;
            (lane.alone.scale(slack.nanos(), lane.cycle().nanos().max(1)).nanos(), index)
        }));
        order.sort_unstable();
        let choices = order.iter().take(CHOICES).map(|(_, index)| *index);
        let mut choices = choices.take_while(|index| *index != first);
        let mut harmless = |index: &usize| forecast.all_on_time_after(jobs, *index, now, hurry);
        let better = choices.find(|index| harmless(index));
        // What comes behind jobs that wait may only take a GPU that those can spare.
        let urgent = hurry || first == 0 || harmless(&first);
        better.or(urgent.then_some(first))
    }
}

/// GPU time saved by refusing `count` heads of a job, or `None` when that makes no room before `slot`.
///
/// Refusing all of a lane saves its whole batch. Refusing heads lets the rest wait until the next deadline,
/// which saves their own part and, as the cycle grows longer, a part of the fixed cost of a batch.
fn spared(context: &Context, gpu: GpuId, job: &Job, lane: &Lane, count: usize, slot: Time) -> Option<Span> {
    let cluster = &*context.cluster;
    let queue = cluster.queue(job.lane);
    let gone = job.formed.drop + count;
    if gone == queue.len() {
        return Some(job.takes);
    }
    let table = cluster.table(cluster.model_of(job.lane), gpu);
    let deadline = queue.deadline(gone);
    let size = (queue.len() - gone).min(table.largest_within(deadline - context.now)).max(1);
    if deadline - table.latency(size) < slot + GRACE {
        return None;
    }
    let longer = deadline - queue.deadline(job.formed.drop);
    let cycle = lane.cycle().nanos().max(1);
    let marginal = if table.max_batch() > 1 { table.latency(2) - table.latency(1) } else { Span::ZERO };
    Some(marginal * count + lane.alone.scale(longer.nanos().min(cycle), cycle))
}

impl Policy for Prices {
    fn route(&mut self, context: &mut Context, request: &Request) -> LaneId {
        self.tick(context);
        let lane = &mut self.lanes[request.model.index()];
        if lane.last != Time::ZERO {
            lane.gaps.record(context.now - lane.last);
        }
        lane.last = context.now;
        LaneId(request.model.0)
    }

    fn on_queue(&mut self, context: &mut Context, lane: LaneId) {
        self.tick(context);
        self.look_at(context, lane);
        // An arrival in a lane that waits gives nobody a reason to start, unless it is new and GPUs run short.
        let new = context.cluster.queue(lane).len() == 1 && self.is_scarce(context);
        if new || self.ready.get(lane.index()) != Time::NEVER {
            self.serve(context);
        }
    }

    fn on_gpu(&mut self, context: &mut Context, _gpu: GpuId) {
        self.on_timer(context);
    }

    fn on_timer(&mut self, context: &mut Context) {
        self.tick(context);
        while let Some((at, lane)) = self.timers.first()
            && at <= context.now
        {
            self.look_at(context, LaneId::new(lane));
        }
        self.serve(context);
    }

    fn next_timer(&self) -> Time {
        self.timers.earliest()
    }
}
