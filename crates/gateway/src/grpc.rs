//! The gateway over gRPC: the Open Inference Protocol with Triton's extensions, health and reflection.
//!
//! This turns messages into requests of the gateway and its answers into messages; what a model is and whether a
//! request fits it is decided elsewhere.

mod service;
mod infer;
mod decode;
mod contents;
mod encode;
mod stream;
mod describe;
mod status;
mod deadline;
mod door;
mod health;
mod receive;

use crate::Gateway;
use crate::keys::{Administration, Keys};
use anyhow::Context as _;
use door::Door;
use health::Health;
use infer::Service;
use rpc::connections::Connections;
use rpc::inference::DESCRIPTORS;
use rpc::inference::grpc_inference_service_server::GrpcInferenceServiceServer;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::codec::CompressionEncoding;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic_health::pb::health_server::HealthServer;

/// Limits and guards of the gRPC server.
#[derive(Clone, Debug)]
pub struct GrpcConfig {
    /// The longest message that is read, after decompression.
    pub message_bytes_max: usize,
    /// The most connections at a time; one more is closed at once.
    pub connections_max: usize,
    /// The most calls at a time on one connection.
    pub calls_per_connection_max: u32,
    /// The most requests of one stream that are worked on at a time; more wait in the connection.
    pub stream_requests_max: usize,
    /// How long the headers of a call may be.
    pub header_bytes_max: u32,
    /// How long a quiet client is left in peace before it is asked whether it is there.
    pub keepalive_interval: Duration,
    /// How long it may take to say so.
    pub keepalive_timeout: Duration,
    /// How long a client may take to say its first word, and to send a whole message.
    pub receive_timeout: Duration,
    /// The keys that open this server; none are asked for where there are none.
    pub keys: Option<Arc<Keys>>,
    /// The keys of those who may load and unload models, register memory and change settings.
    pub admin_keys: Option<Arc<Keys>>,
    /// Whether those calls need such a key.
    pub administration: Administration,
    /// How to encrypt, if so.
    pub tls: Option<Tls>,
}

/// What a server shows to prove who it is.
#[derive(Clone)]
pub struct Tls {
    /// Its certificates, as PEM, its own first.
    pub certificates: Vec<u8>,
    /// Its private key, as PEM.
    pub key: Vec<u8>,
    /// Whose clients are let in, as PEM; all are where this is not said.
    pub client_authorities: Option<Vec<u8>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Default for GrpcConfig {
    fn default() -> GrpcConfig {
        GrpcConfig {
            message_bytes_max: 64 << 20,
            connections_max: 4096,
            calls_per_connection_max: 1024,
            stream_requests_max: 256,
            header_bytes_max: 16 << 10,
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(20),
            receive_timeout: Duration::from_secs(30),
            keys: None,
            admin_keys: None,
            administration: Administration::default(),
            tls: None,
        }
    }
}

/// Serves until `shutdown` is over, and then until what was accepted is answered.
pub async fn serve(
    gateway: Arc<Gateway>,
    listener: TcpListener,
    config: GrpcConfig,
    shutdown: impl Future,
) -> anyhow::Result<()> {
    let (drain, draining) = watch::channel(false);
    let (keys, admin_keys) = (config.keys.clone(), config.admin_keys.clone());
    let door = Door { keys, admin_keys, administration: config.administration };
    let health = HealthServer::new(Health { gateway: gateway.clone(), draining: draining.clone() });
    let service = Service { gateway, stream_requests_max: config.stream_requests_max.max(1), draining };
    let inference = GrpcInferenceServiceServer::new(service)
        .max_decoding_message_size(config.message_bytes_max)
        .max_encoding_message_size(usize::MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
        .send_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Deflate);
    let mut server = Server::builder()
        .http2_keepalive_interval(Some(config.keepalive_interval))
        .http2_keepalive_timeout(Some(config.keepalive_timeout))
        .http2_max_header_list_size(config.header_bytes_max)
        .max_concurrent_streams(config.calls_per_connection_max)
        // A megabyte on its way for each call, so that a tensor is not sent in many small steps.
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .layer(receive::Layer { limit: config.receive_timeout });
    if let Some(tls) = &config.tls {
        let mut settings = ServerTlsConfig::new().identity(Identity::from_pem(&tls.certificates, &tls.key));
        if let Some(authorities) = &tls.client_authorities {
            settings = settings.client_ca_root(Certificate::from_pem(authorities));
        }
        server = server.tls_config(settings.timeout(config.receive_timeout)).context("use the TLS certificate")?;
    }
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let reflection = described().build_v1().context("describe the protocol")?;
    let reflection_alpha = described().build_v1alpha().context("describe the protocol")?;
    let stop = async move {
        shutdown.await;
        // Nobody listens when nothing is left to drain.
        let _ = drain.send(true);
    };
    server
        .add_service(InterceptedService::new(inference, door.clone()))
        .add_service(InterceptedService::new(reflection, door.clone()))
        .add_service(InterceptedService::new(reflection_alpha, door))
        .add_service(health)
        .serve_with_incoming_shutdown(Connections::new(listener, config.connections_max, config.receive_timeout), stop)
        .await
        .context("serve gRPC")
}
