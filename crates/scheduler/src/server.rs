//! The scheduler for gateways and nodes on other machines.
//!
//! Each has one stream for as long as it is there: a session. A stream that ends means that its session is over.
//! Whoever wants in brings the join token and speaks the same version of the protocol.
//!
//! A scheduler on standby listens too and sends everybody away at once, who then asks the next address. One that hears
//! from a member that another scheduler has begun to lead since ends.

use crate::{GatewayLink, NodeLink, Scheduler};
use anyhow::{Result, bail};
use rpc::Term;
use rpc::cluster::{self, MESSAGE_BYTES_MAX, proto};
use rpc::connections::Connections;
use rpc::link::SESSION_BITS;
use rpc::{Catalog, Overview, ToGateway, ToNode, timing};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

/// Instructions that a node has not taken yet. One that is behind by so many is as good as gone.
const INSTRUCTIONS_MAX: usize = 1024;
/// The most connections at a time. A member has one.
const CONNECTIONS_MAX: usize = 65_536;
/// How long streams may take to end when the scheduler does.
const END: Duration = Duration::from_secs(1);

/// Who may join, and how.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// What gateways and nodes must bring; everybody may join where there is none.
    pub token: Option<String>,
    /// Certificate and key in PEM, where connections are to be secret.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// What members are told by a scheduler that does not lead.
const STANDBY: &str = "this scheduler is on standby: another one leads";
const DEPOSED: &str = "another scheduler has begun to lead since";
const ENDING: &str = "this scheduler is ending; join the next one";

/// The scheduler of a process, as soon as it leads.
#[derive(Clone, Default)]
pub struct Office(Arc<OfficeState>);

#[derive(Default)]
struct OfficeState {
    scheduler: OnceLock<Scheduler>,
    /// A member knows of a later leader, of this term.
    deposed: Notify,
    later: AtomicU64,
}

impl Office {
    /// From now on, members are let in to this one.
    pub fn take(&self, scheduler: Scheduler) {
        assert!(self.0.scheduler.set(scheduler).is_ok(), "a process leads once");
    }

    /// The scheduler that leads and decides; a member may know of a `later` one.
    fn holder(&self, later: Term) -> Result<&Scheduler, Status> {
        let Some(scheduler) = self.0.scheduler.get() else { return Err(Status::unavailable(STANDBY)) };
        if scheduler.is_stopped() {
            return Err(Status::unavailable(ENDING));
        }
        if later > scheduler.term() {
            self.0.later.fetch_max(later.0, Relaxed);
            self.0.deposed.notify_one();
            return Err(Status::unavailable(DEPOSED));
        }
        Ok(scheduler)
    }

    /// Over when another scheduler leads for all that is known here.
    async fn deposed(&self) {
        let mut look = tokio::time::interval(Duration::from_nanos(timing::LEASE.nanos()));
        loop {
            tokio::select! {
                () = self.0.deposed.notified() => return,
                _ = look.tick() => {}
            }
            let Some(scheduler) = self.0.scheduler.get().cloned() else { continue };
            // A disk may take its time.
            if !tokio::task::spawn_blocking(move || scheduler.leads()).await.unwrap_or(false) {
                return;
            }
        }
    }
}

/// Serves until `shutdown` is over. Then all sessions end, and so does the scheduler: nobody is waited for. Fails when
/// another scheduler has begun to lead.
pub async fn serve(
    office: Office,
    listener: TcpListener,
    config: ServerConfig,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let mut server =
        Server::builder().tcp_nodelay(true).http2_keepalive_interval(Some(std::time::Duration::from_secs(5)));
    if let Some((certificate, key)) = config.identity {
        server = server.tls_config(ServerTlsConfig::new().identity(Identity::from_pem(certificate, key)))?;
    }
    let door = Door { office: office.clone(), token: config.token.map(Arc::from), sessions: Arc::default() };
    let service = proto::scheduler_server::SchedulerServer::new(door).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let incoming = Connections::new(listener, CONNECTIONS_MAX, Duration::from_nanos(timing::CONNECT.nanos()));
    let ended = Arc::new(Notify::new());
    let until = ended.clone();
    let serving =
        server.add_service(service).serve_with_incoming_shutdown(incoming, async move { until.notified().await });
    tokio::pin!(serving);
    let deposed = tokio::select! {
        served = &mut serving => return Ok(served?),
        () = shutdown => false,
        () = office.deposed() => true,
    };
    if let Some(scheduler) = office.0.scheduler.get() {
        let later = Term(office.0.later.load(Relaxed));
        if later > scheduler.term() {
            scheduler.surpass(later);
        }
        scheduler.stop();
    }
    ended.notify_one();
    // A member that does not let go of its stream does not keep the scheduler.
    if let Ok(served) = tokio::time::timeout(END, serving).await {
        served?;
    }
    if deposed {
        bail!("lead: {DEPOSED}; start this one again and it waits for its turn, if it is told to with --standby");
    }
    Ok(())
}

struct Door {
    office: Office,
    token: Option<Arc<str>>,
    sessions: Arc<Mutex<Sessions>>,
}

/// The numbers of sessions. They are given out in turn, so that a number is not used again before all others were: no
/// request of its last session is left by then.
#[derive(Default)]
struct Sessions {
    last: u32,
    open: BTreeSet<u32>,
}

/// A number while its session lasts.
struct Session {
    number: u32,
    sessions: Arc<Mutex<Sessions>>,
}

impl Sessions {
    /// Numbers from 1 on: 0 is for members within this process.
    fn open(&mut self) -> Option<u32> {
        const LAST: u32 = (1 << SESSION_BITS) - 1;
        if self.open.len() >= LAST as usize {
            return None;
        }
        loop {
            self.last = if self.last == LAST { 1 } else { self.last + 1 };
            if self.open.insert(self.last) {
                return Some(self.last);
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        lock(&self.sessions).open.remove(&self.number);
    }
}

fn lock(sessions: &Mutex<Sessions>) -> MutexGuard<'_, Sessions> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Door {
    fn admit<T>(&self, request: &Request<T>, who: &str) -> Result<(Session, &Scheduler), Status> {
        cluster::admit(request, self.token.as_deref(), who).inspect_err(|status| {
            let from = request.remote_addr().map(|address| address.to_string()).unwrap_or_default();
            tracing::warn!(from, "a {who} is sent away: {}", status.message());
        })?;
        // Whoever has the token is told who leads, and nobody else.
        let scheduler = self.office.holder(cluster::said_term(request.metadata()))?;
        let number = lock(&self.sessions).open();
        let number = number.ok_or_else(|| Status::resource_exhausted("as many have joined as can"))?;
        Ok((Session { number, sessions: self.sessions.clone() }, scheduler))
    }
}

/// Sends a message to a gateway. One that has hung up hears nothing.
fn say(send: &GatewaySender, message: proto::to_gateway::Message) {
    let _ = send.send(Ok(proto::ToGateway { message: Some(message) }));
}

type GatewaySender = mpsc::UnboundedSender<Result<proto::ToGateway, Status>>;

/// A gateway on another machine.
struct GatewayStream {
    send: GatewaySender,
    /// Its session is to end.
    closed: Arc<Notify>,
}

impl GatewayLink for GatewayStream {
    fn send(&self, message: ToGateway) {
        let _ = self.send.send(Ok(cluster::from_decision(message)));
    }

    fn publish_catalog(&self, catalog: Catalog) {
        say(&self.send, proto::to_gateway::Message::CatalogJson(cluster::to_json(&catalog)));
    }

    fn publish_overview(&self, overview: Overview) {
        say(&self.send, proto::to_gateway::Message::OverviewJson(cluster::to_json(&overview)));
    }

    fn close(&self, why: &str) {
        let _ = self.send.send(Err(Status::unavailable(why)));
        self.closed.notify_one();
    }

    fn is_leased(&self) -> bool {
        true
    }
}

/// A node on another machine.
struct NodeStream {
    send: mpsc::Sender<Result<proto::ToNode, Status>>,
    /// Its session is to end.
    closed: Arc<Notify>,
}

impl NodeLink for NodeStream {
    fn send(&self, instruction: ToNode) {
        // A node that is behind by so many is as good as gone.
        if self.send.try_send(Ok(cluster::from_instruction(instruction))).is_err() {
            self.closed.notify_one();
        }
    }

    fn close(&self, why: &str) {
        let _ = self.send.try_send(Err(Status::unavailable(why)));
        self.closed.notify_one();
    }

    fn is_leased(&self) -> bool {
        true
    }
}

/// An answer that says since when its scheduler leads.
fn with_term<T>(stream: T, term: Term) -> Response<T> {
    let mut response = Response::new(stream);
    cluster::say_term(response.metadata_mut(), term);
    response
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
        let (session, scheduler) = self.admit(&request, "gateway")?;
        let number = session.number;
        let (send, out) = mpsc::unbounded_channel();
        say(&send, proto::to_gateway::Message::Welcome(number));
        let closed = Arc::new(Notify::new());
        let link = GatewayStream { send: send.clone(), closed: closed.clone() };
        let (scheduler, term) = (scheduler.clone(), scheduler.term());
        scheduler.gateway_joined(number, link);
        let mut incoming = request.into_inner();
        tokio::spawn(async move {
            let session = session;
            loop {
                let message = tokio::select! {
                    message = incoming.next() => message,
                    () = closed.notified() => break,
                };
                let Some(Ok(message)) = message else { break };
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
                    Some(proto::from_gateway::Message::Withdrawn(proto::Withdrawn { request, model }))
                        if rpc::session_of(request) == number =>
                    {
                        scheduler.withdrawn(request, model);
                    }
                    // Ids begin with the session: this is another one's.
                    Some(proto::from_gateway::Message::Withdrawn(_)) => {}
                    Some(proto::from_gateway::Message::Undelivered(undelivered)) => {
                        let proto::Undelivered { worker, batch, nobody } = undelivered;
                        scheduler.undelivered(rpc::WorkerId(worker), batch, nobody);
                    }
                    Some(proto::from_gateway::Message::Heartbeat(_)) => scheduler.gateway_heard(number),
                    None => {}
                }
            }
            scheduler.gateway_lost(number);
            drop(session);
        });
        Ok(with_term(Box::pin(UnboundedReceiverStream::new(out)), term))
    }

    async fn node(&self, request: Request<Streaming<proto::FromNode>>) -> Result<Response<Self::NodeStream>, Status> {
        let (session, scheduler) = self.admit(&request, "node")?;
        let number = session.number;
        let mut incoming = request.into_inner();
        let greeting = tokio::time::timeout(Duration::from_nanos(timing::CONNECT.nanos()), incoming.next()).await;
        let Ok(Some(Ok(proto::FromNode { message: Some(proto::from_node::Message::Hello(hello)) }))) = greeting else {
            return Err(Status::invalid_argument("a node says hello first"));
        };
        let hello = cluster::to_hello(hello)?;
        let (send, out) = mpsc::channel(INSTRUCTIONS_MAX);
        let closed = Arc::new(Notify::new());
        let link = NodeStream { send: send.clone(), closed: closed.clone() };
        let (scheduler, term) = (scheduler.clone(), scheduler.term());
        scheduler.node_joined(number, hello, link);
        tokio::spawn(async move {
            let session = session;
            loop {
                let message = tokio::select! {
                    message = incoming.next() => message,
                    () = closed.notified() => break,
                };
                let Some(Ok(message)) = message else { break };
                match message.message.map(cluster::to_news) {
                    Some(Ok(Some(news))) => scheduler.news(number, news),
                    Some(Ok(None)) | None => {}
                    Some(Err(nonsense)) => {
                        tracing::warn!(node = number, %nonsense, "a node is sent away");
                        let _ = send.try_send(Err(nonsense.into()));
                        break;
                    }
                }
            }
            scheduler.node_lost(number);
            drop(session);
        });
        Ok(with_term(Box::pin(ReceiverStream::new(out)), term))
    }
}
