//! A gateway whose scheduler and nodes are on other machines.
//!
//! Invariants:
//! 1. Every request that was told to the scheduler is answered: when the stream to it breaks, all that are held are
//!    refused; when the way to a node breaks, those that are on it fail.
//! 2. A gateway that lost its scheduler keeps trying, with the number it gets anew.

use crate::core::NO_SCHEDULER;
use crate::{Gateway, Links};
use anyhow::{Context, Result};
use rpc::cluster::{self, proto};
use rpc::{Answer, Failure, OrderError, Part};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// How long between two attempts to reach the scheduler.
const AGAIN: Duration = Duration::from_millis(500);

/// Where the rest of the cluster is.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The scheduler, as `http://host:port` or `https://host:port`.
    pub scheduler: String,
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
            .connect_timeout(Duration::from_secs(5))
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_while_idle(true);
        if let Some(authority) = &self.authority {
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
            endpoint = endpoint.tls_config(tls)?;
        }
        endpoint.connect().await.with_context(|| format!("reach {url}"))
    }

    /// A request that brings the join token.
    pub fn request<T>(&self, message: T) -> Result<tonic::Request<T>> {
        let mut request = tonic::Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
        }
        Ok(request)
    }
}

/// What is on its way to the scheduler and to nodes.
struct Ways {
    remote: Remote,
    up: Mutex<Option<mpsc::UnboundedSender<proto::FromGateway>>>,
    orders: Mutex<HashMap<u64, oneshot::Sender<Result<(), OrderError>>>>,
    next_order: AtomicU64,
    nodes: Mutex<HashMap<u16, mpsc::UnboundedSender<Part>>>,
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
    let (arrivals, orders) = (ways.clone(), ways.clone());
    let parts = ways.clone();
    let links = Links {
        arrival: Box::new(move |arrival| {
            let message = proto::from_gateway::Message::Arrival(cluster::from_arrival(arrival));
            arrivals.say(message)
        }),
        part: Box::new(move |part| parts.carry(part)),
        order: Box::new(move |order| {
            let (tell, told) = oneshot::channel();
            let id = orders.next_order.fetch_add(1, Relaxed);
            lock(&orders.orders).insert(id, tell);
            let order = proto::Order { id, json: cluster::to_json(&order) };
            if !orders.say(proto::from_gateway::Message::Order(order)) {
                lock(&orders.orders).remove(&id);
            }
            told
        }),
    };
    let gateway = Arc::new(Gateway::unnumbered(links));
    tokio::spawn(stay_connected(gateway.clone(), ways));
    gateway
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no panic holds this lock")
}

impl Ways {
    /// Says something to the scheduler; whether there is one.
    fn say(&self, message: proto::from_gateway::Message) -> bool {
        let message = proto::FromGateway { message: Some(message) };
        lock(&self.up).as_ref().is_some_and(|up| up.send(message).is_ok())
    }

    /// Hands a part to the node it is for, over a connection that stays.
    fn carry(self: &Arc<Ways>, part: Part) {
        let number = part.node;
        let sent = {
            let mut nodes = lock(&self.nodes);
            let way = nodes.entry(number).or_insert_with(|| {
                let (send, parts) = mpsc::unbounded_channel();
                self.runtime.spawn(self.clone().run(number, part.address.to_string(), parts));
                send
            });
            way.send(part)
        };
        if let Err(unsent) = sent {
            lock(&self.nodes).remove(&number);
            self.give_up(unsent.0);
        }
    }

    /// Says that a part never reached its node: its requests fail, and its worker is free for others.
    fn give_up(&self, part: Part) {
        let undelivered = proto::Undelivered { worker: part.worker.0, batch: part.batch };
        self.say(proto::from_gateway::Message::Undelivered(undelivered));
        for payload in part.payloads {
            (payload.answer)(Err(Failure::Unreachable));
        }
    }

    /// Carries parts to a node and answers back until the connection breaks.
    async fn run(self: Arc<Ways>, number: u16, address: String, mut parts: mpsc::UnboundedReceiver<Part>) {
        let waiting = Waiting::default();
        if let Err(error) = self.converse(&address, &mut parts, &waiting).await {
            tracing::warn!(node = number, error = format!("{error:#}"), "the way to a node broke");
        }
        lock(&self.nodes).remove(&number);
        parts.close();
        while let Some(part) = parts.recv().await {
            self.give_up(part);
        }
        waiting.fail();
    }

    async fn converse(
        &self,
        address: &str,
        parts: &mut mpsc::UnboundedReceiver<Part>,
        waiting: &Waiting,
    ) -> Result<()> {
        let scheme = if self.remote.authority.is_some() { "https" } else { "http" };
        let channel = self.remote.connect(&format!("{scheme}://{address}")).await?;
        let mut client = proto::node_client::NodeClient::new(channel)
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX);
        let (send, outgoing) = mpsc::unbounded_channel();
        let request = self.remote.request(UnboundedReceiverStream::new(outgoing))?;
        let mut answers = client.run(request).await.context("speak to the node")?.into_inner();
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

/// Whom to tell what a node answers.
///
/// By batch and request: a request whose worker died may be with the same node again, in another batch, before the node
/// has said that it was lost in the first.
#[derive(Default)]
struct Waiting(Mutex<HashMap<(u64, u64), Tell>>);

type Tell = Box<dyn FnOnce(Answer) + Send>;

impl Waiting {
    /// A part as it is sent; who is to be told of its answers is kept here.
    fn keep(&self, part: Part) -> proto::Part {
        let Part { worker, batch, model, size, .. } = part;
        let mut waiting = lock(&self.0);
        let payloads = part.payloads.into_iter().map(|payload| {
            let inputs = payload.inputs.iter().map(cluster::from_tensor).collect();
            waiting.insert((batch, payload.request), payload.answer);
            proto::Payload { request: payload.request, inputs }
        });
        let payloads = payloads.collect();
        proto::Part { worker: worker.0, batch, model, size: size as u32, payloads }
    }

    fn answer(&self, batch: u64, request: u64, answer: Answer) {
        let tell = lock(&self.0).remove(&(batch, request));
        if let Some(tell) = tell {
            tell(answer);
        }
    }

    /// Tells everybody that there will be no answer.
    fn fail(&self) {
        let waiting = std::mem::take(&mut *lock(&self.0));
        for tell in waiting.into_values() {
            tell(Err(Failure::Unreachable));
        }
    }
}

async fn stay_connected(gateway: Arc<Gateway>, ways: Arc<Ways>) {
    loop {
        if let Err(error) = listen(&gateway, &ways).await {
            tracing::warn!(error = format!("{error:#}"), "the scheduler cannot be reached; trying again");
        }
        *lock(&ways.up) = None;
        lock(&ways.orders).clear();
        gateway.publish(rpc::Catalog::default());
        gateway.refuse_all(NO_SCHEDULER);
        tokio::time::sleep(AGAIN).await;
    }
}

/// Does what the scheduler says until the stream ends.
async fn listen(gateway: &Arc<Gateway>, ways: &Ways) -> Result<()> {
    use proto::to_gateway::Message;
    let channel = ways.remote.connect(&ways.remote.scheduler).await?;
    let mut client = proto::scheduler_client::SchedulerClient::new(channel).max_decoding_message_size(usize::MAX);
    let (send, outgoing) = mpsc::unbounded_channel();
    let request = ways.remote.request(UnboundedReceiverStream::new(outgoing))?;
    let mut messages = client.gateway(request).await.context("join the cluster")?.into_inner();
    while let Some(message) = messages.next().await {
        match message.context("hear from the scheduler")?.message {
            Some(Message::Welcome(number)) => {
                gateway.renumber(u16::try_from(number).context("understand the number given by the scheduler")?);
                *lock(&ways.up) = Some(send.clone());
                tracing::info!(number, "joined the cluster");
            }
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
        (Part { worker: WorkerId(1), node: 0, address: "".into(), model: 0, batch, size: 1, payloads }, answers)
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
        assert_eq!(unanswered.try_recv(), Ok(Err(Failure::Unreachable)));
    }
}
