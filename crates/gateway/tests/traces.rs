//! Traces as a collector receives them: requests over HTTP, and spans over OpenTelemetry's protocol.

mod support;

use gateway::traces::Traces;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::Span;
use std::sync::{Arc, Mutex};
use support::{ask, start};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Keeps every span that it is told of.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans;
        let scopes = resources.into_iter().flat_map(|resource| resource.scope_spans);
        self.0.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse { partial_success: None }))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Asks models, each with what `traceparent` says, and gives what the collector heard. Nothing is told of requests
/// that bring no trace: their part is 0.
async fn told(asked: &[(&str, Option<&str>)]) -> Vec<Span> {
    let collector = Collector::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let service = TraceServiceServer::new(collector.clone());
    let serving = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));

    let served = start(Default::default()).await;
    let gateway = served.gateway.clone();
    assert!(gateway.traces.set(Traces::start(&endpoint, 0.0, "test").unwrap()).is_ok());
    for (model, traceparent) in asked {
        let headers: Vec<_> = traceparent.iter().map(|value| ("traceparent", *value)).collect();
        let body = br#"{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[1,2]}]}"#;
        ask(served.address, "POST", &format!("/v2/models/{model}/infer"), &headers, body).await;
    }
    tokio::task::spawn_blocking(move || gateway.traces.get().unwrap().finish()).await.unwrap();
    let spans = collector.0.lock().unwrap();
    spans.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_belongs_to_its_clients_trace_and_is_told_with_its_parts() {
    let sampled = format!("00-{TRACE}-{PARENT}-01");
    let spans = told(&[("plain", Some(&sampled))]).await;
    let find = |name: &str| spans.iter().find(|span| span.name == name).unwrap();
    assert_eq!(spans.len(), 3, "{spans:?}");
    let (whole, queue, compute) = (find("infer"), find("queue"), find("compute"));
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE));
    assert_eq!(hex(&whole.parent_span_id), PARENT);
    assert_eq!((&queue.parent_span_id, &compute.parent_span_id), (&whole.span_id, &whole.span_id));
    assert_eq!(queue.start_time_unix_nano, whole.start_time_unix_nano);
    assert_eq!(queue.end_time_unix_nano, compute.start_time_unix_nano);
    assert_eq!(compute.end_time_unix_nano, whole.end_time_unix_nano);
    assert_eq!(compute.end_time_unix_nano - compute.start_time_unix_nano, 5_000);
    let models = whole.attributes.iter().filter(|attribute| attribute.key == "weft.model").count();
    assert_eq!(models, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_is_told_and_what_nobody_asked_for_is_not() {
    let sampled = format!("00-{TRACE}-{PARENT}-01");
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    let asked = [("fail", Some(&*sampled)), ("plain", Some(&*unsampled)), ("plain", None), ("plain", Some("nonsense"))];
    let spans = told(&asked).await;
    assert_eq!(spans.len(), 1, "{spans:?}");
    let status = spans[0].status.as_ref().unwrap();
    assert!(status.message.contains("ValueError: no"), "{status:?}");
}
