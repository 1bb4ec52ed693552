//! One worker through all of its lives: a thread that starts the process, hands it batches and starts it again.
//!
//! ```text
//!            ┌───────────────── back-off, growing ◄── Lost ◄──┐
//!            v                                                │ ended, hung, failed to load
//!  Start ─► process ─► loads ─► says hello ─► warm-up ─► Ready ─► serves ─► Stop: finishes, ends ─► Stopped
//! ```
//!
//! Invariants:
//! 1. Every payload that reaches the link is answered, once.
//! 2. Answers come before the `Done` of their batch, so that who hears `Done` may count on them.
//! 3. `Lost` comes before the answers of the batches that died: the scheduler, which alone decides about running them
//!    again, knows before a gateway asks. No `Done` follows for them. Parts that arrive while there is no process are
//!    answered with `WorkerDied`, and neither `Lost` nor `Done` is said of them.
//! 4. The thread that starts a process outlives it: the kernel kills a worker when its parent thread ends.
//!
//! What they do not cover: a batch whose parts were on their way when the worker died may arrive after its next `Ready`
//! and is then run, with a `Done` for a batch that the scheduler has given up.

use crate::Config;
use crate::batch::{Assembly, Batch, fail, group};
use crate::connection::{Broken, Connection, check_outputs, split};
use crate::logs::{Logs, Source, watch};
use crate::node::Tell;
use crate::spawn::{Process, Started, kill, spawn};
use crate::warmup::Warmup;
use policy::Span;
use rpc::{Failure, FromNode, Kind, ModelInfo, ModelSpec, Outputs, Part, Payload, Tensor, WorkerId};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStderr, ChildStdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a process may take to end by itself once its socket is closed.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// How often a link that waits for a model to load looks for orders.
const LOAD_LOOK: Duration = Duration::from_millis(20);

/// What a link is told.
pub(crate) enum Message {
    /// Requests to run.
    Part(Part),
    /// Finish and end.
    Stop,
    /// The process of this life has ended.
    Ended(u64),
}

/// What others can do to a link besides sending it messages.
#[derive(Default)]
pub(crate) struct Control {
    ending: AtomicBool,
    process: Mutex<Option<Arc<OwnedFd>>>,
}

impl Control {
    /// Kills the process, for good.
    pub(crate) fn kill(&self) {
        self.ending.store(true, Ordering::SeqCst);
        if let Some(process) = &*self.process.lock().unwrap_or_else(PoisonError::into_inner) {
            kill(process);
        }
    }

    fn set(&self, process: Option<Arc<OwnedFd>>) {
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = process;
        // A kill that came before there was anything to kill.
        if self.ending.load(Ordering::SeqCst) {
            self.kill();
        }
    }
}

/// One worker.
pub(crate) struct Link {
    pub(crate) worker: WorkerId,
    pub(crate) spec: Arc<ModelSpec>,
    pub(crate) config: Arc<Config>,
    pub(crate) tell: Tell,
    pub(crate) logs: Arc<Logs>,
    pub(crate) control: Arc<Control>,
    pub(crate) sender: Sender<Message>,
}

/// Why a life is over.
enum Over {
    /// It was told to stop and did.
    Stopped,
    /// It died, with these requests.
    Lost { reason: String, payloads: Vec<Payload> },
}

/// A process that has loaded its model.
struct Life {
    number: u64,
    process: Process,
    connection: Connection,
    info: ModelInfo,
}

impl Link {
    /// Lives until it is told to stop.
    pub(crate) fn run(&self, messages: &Receiver<Message>) {
        let mut deaths = 0;
        for life in 0.. {
            let mut assembly = Assembly::new(self.config.parts_timeout);
            let mut ready_since = None;
            let over = self.live(life, messages, &mut assembly, &mut ready_since);
            self.control.set(None);
            let Over::Lost { reason, payloads } = over else { return };
            if ready_since.is_some_and(|since: Instant| since.elapsed() >= self.config.healthy_after) {
                deaths = 0;
            }
            let wait = self.config.restart_first.saturating_mul(1 << deaths.min(16)).min(self.config.restart_most);
            deaths += 1;
            let ending = self.control.ending.load(Ordering::SeqCst);
            if !ending {
                self.logs.note(&format!("lost: {reason}; started again in {wait:?}"));
                tracing::warn!(worker = self.worker.0, model = self.spec.name, reason, ?wait, "worker lost");
                (self.tell)(FromNode::Lost { worker: self.worker, reason, again_in: span(wait) });
            }
            fail(payloads, &Failure::WorkerDied);
            assembly.abandon();
            if ending || self.pause(messages, wait) {
                return;
            }
        }
    }

    /// Waits, answering whoever comes; says whether it was told to stop.
    fn pause(&self, messages: &Receiver<Message>, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        loop {
            match messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Message::Part(part)) => fail(part.payloads, &Failure::WorkerDied),
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return true,
                Ok(Message::Ended(_)) => {}
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    /// One life of the worker, from the start of a process to its end.
    fn live(
        &self,
        number: u64,
        messages: &Receiver<Message>,
        assembly: &mut Assembly,
        ready_since: &mut Option<Instant>,
    ) -> Over {
        let lost = |reason: String| Over::Lost { reason, payloads: Vec::new() };
        let Started { mut process, mut connection, stdout, stderr } = match spawn(&self.config, &self.spec) {
            Ok(started) => started,
            Err(error) => return lost(format!("failed to {error:#}")),
        };
        self.control.set(Some(process.handle.clone()));
        let watcher = self.watch(number, &process, stdout, stderr);
        let info = match self.load(&mut connection, &process, messages) {
            Ok(Some(info)) => info,
            Ok(None) => return Over::Stopped,
            Err(reason) => {
                // Who closed the socket is about to end, and how is worth knowing.
                process.wait(if reason.is_none() { END_PATIENCE } else { Duration::ZERO });
                // The watcher has read the last words when it ends.
                let ended = process.end();
                let _ = watcher.join();
                return lost(reason.unwrap_or_else(|| self.last_words(&ended)));
            }
        };
        let mut life = Life { number, process, connection, info };
        let over = match self.warm_up(&mut life) {
            Ok(()) => {
                *ready_since = Some(Instant::now());
                self.serve(&mut life, messages, assembly)
            }
            Err(broken) => Over::Lost { reason: self.explain(&mut life.process, broken), payloads: Vec::new() },
        };
        if matches!(over, Over::Stopped) {
            let Life { process, connection, .. } = life;
            // The closed socket tells the worker to end.
            drop(connection);
            process.wait(END_PATIENCE);
            drop(process);
        }
        let _ = watcher.join();
        over
    }

    /// Starts the thread that reads what the process prints and says when it has ended.
    fn watch(&self, life: u64, process: &Process, stdout: ChildStdout, stderr: ChildStderr) -> JoinHandle<()> {
        let (logs, sender, handle) = (self.logs.clone(), self.sender.clone(), process.handle.clone());
        std::thread::spawn(move || {
            let sources = [OwnedFd::from(stdout), OwnedFd::from(stderr)];
            watch(handle.as_fd(), sources.map(|source| Source::new(std::fs::File::from(source))), &logs);
            // A link that is gone has seen the end itself.
            let _ = sender.send(Message::Ended(life));
        })
    }

    /// Waits until the model is loaded. `None` when told to stop; else why it failed, where the process said so.
    fn load(
        &self,
        connection: &mut Connection,
        process: &Process,
        messages: &Receiver<Message>,
    ) -> Result<Option<ModelInfo>, Option<String>> {
        let deadline = Instant::now() + self.config.load_timeout;
        loop {
            match connection.hear_hello(process.handle.as_fd(), LOAD_LOOK) {
                Ok(Some(Ok(info))) => return Ok(Some(info)),
                Ok(Some(Err(reason))) => return Err(Some(format!("failed to load the model: {reason}"))),
                Ok(None) => {}
                Err(Broken::Nonsense(what)) => return Err(Some(format!("makes no sense: {what}"))),
                Err(_) => return Err(None),
            }
            loop {
                match messages.try_recv() {
                    Ok(Message::Part(part)) => fail(part.payloads, &Failure::WorkerDied),
                    Ok(Message::Stop) | Err(TryRecvError::Disconnected) => return Ok(None),
                    Ok(Message::Ended(_)) => {}
                    Err(TryRecvError::Empty) => break,
                }
            }
            if Instant::now() >= deadline {
                return Err(Some(format!("did not load its model within {:?}", self.config.load_timeout)));
            }
        }
    }

    /// Runs the model before anybody else does, and says that it is ready.
    fn warm_up(&self, life: &mut Life) -> Result<(), Broken> {
        let warmup = Warmup {
            process: life.process.handle.as_fd(),
            budget: self.config.warmup,
            batch_timeout: self.config.batch_timeout,
            logs: &self.logs,
            doubt_batches: matches!(self.spec.kind, Kind::Onnx { .. }),
        };
        let measured = warmup.run(&mut life.connection, &mut life.info)?;
        tracing::info!(worker = self.worker.0, model = self.spec.name, "worker ready");
        (self.tell)(FromNode::Ready { worker: self.worker, info: life.info.clone(), measured });
        Ok(())
    }

    /// Runs batches until told to stop or the process is gone.
    fn serve(&self, life: &mut Life, messages: &Receiver<Message>, assembly: &mut Assembly) -> Over {
        let mut stopping = false;
        loop {
            let message = match assembly.next_deadline() {
                // Told to stop, it finishes what came before and nothing else.
                None if stopping => match messages.try_recv() {
                    Ok(message) => message,
                    Err(_) => return Over::Stopped,
                },
                None => match messages.recv() {
                    Ok(message) => message,
                    Err(_) => return Over::Stopped,
                },
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    match messages.recv_timeout(left) {
                        Ok(message) => message,
                        Err(_) => {
                            for (batch, size) in assembly.expire(Instant::now()) {
                                (self.tell)(FromNode::Done { worker: self.worker, batch, size, took: None });
                            }
                            continue;
                        }
                    }
                }
            };
            match message {
                Message::Part(part) => {
                    let Some(batch) = assembly.add(Instant::now(), part) else { continue };
                    if let Err((broken, payloads)) = self.run_batch(life, batch) {
                        return Over::Lost { reason: self.explain(&mut life.process, broken), payloads };
                    }
                }
                Message::Stop => stopping = true,
                Message::Ended(number) if number == life.number => {
                    return Over::Lost { reason: self.explain(&mut life.process, Broken::Gone), payloads: Vec::new() };
                }
                Message::Ended(_) => {}
            }
        }
    }

    /// Runs a batch and answers its requests. Gives back what is not answered when the worker broke.
    fn run_batch(&self, life: &mut Life, batch: Batch) -> Result<(), (Broken, Vec<Payload>)> {
        let Batch { number, payloads } = batch;
        let size = payloads.len();
        let batched = life.info.max_batch > 0;
        let requests: Vec<Arc<[Tensor]>> = payloads.iter().map(|payload| payload.inputs.clone()).collect();
        let (groups, refused) = group(&requests, batched);
        // Each is taken out when it is answered.
        let mut payloads: Vec<Option<Payload>> = payloads.into_iter().map(Some).collect();
        let mut failed = !refused.is_empty();
        for (index, reason) in refused {
            fail(payloads[index].take(), &Failure::Model(reason));
        }
        let mut took = Duration::ZERO;
        for group in groups {
            let columns = group.columns(&requests, batched);
            let start = Instant::now();
            let answer = life.connection.exchange(&columns, life.process.handle.as_fd(), self.config.batch_timeout);
            took += start.elapsed();
            let outputs = match answer {
                Ok(answer) => answer,
                Err(broken) => return Err((broken, payloads.into_iter().flatten().collect())),
            };
            let rows: usize = group.rows.iter().sum();
            let outputs = outputs.and_then(|outputs| {
                check_outputs(&outputs, &life.info, batched.then_some(rows))?;
                if batched { split(&outputs, &group.rows) } else { Ok(vec![outputs]) }
            });
            let members = group.members.iter().filter_map(|member| Some((*member, payloads[*member].take()?)));
            match outputs {
                Ok(outputs) => {
                    for ((member, payload), tensors) in members.zip(outputs) {
                        let leads = member == 0;
                        (payload.answer)(Ok(Outputs { tensors, computed: span(took), batch_size: size, leads }));
                    }
                }
                Err(reason) => {
                    failed = true;
                    fail(members.map(|(_, payload)| payload), &Failure::Model(reason));
                }
            }
        }
        let took = (!failed).then(|| span(took));
        (self.tell)(FromNode::Done { worker: self.worker, batch: number, size, took });
        Ok(())
    }

    /// Ends a process that cannot be talked to, and says what happened.
    fn explain(&self, process: &mut Process, broken: Broken) -> String {
        let ended = process.wait(if matches!(broken, Broken::Gone) { END_PATIENCE } else { Duration::ZERO });
        let how = process.end();
        match broken {
            Broken::Gone if ended => how,
            Broken::Gone => "closed its socket".to_owned(),
            Broken::Silent => format!("did not answer within {:?} and was killed", self.config.batch_timeout),
            Broken::Nonsense(what) => format!("makes no sense and was killed: {what}"),
        }
    }

    /// How a process ended that failed before it could say why, with the last line it printed.
    fn last_words(&self, ended: &str) -> String {
        match self.logs.last_words() {
            Some(words) => format!("{ended} while it loaded its model; it said: {words}"),
            None => format!("{ended} while it loaded its model"),
        }
    }
}

/// A length of time as the rest of Weft counts it.
pub(crate) fn span(duration: Duration) -> Span {
    Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
