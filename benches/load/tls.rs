//! TLS settings of the clients.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::{ClientConfig, RootCertStore, version};

use crate::Outcome;

/// A client with the library's defaults: HTTP/1.1, and each handshake is a full handshake.
pub fn default_client(roots: &RootCertStore) -> Arc<ClientConfig> {
    let mut config = ClientConfig::builder().with_root_certificates(roots.clone()).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// TLS 1.3 with one key exchange and one cipher, so that all compared servers do the same work. By default, the gateway
/// would use a post-quantum key exchange and older peers would not.
pub fn pinned(roots: &RootCertStore, alpn: &[u8]) -> Outcome<Arc<ClientConfig>> {
    let mut provider = default_provider();
    provider.kx_groups = vec![kx_group::X25519];
    provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(&[&version::TLS13])?;
    let mut config = builder.with_root_certificates(roots.clone()).with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The same settings with a separate session cache.
pub fn resuming(config: &ClientConfig) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.resumption = Resumption::in_memory_sessions(4);
    Arc::new(config)
}
