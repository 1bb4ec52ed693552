//! The metrics port of a gateway with nobody behind it: counters are moved by hand, so that the dashboard can be looked
//! at and checked without models, workers or load.
//!
//! ```sh
//! cargo run -p weft-gateway --example dashboard -- 8002 [MODELS] [node-1]
//! WEFT_UI_MODULES="$DIR/node_modules" node tests/ui/check.mjs http://127.0.0.1:8002/ui "$DIR/screenshots"
//! ```
//!
//! A third argument puts GPUs on a node of that name.

#![allow(clippy::print_stdout, reason = "the address is the result")]

use anyhow::Context;
use config::{Kind, Line, ModelSpec};
use gateway::flights::Session;
use gateway::metrics::{GpuSource, GpuView, MetricsConfig, serve};
use gateway::statistics::{Refused, Served, Statistics};
use gateway::{Gateway, Links, OrderOutcome};
use policy::Span;
use rpc::{Arrival, Catalog, Entry, Order, Overview, Part, State, WorkerId, WorkerState, WorkerView};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// How often counters are moved, in a second.
const STEPS: u64 = 10;

/// What a model does.
#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    Steady,
    Overloaded,
    Late,
    Loading,
    Unavailable,
    Dying,
    Idle,
}

/// Takes everything and answers nothing.
struct Nobody;

impl Links for Nobody {
    fn announce(&self, _: Session, _: Arrival) -> bool {
        true
    }

    fn send_part(&self, _: Part) {}

    fn withdraw(&self, _: u64, _: u32) {}

    fn undelivered(&self, _: WorkerId, _: u64, _: bool) {}

    fn order(&self, _: Order) -> OrderOutcome {
        oneshot::channel().1
    }
}

struct Model {
    entry: Entry,
    rate: u64,
    behaviour: Behaviour,
    statistics: Arc<Statistics>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: usize| arguments.get(place).map_or(Ok(default), |text| text.parse());
    let (port, count) = (number(0, 8002).context("read PORT")?, number(1, 9).context("read MODELS")?);
    let listener = TcpListener::bind(("127.0.0.1", u16::try_from(port)?)).await.context("listen")?;
    println!("http://{}/ui", listener.local_addr()?);

    let gateway = Gateway::new(0, Nobody);
    let models = cast(&gateway, count);
    let gpus = arguments.get(2).map(|node| Arc::new(TwoGpus { node: node.clone() }) as Arc<dyn GpuSource>);
    let moved = gateway.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(1_000 / STEPS));
        for step in 0.. {
            ticks.tick().await;
            models.iter().enumerate().for_each(|(place, model)| model.live(step, place as u64));
            if step % STEPS == 0 {
                moved.publish(catalog(&models, step / STEPS));
                moved.look(overview(&models, step / STEPS));
            }
        }
    });
    let config = MetricsConfig { cluster: "lab-west".into(), gpus, ..MetricsConfig::default() };
    let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    serve(gateway, listener, config, stop).await
}

fn cast(gateway: &Gateway, count: usize) -> Vec<Model> {
    use Behaviour::*;
    let mut cast: Vec<(String, u32, u64, u64, usize, Behaviour)> = [
        ("resnet50", 3, 50, 900, 32, Steady),
        ("bert-base-uncased", 2, 80, 600, 16, Overloaded),
        ("ranker", 7, 20, 1_500, 64, Late),
        ("whisper-small", 1, 900, 0, 8, Loading),
        ("ocr-legacy", 1, 250, 3, 4, Unavailable),
        ("<img src=x onerror=alert(1)>", 1, 200, 35, 8, Steady),
        ("flaky-segmenter", 4, 120, 60, 8, Dying),
        ("\"><script>alert(2)</script>", 2, 10, 8, 0, Steady),
        ("nightly-batch", 1, 5_000, 0, 128, Idle),
    ]
    .map(|(name, version, slo, rate, batch, behaviour)| (name.into(), version, slo, rate, batch, behaviour))
    .into();
    cast.extend((cast.len()..count).map(|number| (format!("model-{number:03}"), 1, 100, 200, 32, Steady)));
    cast.truncate(count);
    cast.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
    let latency = Line { alpha: Span::from_millis(1), beta: Span::from_millis(4) };
    let model =
        |(place, (name, version, slo, rate, max_batch, behaviour)): (usize, (String, u32, u64, u64, usize, _))| {
            let statistics = gateway.statistics(&name, version);
            let spec = ModelSpec {
                name,
                version,
                kind: if place % 2 == 0 { Kind::Onnx { path: "model.onnx".into() } } else { Kind::Virtual { latency } },
                slo: Span::from_millis(slo),
                max_batch,
                workers: 2.try_into().unwrap(),
                keep_alive: None,
                threads: 1,
                queue: 4_096,
                env: Default::default(),
                share: None,
                device: Default::default(),
                inputs: vec![],
                outputs: vec![],
                warmup: None,
            };
            let entry = Entry {
                model: place as u32,
                spec: Arc::new(spec),
                info: None,
                state: State::Ready,
                workers_ready: 2,
                workers_wanted: 2,
                source: Default::default(),
                health: Default::default(),
            };
            Model { entry, rate, behaviour, statistics }
        };
    cast.into_iter().enumerate().map(model).collect()
}

impl Model {
    /// Moves the counters by what happens in one step.
    fn live(&self, step: u64, place: u64) {
        let wave = 80 + (step + place * 37) % 400 / 10;
        let offered = (self.rate * wave / 100 + step % STEPS) / STEPS;
        let refuse = |reason, count: u64| (0..count).for_each(|_| self.statistics.refused(reason, Span::ZERO));
        match self.behaviour {
            Behaviour::Unavailable => return refuse(Refused::Unavailable, offered),
            Behaviour::Loading | Behaviour::Idle => return,
            Behaviour::Overloaded if step / STEPS % 60 > 20 => {
                refuse(Refused::TooLate, offered);
                refuse(Refused::Sacrificed, offered / 4);
                refuse(Refused::Priority, offered / 20);
            }
            Behaviour::Dying if step.is_multiple_of(45 * STEPS) => refuse(Refused::WorkerDied, 5),
            _ => {}
        }
        if self.entry.spec.max_batch > 4 && step.is_multiple_of(31) {
            self.statistics.failed(Span::ZERO);
        }
        let slo = self.entry.spec.slo.nanos();
        let most = self.entry.spec.max_batch.max(1) as u64;
        let size = (most * (40 + (step + place) % 50) / 100).clamp(1, offered.max(1));
        for request in 0..offered {
            let permille = 150 + (request * 7_919 + step * 104_729) % 700;
            let stretch = if self.behaviour == Behaviour::Late { 2 } else { 1 };
            let total = Span::from_nanos(slo / 1_000 * permille * stretch);
            let (batch_size, leads) = (size as usize, request % size == 0);
            let good = total <= self.entry.spec.slo;
            self.statistics.served(Served {
                total,
                compute: total.scale(1, 3).into(),
                good,
                rows: 1,
                batch_size,
                leads,
            });
        }
        self.statistics.pending.store(offered / 2, Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.statistics.last_ms.store(now.as_millis() as u64, Relaxed);
    }

    fn dies(&self, second: u64) -> bool {
        self.behaviour == Behaviour::Dying && second % 45 < 12
    }
}

fn catalog(models: &[Model], second: u64) -> Catalog {
    let entry = |model: &Model| {
        let (state, workers_ready) = match model.behaviour {
            Behaviour::Loading => (State::Loading, 0),
            Behaviour::Unavailable => (State::Unavailable("a worker ended 5 times: no module `cv2`".into()), 0),
            _ if model.dies(second) => (State::Ready, 1),
            _ => (State::Ready, 2),
        };
        Entry { state, workers_ready, workers_wanted: 2, ..model.entry.clone() }
    };
    Catalog { known: true, settling: false, entries: models.iter().map(entry).collect() }
}

fn overview(models: &[Model], second: u64) -> Overview {
    let worker = |(place, model): (usize, &Model), seat: u64| {
        let (state, restarts, last_error) = match model.behaviour {
            Behaviour::Loading => (WorkerState::Starting, 0, None),
            Behaviour::Unavailable => {
                let error = "ImportError: no module `cv2`\n  in <b onmouseover=alert(3)>model.py</b>, line 3";
                (WorkerState::Restarting, 5, Some(error.into()))
            }
            _ if seat == 1 && model.dies(second) => {
                (WorkerState::Restarting, 1 + second / 45, Some("killed by signal 11 in a batch of 8".into()))
            }
            _ => (WorkerState::Ready, 0, None),
        };
        let part = if model.rate == 0 || state != WorkerState::Ready { 0 } else { 300 + 90 * (place as u64 % 7) };
        WorkerView {
            worker: WorkerId(2 * place as u64 + seat + 1),
            node: format!("node-{}", 1 + place % 2),
            model: format!("{}:{}", model.entry.spec.name, model.entry.spec.version),
            state,
            busy: Span::from_millis(second * part),
            batches: second,
            restarts,
            last_error,
            why: String::new(),
        }
    };
    let workers = models.iter().enumerate().flat_map(|model| [worker(model, 0), worker(model, 1)]);
    let queue = |model: &Model| (model.entry.model, model.statistics.pending.load(Relaxed) as usize / 2);
    Overview {
        scaling: Vec::new(),
        workers: workers.collect(),
        queues: models.iter().map(queue).collect(),
        nodes: (0..2)
            .map(|node| rpc::NodeView { node, name: format!("node-{node}"), address: String::new() })
            .collect(),
    }
}

/// Two GPUs on a node of this name.
struct TwoGpus {
    node: String,
}

impl GpuSource for TwoGpus {
    fn gpus(&self) -> Vec<GpuView> {
        let gpu = |gpu: u32| GpuView {
            node: self.node.clone(),
            gpu,
            uuid: format!("GPU-{gpu:04}"),
            name: "NVIDIA H200".into(),
            utilization: 0.3 + 0.2 * f64::from(gpu),
            memory_bytes: (20 + 10 * u64::from(gpu)) << 30,
            memory_total_bytes: 141 << 30,
        };
        vec![gpu(0), gpu(1)]
    }
}
