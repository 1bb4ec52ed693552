//! Many requests on one call, each answered when it is done.
//!
//! Invariants:
//! 1. Every request that was read is answered, with outputs or an error, unless its client is gone.
//! 2. An error of one request does not end the stream, unless the client asked for that.
//! 3. No more than `stream_requests_max` requests are worked on: the rest is not read.

use super::infer::{Call, Service};
use super::{decode, encode, status};
use rpc::inference::{ModelInferRequest, ModelInferResponse, ModelStreamInferResponse};
use std::time::Instant;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// What a stream answers with.
pub(super) type Answers = ReceiverStream<Result<ModelStreamInferResponse, Status>>;

/// Answers left to be sent before work on further ones has to wait.
const AHEAD: usize = 16;

/// Works on a stream until its client ends it or the server drains.
pub(super) fn run(service: Service, call: Call, mut requests: Streaming<ModelInferRequest>) -> Answers {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let mut draining = service.draining.clone();
    tokio::spawn(async move {
        let mut running = JoinSet::new();
        let mut last = None;
        loop {
            tokio::select! {
                // What runs is given up with `running`.
                () = sender.closed() => return,
                _ = draining.wait_for(|draining| *draining) => break,
                Some(_) = running.join_next(), if !running.is_empty() => {}
                message = requests.message(), if running.len() < service.stream_requests_max => match message {
                    Ok(Some(request)) => {
                        let (service, sender) = (service.clone(), sender.clone());
                        let call = Call { arrived: Instant::now(), ..call };
                        running.spawn(async move {
                            // Nobody listens when the client is gone.
                            let _ = sender.send(answer(&service, call, request).await).await;
                        });
                    }
                    Ok(None) => break,
                    Err(status) => {
                        last = Some(status);
                        break;
                    }
                },
            }
        }
        while running.join_next().await.is_some() {}
        if let Some(status) = last {
            let _ = sender.send(Err(status)).await;
        }
    });
    ReceiverStream::new(receiver)
}

async fn answer(service: &Service, call: Call, request: ModelInferRequest) -> Result<ModelStreamInferResponse, Status> {
    let id = request.id.clone();
    // A request has one answer, which is the last: there is never an empty one to follow it.
    let checked = decode::flag(&request.parameters, "triton_enable_empty_final_response");
    let outcome = match checked {
        Ok(_) => service.infer(call, request).await,
        Err(problem) => Err(status::invalid(problem)),
    };
    match outcome {
        Ok(mut response) => {
            response.parameters.insert("triton_final_response".into(), encode::flag(true));
            Ok(ModelStreamInferResponse { error_message: String::new(), infer_response: Some(response) })
        }
        Err(status) if call.errors_end_stream => Err(status),
        Err(status) => {
            let response = ModelInferResponse { id, ..Default::default() };
            let error_message = status.message().to_string();
            Ok(ModelStreamInferResponse { error_message, infer_response: Some(response) })
        }
    }
}
