//! Answers of the metrics port, and how their bodies are packed.

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http_body_util::Full;
use hyper::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};
use std::io::Write;

/// A body that may have been compressed.
pub(crate) struct Packed {
    body: Vec<u8>,
    gzip: bool,
}

/// Compresses a body, where that is allowed and worth it.
pub(crate) fn pack(body: Vec<u8>, gzip: bool) -> Packed {
    if !gzip || body.len() < 1_000 {
        return Packed { body, gzip: false };
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    match encoder.write_all(&body).and_then(|()| encoder.finish()) {
        Ok(packed) => Packed { body: packed, gzip: true },
        // Writing to memory does not fail; if it did, the body itself is as good.
        Err(_) => Packed { body, gzip: false },
    }
}

impl Packed {
    /// The answer with this body, after `wrap` has had it.
    pub(crate) fn answer<Owner>(
        self,
        content_type: &'static str,
        wrap: impl FnOnce(Vec<u8>) -> Owner,
    ) -> Response<Full<Bytes>>
    where
        Owner: AsRef<[u8]> + Send + 'static,
    {
        let mut answer = text(StatusCode::OK, content_type, Bytes::from_owner(wrap(self.body)));
        let headers = answer.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
        if self.gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }
}

/// An answer that is not kept by anybody on the way.
pub(crate) fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// An error, said as everywhere in Weft.
pub(crate) fn problem(status: StatusCode, what: &str) -> Response<Full<Bytes>> {
    text(status, "application/json", serde_json::json!({ "error": what }).to_string())
}
