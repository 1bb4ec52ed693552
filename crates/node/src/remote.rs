//! A node whose scheduler and gateways are on other machines.
//!
//! It joins, does what the scheduler says and serves gateways that bring batches. It outlives its schedulers: when one
//! is gone its workers finish what they have and stay, and the next one is told of them (`roster.rs`).
//!
//! Of several schedulers it follows the one that leads. It takes no orders, and no batches, that come from one which led
//! before (`rpc::leader`).

use crate::roster::Roster;
use crate::scheduler_link::SchedulerLink;
use crate::{Config, Node};
use anyhow::{Context, Result};
use policy::placement::nodes::Capacity;
use policy::{Span, Time};
use rpc::cluster::{self, MESSAGE_BYTES_MAX, proto};
use rpc::connections::Connections;
use rpc::leader::{Fence, Rest, Search};
use rpc::{Answer, FromNode, Incarnation, NodeHello, Part, Payload, ReplyTo, Term, WorkerId, timing};
use share_client::Gpus;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

/// The most connections at a time. A gateway has one.
const CONNECTIONS_MAX: usize = 4_096;

/// Why a scheduler is left.
const LATER: &str = "another scheduler leads since";

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.nanos())
}

/// How a node joins a cluster.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The schedulers, each as `http://host:port` or `https://host:port`. One of them leads.
    pub schedulers: Vec<String>,
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

/// Runs a node until `shutdown` is over. Then its workers go, each as soon as another takes its place or nobody can,
/// and after `drain_timeout` in any case.
pub async fn run(
    config: Config,
    remote: Remote,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let incarnation = Incarnation::random();
    let patience = config.drain_timeout;
    let membership = Arc::new(Membership { capacity: capacity(), ..Membership::default() });
    let node = Arc::new(Node::start(config, tokio::runtime::Handle::current(), membership.clone())?);
    let (token, own) = (remote.token.clone(), membership.clone());
    let door = Door { node: Arc::downgrade(&node), incarnation, token, membership: own };
    let service = proto::node_server::NodeServer::new(door)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let mut server = Server::builder().tcp_nodelay(true).http2_keepalive_interval(Some(Duration::from_secs(5)));
    if let Some((certificate, key)) = &remote.identity {
        server = server.tls_config(ServerTlsConfig::new().identity(Identity::from_pem(certificate, key)))?;
    }
    let incoming = Connections::new(listener, CONNECTIONS_MAX, duration(timing::CONNECT));
    let serving = server.add_service(service).serve_with_incoming(incoming);
    tokio::select! {
        served = serving => served.context("serve gateways")?,
        () = stay_joined(&remote, incarnation, &node, &membership) => {}
        () = async {
            shutdown.await;
            tracing::info!("leaving: workers finish what they have");
            if tokio::time::timeout(patience, membership.leave()).await.is_err() {
                tracing::warn!(?patience, "workers are ended before others took their place");
            }
        } => {}
    }
    end(node).await;
    Ok(())
}

/// The cores and GPUs of this machine.
fn capacity() -> Capacity {
    let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get() as u32);
    Capacity { cores, gpus: Gpus::find().gpus.iter().map(|gpu| gpu.memory_bytes).collect() }
}

/// What a scheduler knows of this node, and the way to the one that it has joined.
#[derive(Default)]
struct Membership {
    /// What this machine has.
    capacity: Capacity,
    state: Mutex<State>,
    /// Something about the workers changed.
    changed: Notify,
}

#[derive(Default)]
struct State {
    roster: Roster,
    fence: Fence,
    scheduler: Option<mpsc::UnboundedSender<proto::FromNode>>,
}

impl State {
    /// Says something to the scheduler, if there is one. If it does not arrive, the session is over, and the next
    /// scheduler is told of what is then.
    fn say(&self, news: FromNode) {
        if let Some(scheduler) = &self.scheduler {
            drop(scheduler.send(cluster::from_news(news)));
        }
    }
}

impl SchedulerLink for Arc<Membership> {
    fn report(&self, news: FromNode) {
        Membership::report(self, news);
    }
}

impl Membership {
    /// Something happened here.
    fn report(&self, news: FromNode) {
        let mut state = self.lock();
        state.roster.on_news(&news);
        state.say(news);
        drop(state);
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the scheduler that the node will end, and waits until no worker is left. Without a scheduler nobody is
    /// waited for.
    async fn leave(&self) {
        self.report(FromNode::Leaving);
        loop {
            let changed = self.changed.notified();
            {
                let state = self.lock();
                if state.roster.is_empty() || state.scheduler.is_none() {
                    return;
                }
            }
            changed.await;
        }
    }

    /// A stream to a scheduler begins: from here on it is told everything, and first which workers there are.
    fn join(&self, remote: &Remote, incarnation: Incarnation) -> mpsc::UnboundedReceiver<proto::FromNode> {
        let (send, outgoing) = mpsc::unbounded_channel();
        let mut state = self.lock();
        let hello = NodeHello {
            name: remote.name.clone(),
            incarnation,
            virtual_gpus: remote.virtual_gpus,
            address: remote.address.as_str().into(),
            workers: state.roster.running(),
            leaving: state.roster.is_leaving(),
            capacity: Some(self.capacity.clone()),
        };
        drop(send.send(cluster::from_hello(hello)));
        state.scheduler = Some(send);
        outgoing
    }

    /// The stream is over.
    fn part(&self) {
        self.lock().scheduler = None;
        self.changed.notify_one();
    }
}

/// Ends all workers of a node that nobody uses any more.
async fn end(mut node: Arc<Node>) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(1);
    loop {
        match Arc::try_unwrap(node) {
            Ok(node) => {
                let _ = tokio::task::spawn_blocking(move || node.stop()).await;
                return;
            }
            Err(held) if tokio::time::Instant::now() < deadline => {
                node = held;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(_) => return tracing::warn!("workers end with this process"),
        }
    }
}

async fn stay_joined(remote: &Remote, incarnation: Incarnation, node: &Arc<Node>, membership: &Membership) {
    let began = Instant::now();
    let now = || Time::from_nanos(began.elapsed().as_nanos() as u64);
    let mut search = Search::new(now(), remote.schedulers.len());
    loop {
        let attempt = search.attempt();
        let url = &remote.schedulers[attempt.address];
        let joining = tokio::time::timeout(duration(attempt.limit), join(remote, url, incarnation, membership)).await;
        match joining.context("wait for the scheduler").flatten() {
            Ok(session) => {
                tracing::info!(scheduler = url, "joined the cluster");
                let Err(error) = obey(session, node, membership, &search).await;
                tracing::warn!(scheduler = url, error = format!("{error:#}"), "the scheduler is gone; looking for one");
                membership.part();
                search.lost(now());
            }
            Err(error) => {
                membership.part();
                let Rest { wait, loud } = search.failed(now());
                let error = format!("{error:#}");
                match loud {
                    true => tracing::warn!(scheduler = url, error, "the scheduler cannot be reached; trying again"),
                    false => tracing::debug!(scheduler = url, error, "the scheduler cannot be reached; trying again"),
                }
                tokio::time::sleep(duration(wait)).await;
            }
        }
    }
}

/// A stream from a scheduler that leads, and its term.
struct Session {
    instructions: Streaming<proto::ToNode>,
    term: Term,
}

/// Joins the scheduler at an address, if it leads.
async fn join(remote: &Remote, url: &str, incarnation: Incarnation, membership: &Membership) -> Result<Session> {
    let endpoint = Endpoint::from_shared(url.to_owned()).with_context(|| format!("understand the address {url}"))?;
    let mut endpoint = endpoint
        .tcp_nodelay(true)
        .connect_timeout(duration(timing::CONNECT))
        .http2_keep_alive_interval(Duration::from_secs(5))
        .keep_alive_while_idle(true);
    if let Some(authority) = &remote.authority {
        endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority)))?;
    }
    let channel = endpoint.connect().await.with_context(|| format!("reach {url}"))?;
    let outgoing = membership.join(remote, incarnation);
    let mut request = Request::new(UnboundedReceiverStream::new(outgoing));
    cluster::introduce(&mut request, remote.token.as_deref())?;
    cluster::say_term(request.metadata_mut(), membership.lock().fence.highest());
    let mut client =
        proto::scheduler_client::SchedulerClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let answer = client.node(request).await.context("join the cluster")?;
    let term = cluster::said_term(answer.metadata());
    anyhow::ensure!(membership.lock().fence.admits(term), "join the cluster: {LATER}");
    Ok(Session { instructions: answer.into_inner(), term })
}

/// Does what the scheduler says until the stream ends, nothing comes for too long, or another one leads.
async fn obey(
    session: Session,
    node: &Arc<Node>,
    membership: &Membership,
    search: &Search,
) -> Result<std::convert::Infallible> {
    let Session { mut instructions, term } = session;
    let mut beat = tokio::time::interval(duration(timing::HEARTBEAT));
    // After a pause of this process, the scheduler has as long as ever to be heard.
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut unheard = Span::ZERO;
    loop {
        let instruction = tokio::select! {
            biased;
            instruction = instructions.next() => instruction.context("the scheduler hung up")?,
            _ = beat.tick() => {
                membership.lock().say(FromNode::Heartbeat);
                unheard += timing::HEARTBEAT;
                anyhow::ensure!(!search.gives_up(unheard), "the scheduler says nothing");
                anyhow::ensure!(membership.lock().fence.highest() == term, LATER);
                continue;
            }
        };
        unheard = Span::ZERO;
        let instruction = cluster::to_instruction(instruction.context("hear from the scheduler")?)?;
        let refused = {
            let mut state = membership.lock();
            anyhow::ensure!(state.fence.highest() == term, LATER);
            state.roster.on_instruction(&instruction).map(|instead| state.say(instead))
        };
        if refused.is_none() {
            node.order(instruction);
        }
    }
}

/// Where gateways bring batches.
struct Door {
    /// Connections of gateways may outlast the node.
    node: Weak<Node>,
    incarnation: Incarnation,
    token: Option<String>,
    membership: Arc<Membership>,
}

#[tonic::async_trait]
impl proto::node_server::Node for Door {
    type RunStream = Pin<Box<dyn Stream<Item = Result<proto::Answer, Status>> + Send>>;

    async fn run(&self, request: Request<Streaming<proto::Part>>) -> Result<Response<Self::RunStream>, Status> {
        cluster::admit(&request, self.token.as_deref(), "gateway").inspect_err(|status| {
            let from = request.remote_addr().map(|address| address.to_string()).unwrap_or_default();
            tracing::warn!(from, "a gateway is sent away: {}", status.message());
        })?;
        let expected = request.metadata().get(cluster::NODE_KEY).and_then(|value| value.to_str().ok());
        if expected.is_some_and(|expected| expected != self.incarnation.to_string()) {
            return Err(Status::failed_precondition("the node that was here before is gone; this is another"));
        }
        let mut parts = request.into_inner();
        let (send, answers) = mpsc::unbounded_channel();
        let (node, membership) = (self.node.clone(), self.membership.clone());
        tokio::spawn(async move {
            while let Some(Ok(part)) = parts.next().await {
                let part = match to_part(part, &send) {
                    Ok(part) => part,
                    Err(nonsense) => {
                        drop(send.send(Err(nonsense.into())));
                        return;
                    }
                };
                if !membership.lock().fence.admits(part.term) {
                    let failure = rpc::Failure::NotRun("the scheduler that granted it no longer leads".into());
                    crate::batch::fail(part.payloads, &failure);
                    continue;
                }
                match node.upgrade() {
                    Some(node) => node.run(part),
                    None => {
                        let failure = rpc::Failure::NotRun("the node is ending".into());
                        crate::batch::fail(part.payloads, &failure);
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(answers))))
    }
}

/// The way back to a gateway on another machine, for one request.
struct AnswerStream {
    send: mpsc::UnboundedSender<Result<proto::Answer, Status>>,
    batch: u64,
    request: u64,
}

impl ReplyTo for AnswerStream {
    fn reply(self: Box<Self>, answer: Answer) {
        // A gateway that is gone needs no answer.
        let _ = self.send.send(Ok(cluster::from_answer(self.batch, self.request, answer)));
    }
}

fn to_part(
    part: proto::Part,
    send: &mpsc::UnboundedSender<Result<proto::Answer, Status>>,
) -> Result<Part, cluster::Nonsense> {
    let payload = |payload: proto::Payload| {
        let (send, batch, request) = (send.clone(), part.batch, payload.request);
        let inputs = payload.inputs.into_iter().map(cluster::to_tensor).collect::<Result<Vec<_>, _>>()?;
        let answer = Box::new(AnswerStream { send, batch, request });
        Ok(Payload { request, inputs: inputs.into(), answer })
    };
    Ok(Part {
        term: Term(part.term),
        worker: WorkerId(part.worker),
        node: Incarnation::default(),
        address: "".into(),
        batch: part.batch,
        model: part.model,
        size: part.size as usize,
        payloads: part.payloads.into_iter().map(payload).collect::<Result<Vec<_>, _>>()?,
        absent: part.absent as usize,
    })
}
