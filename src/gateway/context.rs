//! The context of a request, which every step gets.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;

use crate::auth::context::AuthContext;
use crate::auth::proofs::{PresentedProof, ProofRule};
use crate::gateway::route::Route;
use crate::gateway::source::Source;
use crate::gateway::upload::Progress;
use crate::gateway::worker::Worker;
use crate::limits::rate_limit::RateLimitHeaders;
use crate::protocols::tls::ClientCertificate;
use crate::telemetry::access_log::Record;
use crate::tokens::audit_event::EventContext;
use crate::tokens::jwt::NeededAudience;
use crate::types::clock::{Clock, UnixTime};
use crate::types::step::StepReporter;
use crate::types::thumbprint::Thumbprint;

/// One request on its way through the gateway. Passed by `&mut`, so that it is never copied.
pub struct RequestContext<'r> {
    /// Read once from the clock; calls that the gateway answers itself read it again after the body. A refresh decides
    /// by the time of its transaction instead.
    pub now: UnixTime,
    pub clock: &'r dyn Clock,
    pub source: &'r Source<'r>,
    /// The route that was found. `None` before routing, and for calls that the gateway answers itself.
    pub route: &'r mut Option<Arc<Route>>,
    pub worker: &'r Worker,
    /// The line of the access log. Each step writes down what it finds, also for a request that a later step rejects.
    pub record: &'r mut Record,
    /// The rate limits that the response reports to the client.
    pub rate_limit_headers: &'r mut Option<Box<RateLimitHeaders>>,
    /// How far the body of a forwarded request has come. `None` before it is forwarded, and without a body.
    pub upload: &'r mut Option<Arc<Progress>>,
    /// Reports each step to `bearward explain`. Off in a running gateway.
    pub steps: StepReporter<'r>,
}

impl RequestContext<'_> {
    /// Address of the client.
    pub fn client(&self) -> IpAddr {
        self.source.address()
    }

    /// The host that the client names, with its port. `None` if it is no text.
    pub fn host(&self) -> Option<&str> {
        self.record.host.as_ref()?.to_str().ok()
    }

    pub fn certificate(&self) -> Option<&ClientCertificate> {
        self.source.certificate()
    }

    /// The part that authentication needs, for a token that is the credential of the request.
    pub fn auth_by<'c>(&'c self, headers: &'c HeaderMap) -> AuthContext<'c> {
        let presented = PresentedProof {
            headers,
            method: &self.record.method,
            scheme: &self.source.forwarded_client().scheme,
            host: self.record.host.as_ref(),
            listener: self.source.listener,
            public_url: self.source.public_url,
            path: self.record.uri.path(),
            certificate: self.certificate().map(|shown| Thumbprint::from_bytes(shown.thumbprint)),
        };
        AuthContext { presented: Some(presented), ..self.auth() }
    }

    /// The part that authentication needs. A token that needs a proof is rejected.
    pub fn auth(&self) -> AuthContext<'_> {
        AuthContext {
            now: self.now,
            clock: self.clock,
            payer: self.worker.bad_signatures.of_address(self.client()),
            signature_queue: &self.worker.signature_queue,
            metrics: &self.worker.metrics,
            serves_stale: self.route.as_ref().and_then(|route| route.serves_stale()),
            // The step that finds the token knows.
            provider: None,
            api_keys: self.route.as_ref().is_some_and(|route| route.places.api_keys),
            audience: self.route.as_ref().map_or(NeededAudience::Gateway, |route| route.audience()),
            proof: self.route.as_ref().map_or(ProofRule::IfBound, |route| route.proof),
            presented: None,
            rejected_token: Some(&self.record.rejected_token),
            steps: self.steps,
        }
    }

    /// The part that an audit event records.
    pub fn event(&self) -> EventContext {
        EventContext::new(self.now, self.client(), self.record.request_id)
    }
}
