//! The queue of a worker that is ready: batches are put into it, and its answers are received from it.
//!
//! Whoever brings a batch for an idle worker writes it into shared memory and sends it off itself; whoever hears the
//! answer hands it on and, because the scheduler decides on the same thread, mostly brings the next batch as well. So a
//! batch costs the worker's change of threads and no other.
//!
//! Invariants:
//! 1. At most one exchange with the worker is under way.
//! 2. Nobody is told anything while the queue is locked: who is told may come back with the next batch.
//! 3. A queue that is closed gives back what it held, and takes nothing: what comes then goes to the link.

use crate::assembly::{Added, Assembly, Batch};
use crate::batch::{Group, fail, group};
use crate::connection::{Broken, Connection, Said, check_outputs, split};
use crate::message::Message;
use crate::scheduler_link::SchedulerLink;
use crate::span::span;
use policy::{Span, Time};
use rpc::{Answer, Compute, Failure, FromNode, ModelInfo, Outputs, Part, Payload, Tensor, WorkerId};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::Notify;

/// Copying more bytes than this would hold up whoever brings them, and is left to the one who picks up.
const LARGE: usize = 128 * 1024;

/// Where others and a worker meet.
pub(crate) struct WorkerQueue {
    worker: WorkerId,
    scheduler: Arc<dyn SchedulerLink>,
    link: Sender<Message>,
    state: Mutex<State>,
    /// Times are counted from here.
    origin: Instant,
    /// There is something for the one who picks up.
    called: Notify,
}

#[derive(Default)]
enum State {
    /// The worker is not ready; what comes goes to its link.
    #[default]
    Closed,
    Open(Box<Open>),
    /// There will be no worker any more.
    Gone,
}

/// A queue while its worker is ready.
struct Open {
    life: u64,
    connection: Connection,
    info: ModelInfo,
    assembly: Assembly<Payload>,
    waiting: VecDeque<Batch<Payload>>,
    flight: Option<Flight>,
    /// No more batches are begun than were here when this was set.
    stopping: bool,
}

/// A batch at the worker.
struct Flight {
    number: u64,
    size: usize,
    requests: Vec<Arc<[Tensor]>>,
    /// Each is taken out when it is answered.
    payloads: Vec<Option<Payload>>,
    /// The first is being computed.
    groups: VecDeque<Group>,
    since: Instant,
    took: Compute,
    failed: bool,
}

/// What is left of a queue that was closed.
pub(crate) struct Closed {
    /// Requests that were at the worker or waited for it.
    pub(crate) payloads: Vec<Payload>,
    /// Parts of batches.
    pub(crate) assembly: Assembly<Payload>,
}

/// What is to be told once the queue is not locked.
#[derive(Default)]
struct Afterwards {
    answers: Vec<(Payload, Answer)>,
    done: Vec<FromNode>,
    over: Option<Message>,
    call: bool,
}

impl WorkerQueue {
    /// A queue that is closed. What happens is reported to `scheduler`, and what is not for a queue to `link`.
    pub(crate) fn new(worker: WorkerId, scheduler: Arc<dyn SchedulerLink>, link: Sender<Message>) -> WorkerQueue {
        WorkerQueue { worker, scheduler, link, state: Mutex::default(), origin: Instant::now(), called: Notify::new() }
    }

    /// Puts requests down. Gives them back when there is nobody to take them.
    pub(crate) fn put(&self, part: Part) -> Result<(), Part> {
        let mut queue = self.lock();
        let open = match &mut *queue {
            State::Open(open) => open,
            State::Gone => return Err(part),
            State::Closed => {
                // Under the lock, so that a link that opens or leaves the queue has seen all that came before.
                let _ = self.link.send(Message::Part(part));
                return Ok(());
            }
        };
        let mut afterwards = Afterwards::default();
        match open.assembly.add(self.now(), part.batch, part.size, part.payloads, part.absent) {
            Added::Complete(batch) => {
                open.waiting.push_back(batch);
                open.advance(self.worker, true, &mut afterwards);
            }
            Added::Incomplete => {}
            Added::Over(payloads, failure) => {
                afterwards.answers.extend(payloads.into_iter().map(|payload| (payload, Err(failure.clone()))));
            }
        }
        drop(queue);
        self.carry_out(afterwards);
        Ok(())
    }

    /// Opens the queue for a worker. `settle` sees to what was sent to the link before.
    pub(crate) fn open(
        &self,
        life: u64,
        connection: Connection,
        info: ModelInfo,
        patience: Duration,
        settle: impl FnOnce(),
    ) {
        let mut queue = self.lock();
        settle();
        let (assembly, waiting) = (Assembly::new(span(patience)), VecDeque::new());
        let open = Open { life, connection, info, assembly, waiting, flight: None, stopping: false };
        *queue = State::Open(Box::new(open));
    }

    /// Closes the queue and hands out what it held.
    pub(crate) fn close(&self) -> Option<Closed> {
        let State::Open(open) = std::mem::take(&mut *self.lock()) else { return None };
        let Open { assembly, waiting, flight, .. } = *open;
        let in_flight = flight.into_iter().flat_map(|flight| flight.payloads).flatten();
        let payloads = in_flight.chain(waiting.into_iter().flat_map(|batch| batch.payloads)).collect();
        Some(Closed { payloads, assembly })
    }

    /// Takes nothing any more, not even for the link.
    pub(crate) fn leave(&self) {
        *self.lock() = State::Gone;
    }

    /// Says `Finished` to the link once all that is here is done.
    pub(crate) fn finish(&self) {
        let mut queue = self.lock();
        let State::Open(open) = &mut *queue else { return };
        open.stopping = true;
        let over = open.over();
        drop(queue);
        self.carry_out(Afterwards { over, ..Afterwards::default() });
    }

    fn now(&self) -> Time {
        Time::from_nanos(span(self.origin.elapsed()).nanos())
    }

    /// Begins what has waited long enough for its parts; says whether the worker has been silent for too long.
    pub(crate) fn look(&self, batch_timeout: Duration) -> bool {
        let mut queue = self.lock();
        let State::Open(open) = &mut *queue else { return false };
        let mut afterwards = Afterwards::default();
        open.waiting.extend(open.assembly.expire(self.now()));
        open.advance(self.worker, false, &mut afterwards);
        let silent = open.flight.as_ref().is_some_and(|flight| flight.since.elapsed() >= batch_timeout);
        drop(queue);
        self.carry_out(afterwards);
        silent
    }

    /// Picks up answers for as long as the queue is open for this life of the worker.
    pub(crate) async fn pick_up(&self, life: u64) {
        let socket = match &*self.lock() {
            State::Open(open) if open.life == life => open.connection.socket(),
            _ => return,
        };
        // Sockets that keep messages apart are all waited for alike.
        let socket = socket.and_then(|socket| UnixDatagram::from_std(socket.into()));
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => {
                let broken = Broken::Nonsense(format!("its socket cannot be watched: {error}"));
                return drop(self.link.send(Message::Broken(life, broken)));
            }
        };
        loop {
            let heard = tokio::select! {
                ready = socket.readable() => ready.is_ok(),
                () = self.called.notified() => false,
            };
            let mut queue = self.lock();
            let State::Open(open) = &mut *queue else { return };
            if open.life != life {
                return;
            }
            let mut afterwards = Afterwards::default();
            if heard {
                let nothing = || Err(ErrorKind::WouldBlock.into());
                let heard = socket.try_io(Interest::READABLE, || match open.connection.hear() {
                    Ok(None) => nothing(),
                    Ok(Some(answer)) => Ok(Ok(answer)),
                    Err(broken) => Ok(Err(broken)),
                });
                if let Ok(answer) = heard {
                    open.hear(self.worker, answer, &mut afterwards);
                }
            }
            open.advance(self.worker, false, &mut afterwards);
            drop(queue);
            self.carry_out(afterwards);
        }
    }

    fn carry_out(&self, afterwards: Afterwards) {
        let Afterwards { answers, done, over, call } = afterwards;
        if call {
            self.called.notify_one();
        }
        for (payload, answer) in answers {
            payload.answer.reply(answer);
        }
        for done in done {
            self.scheduler.report(done);
        }
        if let Some(over) = over {
            // A link that does not listen is stopping anyway.
            let _ = self.link.send(over);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Sends the next batches off while the worker has nothing to do. Whoever `brings` one leaves it to the one who
    /// picks up when it is large, or when some of its answers are due before its worker's: another thread would hear of
    /// the batch's end and might say so before them.
    fn advance(&mut self, worker: WorkerId, brings: bool, afterwards: &mut Afterwards) {
        while self.flight.is_none()
            && let Some(batch) = self.waiting.pop_front()
        {
            if batch.payloads.is_empty() {
                afterwards.done.push(FromNode::Done { worker, batch: batch.number, size: 0, took: None });
                continue;
            }
            let requests: Vec<Arc<[Tensor]>> = batch.payloads.iter().map(|payload| payload.inputs.clone()).collect();
            let (groups, refused) = group(&requests, self.info.max_batch > 0);
            if brings && (bytes(&batch) > LARGE || groups.len() != 1 || !refused.is_empty()) {
                afterwards.call = true;
                self.waiting.push_front(batch);
                return;
            }
            let Batch { number, payloads } = batch;
            let mut payloads: Vec<Option<Payload>> = payloads.into_iter().map(Some).collect();
            let failed = !refused.is_empty();
            for (index, reason) in refused {
                afterwards.answers.extend(payloads[index].take().map(|payload| (payload, Err(Failure::Model(reason)))));
            }
            let (size, since, took) = (payloads.len(), Instant::now(), Compute::default());
            let flight = Flight { number, size, requests, payloads, groups: groups.into(), since, took, failed };
            self.send(worker, flight, afterwards);
        }
        if afterwards.over.is_none() {
            afterwards.over = self.over();
        }
    }

    /// Sends the first group of a flight that can be sent, or ends the flight when there is none.
    fn send(&mut self, worker: WorkerId, mut flight: Flight, afterwards: &mut Afterwards) {
        while let Some(group) = flight.groups.front() {
            let columns = group.columns(&flight.requests, self.info.max_batch > 0);
            let posted = self.connection.post(&columns);
            flight.took.input += lap(&mut flight.since);
            match posted {
                Ok(Ok(())) => {
                    self.flight = Some(flight);
                    return;
                }
                Ok(Err(reason)) => flight.answer(Err(reason), afterwards),
                Err(broken) => {
                    self.flight = Some(flight);
                    afterwards.over = Some(Message::Broken(self.life, broken));
                    return;
                }
            }
        }
        let took = (!flight.failed).then(|| flight.took.total());
        afterwards.done.push(FromNode::Done { worker, batch: flight.number, size: flight.size, took });
    }

    /// Takes what the worker answered.
    fn hear(&mut self, worker: WorkerId, answer: Result<Said, Broken>, afterwards: &mut Afterwards) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(broken) => {
                afterwards.over = Some(Message::Broken(self.life, broken));
                return;
            }
        };
        let Some(mut flight) = self.flight.take() else {
            let broken = Broken::Nonsense("it answered without being asked".to_owned());
            afterwards.over = Some(Message::Broken(self.life, broken));
            return;
        };
        flight.took.infer += lap(&mut flight.since);
        let batched = self.info.max_batch > 0;
        let outputs = answer.and_then(|outputs| {
            let rows = flight.groups.front().map(|group| &group.rows[..]).unwrap_or_default();
            check_outputs(&outputs, &self.info, batched.then(|| rows.iter().sum()))?;
            if batched { split(&outputs, rows) } else { Ok(vec![outputs]) }
        });
        flight.took.output += lap(&mut flight.since);
        flight.answer(outputs, afterwards);
        self.send(worker, flight, afterwards);
    }

    /// Whether a worker that is to stop has nothing left to do.
    fn over(&self) -> Option<Message> {
        let idle = self.flight.is_none() && self.waiting.is_empty() && self.assembly.is_empty();
        (self.stopping && idle).then_some(Message::Finished(self.life))
    }
}

impl Flight {
    /// Answers the requests of the first group, which is done with.
    fn answer(&mut self, outputs: Result<Vec<Vec<Tensor>>, String>, afterwards: &mut Afterwards) {
        let Some(group) = self.groups.pop_front() else { return };
        let (compute, batch_size) = (self.took, self.size);
        let payloads = &mut self.payloads;
        let members = group.members.iter().filter_map(|member| Some((*member, payloads[*member].take()?)));
        match outputs {
            Ok(outputs) => afterwards.answers.extend(members.zip(outputs).map(|((member, payload), tensors)| {
                (payload, Ok(Outputs { tensors, compute, batch_size, leads: member == 0 }))
            })),
            Err(reason) => {
                self.failed = true;
                let failure = Failure::Model(reason);
                afterwards.answers.extend(members.map(|(_, payload)| (payload, Err(failure.clone()))));
            }
        }
    }
}

impl Closed {
    /// Answers all that was held: their worker died.
    pub(crate) fn fail(mut self) {
        fail(self.payloads, &Failure::WorkerDied);
        fail(self.assembly.abandon(), &Failure::WorkerDied);
    }
}

/// How long it is since then. The next one is from now on.
fn lap(since: &mut Instant) -> Span {
    let now = Instant::now();
    span(now - std::mem::replace(since, now))
}

/// How many bytes of inputs a batch has.
fn bytes(batch: &Batch<Payload>) -> usize {
    batch.payloads.iter().flat_map(|payload| payload.inputs.iter()).map(|input| input.data.len()).sum()
}
