//! Who sent a request, and over what. A front builds it once ([`crate::gateway::front`]). No later step asks whether a
//! proxy is involved: it matches on the kind.

use std::net::IpAddr;
use std::sync::Arc;

use crate::protocols::http::forwarded::ForwardedClient;
use crate::protocols::tls::{ClientCertificate, PeerCertificate, ServerTls};
use crate::tokens::dpop::PublicUrl;

/// Who sent a request, or sends the requests of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A client, or a proxy that is not trusted: nothing tells them apart.
    Client,
    /// A balancer that does not name its clients.
    Balancer,
    /// A proxy in `forwarding.trusted`, which names its clients.
    TrustedProxy,
    /// A proxy that asks about the requests of its clients. `is_trusted`: it is in `forwarding.trusted`, too.
    AskingProxy { is_trusted: bool },
    /// The address of a proxy that asks with a secret. Other programs can have the same address.
    ProvenProxy,
}

impl SourceKind {
    /// Returns true if the sender is the client itself, as far as the gateway can tell.
    pub fn is_client(self) -> bool {
        matches!(self, SourceKind::Client | SourceKind::Balancer)
    }

    /// Returns true if the operator trusts what the sender says about its client beyond the address: its certificate
    /// and its trace.
    pub fn is_trusted_proxy(self) -> bool {
        matches!(self, SourceKind::TrustedProxy | SourceKind::AskingProxy { is_trusted: true })
    }

    /// Returns true if responses reach the client itself, which follows redirects and keeps cookies. A proxy that asks
    /// would have to pass them on.
    pub fn gets_responses(self) -> bool {
        !matches!(self, SourceKind::AskingProxy { .. })
    }

    /// Returns true if the address stands for many clients: a penalty for one of them would lock out the others.
    pub fn is_shared(self) -> bool {
        self != SourceKind::Client
    }
}

/// Who sent one request, and over what.
pub struct Source<'p> {
    pub kind: SourceKind,
    /// What the client proved with a certificate.
    pub certificate: Option<Arc<PeerCertificate>>,
    /// The server name of the TLS handshake. `None` if the request need not match it: a trusted proxy sends the
    /// requests for many hosts over one connection.
    pub server_name: Option<&'p str>,
    /// The certificates of the listener. `None` without TLS.
    pub listener: Option<&'p ServerTls>,
    /// `listener.public_url`. `None` also for a request that another proxy describes, because it names the host.
    pub public_url: Option<&'p PublicUrl>,
    connection: &'p ForwardedClient,
    /// Boxed because it is rare: each request has room for it.
    reported: Option<Box<ForwardedClient>>,
}

impl<'p> Source<'p> {
    /// A client that is the peer of the connection.
    pub fn client(connection: &'p ForwardedClient) -> Self {
        Source {
            kind: SourceKind::Client,
            certificate: None,
            server_name: None,
            listener: None,
            public_url: None,
            connection,
            reported: None,
        }
    }

    /// As the proxy at the end of the connection reports it.
    pub(super) fn reported(self, kind: SourceKind, reported: Box<ForwardedClient>) -> Self {
        Source { kind, reported: Some(reported), ..self }
    }

    /// The client, as backends learn of it: the peer of the connection, or the one that a proxy names.
    pub fn forwarded_client(&self) -> &ForwardedClient {
        self.reported.as_deref().unwrap_or(self.connection)
    }

    /// Address of the client.
    pub fn address(&self) -> IpAddr {
        self.forwarded_client().address
    }

    /// Returns false if the address is that of a proxy which has not named its client: other clients have it, too. A
    /// proxy that is not trusted cannot be told from a client.
    pub fn names_client(&self) -> bool {
        let is_of_proxy = self.reported.as_ref().is_some_and(|client| client.address == self.connection.address);
        self.kind != SourceKind::Balancer && !is_of_proxy
    }

    /// Returns true if the client has used TLS, also if a proxy says so.
    pub fn is_https(&self) -> bool {
        self.forwarded_client().scheme == "https"
    }

    pub fn certificate(&self) -> Option<&ClientCertificate> {
        self.certificate.as_ref().map(|shown| &shown.certificate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_names_no_client_is_no_client() {
        let peer = ForwardedClient::new(IpAddr::from([192, 0, 2, 1]), true);
        let reported = |kind, last| {
            let client = Box::new(ForwardedClient::new(IpAddr::from([192, 0, 2, last]), true));
            Source::client(&peer).reported(kind, client)
        };
        assert!(Source::client(&peer).names_client());
        assert!(!Source { kind: SourceKind::Balancer, ..Source::client(&peer) }.names_client());
        assert!(reported(SourceKind::TrustedProxy, 7).names_client());
        assert!(!reported(SourceKind::TrustedProxy, 1).names_client(), "it has sent no X-Forwarded-For");
    }
}
