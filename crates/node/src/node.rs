//! A node: the workers of one machine, and what others may ask of them.
//!
//! Workers with a process have a thread each (`link.rs`) and a queue (`worker_queue.rs`); emulated GPUs share a thread
//! (`emulated.rs`). What is here only finds the right one. No call waits for a worker, except [`Node::stop`].

use crate::Config;
use crate::batch::fail;
use crate::emulated::Emulated;
use crate::link::{Control, Link};
use crate::logs::Logs;
use crate::message::Message;
use crate::scheduler_link::SchedulerLink;
use crate::worker_queue::WorkerQueue;
use crate::{python, weights};
use anyhow::Result;
use config::{Kind, ModelSpec};
use rpc::{Failure, FromNode, Part, ToNode, WorkerId};
use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Logs of so many workers are kept; more only while the workers run.
const LOGS_MAX: usize = 256;

/// The workers of one machine. Dropping it kills them; [`Node::stop`] lets them finish.
pub struct Node {
    config: Arc<Config>,
    scheduler: Arc<dyn SchedulerLink>,
    workers: Arc<RwLock<BTreeMap<WorkerId, Seat>>>,
    /// Of workers that run, and of the last ones that did.
    logs: Mutex<BTreeMap<WorkerId, Arc<Logs>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    emulated: Emulated,
    runtime: Handle,
}

struct Seat {
    /// The model that it serves.
    model: String,
    sender: Sender<Message>,
    control: Arc<Control>,
    queue: Arc<WorkerQueue>,
}

impl Node {
    /// Gets ready to start workers, whose answers are picked up on `runtime`. `scheduler` is told what becomes
    /// of them.
    pub fn start(config: Config, runtime: Handle, scheduler: impl SchedulerLink + 'static) -> Result<Node> {
        python::install(&config.directory)?;
        weights::sweep(&config.directory);
        let scheduler: Arc<dyn SchedulerLink> = Arc::new(scheduler);
        let emulated = Emulated::start(config.parts_timeout, scheduler.clone())?;
        Ok(Node {
            config: Arc::new(config),
            scheduler,
            workers: Arc::default(),
            logs: Mutex::default(),
            threads: Mutex::default(),
            emulated,
            runtime,
        })
    }

    /// Does what the scheduler says. Returns at once; what comes of it is told.
    pub fn order(&self, order: ToNode) {
        match order {
            ToNode::Start { worker, spec } => match spec.kind {
                Kind::Virtual { latency } => self.emulated.add_one_model(worker, &spec, latency),
                Kind::Onnx { .. } | Kind::Python { .. } => self.start_link(worker, spec),
            },
            ToNode::Virtual { worker, tables } => self.emulated.set(worker, &tables),
            ToNode::Stretch { worker, to } => {
                let workers = self.workers.read().unwrap_or_else(PoisonError::into_inner);
                // Who has no GPU, or is gone, has nothing to stretch.
                if let Some(handle) = workers.get(&worker) {
                    drop(handle.sender.send(Message::Stretch(to)));
                }
            }
            ToNode::Stop { worker } => {
                let workers = self.workers.read().unwrap_or_else(PoisonError::into_inner);
                match workers.get(&worker) {
                    // A link that does not listen any more is stopping already.
                    Some(handle) => drop(handle.sender.send(Message::Stop)),
                    None => self.emulated.stop(worker),
                }
            }
            ToNode::Heartbeat => {}
        }
    }

    /// Hands requests to their worker. Never waits; each request is answered, whatever happens.
    pub fn run(&self, part: Part) {
        let workers = self.workers.read().unwrap_or_else(PoisonError::into_inner);
        let Some(handle) = workers.get(&part.worker) else {
            drop(workers);
            return self.emulated.run(part);
        };
        let queue = handle.queue.clone();
        // Who is answered may call this again.
        drop(workers);
        if let Err(part) = queue.put(part) {
            fail(part.payloads, &Failure::NotRun(format!("worker {} has ended", part.worker.number())));
        }
    }

    /// The last lines that a worker printed, oldest first; none where there is no such worker.
    pub fn logs(&self, worker: WorkerId, lines: usize) -> Vec<String> {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.get(&worker).map(|logs| logs.last(lines)).unwrap_or_default()
    }

    /// The workers of a model that are here, whether they serve or start.
    pub fn workers_of(&self, model: &str) -> Vec<WorkerId> {
        let workers = self.workers.read().unwrap_or_else(PoisonError::into_inner);
        workers.iter().filter(|(_, seat)| seat.model == model).map(|(worker, _)| *worker).collect()
    }

    /// Lets every worker finish what it has, ends them all and waits for that. Those that take too long are killed.
    pub fn stop(self) {
        for handle in self.workers.read().unwrap_or_else(PoisonError::into_inner).values() {
            drop(handle.sender.send(Message::Stop));
        }
        self.emulated.stop_all();
        let deadline = Instant::now() + self.config.drain_timeout;
        let unfinished = || {
            let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.iter().any(|thread| !thread.is_finished()) || !self.emulated.is_empty()
        };
        while unfinished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        // What is left is killed by `drop`.
    }

    fn start_link(&self, worker: WorkerId, spec: Arc<ModelSpec>) {
        let (sender, messages) = channel();
        let control = Arc::new(Control::default());
        let logs = Logs::new(worker);
        let queue = Arc::new(WorkerQueue::new(worker, self.scheduler.clone(), sender.clone()));
        let mut workers = self.workers.write().unwrap_or_else(PoisonError::into_inner);
        if workers.contains_key(&worker) {
            tracing::error!(worker = worker.number(), "a worker that runs was ordered to start");
            return;
        }
        let model = spec.name.clone();
        workers.insert(worker, Seat { model, sender: sender.clone(), control: control.clone(), queue: queue.clone() });
        let mut all_logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        while all_logs.len() >= LOGS_MAX
            && let Some(oldest) = all_logs.keys().find(|known| !workers.contains_key(known)).copied()
        {
            all_logs.remove(&oldest);
        }
        all_logs.insert(worker, logs.clone());
        drop((all_logs, workers));

        let (config, runtime) = (self.config.clone(), self.runtime.clone());
        let left = queue.clone();
        let link =
            Link { worker, spec, config, scheduler: self.scheduler.clone(), logs, control, sender, queue, runtime };
        let (workers, scheduler) = (self.workers.clone(), self.scheduler.clone());
        let thread = std::thread::spawn(move || {
            link.run(&messages);
            workers.write().unwrap_or_else(PoisonError::into_inner).remove(&worker);
            // In this order nothing is left unanswered: no part is sent here once the queue was left.
            left.leave();
            for message in messages.try_iter() {
                if let Message::Part(part) = message {
                    fail(part.payloads, &crate::link::not_ready());
                }
            }
            scheduler.report(FromNode::Stopped { worker });
        });
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for handle in self.workers.read().unwrap_or_else(PoisonError::into_inner).values() {
            handle.control.kill();
            drop(handle.sender.send(Message::Stop));
        }
        for thread in std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner)) {
            // A link that panicked has said so.
            let _ = thread.join();
        }
    }
}
