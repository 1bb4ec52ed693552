//! The gateway over gRPC, asked by a client over a real socket. Back ends are fakes.

#[path = "../fake/mod.rs"]
mod fake;
mod calls;
mod infer;
mod stream;
mod guards;

use bytes::Bytes;
use gateway::Gateway;
use gateway::grpc::{GrpcConfig, serve};
use gateway::keys::Administration;
use rpc::Arrival;
use rpc::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use rpc::inference::infer_parameter::ParameterChoice;
use rpc::inference::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use rpc::inference::{InferParameter, ModelInferRequest};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

type Client = GrpcInferenceServiceClient<Channel>;

/// A server on a port of its own.
struct Running {
    gateway: Arc<Gateway>,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    async fn start(config: GrpcConfig) -> Running {
        let (gateway, arrivals) = fake::gateway();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(gateway.clone(), listener, config, stopped));
        Running { gateway, arrivals, address, stop: Some(stop), task }
    }

    async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    async fn client(&self) -> Client {
        Client::new(self.channel().await)
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
