//! The requests of one function, and the dispatcher that gives them to its workers: the code that runs live, with a pool for
//! each model as there. To the dispatcher a worker is a GPU, and as workers have shares of their own, each is of its own type.
//!
//! A request is refused here or runs in a batch that is handed out; `crate::check` holds the pool to that.

use crate::check::Ledger;
use policy::{
    Action, Actions, Dispatcher, Event, GpuId, GpuType, InstanceId, LatencyTable, Model, ModelId, Network, Request,
    Span, Time, policies,
};

/// What batches, as live where nothing else is configured.
const POLICY: &str = "weft";
/// What the live scheduler allows for timers and messages that are late. Here none is, but the end of a batch that is
/// slowed down a thousand times is rounded as often.
const JITTER: Span = Span::from_micros(500);
/// One part of this many is the least change of latencies that the live scheduler tells its dispatcher of.
const WORTH_TELLING: f64 = 1.0 / 32.0;

/// Each pool has one model.
const MODEL: ModelId = ModelId(0);
/// What to expect while there is no worker; those that there are have the types after it.
const NOBODY: GpuType = GpuType(0);

/// What the dispatcher wants done.
#[derive(Debug)]
pub(super) enum Want {
    Run(Batch),
    /// Refuse a request that came then.
    Refuse(Time),
}

/// A batch for a worker.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) worker: InstanceId,
    /// When each of its requests came.
    pub(super) arrivals: Vec<Time>,
    /// By when the first must be answered.
    pub(super) deadline: Time,
    /// Requests that wait beside it.
    pub(super) behind: usize,
}

pub(super) struct Pool {
    dispatcher: Dispatcher,
    objective: Span,
    /// Latencies in seconds by batch, of the fastest worker that there could be.
    expected: Vec<f64>,
    /// By GPU id.
    slots: Vec<Option<Slot>>,
    requests: Ledger,
    actions: Actions,
}

/// A worker's place.
#[derive(Debug)]
struct Slot {
    worker: InstanceId,
    /// Latencies in seconds by batch, where neighbours cost nothing.
    planned: Vec<f64>,
    /// How many times as long batches take, as the dispatcher knows it.
    slower: f64,
    /// The batch that it runs, and how many requests are in it: each by its number.
    running: Option<(u64, Vec<policy::RequestId>)>,
    leaving: bool,
}

impl Pool {
    pub(super) fn new(objective: Span, expected: Vec<f64>) -> Pool {
        let model = Model { objective, tables: vec![table(&expected, 1.0)], expected_gap: Span::MAX };
        let network = Network { jitter: JITTER, ..Network::default() };
        let policy = policies::by_name(POLICY).expect("there is such a policy");
        let dispatcher = Dispatcher::new(vec![model], &[], network, policy);
        let (requests, actions) = (Ledger::default(), Actions::default());
        Pool { dispatcher, objective, expected, slots: Vec::new(), requests, actions }
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.dispatcher.cluster().lanes.iter().map(|lane| lane.queue.len()).sum()
    }

    /// Requests that wait or run, by the simulator's books.
    pub(super) fn open(&self) -> usize {
        self.requests.open() as usize
    }

    /// When [`Pool::on_timer`] is next due.
    pub(super) fn next_timer(&self) -> Time {
        self.dispatcher.next_timer().unwrap_or(Time::NEVER)
    }

    pub(super) fn on_timer(&mut self, now: Time, wants: &mut Vec<Want>) {
        self.dispatcher.on_timer(now, &mut self.actions);
        self.hand_out(now, wants);
        assert!(self.next_timer() > now, "a timer at {} ns fires for ever", now.nanos());
    }

    /// A request came.
    pub(super) fn arrive(&mut self, now: Time, wants: &mut Vec<Want>) {
        let request =
            Request { id: self.requests.next_id(), model: MODEL, arrival: now, deadline: now + self.objective };
        self.requests.arrived(&request);
        self.tell(now, Event::Arrived(request), wants);
    }

    /// A worker can take batches, which are planned to take so many seconds by their size.
    pub(super) fn join(&mut self, now: Time, worker: InstanceId, planned: Vec<f64>, wants: &mut Vec<Want>) {
        let place = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if place == self.slots.len() {
            self.slots.push(None);
        }
        self.set_table(now, kind(place), table(&planned, 1.0), wants);
        if self.dispatcher.cluster().models[0].tables[NOBODY.index()].max_batch() > 0 {
            self.set_table(now, NOBODY, LatencyTable::default(), wants);
        }
        self.slots[place] = Some(Slot { worker, planned, slower: 1.0, running: None, leaving: false });
        self.tell(now, Event::GpuJoined { gpu: GpuId::new(place), kind: kind(place) }, wants);
    }

    /// A worker finishes what it has and takes nothing more.
    pub(super) fn leave(&mut self, now: Time, worker: InstanceId, wants: &mut Vec<Want>) {
        let place = self.place(worker);
        self.slot(place).leaving = true;
        if self.slots.iter().flatten().all(|slot| slot.leaving) {
            self.set_table(now, NOBODY, table(&self.expected, 1.0), wants);
        }
        self.set_table(now, kind(place), LatencyTable::default(), wants);
        self.tell(now, Event::GpuLeaving(GpuId::new(place)), wants);
        if self.slot(place).running.is_none() {
            self.slots[place] = None;
        }
    }

    /// A worker's batch is over; the last ones took so many times as long as planned.
    pub(super) fn done(&mut self, now: Time, worker: InstanceId, slower: f64, wants: &mut Vec<Want>) {
        let place = self.place(worker);
        let slot = self.slot(place);
        let (batch, requests) = slot.running.take().expect("a batch that ends has run");
        let leaving = slot.leaving;
        let differs = (slower - slot.slower).abs() > slot.slower * WORTH_TELLING;
        let changed = (differs && !leaving).then(|| table(&slot.planned, slower));
        if changed.is_some() {
            slot.slower = slower;
        }
        if leaving {
            self.slots[place] = None;
        }
        self.requests.tick(now);
        requests.into_iter().for_each(|id| {
            self.requests.finished(id);
        });
        if let Some(table) = changed {
            self.set_table(now, kind(place), table, wants);
        }
        self.tell(now, Event::BatchDone { gpu: GpuId::new(place), batch }, wants);
    }

    fn tell(&mut self, now: Time, event: Event, wants: &mut Vec<Want>) {
        self.dispatcher.on_event(now, event, &mut self.actions);
        self.hand_out(now, wants);
    }

    fn set_table(&mut self, now: Time, kind: GpuType, table: LatencyTable, wants: &mut Vec<Want>) {
        self.dispatcher.set_table(now, MODEL, kind, table, &mut self.actions);
        self.hand_out(now, wants);
    }

    fn place(&self, worker: InstanceId) -> usize {
        let own = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.worker == worker);
        self.slots.iter().position(own).expect("a worker that is ready has a place")
    }

    fn slot(&mut self, place: usize) -> &mut Slot {
        self.slots[place].as_mut().expect("the dispatcher knows only places that are taken")
    }

    /// Takes in what the dispatcher wants and hands it on.
    fn hand_out(&mut self, now: Time, wants: &mut Vec<Want>) {
        let mut actions = std::mem::take(&mut self.actions);
        self.requests.tick(now);
        for action in &actions.list {
            match action {
                Action::Run { gpu, batch, requests, .. } => {
                    let requests = actions.requests[requests.clone()].to_vec();
                    wants.push(Want::Run(self.run(now, *gpu, *batch, requests)));
                }
                Action::Reject { request, .. } => wants.push(Want::Refuse(self.requests.refused(*request).arrival)),
                Action::Preempt { .. } => unreachable!("no policy that runs live stops batches"),
            }
        }
        actions.clear();
        self.actions = actions;
    }

    fn run(&mut self, now: Time, gpu: GpuId, batch: u64, requests: Vec<policy::RequestId>) -> Batch {
        let entries = requests.iter().map(|id| self.requests.get(*id));
        let deadline = entries.clone().map(|entry| entry.deadline).min().expect("a batch is not empty");
        let arrivals = entries.map(|entry| entry.arrival).collect();
        requests.iter().for_each(|id| self.requests.started(*id));
        let behind = self.waiting();
        let takes = self.dispatcher.cluster().table(MODEL, gpu).latency(requests.len());
        assert!(
            now + takes <= deadline,
            "a batch of {} was late when it started at {} ns",
            requests.len(),
            now.nanos()
        );
        let slot = self.slot(gpu.index());
        assert!(slot.running.is_none() && !slot.leaving, "a worker runs one batch at a time");
        slot.running = Some((batch, requests));
        Batch { worker: slot.worker, arrivals, deadline, behind }
    }
}

fn kind(place: usize) -> GpuType {
    GpuType::new(place + 1)
}

fn table(seconds: &[f64], slower: f64) -> LatencyTable {
    LatencyTable::from_sizes(seconds.iter().map(|seconds| Span::from_secs_f64(seconds * slower)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECTIVE: Span = Span::from_millis(100);

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// What was done: `worker*size` for a batch, `-` for a refusal.
    fn shown(wants: &mut Vec<Want>) -> Vec<String> {
        let shown = |want| match want {
            Want::Run(Batch { worker, arrivals, .. }) => format!("{}*{}", worker.0, arrivals.len()),
            Want::Refuse(_) => "-".to_owned(),
        };
        wants.drain(..).map(shown).collect()
    }

    /// A pool whose batches take 10 ms, whatever their size up to 4, where there is no worker yet.
    fn pool() -> (Pool, Vec<f64>) {
        let planned = vec![0.010; 4];
        (Pool::new(OBJECTIVE, planned.clone()), planned)
    }

    /// Lets time pass until then.
    fn pass(pool: &mut Pool, until: Time, wants: &mut Vec<Want>) {
        while pool.next_timer() <= until {
            pool.on_timer(pool.next_timer(), wants);
        }
    }

    #[test]
    fn who_finds_no_worker_waits_for_one_and_is_refused_when_none_came_in_time() {
        let ((mut pool, planned), mut wants) = (pool(), Vec::new());
        pool.arrive(at(0), &mut wants);
        pool.arrive(at(50), &mut wants);
        pass(&mut pool, at(95), &mut wants);
        assert_eq!((shown(&mut wants), pool.waiting(), pool.open()), (vec!["-".to_owned()], 1, 1));
        pool.join(at(100), InstanceId(7), planned, &mut wants);
        pass(&mut pool, at(140), &mut wants);
        assert_eq!((shown(&mut wants), pool.waiting(), pool.open()), (vec!["7*1".to_owned()], 0, 1));
        pool.done(at(150), InstanceId(7), 1.0, &mut wants);
        assert_eq!((shown(&mut wants), pool.open()), (Vec::new(), 0));
    }

    #[test]
    fn a_worker_that_leaves_ends_its_batch_and_its_place_is_given_to_the_next() {
        let ((mut pool, planned), mut wants) = (pool(), Vec::new());
        pool.join(at(0), InstanceId(1), planned.clone(), &mut wants);
        (0..4).for_each(|_| pool.arrive(at(1), &mut wants));
        assert_eq!(shown(&mut wants).last().unwrap().split('*').next(), Some("1"));
        pool.leave(at(2), InstanceId(1), &mut wants);
        pool.arrive(at(3), &mut wants);
        pool.done(at(12), InstanceId(1), 1.0, &mut wants);
        assert_eq!(shown(&mut wants), Vec::<String>::new(), "nobody takes what came after");
        pool.join(at(13), InstanceId(2), planned, &mut wants);
        pass(&mut pool, at(90), &mut wants);
        let taken = shown(&mut wants);
        assert!(!taken.is_empty() && taken.iter().all(|batch| batch.starts_with("2*")), "{taken:?}");
        assert_eq!(pool.slots.len(), 1);
    }

    #[test]
    fn batches_are_planned_as_slow_as_the_last_ones_were() {
        let ((mut pool, planned), mut wants) = (pool(), Vec::new());
        pool.join(at(0), InstanceId(1), planned, &mut wants);
        pool.arrive(at(0), &mut wants);
        pass(&mut pool, at(90), &mut wants);
        pool.done(at(95), InstanceId(1), 12.0, &mut wants);
        wants.clear();
        // 120 ms is more than the objective: nobody is run to be late.
        pool.arrive(at(96), &mut wants);
        pass(&mut pool, at(300), &mut wants);
        assert_eq!((shown(&mut wants), pool.open()), (vec!["-".to_owned()], 0));
    }
}
