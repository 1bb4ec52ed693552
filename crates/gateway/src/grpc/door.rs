//! Who may come in, and when they came.

use crate::keys::{ADMIN_KEY_NEEDED, ADMINISTRATION_OFF, Administration, Keys};
use std::sync::Arc;
use std::time::Instant;
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// Looks at the headers of a call before its message is read.
#[derive(Clone)]
pub(super) struct Door {
    /// The keys that open it; it is open where there are none.
    pub(super) keys: Option<Arc<Keys>>,
    /// The keys of those who may change the server.
    pub(super) admin_keys: Option<Arc<Keys>>,
    /// Whether that takes such a key.
    pub(super) administration: Administration,
}

/// Whether whoever makes a call may change the server.
#[derive(Clone, Copy)]
enum Leave {
    Granted,
    NoKey,
    Off,
    /// A browser sends it for a page; no client of gRPC does that.
    Page,
}

/// When the headers of a call were read.
#[derive(Clone, Copy)]
pub(super) struct Arrived(pub(super) Instant);

impl Interceptor for Door {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let key = key(request.metadata());
        let opens =
            |keys: &Option<Arc<Keys>>| keys.as_ref().is_some_and(|keys| key.is_some_and(|key| keys.allows(key)));
        let is_admin = opens(&self.admin_keys);
        if self.keys.is_some() && !is_admin && !opens(&self.keys) {
            let how = match key {
                Some(_) => "this API key is not known",
                None => "an API key is needed, as `authorization: Bearer KEY` or `x-api-key: KEY`",
            };
            return Err(Status::unauthenticated(how));
        }
        let leave = match self.administration {
            _ if request.metadata().contains_key("origin") => Leave::Page,
            Administration::Off => Leave::Off,
            Administration::Key if !is_admin => Leave::NoKey,
            Administration::Key | Administration::Open => Leave::Granted,
        };
        request.extensions_mut().insert(Arrived(Instant::now()));
        request.extensions_mut().insert(leave);
        Ok(request)
    }
}

/// Whether a call may change the server. A refusal is logged.
pub(super) fn administer<T>(call: &'static str, request: &Request<T>) -> Result<(), Status> {
    let status = match request.extensions().get::<Leave>() {
        Some(Leave::Granted) => return Ok(()),
        Some(Leave::Off) => Status::permission_denied(ADMINISTRATION_OFF),
        Some(Leave::Page) => Status::permission_denied("the call comes from a page of another site"),
        // A call that nobody let in has no leave either.
        Some(Leave::NoKey) | None => Status::unauthenticated(ADMIN_KEY_NEEDED),
    };
    tracing::warn!(call, peer = ?request.remote_addr(), "refused: {}", status.message());
    Err(status)
}

/// The key a client sent.
fn key(metadata: &MetadataMap) -> Option<&str> {
    if let Some(key) = metadata.get("x-api-key") {
        return key.to_str().ok();
    }
    let (scheme, key) = metadata.get("authorization")?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}
