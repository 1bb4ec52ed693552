//! One worker through all of its lives: a thread that starts the process, opens its queue and starts it again.
//!
//! ```text
//!            ┌───────────────── back-off, growing ◄── Lost ◄──┐
//!            v                                                │ ended, hung, failed to load or to warm up
//!  Start ─► process ─► loads ─► says hello ─► warm-up ─► Ready ─► serves ─► Stop: finishes, ends ─► Stopped
//! ```
//!
//! Invariants:
//! 1. Every payload that reaches the link is answered, once.
//! 2. Answers come before the `Done` of their batch, so that who hears `Done` may count on them.
//! 3. `Lost` comes before the answers of the batches that died: the scheduler, which alone decides about running them
//!    again, knows before a gateway asks. No `Done` follows for them. Parts that arrive while the queue is closed are
//!    given back to their gateways with `NotRun`, and neither `Lost` nor `Done` is said of them.
//! 4. The thread that starts a process outlives it: the kernel kills a worker when its parent thread ends.
//!
//! What they do not cover: a batch whose parts were on their way when the worker died may arrive after its next `Ready`
//! and is then run, with a `Done` for a batch that the scheduler has given up.

use crate::Config;
use crate::batch::fail;
use crate::connection::{Broken, Connection};
use crate::logs::{Logs, Source, watch};
use crate::message::Message;
use crate::scheduler_link::SchedulerLink;
use crate::span::span;
use crate::spawn::{Process, Started, kill, spawn};
use crate::warmup::{NotReady, Warmup, one_line};
use crate::weights;
use crate::worker_queue::{Closed, WorkerQueue};
use config::{Kind, ModelSpec};
use policy::Span;
use rpc::{Failure, FromNode, ModelInfo, RunsOn, WorkerId};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStderr, ChildStdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How long a process may take to end by itself once its socket is closed.
const END_PATIENCE: Duration = Duration::from_secs(2);
/// How often a link that waits for a model to load looks for orders.
const LOAD_LOOK: Duration = Duration::from_millis(20);

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
    pub(crate) scheduler: Arc<dyn SchedulerLink>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) control: Arc<Control>,
    pub(crate) sender: Sender<Message>,
    pub(crate) queue: Arc<WorkerQueue>,
    pub(crate) runtime: Handle,
}

/// Why a life is over.
enum Over {
    /// It was told to stop and did.
    Stopped,
    /// It died, with what lay on its queue.
    Lost { reason: String, held: Option<Closed> },
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
            let mut ready_since = None;
            let over = self.live(life, messages, &mut ready_since);
            self.control.set(None);
            weights::sweep(&self.config.directory);
            let Over::Lost { reason, held } = over else { return };
            if ready_since.is_some_and(|since: Instant| since.elapsed() >= self.config.healthy_after) {
                deaths = 0;
            }
            let wait = self.config.restart_first.saturating_mul(1 << deaths.min(16)).min(self.config.restart_most);
            deaths += 1;
            let ending = self.control.ending.load(Ordering::SeqCst);
            let reason = one_line(&reason);
            if !ending {
                self.logs.note(&format!("lost: {reason}; started again in {wait:?}"));
                tracing::warn!(worker = self.worker.number(), model = self.spec.name, reason, ?wait, "worker lost");
                self.scheduler.report(FromNode::Lost { worker: self.worker, reason, again_in: span(wait) });
            }
            if let Some(held) = held {
                held.fail();
            }
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
                Ok(Message::Part(part)) => fail(part.payloads, &not_ready()),
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return true,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    /// One life of the worker, from the start of a process to its end.
    fn live(&self, number: u64, messages: &Receiver<Message>, ready_since: &mut Option<Instant>) -> Over {
        let lost = |reason: String| Over::Lost { reason, held: None };
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
                return lost(reason.unwrap_or_else(|| self.last_words(&ended, "while it loaded its model")));
            }
        };
        self.note_device(&info);
        let mut life = Life { number, process, connection, info };
        let over = match self.warm_up(&mut life, messages) {
            Ok(measured) => {
                *ready_since = Some(Instant::now());
                let Life { number, connection, info, .. } = life;
                self.serve(number, &mut life.process, connection, info, measured, messages)
            }
            Err(NotReady::Stopped) => {
                drop(life);
                let _ = watcher.join();
                return Over::Stopped;
            }
            Err(NotReady::Broken(Broken::Gone)) => {
                life.process.wait(END_PATIENCE);
                let ended = life.process.end();
                let _ = watcher.join();
                return lost(self.last_words(&ended, "during its warm-up"));
            }
            Err(NotReady::Broken(broken)) => {
                lost(format!("failed its warm-up: {}", self.explain(&mut life.process, broken)))
            }
            Err(NotReady::Unfit(why)) => {
                life.process.end();
                lost(format!("failed its warm-up: {why}"))
            }
        };
        if matches!(over, Over::Stopped) {
            // The closed socket tells the worker to end.
            life.process.wait(END_PATIENCE);
            drop(life.process);
        }
        let _ = watcher.join();
        over
    }

    /// Says what the model runs on, where its worker knows.
    fn note_device(&self, info: &ModelInfo) {
        let Some(RunsOn { device, provider, reason }) = &info.runs_on else { return };
        let (worker, model) = (self.worker.0, &self.spec.name);
        match reason {
            Some(reason) => {
                self.logs.note(&format!("runs on the {}, though there is a GPU: {reason}", device.to_uppercase()));
                tracing::warn!(worker, model, device, provider, reason, "not on the GPU");
            }
            None => {
                self.logs.note(&format!("runs on the {} ({provider})", device.to_uppercase()));
                tracing::info!(worker, model, device, provider, "model loaded");
            }
        }
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
            if self.is_stopped(messages) {
                return Ok(None);
            }
            if Instant::now() >= deadline {
                return Err(Some(format!("did not load its model within {:?}", self.config.load_timeout)));
            }
        }
    }

    /// Looks for orders, answering whoever comes; says whether it was told to stop.
    fn is_stopped(&self, messages: &Receiver<Message>) -> bool {
        loop {
            match messages.try_recv() {
                Ok(Message::Part(part)) => fail(part.payloads, &not_ready()),
                Ok(Message::Stop) | Err(TryRecvError::Disconnected) => return true,
                Ok(_) => {}
                Err(TryRecvError::Empty) => return false,
            }
        }
    }

    /// Has the model answer before anybody else asks it, and gives how long batches took.
    fn warm_up(&self, life: &mut Life, messages: &Receiver<Message>) -> Result<Vec<(usize, Span)>, NotReady> {
        let warmup = Warmup {
            process: life.process.handle.as_fd(),
            budget: self.config.warmup,
            batch_timeout: self.config.batch_timeout,
            logs: &self.logs,
            doubt_batches: matches!(self.spec.kind, Kind::Onnx { .. }),
            example: self.spec.warmup.as_deref(),
            stopped: &|| self.is_stopped(messages),
        };
        warmup.run(&mut life.connection, &mut life.info)
    }

    /// Opens the queue and sees to it until told to stop or the process is gone.
    fn serve(
        &self,
        life: u64,
        process: &mut Process,
        connection: Connection,
        info: ModelInfo,
        measured: Vec<(usize, Span)>,
        messages: &Receiver<Message>,
    ) -> Over {
        let mut stopping = false;
        self.queue.open(life, connection, info.clone(), self.config.parts_timeout, || {
            for message in messages.try_iter() {
                match message {
                    Message::Part(part) => fail(part.payloads, &not_ready()),
                    Message::Stop => stopping = true,
                    _ => {}
                }
            }
        });
        let queue = self.queue.clone();
        let picking_up = self.runtime.spawn(async move { queue.pick_up(life).await });
        tracing::info!(worker = self.worker.number(), model = self.spec.name, "worker ready");
        self.scheduler.report(FromNode::Ready { worker: self.worker, info, measured });
        if stopping {
            self.queue.finish();
        }
        let tick = (self.config.batch_timeout.min(self.config.parts_timeout) / 2).max(Duration::from_millis(1));
        let broken = loop {
            match messages.recv_timeout(tick) {
                Ok(Message::Stretch(to)) => process.stretch(to),
                Ok(Message::Stop) => self.queue.finish(),
                Ok(Message::Ended(number)) if number == life => break Some(Broken::Gone),
                Ok(Message::Broken(number, broken)) if number == life => break Some(broken),
                Ok(Message::Finished(number)) if number == life => break None,
                Ok(Message::Part(part)) => fail(part.payloads, &not_ready()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    if self.queue.look(self.config.batch_timeout) {
                        break Some(Broken::Silent);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        let held = self.queue.close();
        picking_up.abort();
        match broken {
            Some(broken) => Over::Lost { reason: self.explain(process, broken), held },
            None => {
                // A part that came between the last answer and the end.
                if let Some(held) = held {
                    held.fail();
                }
                Over::Stopped
            }
        }
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
    fn last_words(&self, ended: &str, when: &str) -> String {
        match self.logs.last_words() {
            Some(words) => format!("{ended} {when}; it said: {words}"),
            None => format!("{ended} {when}; it printed nothing"),
        }
    }
}

/// What becomes of requests that find no worker. The scheduler may have done with their batch long ago, so that only
/// their gateway can see to them.
pub(crate) fn not_ready() -> Failure {
    Failure::NotRun("its worker is not ready".into())
}
