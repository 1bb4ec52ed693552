//! Who may come in, and when they came.

use crate::keys::Keys;
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
}

/// When the headers of a call were read.
#[derive(Clone, Copy)]
pub(super) struct Arrived(pub(super) Instant);

impl Interceptor for Door {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(keys) = &self.keys {
            match key(request.metadata()) {
                Some(key) if keys.allows(key) => {}
                Some(_) => return Err(Status::unauthenticated("this API key is not known")),
                None => {
                    let how = "an API key is needed, as `authorization: Bearer KEY` or `x-api-key: KEY`";
                    return Err(Status::unauthenticated(how));
                }
            }
        }
        request.extensions_mut().insert(Arrived(Instant::now()));
        Ok(request)
    }
}

/// The key a client sent.
fn key(metadata: &MetadataMap) -> Option<&str> {
    if let Some(key) = metadata.get("x-api-key") {
        return key.to_str().ok();
    }
    let (scheme, key) = metadata.get("authorization")?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}
