//! Requests at a steady rate over both gateways, whether or not earlier ones were answered.
//!
//! A request has one thread for as long as it is under way, and each thread keeps a connection to each gateway. Its number
//! is in its tensor, so that an answer to another request is noticed. When a connection breaks, the request goes to the
//! other gateway, as a load balancer would send it, and the break is kept in its record.

use super::fault::GATEWAYS;
use super::router::Router;
use crate::connection::{Answer, Connection, Failure, Idle};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a client waits: far beyond every deadline, so that a request that is never answered is seen as such.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How often a request is sent again after its connection broke.
const TRIES: usize = 5;
/// How long it waits for a gateway to be there when both were tried.
const BREATH: Duration = Duration::from_millis(50);
/// Numbers of tensors: as many as an FP32 can tell apart.
const NUMBERS: u64 = 1 << 23;
const ELEMENTS: u64 = 16;
const STACK: usize = 128 << 10;

/// A model that is asked.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) name: &'static str,
    pub(super) objective: Duration,
}

/// In turn.
pub(super) const MODELS: [Model; 2] = [
    Model { name: "echo", objective: Duration::from_millis(300) },
    Model { name: "virtual", objective: Duration::from_millis(500) },
];

/// What became of a request. Times count from the start of the load.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// A place in [`MODELS`].
    pub(super) model: usize,
    /// Who had it last.
    pub(super) gateway: usize,
    /// When it was sent there.
    pub(super) sent: Duration,
    pub(super) ended: Duration,
    pub(super) outcome: Outcome,
    /// Connections that broke under it before.
    pub(super) breaks: Vec<Break>,
    /// There was an answer to an earlier request that had been answered.
    pub(super) doubled: bool,
}

/// A connection that broke under a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Break {
    pub(super) gateway: usize,
    pub(super) sent: Duration,
    pub(super) at: Duration,
    /// The request had been sent, over a connection that stood.
    pub(super) connected: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The right answer.
    Right,
    /// Another status than 200, and its reason.
    Refused { status: u16, reason: String, retry_after: bool },
    /// 200 with something else than was asked for.
    Wrong,
    /// Nothing within [`PATIENCE`].
    Hung,
    /// Every connection broke.
    Lost,
}

struct Job {
    number: u64,
    model: usize,
}

struct Shared {
    router: Arc<Router>,
    began: Instant,
    records: Mutex<Vec<Record>>,
    /// Threads that have nothing to do; the last that became free is the first to be used.
    idle: Mutex<Vec<mpsc::Sender<Job>>>,
    under_way: AtomicUsize,
    paused: AtomicBool,
    over: AtomicBool,
    /// The most that a request was sent later than planned, in microseconds.
    lag_us: AtomicU64,
}

/// Load that is being sent. It ends when this goes out of scope.
pub(super) struct Load {
    shared: Arc<Shared>,
    sending: Option<JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Load {
    /// Gets ready to send so many requests a second; begins with [`Load::resume`].
    pub(super) fn start(router: Arc<Router>, rate: u64) -> Load {
        let shared = Arc::new(Shared {
            router,
            began: Instant::now(),
            records: Mutex::default(),
            idle: Mutex::default(),
            under_way: AtomicUsize::new(0),
            paused: AtomicBool::new(true),
            over: AtomicBool::new(false),
            lag_us: AtomicU64::new(0),
        });
        let sender = shared.clone();
        let sending = std::thread::spawn(move || sender.send(Duration::from_nanos(1_000_000_000 / rate)));
        Load { shared, sending: Some(sending) }
    }

    pub(super) fn resume(&self) {
        self.shared.paused.store(false, Relaxed);
        self.sending.as_ref().inspect(|thread| thread.thread().unpark());
    }

    pub(super) fn pause(&self) {
        self.shared.paused.store(true, Relaxed);
    }

    /// Time since the start, as records count it.
    pub(super) fn now(&self) -> Duration {
        self.shared.began.elapsed()
    }

    /// Requests that nobody has answered yet.
    pub(super) fn under_way(&self) -> usize {
        self.shared.under_way.load(Relaxed)
    }

    /// Requests sent from one time until another that were answered right within their objective.
    pub(super) fn good(&self, from: Duration, until: Duration) -> usize {
        let records = lock(&self.shared.records);
        records.iter().filter(|record| (from..until).contains(&record.sent) && record.is_good()).count()
    }

    /// What became of all requests since this was asked last.
    pub(super) fn take(&self) -> Vec<Record> {
        std::mem::take(&mut *lock(&self.shared.records))
    }

    /// The most that this program itself was late since this was asked last.
    pub(super) fn take_lag(&self) -> Duration {
        Duration::from_micros(self.shared.lag_us.swap(0, Relaxed))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.over.store(true, Relaxed);
        self.shared.router.end();
        if let Some(thread) = self.sending.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        // Threads end when nobody can hand them anything.
        lock(&self.shared.idle).clear();
    }
}

impl Record {
    pub(super) fn took(&self) -> Duration {
        self.ended.saturating_sub(self.sent)
    }

    pub(super) fn is_good(&self) -> bool {
        self.outcome == Outcome::Right && self.took() <= MODELS[self.model].objective
    }
}

impl Shared {
    fn send(self: &Arc<Shared>, every: Duration) {
        let mut number = 0;
        let mut planned = Instant::now();
        while !self.over.load(Relaxed) {
            if self.paused.load(Relaxed) {
                std::thread::park();
                planned = Instant::now();
                continue;
            }
            let now = Instant::now();
            if now < planned {
                std::thread::sleep(planned - now);
                continue;
            }
            self.lag_us.fetch_max((now - planned).as_micros() as u64, Relaxed);
            planned += every;
            number += 1;
            self.hand_out(Job { number, model: number as usize % MODELS.len() });
        }
    }

    fn hand_out(self: &Arc<Shared>, mut job: Job) {
        self.under_way.fetch_add(1, Relaxed);
        loop {
            let thread = lock(&self.idle).pop();
            let Some(thread) = thread else { break };
            match thread.send(job) {
                Ok(()) => return,
                Err(unsent) => job = unsent.0,
            }
        }
        let shared = self.clone();
        let work = move || {
            let mut connections = [const { None }; GATEWAYS];
            shared.work(job, &mut connections);
            while !shared.over.load(Relaxed) {
                let (give, jobs) = mpsc::channel();
                lock(&shared.idle).push(give);
                let Ok(job) = jobs.recv() else { return };
                shared.work(job, &mut connections);
            }
        };
        std::thread::Builder::new().stack_size(STACK).spawn(work).expect("a thread can be started");
    }

    fn work(&self, job: Job, connections: &mut [Option<Connection>; GATEWAYS]) {
        let record = self.ask(&job, connections);
        lock(&self.records).push(record);
        self.under_way.fetch_sub(1, Relaxed);
    }

    fn ask(&self, job: &Job, connections: &mut [Option<Connection>; GATEWAYS]) -> Record {
        let path = format!("/v2/models/{}/infer", MODELS[job.model].name);
        let body = question(job.number);
        let mut doubled = false;
        let mut breaks = Vec::new();
        // Models take turns, and so do gateways, half as fast: each gateway gets both models.
        let mut turn = job.number / MODELS.len() as u64;
        loop {
            let gateway = self.router.choose(turn);
            let sent = self.began.elapsed();
            if let Some(connection) = &connections[gateway] {
                let idle = connection.idle();
                doubled |= idle == Idle::Talks;
                if idle != Idle::Open {
                    connections[gateway] = None;
                }
            }
            let opened =
                connections[gateway].take().map_or_else(|| Connection::open(self.router.port(gateway), PATIENCE), Ok);
            let connected = opened.is_ok();
            let answered = opened.map_err(|_| Failure::Closed).and_then(|mut connection| {
                let answer = connection.post(&path, &body)?;
                connections[gateway] = (!answer.closes).then_some(connection);
                Ok(answer)
            });
            let ended = self.began.elapsed();
            let outcome = match answered {
                Ok(answer) => judge(&answer, job.number),
                Err(Failure::TimedOut) => Outcome::Hung,
                Err(Failure::Garbled) => Outcome::Wrong,
                Err(Failure::Closed) => {
                    self.router.take_out(gateway);
                    breaks.push(Break { gateway, sent, at: ended, connected });
                    if breaks.len() < TRIES {
                        turn = gateway as u64 + 1;
                        if breaks.len() >= GATEWAYS {
                            std::thread::sleep(BREATH);
                        }
                        continue;
                    }
                    Outcome::Lost
                }
            };
            return Record { model: job.model, gateway, sent, ended, outcome, breaks, doubled };
        }
    }
}

fn elements(number: u64) -> impl Iterator<Item = u64> {
    (0..ELEMENTS).map(move |place| number % NUMBERS + place)
}

fn question(number: u64) -> String {
    let data: Vec<String> = elements(number).map(|element| element.to_string()).collect();
    format!(
        "{{\"id\":\"{number}\",\"inputs\":[{{\"name\":\"INPUT\",\"shape\":[1,{ELEMENTS}],\"datatype\":\"FP32\",\
         \"data\":[{}]}}]}}",
        data.join(",")
    )
}

/// Whether an answer is the one to this request.
fn judge(answer: &Answer, number: u64) -> Outcome {
    let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if answer.status != 200 {
        let reason = shortened(value["error"].as_str().unwrap_or_default());
        return Outcome::Refused { status: answer.status, reason, retry_after: answer.retry_after };
    }
    let data = value["outputs"][0]["data"].as_array();
    let data = data.map(|data| data.iter().map(|element| element.as_f64()).collect::<Vec<_>>());
    let expected = elements(number).map(|element| Some(element as f64)).collect::<Vec<_>>();
    match value["id"] == number.to_string().as_str() && data == Some(expected) {
        true => Outcome::Right,
        false => Outcome::Wrong,
    }
}

/// A reason without its numbers, so that the same reasons can be counted together.
fn shortened(reason: &str) -> String {
    let mut text = String::new();
    for letter in reason.chars().take(100) {
        match letter.is_ascii_digit() {
            true if text.ends_with('N') => {}
            true => text.push('N'),
            false => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, retry_after: true, closes: false, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn only_the_answer_to_this_request_is_right() {
        let question: Value = serde_json::from_str(&question(7)).unwrap();
        let given = |id: &str, data: &Value| format!("{{\"id\":\"{id}\",\"outputs\":[{{\"data\":{data}}}]}}");
        let data = &question["inputs"][0]["data"];
        assert_eq!(judge(&answer(200, &given("7", data)), 7), Outcome::Right);
        assert_eq!(judge(&answer(200, &given("8", data)), 7), Outcome::Wrong);
        assert_eq!(judge(&answer(200, &given("8", data)), 8), Outcome::Wrong);
        assert_eq!(judge(&answer(200, "{}"), 7), Outcome::Wrong);
    }

    #[test]
    fn refusals_are_the_same_whatever_their_numbers() {
        let refused = judge(&answer(503, r#"{"error":"12 wait before it, 3.5 ms"}"#), 1);
        let reason = "N wait before it, N.N ms".to_owned();
        assert_eq!(refused, Outcome::Refused { status: 503, reason, retry_after: true });
    }
}
