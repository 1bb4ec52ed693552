//! gRPC's own protocol for asking whether a server can be used.

use crate::Gateway;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// The services there are: the whole server, and the one for inference.
const SERVICES: [&str; 2] = ["", "inference.GRPCInferenceService"];
/// How often those who watch are told of a change, at most.
const LOOK: Duration = Duration::from_millis(200);

/// Answers for the gateway.
pub(super) struct Health {
    pub(super) gateway: Arc<Gateway>,
    /// Whether the server is about to stop.
    pub(super) draining: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl tonic_health::pb::health_server::Health for Health {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let service = &request.get_ref().service;
        if !SERVICES.contains(&service.as_str()) {
            return Err(super::status::new(Code::NotFound, format!("unknown service `{service}`")));
        }
        Ok(Response::new(message(status(&self.gateway, *self.draining.borrow()))))
    }

    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let known = SERVICES.contains(&request.get_ref().service.as_str());
        let (gateway, mut draining) = (self.gateway.clone(), self.draining.clone());
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut told = None;
            loop {
                let stop = *draining.borrow();
                let now = if known { status(&gateway, stop) } else { ServingStatus::ServiceUnknown };
                if told.replace(now) != Some(now) && sender.send(Ok(message(now))).await.is_err() {
                    return;
                }
                if stop {
                    return;
                }
                tokio::select! {
                    () = sender.closed() => return,
                    _ = draining.changed() => {}
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

fn status(gateway: &Gateway, draining: bool) -> ServingStatus {
    if gateway.ready() && !draining { ServingStatus::Serving } else { ServingStatus::NotServing }
}

fn message(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
