//! The gateway over gRPC with models that echo, for trying out clients: `cargo run --example echo -- 127.0.0.1:8001`.

#[path = "../tests/fake/mod.rs"]
mod fake;

use gateway::grpc::{GrpcConfig, serve};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8001".into());
    let (gateway, _) = fake::gateway(tokio::sync::watch::channel(false).1);
    serve(gateway, TcpListener::bind(address).await?, GrpcConfig::default(), tokio::signal::ctrl_c()).await
}
