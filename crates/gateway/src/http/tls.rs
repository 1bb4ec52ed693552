//! TLS: a certificate and its key from files.

use anyhow::Context;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// What a server needs to speak TLS with HTTP/1.1 and HTTP/2, from PEM files: the certificates, its own first, and the
/// key.
pub fn load(certificates: &Path, key: &Path) -> anyhow::Result<Arc<ServerConfig>> {
    let name = certificates.display();
    let chain = CertificateDer::pem_file_iter(certificates).with_context(|| format!("read {name}"))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().with_context(|| format!("read {name}"))?;
    anyhow::ensure!(!chain.is_empty(), "{name} holds no certificate");
    let secret = PrivateKeyDer::from_pem_file(key).with_context(|| format!("read {}", key.display()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .with_context(|| format!("use {name} with {}", key.display()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
