//! A node whose scheduler and gateways are on other machines.
//!
//! It joins, does what the scheduler says and serves gateways that bring batches. A node that loses its scheduler ends
//! all its workers, and joins again as a new one: what it had is the scheduler's to give out anew.

use crate::{Config, Node};
use anyhow::{Context, Result};
use rpc::cluster::{self, proto};
use rpc::{Part, Payload, WorkerId};
use std::pin::Pin;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

/// How long between two attempts to reach the scheduler.
const AGAIN: Duration = Duration::from_millis(500);

/// How a node joins a cluster.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The scheduler, as `http://host:port` or `https://host:port`.
    pub scheduler: String,
    /// The join token; gateways must bring it too.
    pub token: Option<String>,
    /// Who vouches for the scheduler's certificate, in PEM.
    pub authority: Option<Vec<u8>>,
    /// Certificate and key for gateways that come, in PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// What people call this node.
    pub name: String,
    /// GPUs to emulate.
    pub virtual_gpus: usize,
    /// Where gateways reach it, as host and port.
    pub address: String,
}

/// Runs a node until `shutdown` is over.
pub async fn run(
    config: Config,
    remote: Remote,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let current = Current::default();
    let door = Door { current: current.clone(), token: remote.token.clone() };
    let service = proto::node_server::NodeServer::new(door)
        .max_decoding_message_size(usize::MAX)
        .max_encoding_message_size(usize::MAX);
    let mut server = Server::builder().tcp_nodelay(true).http2_keepalive_interval(Some(Duration::from_secs(5)));
    if let Some((certificate, key)) = &remote.identity {
        server = server.tls_config(ServerTlsConfig::new().identity(Identity::from_pem(certificate, key)))?;
    }
    let serving = server.add_service(service).serve_with_incoming(TcpListenerStream::new(listener));
    tokio::select! {
        served = serving => served.context("serve gateways")?,
        () = stay_joined(config, remote, current.clone()) => {}
        () = shutdown => {}
    }
    if let Some(node) = current.take() {
        end(node).await;
    }
    Ok(())
}

/// The node as it is now; none while it is not joined.
#[derive(Clone, Default)]
struct Current(Arc<RwLock<Option<Arc<Node>>>>);

impl Current {
    fn get(&self) -> Option<Arc<Node>> {
        self.0.read().expect("no panic holds this lock").clone()
    }
    fn set(&self, node: Arc<Node>) {
        *self.0.write().expect("no panic holds this lock") = Some(node);
    }
    fn take(&self) -> Option<Arc<Node>> {
        self.0.write().expect("no panic holds this lock").take()
    }
}

/// Ends all workers of a node that nobody uses any more.
async fn end(mut node: Arc<Node>) {
    loop {
        match Arc::try_unwrap(node) {
            Ok(node) => {
                let _ = tokio::task::spawn_blocking(move || node.stop()).await;
                return;
            }
            Err(held) => {
                node = held;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

async fn stay_joined(config: Config, remote: Remote, current: Current) {
    loop {
        if let Err(error) = join(&config, &remote, &current).await {
            tracing::warn!(error = format!("{error:#}"), "the scheduler cannot be reached; trying again");
        }
        if let Some(node) = current.take() {
            end(node).await;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Does what the scheduler says until the stream ends.
async fn join(config: &Config, remote: &Remote, current: &Current) -> Result<()> {
    let url = &remote.scheduler;
    let endpoint = Endpoint::from_shared(url.clone()).with_context(|| format!("understand the address {url}"))?;
    let mut endpoint = endpoint
        .tcp_nodelay(true)
        .connect_timeout(Duration::from_secs(5))
        .http2_keep_alive_interval(Duration::from_secs(5))
        .keep_alive_while_idle(true);
    if let Some(authority) = &remote.authority {
        endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority)))?;
    }
    let channel = endpoint.connect().await.with_context(|| format!("reach {url}"))?;
    let (send, outgoing) = mpsc::unbounded_channel();
    let hello = proto::Hello {
        name: remote.name.clone(),
        virtual_gpus: remote.virtual_gpus as u32,
        address: remote.address.clone(),
    };
    let hello = proto::FromNode { message: Some(proto::from_node::Message::Hello(hello)) };
    send.send(hello).context("say hello")?;
    let mut request = Request::new(UnboundedReceiverStream::new(outgoing));
    if let Some(token) = &remote.token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
    }
    let mut client = proto::scheduler_client::SchedulerClient::new(channel).max_decoding_message_size(usize::MAX);
    let mut instructions = client.node(request).await.context("join the cluster")?.into_inner();
    let node = Arc::new(Node::start(config.clone(), tokio::runtime::Handle::current(), move |news| {
        drop(send.send(cluster::from_news(news)))
    })?);
    current.set(node.clone());
    tracing::info!(scheduler = url, "joined the cluster");
    while let Some(instruction) = instructions.next().await {
        node.order(cluster::to_instruction(instruction.context("hear from the scheduler")?)?);
    }
    anyhow::bail!("the scheduler hung up")
}

/// Where gateways bring batches.
struct Door {
    current: Current,
    token: Option<String>,
}

#[tonic::async_trait]
impl proto::node_server::Node for Door {
    type RunStream = Pin<Box<dyn Stream<Item = Result<proto::Answer, Status>> + Send>>;

    async fn run(&self, request: Request<Streaming<proto::Part>>) -> Result<Response<Self::RunStream>, Status> {
        let brought = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        if let Some(token) = &self.token
            && brought.and_then(|value| value.strip_prefix("Bearer ")) != Some(token)
        {
            return Err(Status::unauthenticated("the join token is missing or wrong"));
        }
        let mut parts = request.into_inner();
        let (send, answers) = mpsc::unbounded_channel();
        let current = self.current.clone();
        tokio::spawn(async move {
            while let Some(Ok(part)) = parts.next().await {
                let part = match to_part(part, &send) {
                    Ok(part) => part,
                    Err(nonsense) => {
                        drop(send.send(Err(nonsense.into())));
                        return;
                    }
                };
                match current.get() {
                    Some(node) => node.run(part),
                    None => {
                        part.payloads.into_iter().for_each(|payload| (payload.answer)(Err(rpc::Failure::WorkerDied)))
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(answers))))
    }
}

fn to_part(
    part: proto::Part,
    send: &mpsc::UnboundedSender<Result<proto::Answer, Status>>,
) -> Result<Part, cluster::Nonsense> {
    let payload = |payload: proto::Payload| {
        let (send, batch, request) = (send.clone(), part.batch, payload.request);
        let inputs = payload.inputs.into_iter().map(cluster::to_tensor).collect::<Result<Vec<_>, _>>()?;
        let answer = Box::new(move |answer| drop(send.send(Ok(cluster::from_answer(batch, request, answer)))));
        Ok(Payload { request, inputs: inputs.into(), answer })
    };
    Ok(Part {
        worker: WorkerId(part.worker),
        node: 0,
        address: "".into(),
        batch: part.batch,
        model: part.model,
        size: part.size as usize,
        payloads: part.payloads.into_iter().map(payload).collect::<Result<Vec<_>, _>>()?,
    })
}
