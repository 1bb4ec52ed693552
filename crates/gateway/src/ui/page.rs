//! The page itself, compressed once, and the headers it goes with.

use crate::metrics::accept;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http_body_util::Full;
use hyper::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use hyper::{HeaderMap, Response, StatusCode};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;

const HTML: &str = include_str!("../../ui/index.html");

/// The page, ready to be sent.
pub(super) struct Page {
    packed: Bytes,
    /// Weak, because the same page goes out compressed and not.
    tag: HeaderValue,
}

impl Page {
    /// Compresses it.
    pub(super) fn new() -> anyhow::Result<Page> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(HTML.as_bytes())?;
        let mut hasher = DefaultHasher::new();
        HTML.hash(&mut hasher);
        let tag = HeaderValue::from_str(&format!("W/\"{:016x}\"", hasher.finish()))?;
        Ok(Page { packed: encoder.finish()?.into(), tag })
    }

    /// The answer to someone who asks for it.
    pub(super) fn answer(&self, asked: &HeaderMap) -> Response<Full<Bytes>> {
        let known = self.is_known(asked);
        let gzip = accept::gzip(asked);
        let body = match (known, gzip) {
            (true, _) => Bytes::new(),
            (false, true) => self.packed.clone(),
            (false, false) => Bytes::from_static(HTML.as_bytes()),
        };
        let mut answer = Response::new(Full::new(body));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        headers.insert(ETAG, self.tag.clone());
        if known {
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
        } else if gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }

    fn is_known(&self, asked: &HeaderMap) -> bool {
        let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_string();
        let own = strong(self.tag.to_str().unwrap_or_default());
        let tags = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        tags.flat_map(|list| list.split(',')).any(|tag| strong(tag) == own || tag.trim() == "*")
    }
}
