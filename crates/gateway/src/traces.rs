//! Traces: what became of a request and when, for collectors that speak OpenTelemetry's protocol.
//!
//! A request is a span of its own with two inside, `queue` and `compute`, and belongs to whatever span its client named
//! in the `traceparent` header or metadata (W3C Trace Context). Spans are made when the request is answered, from the
//! times that are known then, so that a request that is not traced pays nothing.

use crate::ServeError;
use anyhow::{Context as _, Result};
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
    Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use policy::Span;
use std::time::{Duration, SystemTime};

/// Where spans are told.
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// The span of a client that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    trace: TraceId,
    span: SpanId,
    flags: TraceFlags,
}

/// What is told of a request.
pub(crate) struct Told<'a> {
    pub(crate) parent: Option<Parent>,
    pub(crate) model: &'a str,
    pub(crate) version: u32,
    /// From arrival to answer, which is now.
    pub(crate) total: Span,
    /// How long its batch was computed and how many requests it held; or why there are no outputs.
    pub(crate) outcome: Result<(Span, usize), &'a ServeError>,
}

impl Traces {
    /// Tells a collector, such as `http://127.0.0.1:4317`, of this part of the requests that come without a trace of
    /// their own. Those that come with one are told when their client asks for it. Must be called on a runtime.
    pub fn start(endpoint: &str, part: f64, service: &str) -> Result<Traces> {
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
        let exporter = exporter.with_context(|| format!("tell traces to {endpoint}"))?;
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(part)));
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler)
            .with_resource(Resource::builder().with_service_name(service.to_owned()).build())
            .with_batch_exporter(exporter)
            .build();
        let tracer = provider.tracer("weft");
        Ok(Traces { provider, tracer })
    }

    /// Sends what was not sent yet. Waits for the collector, for a few seconds at most.
    pub fn finish(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(Duration::from_secs(3)) {
            tracing::warn!(%error, "the last traces may be lost");
        }
    }

    pub(crate) fn tell(&self, told: &Told<'_>) {
        let end = SystemTime::now();
        let before = |span: Span| end.checked_sub(Duration::from_nanos(span.nanos())).unwrap_or(end);
        let start = before(told.total);
        let around =
            told.parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent.into()));
        let mut attributes = vec![
            KeyValue::new("weft.model", told.model.to_owned()),
            KeyValue::new("weft.model.version", i64::from(told.version)),
        ];
        if let Ok((_, size)) = told.outcome {
            attributes.push(KeyValue::new("weft.batch.size", size as i64));
        }
        let builder = SpanBuilder::from_name("infer").with_kind(SpanKind::Server).with_start_time(start);
        let mut whole = self.tracer.build_with_context(builder.with_attributes(attributes), &around);
        if !whole.is_recording() {
            return;
        }
        match told.outcome {
            Ok((computed, _)) => {
                whole.set_status(Status::Ok);
                let inside = Context::new().with_remote_span_context(whole.span_context().clone());
                let part = |name: &'static str, from: SystemTime, to: SystemTime| {
                    let builder = SpanBuilder::from_name(name).with_kind(SpanKind::Internal).with_start_time(from);
                    self.tracer.build_with_context(builder, &inside).end_with_timestamp(to);
                };
                let begun = before(computed.min(told.total));
                part("queue", start, begun);
                part("compute", begun, end);
            }
            Err(error) => whole.set_status(Status::error(error.to_string())),
        }
        whole.end_with_timestamp(end);
    }
}

impl Parent {
    /// Reads `traceparent`, as in `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`. What makes no sense is as
    /// if it were not there: a request is not refused for its trace.
    pub fn read(header: &str) -> Option<Parent> {
        let mut parts = header.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        // Later versions may say more; version ff will never be.
        let ends = version != "00" || parts.next().is_none();
        if !is_hex(version, 2)
            || version == "ff"
            || !is_hex(trace, 32)
            || !is_hex(span, 16)
            || !is_hex(flags, 2)
            || !ends
        {
            return None;
        }
        let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
        let parent = Parent { trace: TraceId::from_hex(trace).ok()?, span: SpanId::from_hex(span).ok()?, flags };
        (parent.trace != TraceId::INVALID && parent.span != SpanId::INVALID).then_some(parent)
    }
}

impl From<Parent> for SpanContext {
    fn from(parent: Parent) -> SpanContext {
        SpanContext::new(parent.trace, parent.span, parent.flags, true, TraceState::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read_or_taken_for_none() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = Parent::read(good).unwrap();
        assert_eq!(parent.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.span.to_string(), "00f067aa0ba902b7");
        assert!(parent.flags.is_sampled());
        assert!(!Parent::read(&good.replace("-01", "-00")).unwrap().flags.is_sampled());
        assert!(Parent::read(&good.replacen("00", "cc", 1).replace("-01", "-01-more")).is_some());
        for wrong in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ] {
            assert_eq!(Parent::read(wrong), None, "{wrong}");
        }
    }
}
