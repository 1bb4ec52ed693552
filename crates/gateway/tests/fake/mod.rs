//! A gateway whose scheduler and workers are a few lines: models that echo, refuse, fail, never answer, or answer when
//! they are let.

use config::{DataType, Kind, Line, ModelSpec, TensorSpec};
use gateway::flights::Session;
use gateway::{Gateway, Links, OrderOutcome};
use policy::Span;
use rpc::{
    Arrival, Catalog, Entry, Failure, Grant, ModelInfo, NotFound, Order, OrderError, Outputs, Part, Payload, Refusal,
    State, Tensor, ToGateway, WorkerId,
};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::{oneshot, watch};

/// Models that do not simply echo.
const ODD: [&str; 7] = ["fails", "full", "gone", "held", "late", "never", "overloaded"];

/// The models there are: `echo` in two versions, `echo_TYPE` for each type, and the odd ones.
pub(crate) fn catalog() -> Catalog {
    let mut names: Vec<(String, u32, DataType, usize)> =
        vec![("echo".into(), 1, DataType::Fp32, 8), ("echo".into(), 2, DataType::Fp32, 8)];
    for datatype in DataType::ALL {
        names.push((format!("echo_{}", datatype.name().to_lowercase()), 1, datatype, 8));
    }
    names.push(("whole".into(), 1, DataType::Fp32, 0));
    names.extend(ODD.map(|name| (name.into(), 1, DataType::Fp32, 8)));
    names.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
    let entry = |(number, (name, version, datatype, max_batch)): (usize, (String, u32, DataType, usize))| {
        let width = if name.starts_with("echo_") { -1 } else { 16 };
        let tensor = |name: &str| TensorSpec { name: name.into(), datatype, shape: vec![-1, width] };
        let info =
            ModelInfo { inputs: vec![tensor("INPUT0")], outputs: vec![tensor("OUTPUT0")], max_batch, runs_on: None };
        Entry {
            model: number as u32,
            spec: Arc::new(spec(&name, version)),
            info: Some(Arc::new(info)),
            state: State::Ready,
            workers_ready: 1,
            workers_wanted: 1,
            source: Default::default(),
            health: Default::default(),
        }
    };
    Catalog { known: true, settling: false, entries: names.into_iter().enumerate().map(entry).collect() }
}

/// What was asked for of a model.
pub(crate) fn spec(name: &str, version: u32) -> ModelSpec {
    let moment = Span::from_micros(10);
    ModelSpec {
        name: name.into(),
        version,
        kind: Kind::Virtual { latency: Line { alpha: moment, beta: moment } },
        slo: Span::from_secs(100),
        max_batch: 8,
        workers: 1.try_into().unwrap(),
        keep_alive: None,
        threads: 1,
        queue: 64,
        env: Default::default(),
        share: None,
        device: Default::default(),
        inputs: vec![],
        outputs: vec![],
        warmup: None,
    }
}

/// What the scheduler was told.
#[derive(Clone, Default)]
pub(crate) struct Heard {
    pub(crate) arrivals: Arc<Mutex<Vec<Arrival>>>,
    /// Requests that nobody waits for any more.
    pub(crate) withdrawn: Arc<Mutex<Vec<u64>>>,
}

/// A gateway with these models, and what it told. The model `held` answers when nothing is held any more.
pub(crate) fn gateway(held: watch::Receiver<bool>) -> (Arc<Gateway>, Heard) {
    let heard = Heard::default();
    let own: Arc<OnceLock<Arc<Gateway>>> = Arc::default();
    let cluster = Cluster { gateway: own.clone(), heard: heard.clone(), held };
    let gateway = Gateway::new(1, cluster);
    gateway.publish(catalog());
    let _ = own.set(gateway.clone());
    (gateway, heard)
}

/// Stands in for the scheduler and the nodes.
struct Cluster {
    gateway: Arc<OnceLock<Arc<Gateway>>>,
    heard: Heard,
    held: watch::Receiver<bool>,
}

impl Links for Cluster {
    fn announce(&self, _: Session, arrival: Arrival) -> bool {
        self.heard.arrivals.lock().unwrap().push(arrival);
        decide(self.gateway.get().unwrap(), arrival);
        true
    }

    fn send_part(&self, part: Part) {
        run(self.gateway.get().unwrap(), part, &self.held);
    }

    fn withdraw(&self, request: u64, _: u32) {
        self.heard.withdrawn.lock().unwrap().push(request);
    }

    fn undelivered(&self, _: WorkerId, _: u64, _: bool) {}

    fn order(&self, order: Order) -> OrderOutcome {
        let (sender, receiver) = oneshot::channel();
        let outcome = match order {
            Order::Load { name } | Order::Unload { name } if name == "missing" => Err(NotFound::Model(name).into()),
            Order::Load { name } if name == "fails" => Err(OrderError::Invalid("the file is corrupt".into())),
            _ => Ok(()),
        };
        let _ = sender.send(outcome);
        receiver
    }
}

fn name(gateway: &Gateway, model: u32) -> String {
    gateway.catalog().entries[model as usize].spec.name.clone()
}

/// Stands in for the scheduler.
fn decide(gateway: &Arc<Gateway>, arrival: Arrival) {
    let Arrival { request, model, within, priority, .. } = arrival;
    let retry_after = Span::from_millis(12);
    let refusal = match name(gateway, model).as_str() {
        "late" => Refusal::Late { within, reason: policy::Reason::TooLate, retry_after },
        "full" => Refusal::Full { waiting: 64, retry_after },
        "overloaded" => Refusal::Overload { priority, retry_after },
        "gone" => Refusal::Unavailable("all workers are gone".into()),
        "never" => return,
        _ => {
            let grant = Grant {
                term: rpc::Term::default(),
                worker: WorkerId(1),
                node: rpc::Incarnation::default(),
                address: "".into(),
                batch: request,
                model,
                size: 1,
                requests: vec![request],
            };
            return gateway.tell(ToGateway::Run(grant));
        }
    };
    gateway.tell(ToGateway::Refuse { request, refusal });
}

/// Stands in for a worker.
fn run(gateway: &Arc<Gateway>, part: Part, held: &watch::Receiver<bool>) {
    let model = name(gateway, part.model);
    for Payload { inputs, answer, .. } in part.payloads {
        let renamed = |tensor: &Tensor| Tensor { name: "OUTPUT0".into(), ..tensor.clone() };
        let tensors = inputs.iter().map(renamed).collect();
        let outputs = Outputs { tensors, compute: Span::from_micros(50).into(), batch_size: 1, leads: true };
        match model.as_str() {
            "fails" => answer.reply(Err(Failure::Model("ValueError: no".into()))),
            "held" => {
                let mut held = held.clone();
                tokio::spawn(async move {
                    if held.wait_for(|held| !held).await.is_ok() {
                        answer.reply(Ok(outputs));
                    }
                });
            }
            _ => answer.reply(Ok(outputs)),
        }
    }
}
