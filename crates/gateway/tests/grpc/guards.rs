//! Limits, keys, encryption, health and reflection.

use crate::{Client, PATIENCE, Running, input, request, start, wait_for};
use bytes::Bytes;
use gateway::grpc::GrpcConfig;
use gateway::keys::{Administration, Keys};
use rpc::inference::{
    LogSettingsRequest, ModelInferRequest, RepositoryModelLoadRequest, RepositoryModelUnloadRequest, ServerLiveRequest,
    SystemSharedMemoryRegisterRequest, TraceSettingRequest, log_settings_request, trace_setting_request,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

fn large(bytes: usize) -> ModelInferRequest {
    ModelInferRequest {
        model_name: "echo_uint8".into(),
        inputs: vec![input("UINT8", &[1, bytes as i64])],
        raw_input_contents: vec![Bytes::from(vec![0; bytes])],
        ..Default::default()
    }
}

#[tokio::test]
async fn long_messages_are_refused_and_long_answers_are_not() {
    let running = Running::start(GrpcConfig { message_bytes_max: 10 << 20, ..Default::default() }).await;
    let mut client = running.client().await.max_decoding_message_size(usize::MAX);
    let answer = client.model_infer(large(8 << 20)).await.unwrap().into_inner();
    assert_eq!(answer.raw_output_contents[0].len(), 8 << 20);
    let status = client.model_infer(large(11 << 20)).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    client.model_infer(request("echo")).await.unwrap();
}

/// How many bytes a server sends for the answer to this request.
async fn answer_bytes(running: &Running, encoding: CompressionEncoding, compress: bool) -> u64 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = TcpStream::connect(running.address).await.unwrap();
    let relay = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        tokio::io::copy_bidirectional(&mut client, &mut server).await.unwrap().1
    });
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = Client::new(channel).accept_compressed(encoding);
    if compress {
        client = client.send_compressed(encoding);
    }
    let answer = client.model_infer(large(1 << 20)).await.unwrap().into_inner();
    assert_eq!(answer.raw_output_contents[0].len(), 1 << 20);
    drop(client);
    relay.await.unwrap()
}

#[tokio::test]
async fn compressed_requests_are_answered_compressed_and_bombs_are_refused() {
    let running = Running::start(GrpcConfig { message_bytes_max: 10 << 20, ..Default::default() }).await;
    for encoding in [CompressionEncoding::Gzip, CompressionEncoding::Deflate] {
        assert!(answer_bytes(&running, encoding, false).await > 1 << 20);
        assert!(answer_bytes(&running, encoding, true).await < 1 << 16);
        let mut client = running.client().await.send_compressed(encoding);
        let status = client.model_infer(large(100 << 20)).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
}

#[tokio::test]
async fn a_key_opens_the_door() {
    let keys = Some(Arc::new(Keys::from_hashes([Keys::hash("open sesame").as_str()]).unwrap()));
    let running = Running::start(GrpcConfig { keys, ..Default::default() }).await;
    let client = running.client().await;
    let ask = async |name: &'static str, value: &str| {
        let mut request = Request::new(ServerLiveRequest {});
        request.metadata_mut().insert(name, value.parse().unwrap());
        client.clone().server_live(request).await.map_err(|status| status.code())
    };
    assert!(ask("authorization", "Bearer open sesame").await.is_ok());
    assert!(ask("x-api-key", "open sesame").await.is_ok());
    for (name, value) in [
        ("authorization", "Bearer open"),
        ("authorization", "Basic open sesame"),
        ("x-api-key", ""),
        ("other", "open sesame"),
    ] {
        assert_eq!(ask(name, value).await.unwrap_err(), Code::Unauthenticated, "{name}: {value}");
    }
    let infer = client.clone().model_infer(request("echo")).await.unwrap_err();
    assert_eq!(infer.code(), Code::Unauthenticated);
    let mut health = HealthClient::new(running.channel().await);
    health.check(HealthCheckRequest::default()).await.unwrap();
}

/// Every call that changes the server, and what became of each.
async fn change(client: &Client, headers: &[(&'static str, &str)]) -> Vec<Code> {
    fn asked<T>(message: T, headers: &[(&'static str, &str)]) -> Request<T> {
        let mut request = Request::new(message);
        for (name, value) in headers {
            request.metadata_mut().insert(*name, value.parse().unwrap());
        }
        request
    }
    let code = |status: Option<tonic::Status>| status.map_or(Code::Ok, |status| status.code());
    let mut client = client.clone();
    let load = RepositoryModelLoadRequest { model_name: "echo".into(), ..Default::default() };
    let unload = RepositoryModelUnloadRequest { model_name: "echo".into(), ..Default::default() };
    let register = SystemSharedMemoryRegisterRequest { name: "r".into(), key: "/none".into(), offset: 0, byte_size: 1 };
    let rate = trace_setting_request::SettingValue { value: vec!["7".into()] };
    let trace = TraceSettingRequest { settings: [("trace_rate".into(), rate)].into(), ..Default::default() };
    let flag = log_settings_request::setting_value::ParameterChoice::BoolParam(false);
    let flag = log_settings_request::SettingValue { parameter_choice: Some(flag) };
    let log = LogSettingsRequest { settings: [("log_info".into(), flag)].into() };
    vec![
        code(client.repository_model_load(asked(load, headers)).await.err()),
        code(client.repository_model_unload(asked(unload, headers)).await.err()),
        code(client.system_shared_memory_register(asked(register, headers)).await.err()),
        code(client.system_shared_memory_unregister(asked(Default::default(), headers)).await.err()),
        code(client.cuda_shared_memory_register(asked(Default::default(), headers)).await.err()),
        code(client.cuda_shared_memory_unregister(asked(Default::default(), headers)).await.err()),
        code(client.trace_setting(asked(trace, headers)).await.err()),
        code(client.log_settings(asked(log, headers)).await.err()),
    ]
}

#[tokio::test]
async fn changing_the_server_takes_the_admin_key() {
    let keys = |key: &str| Some(Arc::new(Keys::from_hashes([Keys::hash(key).as_str()]).unwrap()));
    let config = GrpcConfig { keys: keys("guest"), admin_keys: keys("host"), ..Default::default() };
    let running = Running::start(config).await;
    let client = running.client().await;
    let guest = ("authorization", "Bearer guest");
    let host = ("authorization", "Bearer host");
    assert_eq!(change(&client, &[]).await, [Code::Unauthenticated; 8]);
    assert_eq!(change(&client, &[guest]).await, [Code::Unauthenticated; 8]);
    assert_eq!(change(&client, &[host, ("origin", "http://evil.example")]).await, [Code::PermissionDenied; 8]);
    assert_eq!(running.gateway.settings.trace(None)["trace_rate"], ["1000"]);
    let done = change(&client, &[host]).await;
    assert!(!done.contains(&Code::Unauthenticated) && !done.contains(&Code::PermissionDenied), "{done:?}");
    assert_eq!(running.gateway.settings.trace(None)["trace_rate"], ["7"]);
    // Whoever may change models may ask them, and settings are read without that key.
    let mut infer = Request::new(request("echo"));
    infer.metadata_mut().insert("authorization", "Bearer host".parse().unwrap());
    client.clone().model_infer(infer).await.unwrap();
    let mut read = Request::new(LogSettingsRequest::default());
    read.metadata_mut().insert("authorization", "Bearer guest".parse().unwrap());
    client.clone().log_settings(read).await.unwrap();
}

#[tokio::test]
async fn without_a_key_nobody_changes_the_server_unless_it_is_open() {
    let running = Running::start(GrpcConfig::default()).await;
    let client = running.client().await;
    assert_eq!(change(&client, &[]).await, [Code::Unauthenticated; 8]);
    client.clone().model_infer(request("echo")).await.unwrap();
    let off = Running::start(GrpcConfig { administration: Administration::Off, ..Default::default() }).await;
    assert_eq!(change(&off.client().await, &[]).await, [Code::PermissionDenied; 8]);
    let open = Running::start(GrpcConfig { administration: Administration::Open, ..Default::default() }).await;
    let done = change(&open.client().await, &[]).await;
    assert!(!done.contains(&Code::Unauthenticated) && !done.contains(&Code::PermissionDenied), "{done:?}");
    let from_a_page = change(&open.client().await, &[("origin", "null")]).await;
    assert_eq!(from_a_page, [Code::PermissionDenied; 8]);
}

#[tokio::test]
async fn no_more_connections_than_allowed() {
    let running = Running::start(GrpcConfig { connections_max: 1, ..Default::default() }).await;
    let mut client = running.client().await;
    client.model_infer(request("echo")).await.unwrap();
    let mut other = TcpStream::connect(running.address).await.unwrap();
    let read = tokio::time::timeout(PATIENCE, other.read(&mut [0; 64])).await.expect("it is closed");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    client.model_infer(request("echo")).await.unwrap();
    drop(client);
    wait_for("the place that became free", async || match running.try_channel().await {
        Ok(channel) => Client::new(channel).model_infer(request("echo")).await.is_ok(),
        Err(_) => false,
    })
    .await;
}

/// What a client of HTTP/2 says first, a question whether the server is there, and what it answers with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0are you?";
const PONG: &[u8] = b"\0\0\x08\x06\x01\0\0\0\0are you?";

#[tokio::test]
async fn a_client_that_says_nothing_is_cut() {
    let running =
        Running::start(GrpcConfig { receive_timeout: Duration::from_millis(100), ..Default::default() }).await;
    // Says its first word before the server can have looked at it: that is in time on any machine.
    let mut quiet = std::net::TcpStream::connect(running.address).unwrap();
    std::io::Write::write_all(&mut quiet, PREFACE).unwrap();
    quiet.set_nonblocking(true).unwrap();
    let mut quiet = TcpStream::from_std(quiet).unwrap();
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    let mut rest = vec![];
    let read = tokio::time::timeout(PATIENCE, silent.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "it was left open");
    // Quiet after its first word is no reason to go.
    quiet.write_all(PING).await.unwrap();
    let mut said = vec![];
    while !said.ends_with(PONG) {
        let read = tokio::time::timeout(PATIENCE, quiet.read_buf(&mut said)).await.expect("an answer");
        assert!(read.unwrap() > 0, "it was closed");
    }
}

#[tokio::test]
async fn headers_have_a_limit() {
    let (_running, mut client) = start().await;
    let mut call = Request::new(request("echo"));
    call.metadata_mut().insert("x-long", "a".repeat(1 << 20).parse().unwrap());
    assert!(client.model_infer(call).await.is_err());
    client.model_infer(request("echo")).await.unwrap();
}

#[tokio::test]
async fn health_follows_the_server() {
    let (mut running, client) = start().await;
    drop(client);
    let mut health = HealthClient::new(running.channel().await);
    for service in ["", "inference.GRPCInferenceService"] {
        let request = HealthCheckRequest { service: service.into() };
        assert_eq!(health.check(request).await.unwrap().into_inner().status(), ServingStatus::Serving);
    }
    let unknown = HealthCheckRequest { service: "x".into() };
    assert_eq!(health.check(unknown).await.unwrap_err().code(), Code::NotFound);
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    running.stop.take().unwrap().send(()).unwrap();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert_eq!(watch.message().await.unwrap(), None);
    drop((watch, health));
    running.ended().await;
}

#[tokio::test]
async fn services_can_be_looked_up() {
    let (running, _client) = start().await;
    macro_rules! services {
        ($version:ident) => {{
            use tonic_reflection::pb::$version::ServerReflectionRequest;
            use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
            use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
            use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
            let mut client = ServerReflectionClient::new(running.channel().await);
            let message_request = Some(MessageRequest::ListServices(String::new()));
            let request = ServerReflectionRequest { host: String::new(), message_request };
            let call = client.server_reflection_info(tokio_stream::iter([request])).await.unwrap();
            match call.into_inner().message().await.unwrap().unwrap().message_response.unwrap() {
                MessageResponse::ListServicesResponse(list) => {
                    list.service.into_iter().map(|service| service.name).collect::<Vec<_>>()
                }
                other => panic!("{other:?}"),
            }
        }};
    }
    for names in [services!(v1), services!(v1alpha)] {
        assert!(names.contains(&"inference.GRPCInferenceService".to_string()), "{names:?}");
        assert!(names.contains(&"grpc.health.v1.Health".to_string()), "{names:?}");
    }
}
