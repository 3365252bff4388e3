//! The front of a request: what comes over a connection becomes a request with its [`Source`].
//!
//! There are three: a client connects to the gateway itself, a trusted proxy forwards the request of its client, or a
//! proxy asks about a request that it has received. After the front, a request of each is decided in the same way.

use std::net::IpAddr;

use http::Request;

use crate::gateway::back::Back;
use crate::gateway::client::Peer;
use crate::gateway::client_certificates;
use crate::gateway::decide::Decider;
use crate::gateway::delivery::Delivery;
use crate::gateway::forward_auth::{ForwardAuth, Wire, With};
use crate::gateway::source::{Source, SourceKind};
use crate::gateway::token_calls::TokenCalls;
use crate::protocols::http::body::Body;
use crate::protocols::http::forwarded::Forwarding;
use crate::protocols::http::respond::RejectFormat;
use crate::types::clock::Clock;
use crate::types::reject::Reject;

/// The proxies that the operator has named.
pub struct Fronts {
    pub forwarding: Forwarding,
    /// `None`: no other proxy may ask.
    pub forward_auth: Option<Box<ForwardAuth>>,
}

/// How one request comes in.
#[derive(Clone, Copy)]
pub(super) struct Front<'g> {
    forwarding: &'g Forwarding,
    asked: Option<Asked<'g>>,
}

/// A proxy asks about a request.
#[derive(Clone, Copy)]
struct Asked<'g> {
    by: &'g ForwardAuth,
    wire: Wire,
}

impl Fronts {
    /// Who sends the requests of a connection from this address. `names_clients`: see
    /// [`Peer::trusts_forwarded`].
    pub fn sender(&self, address: IpAddr, names_clients: bool) -> SourceKind {
        if !names_clients {
            return SourceKind::Balancer;
        }
        let address = address.to_canonical();
        let is_trusted = self.forwarding.trusts(address);
        match &self.forward_auth {
            Some(asked) if asked.knows(address) => SourceKind::AskingProxy { is_trusted },
            _ if is_trusted => SourceKind::TrustedProxy,
            Some(asked) if asked.has_proven(address) => SourceKind::ProvenProxy,
            _ => SourceKind::Client,
        }
    }

    /// The front of this request.
    pub(super) fn of<B>(&self, request: &Request<B>) -> Front<'_> {
        let is_call = |asked: &&ForwardAuth| asked.settings.is_call(request.uri().path());
        let asked = self.forward_auth.as_deref().filter(is_call);
        let asked = asked.map(|by| Asked { by, wire: by.wire(request) });
        Front { forwarding: &self.forwarding, asked }
    }
}

impl<'g> Front<'g> {
    /// Builds the source, and writes into the record what it says. The call of a proxy becomes the request that it is
    /// about, before anything else is read from it.
    pub(super) async fn source<'p>(
        self,
        request: &mut Request<Body>,
        peer: &'p Peer,
        decider: &Decider,
        token_calls: &TokenCalls,
        clock: &dyn Clock,
        delivery: &mut Delivery,
    ) -> Result<Source<'p>, Reject> {
        let mut source = match self.asked {
            None => self.direct(request, peer),
            Some(asked) => {
                let with = With { decider, forwarding: self.forwarding, token_calls, clock };
                Box::pin(self.asked_about(asked, request, peer, with, delivery)).await?
            }
        };
        delivery.begin_trace(source.kind.is_trusted_proxy(), request.headers());
        delivery.record.client = Some(source.address());
        delivery.is_https = source.is_https();
        // Before anything adds fields.
        if let Err(large) = decider.check_head_size(request) {
            return Err(decider.malformed(request).unwrap_or(large));
        }
        let now = delivery.record.time;
        source.certificate =
            client_certificates::of_request(peer, request.headers(), source.kind, self.forwarding, now)?;
        Ok(source)
    }

    /// A client, or a trusted proxy in front of it.
    fn direct<'p>(&self, request: &Request<Body>, peer: &'p Peer) -> Source<'p> {
        let mut source = Source::client(&peer.client);
        source.listener = peer.listener.as_deref();
        source.public_url = peer.public_url.as_deref();
        if !peer.trusts_forwarded {
            source.kind = SourceKind::Balancer;
        } else if let Some(reported) = self.forwarding.client_of(&peer.client, request.headers()) {
            return source.reported(SourceKind::TrustedProxy, reported);
        }
        source.server_name = peer.sni.as_deref();
        source
    }

    async fn asked_about<'p>(
        &self,
        asked: Asked<'_>,
        call: &mut Request<Body>,
        peer: &'p Peer,
        with: With<'_>,
        delivery: &mut Delivery,
    ) -> Result<Source<'p>, Reject> {
        let reported = asked.by.ask(call, asked.wire, peer, with, delivery).await?;
        // A proxy passes the fields of its client on, unless the operator trusts it in this, too.
        let kind = SourceKind::AskingProxy { is_trusted: self.forwarding.trusts(peer.client.address) };
        let mut source = Source::client(&peer.client);
        source.listener = peer.listener.as_deref();
        Ok(source.reported(kind, reported))
    }

    /// The back of a request with this front. `request`: what the front has made of it.
    pub(super) fn back<B>(self, request: &Request<B>) -> Back<'g> {
        match self.asked {
            None => Back::Client { format: RejectFormat::for_request(request) },
            Some(asked) => Back::Proxy {
                by: asked.by,
                wire: asked.wire,
                // The proxy reads the status: it would take the 200 of a rejected gRPC call for a permit.
                format: RejectFormat::with_status(request.headers()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::identity::{CertificateHeaders, Identity};
    use crate::gateway::forward_auth::{Callers, Dialect, ForwardAuthSettings};

    /// `from`: `forward_auth.from`; empty: the secret alone. `trusted`: `forwarding.trusted`.
    fn fronts(from: &[&str], trusted: &[&str]) -> Fronts {
        let from = from.iter().map(|network| network.parse().expect("a network")).collect();
        let callers = Callers::new(from, Some(b"secret")).expect("callers");
        let settings = ForwardAuthSettings { path: "/auth".into(), dialect: Dialect::XForwarded, callers };
        let certificate = CertificateHeaders::default();
        let identity =
            Identity { subject: None, scope: None, token_id: None, issuer: None, claims: Vec::new(), certificate };
        let trusted = trusted.iter().map(|network| network.parse().expect("a network")).collect();
        Fronts {
            forwarding: Forwarding { trusted, ..Forwarding::default() },
            forward_auth: Some(Box::new(ForwardAuth::new(settings, &identity, &[], false))),
        }
    }

    #[test]
    fn an_address_says_who_sends_requests() {
        let asks = |is_trusted| SourceKind::AskingProxy { is_trusted };
        for (from, trusted, names_clients, expected) in [
            (&["10.0.0.0/8"][..], &[][..], true, asks(false)),
            (&["10.0.0.0/8"], &["10.0.0.0/8"], true, asks(true)),
            (&["10.0.0.0/8"], &["10.0.0.0/8"], false, SourceKind::Balancer),
            (&["11.0.0.0/8"], &["10.0.0.0/8"], true, SourceKind::TrustedProxy),
            (&["11.0.0.0/8"], &[], true, SourceKind::Client),
            (&[], &["10.0.0.0/8"], true, SourceKind::TrustedProxy),
            (&[], &[], true, SourceKind::Client),
        ] {
            // As a listener for IPv6 and IPv4 reports the second one.
            for address in ["10.1.2.3", "::ffff:10.1.2.3"] {
                let sender = fronts(from, trusted).sender(address.parse().expect("an address"), names_clients);
                assert_eq!(sender, expected, "{from:?} {trusted:?} {address}");
            }
        }
    }

    #[test]
    fn the_address_of_a_secret_is_known_in_both_forms() {
        let fronts = fronts(&[], &[]);
        let asked = fronts.forward_auth.as_ref().expect("it is configured");
        asked.note_proven("10.1.2.3".parse().expect("an address"));
        for (address, expected) in [
            ("10.1.2.3", SourceKind::ProvenProxy),
            ("::ffff:10.1.2.3", SourceKind::ProvenProxy),
            ("10.1.2.4", SourceKind::Client),
        ] {
            assert_eq!(fronts.sender(address.parse().expect("an address"), true), expected, "{address}");
        }
    }
}
