//! What all connections of a server share.

use super::limits::{Budget, Limits};
use crate::Gateway;
use crate::keys::{Administration, Keys};
use crate::origin::Hosts;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio_rustls::rustls::ServerConfig;

/// How a server is set up.
#[derive(Clone, Debug, Default)]
pub struct HttpConfig {
    /// What clients may take.
    pub limits: Limits,
    /// Who may ask; everybody where there are none.
    pub keys: Option<Arc<Keys>>,
    /// The keys of those who may load and unload models, register memory and change settings.
    pub admin_keys: Option<Arc<Keys>>,
    /// Whether those calls need such a key.
    pub administration: Administration,
    /// What the server is called by those who make such calls.
    pub hosts: Hosts,
    /// TLS; plain where there is none.
    pub tls: Option<Arc<ServerConfig>>,
}

/// What all connections share.
pub(super) struct Server {
    pub(super) gateway: Arc<Gateway>,
    pub(super) config: HttpConfig,
    pub(super) budget: Arc<Budget>,
    pub(super) is_draining: AtomicBool,
}

impl Server {
    /// Whether requests should be sent here: the models are ready, and the server was not told to stop.
    pub(super) fn is_ready(&self) -> bool {
        self.gateway.ready() && !self.is_draining.load(Relaxed)
    }
}
