//! The messages of `cluster.proto`, and how they become the values of `link` and back.
//!
//! What comes from another machine is checked here: a message that makes no sense is an error with its name, and ends
//! the stream that brought it.

use crate::term::Term;
use crate::{
    Answer, Arrival, Compute, Failure, FromNode, Grant, Incarnation, NodeHello, Outputs, Refusal, Running, Tensor,
    ToGateway, ToNode, WorkerId, session_of,
};
use config::{DataType, Line, Percent};
use policy::placement::nodes::Capacity;
use policy::{Reason, Span};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Generated from `cluster.proto`.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
pub mod proto {
    tonic::include_proto!("weft.cluster");
}

use proto::{from_node, refuse, to_gateway, to_node};

/// The version of the protocol. Raised whenever one side could misunderstand the other.
pub const PROTOCOL: u32 = 3;
/// The metadata in which whoever opens a stream says which version it speaks.
pub const PROTOCOL_KEY: &str = "weft-protocol";
/// The metadata in which a gateway says which node it expects at an address.
pub const NODE_KEY: &str = "weft-node";
/// The metadata in which a scheduler says its term, and a member the latest that it knows of.
pub const TERM_KEY: &str = "weft-term";
/// The largest message between machines: a batch of tensors, or a catalog. A larger one ends its stream.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// GPUs that a node may say it has; more are left out.
const NODE_GPUS_MAX: usize = 256;

/// Adds to a request what everybody must bring: the version of the protocol and the join token.
pub fn introduce<T>(request: &mut tonic::Request<T>, token: Option<&str>) -> Result<(), Nonsense> {
    request.metadata_mut().insert(PROTOCOL_KEY, PROTOCOL.into());
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse();
        let value = value.map_err(|_| Nonsense("the join token has characters that cannot be sent".into()))?;
        request.metadata_mut().insert("authorization", value);
    }
    Ok(())
}

/// Says a term.
pub fn say_term(metadata: &mut tonic::metadata::MetadataMap, term: Term) {
    metadata.insert(TERM_KEY, term.0.into());
}

/// The term that was said; the earliest where none was.
pub fn said_term(metadata: &tonic::metadata::MetadataMap) -> Term {
    let said = metadata.get(TERM_KEY).and_then(|value| value.to_str().ok());
    Term(said.and_then(|term| term.parse().ok()).unwrap_or(0))
}

/// Checks what [`introduce`] added; `who` is the one that asks, for the text.
pub fn admit<T>(request: &tonic::Request<T>, token: Option<&str>, who: &str) -> Result<(), tonic::Status> {
    let brought = |key: &str| request.metadata().get(key).and_then(|value| value.to_str().ok());
    if let Some(token) = token
        && !config::env::is_same_secret(
            token,
            brought("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default(),
        )
    {
        return Err(tonic::Status::unauthenticated("the join token is missing or wrong"));
    }
    let speaks = brought(PROTOCOL_KEY).and_then(|version| version.parse().ok()).unwrap_or(1);
    if speaks != PROTOCOL {
        let text = format!(
            "this {who} speaks version {speaks} of the cluster protocol and the other side version {PROTOCOL}: run the \
             same version of weft on all machines"
        );
        return Err(tonic::Status::failed_precondition(text));
    }
    Ok(())
}

/// What is wrong with a message.
#[derive(Debug, thiserror::Error)]
#[error("a message of another machine makes no sense: {0}")]
pub struct Nonsense(pub String);

impl From<Nonsense> for tonic::Status {
    fn from(nonsense: Nonsense) -> tonic::Status {
        tonic::Status::invalid_argument(nonsense.to_string())
    }
}

fn wrong<T>(what: impl Into<String>) -> Result<T, Nonsense> {
    Err(Nonsense(what.into()))
}

/// Reads a value that travels as JSON.
pub fn from_json<T: serde::de::DeserializeOwned>(what: &str, text: &str) -> Result<T, Nonsense> {
    serde_json::from_str(text).map_err(|error| Nonsense(format!("{what}: {error}")))
}

/// Writes a value that travels as JSON.
pub fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("our own values can be written as JSON")
}

/// A request for another machine. Clocks differ, so its age travels and not its time.
pub fn from_arrival(arrival: Arrival) -> proto::Arrival {
    proto::Arrival {
        request: arrival.request,
        model: arrival.model,
        age_ns: arrival.at.elapsed().as_nanos() as u64,
        within_ns: arrival.within.nanos(),
        priority: u32::from(arrival.priority),
    }
}

/// A request from another machine, of this session.
pub fn to_arrival(arrival: proto::Arrival, session: u32) -> Result<Arrival, Nonsense> {
    if session_of(arrival.request) != session {
        return wrong(format!("request {} is not one of session {session}'s", arrival.request));
    }
    // No request is older than an hour: longer deadlines are not accepted.
    let age = Duration::from_nanos(arrival.age_ns.min(3_600_000_000_000));
    Ok(Arrival {
        request: arrival.request,
        model: arrival.model,
        at: Instant::now().checked_sub(age).unwrap_or_else(Instant::now),
        within: Span::from_nanos(arrival.within_ns),
        priority: arrival.priority.min(9) as u8,
    })
}

/// A decision for a gateway on another machine.
pub fn from_decision(decision: ToGateway) -> proto::ToGateway {
    let message = match decision {
        ToGateway::Run(grant) => to_gateway::Message::Run(proto::Grant {
            worker: grant.worker.0,
            node: grant.node.0,
            address: grant.address.to_string(),
            batch: grant.batch,
            model: grant.model,
            size: grant.size as u32,
            requests: grant.requests,
            term: grant.term.0,
        }),
        ToGateway::Refuse { request, refusal } => {
            let refusal = match refusal {
                Refusal::Late { reason, retry_after, .. } => {
                    let (reason, retry_after_ns) = (reason.name().to_string(), retry_after.nanos());
                    refuse::Refusal::Late(proto::Late { reason, retry_after_ns })
                }
                Refusal::TooSlow { takes, retry_after, .. } => {
                    let (takes_ns, retry_after_ns) = (takes.nanos(), retry_after.nanos());
                    refuse::Refusal::TooSlow(proto::TooSlow { takes_ns, retry_after_ns })
                }
                Refusal::Full { waiting, retry_after } => {
                    let (waiting, retry_after_ns) = (waiting as u64, retry_after.nanos());
                    refuse::Refusal::Full(proto::Full { waiting, retry_after_ns })
                }
                Refusal::Overload { priority, retry_after } => {
                    let (priority, retry_after_ns) = (u32::from(priority), retry_after.nanos());
                    refuse::Refusal::Overload(proto::Overload { priority, retry_after_ns })
                }
                Refusal::Starting { expected } => refuse::Refusal::Starting(expected.nanos()),
                Refusal::Unavailable(text) => refuse::Refusal::Unavailable(text),
                expired @ Refusal::Expired { .. } => refuse::Refusal::Unavailable(expired.to_string()),
            };
            to_gateway::Message::Refuse(proto::Refuse { request, refusal: Some(refusal) })
        }
        ToGateway::Heartbeat => to_gateway::Message::Heartbeat(true),
    };
    proto::ToGateway { message: Some(message) }
}

/// Leave to run requests, from the scheduler on another machine.
pub fn to_grant(grant: proto::Grant) -> Result<ToGateway, Nonsense> {
    Ok(ToGateway::Run(Grant {
        term: Term(grant.term),
        worker: WorkerId(grant.worker),
        node: Incarnation(grant.node),
        address: grant.address.into(),
        batch: grant.batch,
        model: grant.model,
        size: grant.size as usize,
        requests: grant.requests,
    }))
}

/// A refusal from the scheduler on another machine.
pub fn to_refusal(refuse: proto::Refuse) -> Result<ToGateway, Nonsense> {
    let refusal = match refuse.refusal {
        None => return wrong("a refusal without a reason"),
        Some(refuse::Refusal::Late(late)) => {
            let Some(reason) = Reason::parse(&late.reason) else { return wrong(format!("reason `{}`", late.reason)) };
            Refusal::Late { within: Span::ZERO, reason, retry_after: Span::from_nanos(late.retry_after_ns) }
        }
        Some(refuse::Refusal::TooSlow(slow)) => Refusal::TooSlow {
            within: Span::ZERO,
            takes: Span::from_nanos(slow.takes_ns),
            retry_after: Span::from_nanos(slow.retry_after_ns),
        },
        Some(refuse::Refusal::Full(full)) => {
            Refusal::Full { waiting: full.waiting as usize, retry_after: Span::from_nanos(full.retry_after_ns) }
        }
        Some(refuse::Refusal::Overload(overload)) => Refusal::Overload {
            priority: overload.priority.min(9) as u8,
            retry_after: Span::from_nanos(overload.retry_after_ns),
        },
        Some(refuse::Refusal::Starting(expected)) => Refusal::Starting { expected: Span::from_nanos(expected) },
        Some(refuse::Refusal::Unavailable(text)) => Refusal::Unavailable(text),
    };
    Ok(ToGateway::Refuse { request: refuse.request, refusal })
}

fn from_ready(worker: WorkerId, info: &crate::ModelInfo, measured: &[(usize, Span)]) -> proto::Ready {
    let size = |(size, took): &(usize, Span)| proto::Measured { size: *size as u32, took_ns: took.nanos() };
    proto::Ready { worker: worker.0, info_json: to_json(info), measured: measured.iter().map(size).collect() }
}

fn to_ready(ready: &proto::Ready) -> Result<(crate::ModelInfo, Vec<(usize, Span)>), Nonsense> {
    let measured = ready.measured.iter().map(|one| (one.size as usize, Span::from_nanos(one.took_ns))).collect();
    Ok((from_json("what a worker found out", &ready.info_json)?, measured))
}

/// What a node says of itself when it joins, for the scheduler on another machine.
pub fn from_hello(hello: NodeHello) -> proto::FromNode {
    let running = |one: Running| proto::Running {
        worker: one.worker.0,
        spec_json: one.spec.map_or_else(String::new, |spec| to_json(&*spec)),
        ready: one.ready.map(|(info, measured)| from_ready(one.worker, &info, &measured)),
    };
    let hello = proto::Hello {
        name: hello.name,
        virtual_gpus: hello.virtual_gpus as u32,
        address: hello.address.to_string(),
        incarnation: hello.incarnation.0,
        workers: hello.workers.into_iter().map(running).collect(),
        leaving: hello.leaving,
        capacity: hello.capacity.map(|Capacity { cores, gpus }| proto::Capacity { cores, gpu_bytes: gpus }),
    };
    proto::FromNode { message: Some(from_node::Message::Hello(hello)) }
}

/// What a node on another machine says of itself when it joins.
pub fn to_hello(hello: proto::Hello) -> Result<NodeHello, Nonsense> {
    let running = |one: proto::Running| {
        let spec = match one.spec_json.as_str() {
            "" => None,
            text => Some(Arc::new(from_json("a deployment", text)?)),
        };
        Ok(Running { worker: WorkerId(one.worker), spec, ready: one.ready.as_ref().map(to_ready).transpose()? })
    };
    Ok(NodeHello {
        name: hello.name,
        incarnation: Incarnation(hello.incarnation),
        virtual_gpus: hello.virtual_gpus.min(100_000) as usize,
        address: hello.address.into(),
        workers: hello.workers.into_iter().map(running).collect::<Result<_, _>>()?,
        leaving: hello.leaving,
        capacity: hello.capacity.map(|proto::Capacity { cores, mut gpu_bytes }| {
            gpu_bytes.truncate(NODE_GPUS_MAX);
            Capacity { cores, gpus: gpu_bytes }
        }),
    })
}

/// News of a worker for the scheduler on another machine.
pub fn from_news(news: FromNode) -> proto::FromNode {
    let message = match news {
        FromNode::Ready { worker, info, measured } => from_node::Message::Ready(from_ready(worker, &info, &measured)),
        FromNode::Done { worker, batch, size, took } => from_node::Message::Done(proto::Done {
            worker: worker.0,
            batch,
            size: size as u32,
            took_ns: took.map(Span::nanos),
        }),
        FromNode::Lost { worker, reason, again_in } => {
            from_node::Message::Lost(proto::Lost { worker: worker.0, reason, again_in_ns: again_in.nanos() })
        }
        FromNode::Stopped { worker } => from_node::Message::Stopped(worker.0),
        FromNode::Leaving => from_node::Message::Leaving(true),
        FromNode::Heartbeat => from_node::Message::Heartbeat(true),
    };
    proto::FromNode { message: Some(message) }
}

/// News of a worker from a node on another machine; `None` for a greeting.
pub fn to_news(message: from_node::Message) -> Result<Option<FromNode>, Nonsense> {
    Ok(Some(match message {
        from_node::Message::Hello(_) => return Ok(None),
        from_node::Message::Ready(ready) => {
            let (info, measured) = to_ready(&ready)?;
            FromNode::Ready { worker: WorkerId(ready.worker), info, measured }
        }
        from_node::Message::Done(done) => FromNode::Done {
            worker: WorkerId(done.worker),
            batch: done.batch,
            size: done.size as usize,
            took: done.took_ns.map(Span::from_nanos),
        },
        from_node::Message::Lost(lost) => FromNode::Lost {
            worker: WorkerId(lost.worker),
            reason: lost.reason,
            again_in: Span::from_nanos(lost.again_in_ns),
        },
        from_node::Message::Stopped(worker) => FromNode::Stopped { worker: WorkerId(worker) },
        from_node::Message::Leaving(_) => FromNode::Leaving,
        from_node::Message::Heartbeat(_) => FromNode::Heartbeat,
    }))
}

/// What a node on another machine should do.
pub fn from_instruction(instruction: ToNode) -> proto::ToNode {
    let message = match instruction {
        ToNode::Start { worker, spec } => {
            to_node::Message::Start(proto::Start { worker: worker.0, spec_json: to_json(&*spec) })
        }
        ToNode::Virtual { worker, tables } => {
            let line = |(model, line): (u32, Line)| {
                let (alpha_ns, beta_ns) = (line.alpha.nanos(), line.beta.nanos());
                proto::Line { model, alpha_ns, beta_ns }
            };
            let tables = tables.into_iter().map(line).collect();
            to_node::Message::Virtual(proto::Virtual { worker: worker.0, tables })
        }
        ToNode::Stretch { worker, to } => {
            to_node::Message::Stretch(proto::Stretch { worker: worker.0, permille: to.permille() })
        }
        ToNode::Stop { worker } => to_node::Message::Stop(worker.0),
        ToNode::Heartbeat => to_node::Message::Heartbeat(true),
    };
    proto::ToNode { message: Some(message) }
}

/// What the scheduler on another machine wants done.
pub fn to_instruction(message: proto::ToNode) -> Result<ToNode, Nonsense> {
    Ok(match message.message {
        None => return wrong("an instruction without a word"),
        Some(to_node::Message::Start(start)) => ToNode::Start {
            worker: WorkerId(start.worker),
            spec: Arc::new(from_json("a deployment", &start.spec_json)?),
        },
        Some(to_node::Message::Virtual(gpu)) => {
            let line = |line: &proto::Line| {
                let (alpha, beta) = (Span::from_nanos(line.alpha_ns), Span::from_nanos(line.beta_ns));
                (line.model, Line { alpha, beta })
            };
            ToNode::Virtual { worker: WorkerId(gpu.worker), tables: gpu.tables.iter().map(line).collect() }
        }
        Some(to_node::Message::Stretch(stretch)) => {
            let Some(to) = Percent::from_permille(stretch.permille) else { return wrong("a share of more than a GPU") };
            ToNode::Stretch { worker: WorkerId(stretch.worker), to }
        }
        Some(to_node::Message::Stop(worker)) => ToNode::Stop { worker: WorkerId(worker) },
        Some(to_node::Message::Heartbeat(_)) => ToNode::Heartbeat,
    })
}

/// A tensor for another machine. Its bytes are shared and not copied.
pub fn from_tensor(tensor: &Tensor) -> proto::Tensor {
    proto::Tensor {
        name: tensor.name.to_string(),
        datatype: tensor.datatype as u32,
        shape: tensor.shape.iter().map(|dimension| *dimension as u64).collect(),
        data: tensor.data.clone(),
    }
}

/// A tensor from another machine.
pub fn to_tensor(tensor: proto::Tensor) -> Result<Tensor, Nonsense> {
    let Some(datatype) = DataType::ALL.get(tensor.datatype as usize).copied() else {
        return wrong(format!("data type {}", tensor.datatype));
    };
    let shape = tensor.shape.into_iter().map(|dimension| dimension as usize).collect();
    Ok(Tensor { name: tensor.name.into(), datatype, shape, data: tensor.data })
}

/// What became of a request, for its gateway on another machine.
pub fn from_answer(batch: u64, request: u64, answer: Answer) -> proto::Answer {
    use proto::answer::Outcome;
    let outcome = match answer {
        Ok(outputs) => Outcome::Outputs(proto::Outputs {
            tensors: outputs.tensors.iter().map(from_tensor).collect(),
            input_ns: outputs.compute.input.nanos(),
            infer_ns: outputs.compute.infer.nanos(),
            output_ns: outputs.compute.output.nanos(),
            batch_size: outputs.batch_size as u32,
            leads: outputs.leads,
        }),
        Err(Failure::Model(text)) => Outcome::ModelFailed(text),
        Err(Failure::WorkerDied) => Outcome::WorkerDied(true),
        Err(Failure::NotRun(text)) => Outcome::NotRun(text),
    };
    proto::Answer { request, batch, outcome: Some(outcome) }
}

/// What became of a batch's request on another machine.
pub fn to_answer(answer: proto::Answer) -> Result<(u64, u64, Answer), Nonsense> {
    use proto::answer::Outcome;
    let outcome = match answer.outcome {
        None => return wrong("an answer without an outcome"),
        Some(Outcome::Outputs(outputs)) => Ok(Outputs {
            tensors: outputs.tensors.into_iter().map(to_tensor).collect::<Result<_, _>>()?,
            compute: Compute {
                input: Span::from_nanos(outputs.input_ns),
                infer: Span::from_nanos(outputs.infer_ns),
                output: Span::from_nanos(outputs.output_ns),
            },
            batch_size: outputs.batch_size as usize,
            leads: outputs.leads,
        }),
        Some(Outcome::ModelFailed(text)) => Err(Failure::Model(text)),
        Some(Outcome::WorkerDied(_)) => Err(Failure::WorkerDied),
        Some(Outcome::NotRun(text)) => Err(Failure::NotRun(text)),
    };
    Ok((answer.batch, answer.request, outcome))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn everything_arrives_as_it_was_sent() {
        let tensor = Tensor {
            name: "x".into(),
            datatype: DataType::Bf16,
            shape: vec![2, 1],
            data: Bytes::from_static(&[1, 2, 3, 4]),
        };
        assert_eq!(to_tensor(from_tensor(&tensor)).unwrap(), tensor);
        let [input, infer, output] = [1, 3, 2].map(Span::from_millis);
        let compute = Compute { input, infer, output };
        let outputs = Outputs { tensors: vec![tensor], compute, batch_size: 4, leads: true };
        let failures = [Failure::Model("no".into()), Failure::WorkerDied, Failure::NotRun("why".into())];
        for answer in failures.map(Err).into_iter().chain([Ok(outputs)]) {
            assert_eq!(to_answer(from_answer(3, 7, answer.clone())).unwrap(), (3, 7, answer));
        }
        let (within, retry_after) = (Span::ZERO, Span::from_millis(2));
        let late = Reason::ALL.map(|reason| Refusal::Late { within, reason, retry_after });
        let slow = Refusal::TooSlow { within, takes: Span::from_millis(180), retry_after };
        for refusal in late.into_iter().chain([slow]) {
            let sent = from_decision(ToGateway::Refuse { request: 5, refusal: refusal.clone() });
            let Some(to_gateway::Message::Refuse(refuse)) = sent.message else { panic!("it is a refusal") };
            let ToGateway::Refuse { request: 5, refusal: got } = to_refusal(refuse).unwrap() else {
                panic!("it is one")
            };
            assert_eq!(got, refusal);
        }
    }

    #[test]
    fn a_gateway_cannot_speak_for_another() {
        let arrival = Arrival {
            request: crate::request_id(3, 1, 0),
            model: 0,
            at: Instant::now(),
            within: Span::from_secs(1),
            priority: 0,
        };
        assert!(to_arrival(from_arrival(arrival), 3).is_ok());
        assert!(to_arrival(from_arrival(arrival), 4).is_err());
    }
}
