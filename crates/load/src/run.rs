//! The run: what is due is sent, whatever became of what was sent before.

use crate::client::{Client, Failure, FailureKind, Outcome, Request};
use crate::error::SetupError;
use crate::grpc::GrpcClient;
use crate::http::HttpClient;
use crate::report::report;
use crate::setup::setup;
use crate::tally::{Done, Tally};
use crate::timer::Timer;
use crate::{Config, Moment, Protocol, Report, Schedule, Shot};
use policy::{Span, Time};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How often whoever watches is told.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Requests that are sent before answers are looked for: who is behind must not open a connection for each request
/// while answers that would free one are waiting to be read.
const BURST_MAX: usize = 16;
/// After a stop, answers within the objective and this are waited for.
const GRACE: Duration = Duration::from_secs(1);

/// Sends what the configuration asks for and sums up what came of it. `watch` is called every second.
///
/// `stop` ends it when something comes through it: the first time nothing more is sent and what is under way is
/// waited for, a little; the second time it is not. What was measured until then is reported. Whoever has no reason
/// to stop keeps the other end.
pub fn run(
    config: &Config,
    watch: impl FnMut(&Moment) + Send + 'static,
    stop: mpsc::UnboundedReceiver<()>,
) -> Result<Report, SetupError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(SetupError::system)?;
    runtime.block_on(async {
        let done = match &config.protocol {
            Protocol::Http(url) => {
                let client = setup(config, HttpClient::connect(url, config).await?).await?;
                drive(config, client, watch, stop).await
            }
            Protocol::Grpc(url) => {
                let client = setup(config, GrpcClient::connect(url, config).await?).await?;
                drive(config, client, watch, stop).await
            }
        };
        done.map_err(SetupError::system)
    })
}

/// What the driver shares with the requests under way.
struct Shared<C> {
    client: C,
    tally: Mutex<Tally>,
    start: Instant,
    warmup: Time,
    patience: Duration,
}

async fn drive<C: Client>(
    config: &Config,
    client: C,
    mut watch: impl FnMut(&Moment) + Send + 'static,
    mut stop: mpsc::UnboundedReceiver<()>,
) -> std::io::Result<Report> {
    let length = config.warmup + config.duration;
    let mut schedule = Schedule::new(&config.models, config.rate, &config.spacing, config.seed, length);
    let mut timer = Timer::new()?;
    let shared = Arc::new(Shared {
        client,
        tally: Mutex::new(Tally::new(config.models.len(), config.objective)),
        start: Instant::now(),
        warmup: Time::ZERO + config.warmup,
        patience: duration(config.patience),
    });
    let watching = tokio::spawn({
        let shared = shared.clone();
        async move {
            let mut looked = shared.start;
            loop {
                tokio::time::sleep_until((looked + LOOK_EVERY).into()).await;
                let now = Instant::now();
                let at = shared.time(now);
                let moment =
                    shared.tally().look(at - Time::ZERO, shared.time(now) - shared.time(looked), at >= shared.warmup);
                watch(&moment);
                looked = now;
            }
        }
    });

    // Requests under way each hold a sender, so that nothing is received until all of them are gone.
    let (alive, mut all_done) = mpsc::channel::<()>(1);
    let mut numbers = vec![0; config.models.len()];
    let mut stopped = None;
    let mut next = schedule.next();
    while let Some(shot) = next {
        tokio::select! {
            biased;
            rung = timer.until(shared.instant(shot.at)) => rung?,
            Some(()) = stop.recv() => {
                stopped = Some(shared.time(Instant::now()));
                break;
            }
        }
        let now = shared.time(Instant::now());
        for _ in 0..BURST_MAX {
            let Some(shot) = next.filter(|shot| shot.at <= now) else { break };
            let request = Request { model: shot.model, number: numbers[shot.model] };
            numbers[shot.model] += 1;
            if shot.at >= shared.warmup {
                shared.tally().models[shot.model].offered += 1;
            }
            tokio::spawn(one(shared.clone(), shot, request, alive.clone()));
            next = schedule.next();
        }
    }
    if stopped.is_none() {
        // The last request may have been intended well before the end.
        tokio::select! {
            biased;
            rung = timer.until(shared.instant(Time::ZERO + length)) => rung?,
            Some(()) = stop.recv() => stopped = Some(shared.time(Instant::now())),
        }
    }

    drop(alive);
    // Each gives up by itself after its patience, unless somebody is in a hurry.
    let in_a_hurry = async {
        if stopped.is_none() && stop.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
        let grace = tokio::time::sleep(duration(config.objective) + GRACE);
        tokio::select! { () = grace => {}, Some(()) = stop.recv() => {} }
    };
    tokio::select! { biased; _ = all_done.recv() => {}, () = in_a_hurry => {} }
    watching.abort();
    let mut tally = shared.tally();
    tally.cut_off();
    let measured = stopped.unwrap_or(Time::ZERO + length) - shared.warmup;
    Ok(report(config, &tally, shared.client.connections(), measured))
}

/// One request, from its intended time to what became of it.
async fn one<C: Client>(shared: Arc<Shared<C>>, shot: Shot, request: Request, alive: mpsc::Sender<()>) {
    let intended = shared.instant(shot.at);
    let mut started = None;
    let outcome = {
        let sent = shared.client.send(request, &mut started);
        tokio::time::timeout_at((intended + shared.patience).into(), sent).await
    };
    let ended = Instant::now();
    let outcome = outcome.unwrap_or_else(|_| {
        let reason = match started {
            Some(_) => "no answer for too long",
            None => "no connection was free for too long",
        };
        Outcome::Failed(Failure { kind: FailureKind::Unanswered, reason: reason.to_owned() })
    });
    let since = |then: Instant| Span::from_nanos(then.saturating_duration_since(intended).as_nanos() as u64);
    let done = Done {
        model: shot.model,
        outcome,
        sent: started.is_some(),
        lateness: since(started.unwrap_or(ended)),
        latency: since(ended),
    };
    shared.tally().done(done, shot.at >= shared.warmup);
    drop(alive);
}

impl<C> Shared<C> {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().expect("nothing panics while it is locked")
    }

    fn instant(&self, time: Time) -> Instant {
        self.start + Duration::from_nanos(time.nanos())
    }

    fn time(&self, instant: Instant) -> Time {
        Time::from_nanos(instant.saturating_duration_since(self.start).as_nanos() as u64)
    }
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.nanos())
}
