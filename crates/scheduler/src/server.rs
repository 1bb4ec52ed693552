//! The scheduler for gateways and nodes on other machines.
//!
//! Each has one stream for as long as it is there; a stream that ends means that it is gone. Whoever wants in brings
//! the join token.

use crate::{GatewayLink, NodeLink, Scheduler};
use anyhow::Result;
use rpc::cluster::{self, proto};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

/// Numbers from here on are for others; smaller ones are within this process.
const FIRST: u32 = 1;

/// Who may join, and how.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// What gateways and nodes must bring; everybody may join where there is none.
    pub token: Option<String>,
    /// Certificate and key in PEM, where connections are to be secret.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Serves until `shutdown` is over.
pub async fn serve(
    scheduler: Scheduler,
    listener: TcpListener,
    config: ServerConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let mut server =
        Server::builder().tcp_nodelay(true).http2_keepalive_interval(Some(std::time::Duration::from_secs(5)));
    if let Some((certificate, key)) = config.identity {
        server = server.tls_config(ServerTlsConfig::new().identity(Identity::from_pem(certificate, key)))?;
    }
    let door = Door { scheduler, token: config.token.map(Arc::from), next: Arc::new(AtomicU32::new(FIRST)) };
    let service = proto::scheduler_server::SchedulerServer::new(door);
    let incoming = TcpListenerStream::new(listener);
    Ok(server.add_service(service).serve_with_incoming_shutdown(incoming, shutdown).await?)
}

struct Door {
    scheduler: Scheduler,
    token: Option<Arc<str>>,
    next: Arc<AtomicU32>,
}

impl Door {
    fn admit<T>(&self, request: &Request<T>) -> Result<u16, Status> {
        let brought = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let brought = brought.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        if let Some(token) = &self.token
            && !same(token, brought)
        {
            return Err(Status::unauthenticated("the join token is missing or wrong"));
        }
        let number = self.next.fetch_add(1, Relaxed);
        u16::try_from(number).map_err(|_| Status::resource_exhausted("65,535 have joined; start the scheduler again"))
    }
}

/// Compares without telling by its time where two texts differ.
fn same(one: &str, other: &str) -> bool {
    let differ = one.bytes().zip(other.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
    one.len() == other.len() && differ == 0
}

type Out<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl proto::scheduler_server::Scheduler for Door {
    type GatewayStream = Out<proto::ToGateway>;
    type NodeStream = Out<proto::ToNode>;

    async fn gateway(
        &self,
        request: Request<Streaming<proto::FromGateway>>,
    ) -> Result<Response<Self::GatewayStream>, Status> {
        let number = self.admit(&request)?;
        let (send, out) = mpsc::unbounded_channel();
        let say =
            |send: &mpsc::UnboundedSender<_>, message| drop(send.send(Ok(proto::ToGateway { message: Some(message) })));
        say(&send, proto::to_gateway::Message::Welcome(u32::from(number)));
        let (tell, publish, look) = (send.clone(), send.clone(), send.clone());
        let link = GatewayLink {
            tell: Box::new(move |decision| drop(tell.send(Ok(cluster::from_decision(decision))))),
            publish: Box::new(move |catalog| {
                say(&publish, proto::to_gateway::Message::CatalogJson(cluster::to_json(&catalog)));
            }),
            look: Box::new(move |overview| {
                say(&look, proto::to_gateway::Message::OverviewJson(cluster::to_json(&overview)));
            }),
        };
        let scheduler = self.scheduler.clone();
        scheduler.gateway_joined(number, link);
        let mut incoming = request.into_inner();
        tokio::spawn(async move {
            while let Some(Ok(message)) = incoming.next().await {
                match message.message {
                    Some(proto::from_gateway::Message::Arrival(arrival)) => {
                        match cluster::to_arrival(arrival, number) {
                            Ok(arrival) => scheduler.arrival(arrival),
                            Err(nonsense) => {
                                tracing::warn!(gateway = number, %nonsense, "a gateway is sent away");
                                drop(send.send(Err(nonsense.into())));
                                break;
                            }
                        }
                    }
                    Some(proto::from_gateway::Message::Order(order)) => {
                        let (reply, id) = (send.clone(), order.id);
                        let answer = move |outcome: Result<(), rpc::OrderError>| {
                            let error_json = outcome.err().map_or_else(String::new, |error| cluster::to_json(&error));
                            say(&reply, proto::to_gateway::Message::Ordered(proto::Ordered { id, error_json }));
                        };
                        match cluster::from_json("an order", &order.json) {
                            Ok(order) => scheduler.order(order, answer),
                            Err(nonsense) => answer(Err(rpc::OrderError::Invalid(nonsense.to_string()))),
                        }
                    }
                    Some(proto::from_gateway::Message::Undelivered(undelivered)) => {
                        scheduler.undelivered(rpc::WorkerId(undelivered.worker), undelivered.batch);
                    }
                    None => {}
                }
            }
            scheduler.gateway_lost(number);
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(out))))
    }

    async fn node(&self, request: Request<Streaming<proto::FromNode>>) -> Result<Response<Self::NodeStream>, Status> {
        let number = self.admit(&request)?;
        let mut incoming = request.into_inner();
        let Some(Ok(proto::FromNode { message: Some(proto::from_node::Message::Hello(hello)) })) =
            incoming.next().await
        else {
            return Err(Status::invalid_argument("a node says hello first"));
        };
        let (send, out) = mpsc::channel(1024);
        let tell = send.clone();
        let link = NodeLink {
            name: hello.name,
            virtual_gpus: hello.virtual_gpus.min(100_000) as usize,
            address: hello.address.into(),
            tell: Box::new(move |instruction| {
                // A node that has not taken a thousand instructions is as good as gone.
                let _ = tell.try_send(Ok(cluster::from_instruction(instruction)));
            }),
        };
        let scheduler = self.scheduler.clone();
        scheduler.node_joined(number, link);
        tokio::spawn(async move {
            while let Some(Ok(message)) = incoming.next().await {
                match message.message.map(cluster::to_news) {
                    Some(Ok(Some(news))) => scheduler.news(news),
                    Some(Ok(None)) | None => {}
                    Some(Err(nonsense)) => {
                        tracing::warn!(node = number, %nonsense, "a node is sent away");
                        let _ = send.try_send(Err(nonsense.into()));
                        break;
                    }
                }
            }
            scheduler.node_lost(number);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(out))))
    }
}
