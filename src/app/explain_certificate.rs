//! The client certificate of an explained request: which listener would accept it.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::config::Config;
use crate::protocols::tls::{ClientAuthSettings, ClientChain, PeerCertificate, accept_client};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// The listeners that ask clients for certificates, in the order of the configuration.
pub(super) struct AskingListeners(Vec<(SocketAddr, ClientAuthSettings)>);

/// A certificate that a listener accepts, and what to say about it.
pub(super) struct Accepted {
    pub(super) certificate: Arc<PeerCertificate>,
    pub(super) found: String,
}

impl AskingListeners {
    pub(super) fn of(config: &Config) -> Self {
        let asks = config.listeners.iter().filter_map(|listener| Some((listener.address, listener.clients.clone()?)));
        AskingListeners(asks.collect())
    }

    /// The certificate as at the first listener that accepts it.
    ///
    /// # Errors
    /// If the handshake fails at every listener.
    pub(super) fn accept(&self, chain: &ClientChain, now: UnixTime) -> Result<Accepted, Reject> {
        let mut failures = Vec::new();
        for (address, settings) in &self.0 {
            match accept_client(settings, chain, now) {
                Ok(certificate) => {
                    let by = if certificate.is_verified { "verified by client_ca" } else { "not verified" };
                    let found = format!("{}, {by} of {address}", certificate.thumbprint_text());
                    let certificate = Arc::new(PeerCertificate::named_by_proxy(certificate));
                    return Ok(Accepted { certificate, found });
                }
                Err(error) => failures.push(format!("{address}: {error}")),
            }
        }
        let detail = if failures.is_empty() {
            "no [[listener]] asks clients for certificates".to_owned()
        } else {
            format!("the TLS handshake fails: {}", failures.join("; "))
        };
        Err(Reject::new(Reason::CertificateDenied, detail))
    }
}
