//! The page itself, compressed once, and the headers it goes with.
//!
//! Browsers run the scripts that are in the page as it is built here, which are named by their hashes, and no others:
//! text that comes from outside never becomes one.

use crate::metrics::accept;
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http_body_util::Full;
use hyper::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{HeaderMap, Response, StatusCode};
use ring::digest::{SHA256, digest};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;

const HTML: &str = include_str!("../../ui/index.html");

/// The page, ready to be sent.
pub(super) struct Page {
    packed: Bytes,
    /// Weak, because the same page goes out compressed and not.
    tag: HeaderValue,
    /// What browsers may do with it.
    policy: HeaderValue,
}

impl Page {
    /// Compresses it.
    pub(super) fn new() -> anyhow::Result<Page> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(HTML.as_bytes())?;
        let mut hasher = DefaultHasher::new();
        HTML.hash(&mut hasher);
        let tag = HeaderValue::from_str(&format!("W/\"{:016x}\"", hasher.finish()))?;
        let policy = HeaderValue::from_str(&policy(HTML))?;
        Ok(Page { packed: encoder.finish()?.into(), tag, policy })
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
        headers.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
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

/// The content security policy of a page: its own scripts, by hash, and data from its own server.
fn policy(html: &str) -> String {
    let scripts = html.split("<script>").skip(1).filter_map(|rest| rest.split("</script>").next());
    let hashes = scripts.map(|script| format!("'sha256-{}'", base64(digest(&SHA256, script.as_bytes()).as_ref())));
    let hashes = hashes.collect::<Vec<_>>().join(" ");
    format!(
        "default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'"
    )
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word =
            three.iter().enumerate().fold(0u32, |word, (place, byte)| word | u32::from(*byte) << (16 - 8 * place));
        for place in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_the_page_are_named_by_their_hashes() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
        // As browsers compute it.
        let policy_of = policy("<script>alert('Hello, world.');</script>");
        assert!(policy_of.contains("script-src 'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=';"), "{policy_of}");
        let own = policy(HTML);
        assert_eq!(own.matches("'sha256-").count(), HTML.matches("</script>").count());
        assert!(!own.contains("script-src 'unsafe-inline'") && own.contains("frame-ancestors 'none'"), "{own}");
        // Anything else that would run is a script that no hash is for.
        assert_eq!(HTML.matches("<script").count(), HTML.matches("<script>").count());
    }
}
