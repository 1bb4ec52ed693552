//! A gateway whose scheduler and nodes are on other machines.
//!
//! Invariants:
//! 1. When the way to a node breaks, or does not come about, all that is on it comes back.
//! 2. A way leads to one start of a node: one that was started again is another.
//! 3. A gateway that lost its scheduler keeps trying, all addresses in turn, and keeps what it knows of models meanwhile.
//! 4. It does not follow a scheduler that led before one that it has followed.

use crate::core::Clock;
use crate::{Gateway, Links, OrderOutcome, flights};
use anyhow::{Context, Result};
use policy::{Span, Time};
use rpc::cluster::{self, MESSAGE_BYTES_MAX, proto};
use rpc::leader::{Fence, Rest, Search};
use rpc::{Answer, Arrival, Failure, Incarnation, Order, OrderError, Part, ReplyTo, WorkerId, timing};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.nanos())
}

/// Where the rest of the cluster is.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The schedulers, each as `http://host:port` or `https://host:port`. One of them leads.
    pub schedulers: Vec<String>,
    /// The join token.
    pub token: Option<String>,
    /// Who vouches for certificates, in PEM.
    pub authority: Option<Vec<u8>>,
}

impl Remote {
    /// Opens a connection.
    pub async fn connect(&self, url: &str) -> Result<Channel> {
        let endpoint =
            Endpoint::from_shared(url.to_string()).with_context(|| format!("understand the address {url}"))?;
        let mut endpoint = endpoint
            .tcp_nodelay(true)
            .connect_timeout(duration(timing::CONNECT))
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_while_idle(true);
        if let Some(authority) = &self.authority {
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
            endpoint = endpoint.tls_config(tls)?;
        }
        endpoint.connect().await.with_context(|| format!("reach {url}"))
    }

    /// A request that brings what everybody must.
    pub fn request<T>(&self, message: T) -> Result<tonic::Request<T>> {
        let mut request = tonic::Request::new(message);
        cluster::introduce(&mut request, self.token.as_deref())?;
        Ok(request)
    }
}

/// What is on its way to the scheduler and to nodes.
struct Ways {
    remote: Remote,
    /// The session, and the way to its scheduler.
    up: Mutex<Option<(flights::Session, mpsc::UnboundedSender<proto::FromGateway>)>>,
    orders: Mutex<HashMap<u64, oneshot::Sender<Result<(), OrderError>>>>,
    next_order: AtomicU64,
    nodes: Mutex<HashMap<Incarnation, mpsc::UnboundedSender<Part>>>,
    runtime: tokio::runtime::Handle,
}

/// A gateway that finds its scheduler over the network, and goes on finding it.
pub fn start(remote: Remote) -> Arc<Gateway> {
    let ways = Arc::new(Ways {
        remote,
        up: Mutex::default(),
        orders: Mutex::default(),
        next_order: AtomicU64::new(0),
        nodes: Mutex::default(),
        runtime: tokio::runtime::Handle::current(),
    });
    let gateway = Arc::new(Gateway::alone(ways.clone(), Clock::Machine(Instant::now())));
    tokio::spawn(stay_connected(gateway.clone(), ways));
    gateway
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no panic holds this lock")
}

impl Links for Arc<Ways> {
    fn announce(&self, session: flights::Session, arrival: Arrival) -> bool {
        let up = lock(&self.up);
        let Some((_, send)) = up.as_ref().filter(|(present, _)| *present == session) else { return false };
        let message = proto::from_gateway::Message::Arrival(cluster::from_arrival(arrival));
        send.send(proto::FromGateway { message: Some(message) }).is_ok()
    }

    fn send_part(&self, part: Part) {
        self.carry(part);
    }

    fn withdraw(&self, request: u64, model: u32) {
        // Another session has no such request.
        self.say(proto::from_gateway::Message::Withdrawn(proto::Withdrawn { request, model }));
    }

    fn undelivered(&self, worker: WorkerId, batch: u64, nobody: bool) {
        let message = proto::Undelivered { worker: worker.0, batch, nobody };
        self.say(proto::from_gateway::Message::Undelivered(message));
    }

    fn order(&self, order: Order) -> OrderOutcome {
        let (tell, told) = oneshot::channel();
        let id = self.next_order.fetch_add(1, Relaxed);
        lock(&self.orders).insert(id, tell);
        let order = proto::Order { id, json: cluster::to_json(&order) };
        if !self.say(proto::from_gateway::Message::Order(order)) {
            lock(&self.orders).remove(&id);
        }
        told
    }
}

impl Ways {
    /// Says something to the scheduler; whether there is one.
    fn say(&self, message: proto::from_gateway::Message) -> bool {
        let message = proto::FromGateway { message: Some(message) };
        lock(&self.up).as_ref().is_some_and(|(_, up)| up.send(message).is_ok())
    }

    /// Hands a part to the node it is for, over a connection that stays.
    fn carry(self: &Arc<Ways>, part: Part) {
        let node = part.node;
        let sent = {
            let mut nodes = lock(&self.nodes);
            let way = nodes.entry(node).or_insert_with(|| {
                let (send, parts) = mpsc::unbounded_channel();
                self.runtime.spawn(self.clone().run(node, part.address.to_string(), parts));
                send
            });
            way.send(part)
        };
        if let Err(unsent) = sent {
            give_back(unsent.0);
        }
    }

    /// Carries parts to a node and answers back until the connection breaks.
    async fn run(self: Arc<Ways>, node: Incarnation, address: String, mut parts: mpsc::UnboundedReceiver<Part>) {
        let waiting = Waiting::default();
        if let Err(error) = self.converse(node, &address, &mut parts, &waiting).await {
            tracing::warn!(%node, address, error = format!("{error:#}"), "the way to a node broke");
        }
        lock(&self.nodes).remove(&node);
        parts.close();
        while let Some(part) = parts.recv().await {
            give_back(part);
        }
        waiting.fail();
    }

    async fn converse(
        &self,
        node: Incarnation,
        address: &str,
        parts: &mut mpsc::UnboundedReceiver<Part>,
        waiting: &Waiting,
    ) -> Result<()> {
        let scheme = if self.remote.authority.is_some() { "https" } else { "http" };
        let channel = self.remote.connect(&format!("{scheme}://{address}")).await?;
        let mut client = proto::node_client::NodeClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let (send, outgoing) = mpsc::unbounded_channel();
        let mut request = self.remote.request(UnboundedReceiverStream::new(outgoing))?;
        request.metadata_mut().insert(cluster::NODE_KEY, node.to_string().parse()?);
        let answers = tokio::time::timeout(duration(timing::CONNECT), client.run(request)).await;
        let mut answers = answers.context("wait for the node")?.context("speak to the node")?.into_inner();
        loop {
            tokio::select! {
                part = parts.recv() => match part {
                    Some(part) => send.send(waiting.keep(part)).context("send to the node")?,
                    None => return Ok(()),
                },
                answer = answers.next() => {
                    let answer = answer.context("the node hung up")?.context("hear from the node")?;
                    let (batch, request, answer) = cluster::to_answer(answer)?;
                    waiting.answer(batch, request, answer);
                }
            }
        }
    }
}

const BROKEN: &str = "the connection to the worker's node broke";

/// Gives requests back that never reached their node.
pub fn give_back(part: Part) {
    for payload in part.payloads {
        payload.answer.reply(Err(Failure::NotRun(BROKEN.into())));
    }
}

/// Whom to tell what a node answers.
///
/// By batch and request: a request whose worker died may be with the same node again, in another batch, before the node
/// has said that it was lost in the first.
#[derive(Default)]
pub struct Waiting(Mutex<HashMap<(u64, u64), Box<dyn ReplyTo>>>);

impl Waiting {
    /// A part as it is sent; who is to be told of its answers is kept here.
    pub fn keep(&self, part: Part) -> proto::Part {
        let Part { term, worker, batch, model, size, absent, .. } = part;
        let mut waiting = lock(&self.0);
        let payloads = part.payloads.into_iter().map(|payload| {
            let inputs = payload.inputs.iter().map(cluster::from_tensor).collect();
            waiting.insert((batch, payload.request), payload.answer);
            proto::Payload { request: payload.request, inputs }
        });
        let payloads = payloads.collect();
        let (term, size, absent) = (term.0, size as u32, absent as u32);
        proto::Part { worker: worker.0, batch, model, size, payloads, absent, term }
    }

    /// Tells who waits for it what a node answered.
    pub fn answer(&self, batch: u64, request: u64, answer: Answer) {
        let tell = lock(&self.0).remove(&(batch, request));
        if let Some(tell) = tell {
            tell.reply(answer);
        }
    }

    /// Tells everybody that there will be no answer.
    pub fn fail(&self) {
        let mut waiting: Vec<_> = std::mem::take(&mut *lock(&self.0)).into_iter().collect();
        // In an order that is the same in every run of a simulation.
        waiting.sort_unstable_by_key(|(key, _)| *key);
        for (_, tell) in waiting {
            tell.reply(Err(Failure::NotRun(BROKEN.into())));
        }
    }
}

/// A stream to a scheduler that leads.
struct Session {
    messages: tonic::Streaming<proto::ToGateway>,
    send: mpsc::UnboundedSender<proto::FromGateway>,
}

async fn stay_connected(gateway: Arc<Gateway>, ways: Arc<Ways>) {
    let began = Instant::now();
    let now = || Time::from_nanos(began.elapsed().as_nanos() as u64);
    let (mut search, mut fence) = (Search::new(now(), ways.remote.schedulers.len()), Fence::default());
    loop {
        let attempt = search.attempt();
        let url = &ways.remote.schedulers[attempt.address];
        let joined = tokio::time::timeout(duration(attempt.limit), join(&ways, url, &mut fence)).await;
        match joined.context("wait for the scheduler").flatten() {
            Ok(session) => {
                let Err(error) = listen(&gateway, &ways, session, &search).await;
                tracing::warn!(scheduler = url, error = format!("{error:#}"), "the scheduler is gone; looking for one");
                *lock(&ways.up) = None;
                lock(&ways.orders).clear();
                gateway.session_over();
                search.lost(now());
            }
            Err(error) => {
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

/// Joins the scheduler at an address, if it leads.
async fn join(ways: &Ways, url: &str, fence: &mut Fence) -> Result<Session> {
    let channel = ways.remote.connect(url).await?;
    let mut client =
        proto::scheduler_client::SchedulerClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let (send, outgoing) = mpsc::unbounded_channel();
    let mut request = ways.remote.request(UnboundedReceiverStream::new(outgoing))?;
    cluster::say_term(request.metadata_mut(), fence.highest());
    let answer = client.gateway(request).await.context("join the cluster")?;
    anyhow::ensure!(
        fence.admits(cluster::said_term(answer.metadata())),
        "join the cluster: another scheduler leads since"
    );
    Ok(Session { messages: answer.into_inner(), send })
}

/// Does what the scheduler says until the stream ends, or nothing comes for too long.
async fn listen(
    gateway: &Arc<Gateway>,
    ways: &Ways,
    session: Session,
    search: &Search,
) -> Result<std::convert::Infallible> {
    let heart = session.send.clone();
    let heard = AtomicU64::new(0);
    let beating = async {
        let mut beat = tokio::time::interval(duration(timing::HEARTBEAT));
        // After a pause of this process, the scheduler has as long as ever to be heard.
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut unheard, mut seen) = (Span::ZERO, 0);
        loop {
            beat.tick().await;
            let message = Some(proto::from_gateway::Message::Heartbeat(true));
            if heart.send(proto::FromGateway { message }).is_err() {
                return anyhow::anyhow!("the scheduler hung up");
            }
            let now = heard.load(Relaxed);
            unheard = if now == seen { unheard + timing::HEARTBEAT } else { Span::ZERO };
            seen = now;
            if search.gives_up(unheard) {
                return anyhow::anyhow!("the scheduler says nothing");
            }
        }
    };
    tokio::select! {
        biased;
        ended = obey(gateway, ways, session, &heard) => ended,
        error = beating => Err(error),
    }
}

async fn obey(
    gateway: &Arc<Gateway>,
    ways: &Ways,
    session: Session,
    heard: &AtomicU64,
) -> Result<std::convert::Infallible> {
    use proto::to_gateway::Message;
    let Session { mut messages, send } = session;
    while let Some(message) = messages.next().await {
        let message = message.context("hear from the scheduler")?.message;
        gateway.heard();
        heard.fetch_add(1, Relaxed);
        match message {
            Some(Message::Welcome(number)) => {
                *lock(&ways.up) = Some((gateway.joined(number), send.clone()));
                tracing::info!(number, "joined the cluster");
            }
            Some(Message::Heartbeat(_)) => {}
            Some(Message::Run(grant)) => gateway.tell(cluster::to_grant(grant)?),
            Some(Message::Refuse(refuse)) => gateway.tell(cluster::to_refusal(refuse)?),
            Some(Message::CatalogJson(text)) => gateway.publish(cluster::from_json("the catalog", &text)?),
            Some(Message::OverviewJson(text)) => gateway.look(cluster::from_json("the overview", &text)?),
            Some(Message::Ordered(ordered)) => {
                let outcome = match ordered.error_json.as_str() {
                    "" => Ok(()),
                    text => Err(cluster::from_json("an order's outcome", text)?),
                };
                if let Some(tell) = lock(&ways.orders).remove(&ordered.id) {
                    let _ = tell.send(outcome);
                }
            }
            None => {}
        }
    }
    anyhow::bail!("the scheduler hung up")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpc::{Payload, WorkerId};
    use std::sync::mpsc::{Receiver, channel};

    fn part(batch: u64, request: u64) -> (Part, Receiver<Answer>) {
        let (send, answers) = channel();
        let answer = Box::new(move |answer| send.send(answer).unwrap());
        let payloads = vec![Payload { request, inputs: [].into(), answer }];
        let (worker, node, address) = (WorkerId(1), Incarnation(0), "".into());
        let term = rpc::Term::default();
        (Part { term, worker, node, address, model: 0, batch, size: 1, payloads, absent: 0 }, answers)
    }

    #[test]
    fn a_request_that_runs_again_is_not_answered_by_the_death_of_its_first_worker() {
        let waiting = Waiting::default();
        let ((first, lost), (second, done)) = (part(1, 7), part(2, 7));
        waiting.keep(first);
        waiting.keep(second);
        waiting.answer(1, 7, Err(Failure::WorkerDied));
        assert_eq!(lost.try_recv(), Ok(Err(Failure::WorkerDied)));
        assert!(done.try_recv().is_err());
        waiting.answer(2, 7, Err(Failure::Model("said no".into())));
        assert_eq!(done.try_recv(), Ok(Err(Failure::Model("said no".into()))));
    }

    #[test]
    fn whoever_still_waits_hears_when_the_way_breaks_and_nobody_twice() {
        let waiting = Waiting::default();
        let ((first, answered), (second, unanswered)) = (part(1, 7), part(1, 8));
        waiting.keep(first);
        waiting.keep(second);
        waiting.answer(1, 7, Err(Failure::WorkerDied));
        waiting.answer(1, 7, Err(Failure::WorkerDied));
        waiting.fail();
        assert_eq!(answered.iter().count(), 1);
        assert_eq!(unanswered.try_recv(), Ok(Err(Failure::NotRun(BROKEN.into()))));
    }
}
