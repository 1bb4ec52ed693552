//! The dashboard: a page, and ten minutes of what happened for it to draw.
//!
//! Counters are read once a second and differences kept. Reading and telling happen on threads that may wait, because a
//! page that asks for everything is megabytes of JSON, and no request should wait for that. See `ui/README.md` for
//! what the page is told.

mod page;
mod answer;
mod history;
mod counters;
mod latency;

use crate::Gateway;
use crate::metrics::accept;
use crate::metrics::answer::{pack, problem};
use crate::metrics::gpu::{GpuSource, GpuView};
use answer::Told;
use arc_swap::ArcSwap;
use bytes::Bytes;
use history::{History, Scene, after};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response, StatusCode};
use page::Page;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// An answer about more seconds than this is large.
const LARGE_SECONDS: u64 = 60;
/// So many large answers are in memory at once, on their way to clients that may be slow.
const LARGE_ANSWERS: usize = 8;
/// How long one more may wait. A page gives up after 20 seconds.
const LARGE_WITHIN: Duration = Duration::from_secs(15);

/// What serves `/ui` and `/ui/data`.
pub(crate) struct Dashboard {
    gateway: Arc<Gateway>,
    cluster: String,
    boot: String,
    page: Page,
    source: Option<Arc<dyn GpuSource>>,
    gpus: ArcSwap<Vec<GpuView>>,
    past: Mutex<Past>,
    /// The last sample's number, for those who must not wait for the lock.
    seq: AtomicU64,
    large: Arc<Semaphore>,
}

struct Past {
    history: History,
    /// When its last sample ended, as Unix time.
    ended_ms: u64,
}

/// A body, and leave to have it in memory.
struct Large {
    body: Vec<u8>,
    _leave: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Dashboard {
    /// A dashboard of a gateway; its history begins now.
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        cluster: String,
        source: Option<Arc<dyn GpuSource>>,
    ) -> anyhow::Result<Dashboard> {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Dashboard {
            gateway,
            cluster: if cluster.is_empty() { "weft".into() } else { cluster },
            boot: format!("{:x}-{:x}", since_1970.as_nanos(), std::process::id()),
            page: Page::new()?,
            source,
            gpus: ArcSwap::default(),
            past: Mutex::new(Past { history: History::new(Instant::now()), ended_ms: unix_ms() }),
            seq: AtomicU64::new(0),
            large: Arc::new(Semaphore::new(LARGE_ANSWERS)),
        })
    }

    /// The GPUs as they were at the last sample.
    pub(crate) fn gpus(&self) -> Arc<Vec<GpuView>> {
        self.gpus.load_full()
    }

    /// Takes samples for ever. Returns why that is over, if it ever is.
    pub(crate) async fn sample_every_second(self: Arc<Dashboard>) -> anyhow::Error {
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            seconds.tick().await;
            let dashboard = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || dashboard.sample(Instant::now())).await {
                return anyhow::Error::new(error).context("sample what the dashboard shows");
            }
        }
    }

    fn sample(&self, now: Instant) {
        if let Some(source) = &self.source {
            self.gpus.store(Arc::new(source.gpus()));
        }
        let (catalog, gpus) = (self.gateway.catalog(), self.gpus());
        let (looked, overview) = self.gateway.last_look();
        let statistics = |name: &str, version: u32| self.gateway.statistics(name, version);
        let scene = Scene { catalog: &catalog, overview: &overview, looked, gpus: &gpus, statistics: &statistics };
        let mut past = self.past();
        if past.history.sample(now, &scene) {
            past.ended_ms = unix_ms();
            self.seq.store(past.history.seq, Relaxed);
        }
    }

    /// The page.
    pub(crate) fn page(&self, headers: &HeaderMap) -> Response<Full<Bytes>> {
        self.page.answer(headers)
    }

    /// Its data.
    pub(crate) async fn data(self: &Arc<Dashboard>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let Some(since) = since_of(request.uri().query().unwrap_or_default()) else {
            return problem(StatusCode::BAD_REQUEST, "`since` is not a number");
        };
        let gzip = accept::gzip(request.headers());
        let leave = match self.leave(since).await {
            Ok(leave) => leave,
            Err(problem) => return problem,
        };
        let dashboard = self.clone();
        let told = tokio::task::spawn_blocking(move || pack(dashboard.tell(since).into_bytes(), gzip));
        match told.await {
            Ok(packed) => packed.answer("application/json", |body| Large { body, _leave: leave }),
            Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "the data could not be written"),
        }
    }

    /// Waits until there may be one more large answer, if this is one.
    async fn leave(&self, since: u64) -> Result<Option<OwnedSemaphorePermit>, Response<Full<Bytes>>> {
        let seq = self.seq.load(Relaxed);
        if seq - after(seq, since) <= LARGE_SECONDS {
            return Ok(None);
        }
        match timeout(LARGE_WITHIN, self.large.clone().acquire_owned()).await {
            Ok(Ok(leave)) => Ok(Some(leave)),
            _ => Err(problem(StatusCode::SERVICE_UNAVAILABLE, "too many ask for everything at once")),
        }
    }

    fn tell(&self, since: u64) -> String {
        let (catalog, overview, gpus) = (self.gateway.catalog(), self.gateway.overview(), self.gpus());
        let past = self.past();
        let told = Told {
            history: &past.history,
            since,
            boot: &self.boot,
            now_ms: past.ended_ms,
            cluster: &self.cluster,
            uptime_s: self.gateway.started.elapsed().as_secs(),
            catalog: &catalog,
            overview: &overview,
            gpus: &gpus,
        };
        told.write()
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().expect("no panic holds this lock")
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// What a page says it has. None when that is no number; one that is below 0 or beyond counting is as good as 0.
fn since_of(query: &str) -> Option<u64> {
    let Some(since) = query.split('&').find_map(|pair| pair.strip_prefix("since=")) else { return Some(0) };
    let digits = since.strip_prefix('-').unwrap_or(since);
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| since.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests;
