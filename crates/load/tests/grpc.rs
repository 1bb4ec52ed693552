//! Runs over gRPC against a server with known behaviour.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use load::{Config, Connections, Encoding, Inputs, ModelShare, Protocol, Report, SetupError};
use policy::Span;
use prost::Message;
use rpc::inference::infer_parameter::ParameterChoice;
use rpc::inference::model_metadata_response::TensorMetadata;
use rpc::inference::repository_index_response::ModelIndex;
use rpc::inference::{ModelInferRequest, ModelMetadataRequest, ModelMetadataResponse, RepositoryIndexResponse};
use sim::Spacing;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// A message, or a status and what it says.
type Said = Result<Vec<u8>, (u16, &'static str)>;

/// Starts a server that has one model and treats the n-th request to infer as told.
fn start(infer: fn(usize, ModelInferRequest) -> Said) -> SocketAddr {
    let (tell, address) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            let number = Arc::new(AtomicUsize::new(0));
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = number.clone();
                let service = hyper::service::service_fn(move |request| serve(request, infer, number.clone()));
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
    });
    address.recv().unwrap()
}

async fn serve(
    request: Request<Incoming>,
    infer: fn(usize, ModelInferRequest) -> Said,
    number: Arc<AtomicUsize>,
) -> Result<Answer, Infallible> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let message = body.slice(5..);
    let said = match path.rsplit('/').next().unwrap() {
        "ModelMetadata" if ModelMetadataRequest::decode(message.clone()).unwrap().name == "echo" => {
            let input = TensorMetadata { name: "x".into(), datatype: "FP32".into(), shape: vec![-1, 16] };
            Ok(ModelMetadataResponse { inputs: vec![input], ..Default::default() }.encode_to_vec())
        }
        "ModelMetadata" => Err((5, "no such model")),
        "RepositoryIndex" => {
            let model = ModelIndex { name: "echo".into(), ..Default::default() };
            Ok(RepositoryIndexResponse { models: vec![model] }.encode_to_vec())
        }
        _ => {
            tokio::time::sleep(Duration::from_millis(10)).await;
            infer(number.fetch_add(1, Ordering::Relaxed), ModelInferRequest::decode(message).unwrap())
        }
    };
    let answer = Response::builder().header("content-type", "application/grpc");
    Ok(match said {
        Ok(message) => {
            let mut frame = vec![0];
            frame.extend((message.len() as u32).to_be_bytes());
            frame.extend(message);
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let body = Full::new(Bytes::from(frame)).with_trailers(async { Some(Ok(trailers)) });
            answer.body(body.map_frame(|frame: Frame<Bytes>| frame).boxed()).unwrap()
        }
        Err((status, words)) => {
            let answer = answer.header("grpc-status", status).header("grpc-message", words);
            answer.body(Full::default().boxed()).unwrap()
        }
    })
}

fn config(address: SocketAddr) -> Config {
    Config {
        protocol: Protocol::Grpc(format!("http://{address}").parse().unwrap()),
        models: vec![ModelShare { name: "echo".into(), share: 1.0 }],
        rate: 200.0,
        spacing: Spacing::Constant,
        warmup: Span::ZERO,
        duration: Span::from_secs(1),
        objective: Span::from_secs(3600),
        patience: Span::from_secs(60),
        timeout_parameter: true,
        connections: Connections::Auto,
        batch: 2,
        inputs: Inputs::Zeros,
        shapes: Vec::new(),
        encoding: Encoding::Binary,
        headers: vec![("X-Tenant".into(), "red".into())],
        seed: 1,
    }
}

fn run(config: &Config) -> Result<Report, SetupError> {
    let (_keep, stop) = mpsc::unbounded_channel();
    load::run(config, |_| {}, stop)
}

#[test]
fn outcomes_are_told_as_over_http() {
    let address = start(|number, request| {
        assert_eq!(request.raw_input_contents[0].len(), 2 * 16 * 4);
        assert_eq!((request.model_name.as_str(), request.inputs[0].shape.as_slice()), ("echo", &[2, 16][..]));
        assert_eq!(request.parameters["timeout"].parameter_choice, Some(ParameterChoice::Int64Param(3_600_000_000)));
        match number % 4 {
            0 => Err((8, "12 wait already")),
            1 => Err((4, "too late")),
            2 => Err((13, "ValueError: no")),
            _ => Ok(vec![0; 100_000]),
        }
    });
    let report = run(&config(address)).unwrap();
    assert_eq!((report.offered, report.good, report.refused, report.errors), (200, 50, 100, 50), "{report:?}");
    let told: Vec<_> = report.refusals.iter().map(|told| (told.status, told.reason.as_str(), told.count)).collect();
    assert_eq!(told, [(429, "# wait already", 50), (504, "too late", 50)]);
    let told: Vec<_> = report.failures.iter().map(|told| (told.status, told.reason.as_str(), told.count)).collect();
    assert_eq!(told, [(Some(500), "ValueError: no", 50)]);
    assert!(report.latency_ms.p50 >= 10.0, "nothing is answered before that: {report:?}");
    assert_eq!((report.connections_max, report.connections_limit), (4, None));
}

#[test]
fn what_cannot_begin_says_what_to_do() {
    let address = start(|_, _| Ok(Vec::new()));
    let models = vec![ModelShare { name: "resnet".into(), share: 1.0 }];
    assert_eq!(
        run(&Config { models, ..config(address) }).unwrap_err().to_string(),
        "find model `resnet`: the server does not have it; it has: echo"
    );
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = listener.local_addr().unwrap();
    drop(listener);
    let told = run(&config(gone)).unwrap_err().to_string();
    assert!(told.starts_with(&format!("reach {gone}: connection refused; start a server")), "{told}");
}
