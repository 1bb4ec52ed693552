//! The gateway over gRPC, asked by a client over a real socket. Back ends are fakes.

#[path = "../fake/mod.rs"]
mod fake;
mod calls;
mod infer;
mod stream;
mod guards;

use bytes::Bytes;
use fake::Heard;
use gateway::Gateway;
use gateway::grpc::{GrpcConfig, serve};
use gateway::keys::Administration;
use rpc::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use rpc::inference::infer_parameter::ParameterChoice;
use rpc::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use rpc::inference::{InferParameter, ModelInferRequest};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tonic::transport::Channel;

/// How long anything is waited for: longer than any machine keeps a process from running.
const PATIENCE: Duration = Duration::from_secs(60);

type Client = GrpcInferenceServiceClient<Channel>;

/// A server on a port of its own.
struct Running {
    gateway: Arc<Gateway>,
    heard: Heard,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<anyhow::Result<()>>,
    /// Whether requests to the model `held` are.
    held: watch::Sender<bool>,
}

impl Running {
    async fn start(config: GrpcConfig) -> Running {
        let held = watch::Sender::new(true);
        let (gateway, heard) = fake::gateway(held.subscribe());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(gateway.clone(), listener, config, stopped));
        Running { gateway, heard, address, stop: Some(stop), task, held }
    }

    async fn try_channel(&self) -> Result<Channel, tonic::transport::Error> {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await
    }

    async fn channel(&self) -> Channel {
        self.try_channel().await.unwrap()
    }

    async fn client(&self) -> Client {
        Client::new(self.channel().await)
    }

    /// Waits until so many requests have arrived.
    async fn arrived(&self, count: usize) {
        wait_for("arrivals", async || self.heard.arrivals.lock().unwrap().len() == count).await;
    }

    /// Waits until a server that was told to stop has.
    async fn ended(self) {
        tokio::time::timeout(PATIENCE, self.task).await.expect("it ends").unwrap().unwrap();
    }
}

/// Waits until something holds.
async fn wait_for(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A server with the usual limits that every client may change, and a client of it.
async fn start() -> (Running, Client) {
    let running = Running::start(GrpcConfig { administration: Administration::Open, ..GrpcConfig::default() }).await;
    running.gateway.regions.allow(["/*"]);
    let client = running.client().await;
    (running, client)
}

fn number(value: i64) -> InferParameter {
    InferParameter { parameter_choice: Some(ParameterChoice::Int64Param(value)) }
}

fn text(value: &str) -> InferParameter {
    InferParameter { parameter_choice: Some(ParameterChoice::StringParam(value.into())) }
}

fn input(datatype: &str, shape: &[i64]) -> InferInputTensor {
    InferInputTensor { name: "INPUT0".into(), datatype: datatype.into(), shape: shape.into(), ..Default::default() }
}

fn output(parameters: &[(&str, InferParameter)]) -> InferRequestedOutputTensor {
    let parameters = parameters.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    InferRequestedOutputTensor { name: "OUTPUT0".into(), parameters }
}

/// Sixteen floats.
fn floats() -> Bytes {
    (0..16).flat_map(|value| (value as f32).to_le_bytes()).collect::<Vec<u8>>().into()
}

/// A request that fits any model but those of a type.
fn request(model: &str) -> ModelInferRequest {
    ModelInferRequest {
        model_name: model.into(),
        id: "seven".into(),
        inputs: vec![input("FP32", &[1, 16])],
        raw_input_contents: vec![floats()],
        ..Default::default()
    }
}
