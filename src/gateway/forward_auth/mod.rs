//! `[forward_auth]`: another proxy asks whether it may forward a request that it has received. The gateway decides as
//! about a request of its own, and forwards nothing.
//!
//! A call becomes the request that it is about ([`ForwardAuth::ask`]) before anything is decided, so that no step
//! after it can take the one for the other. Only [`ForwardAuth::allow`] makes a response with status 200, and only
//! [`envoy::allow`] a message that allows a request.
//!
//! A new dialect is a variant of [`Dialect`], and of [`Wire`] if it is not one of HTTP. The compiler names the rest,
//! but for the method of its calls (`read`) and its name in `config/sections/forward_auth.rs`.

mod call;
pub mod envoy;
mod envoy_request;
mod envoy_response;
mod names;
mod question;
mod settings;

use std::net::IpAddr;

pub use call::With;
pub use settings::{CHECK_PATH, Callers, Dialect, ForwardAuthSettings, SECRET, Wire};

use http::{HeaderName, HeaderValue, Method, Request, Response, header};
use parking_lot::RwLock;

use crate::auth::identity::Identity;
use crate::gateway::authorize::Permit;
use crate::gateway::client::Peer;
use crate::gateway::context::RequestContext;
use crate::gateway::decide::Decision;
use crate::gateway::delivery::Delivery;
use crate::gateway::forward::Forwarder;
use crate::gateway::own_call::OwnCall;
use crate::gateway::route::Route;
use crate::protocols::grpc;
use crate::protocols::http::body::Body;
use crate::protocols::http::forwarded::{ForwardedClient, Forwarding};
use crate::protocols::http::headers;
use crate::protocols::http::name_pattern::NamePattern;
use crate::telemetry::access_log::Record;
use crate::types::reject::{Reason, Reject};
use call::describe;
use names::{Names, set_identity};
use question::Question;

/// The endpoint of a configuration.
pub struct ForwardAuth {
    pub settings: ForwardAuthSettings,
    names: Names,
    /// Addresses that have shown the secret. Empty without `forward_auth.secret_file`.
    proven: RwLock<Vec<IpAddr>>,
}

/// How many addresses of proxies are remembered.
const MAX_PROVEN: usize = 256;

impl ForwardAuth {
    /// `kept`: `forwarding.keep`. `decides_by_method`: a route does.
    pub fn new(
        settings: ForwardAuthSettings,
        identity: &Identity,
        kept: &[NamePattern],
        decides_by_method: bool,
    ) -> Self {
        ForwardAuth { settings, names: Names::new(identity, kept, decides_by_method), proven: RwLock::default() }
    }

    /// Turns a call, and its record, into the request that it is about. Returns where that one comes from.
    pub(super) async fn ask(
        &self,
        call: &mut Request<Body>,
        wire: Wire,
        peer: &Peer,
        with: With<'_>,
        delivery: &mut Delivery,
    ) -> Result<Box<ForwardedClient>, Reject> {
        delivery.record.client = Some(peer.client.address);
        with.decider.check_head_size(call)?;
        self.check_caller(call, peer)?;
        match wire {
            Wire::Http => self.ask_over_http(call, with.forwarding, delivery),
            Wire::Envoy => envoy::ask(call, with, delivery).await,
            Wire::Unexpected => Err(Reject::new(Reason::BadAuthCall, "not a gRPC call over HTTP/2")),
        }
    }

    fn ask_over_http(
        &self,
        call: &mut Request<Body>,
        forwarding: &Forwarding,
        delivery: &mut Delivery,
    ) -> Result<Box<ForwardedClient>, Reject> {
        let client = self.read(call, forwarding)?;
        describe(call, &client, delivery);
        // What the gateway removes from its own requests and the proxy may not. A proxy that does not copy all headers
        // of the response would forward what the client has written.
        if let Some(name) = self.names.forbidden(call.headers()).next() {
            return Err(Reject::new(Reason::ForgedHeader, name.to_string()));
        }
        Ok(client)
    }

    fn read<B>(&self, call: &mut Request<B>, forwarding: &Forwarding) -> Result<Box<ForwardedClient>, Reject> {
        let is_prefix = self.settings.dialect == Dialect::Prefix;
        if !is_prefix && *call.method() != Method::GET {
            return Err(Reject::from(Reason::MethodNotAllowed).allows("GET"));
        }
        let bad = |detail: String| Reject::new(Reason::BadAuthCall, detail);
        let question = Question::read(self.settings.dialect, &self.settings.path, call).map_err(bad)?;
        let client = forwarding.client_in(call.headers()).map_err(|detail| bad(detail.to_owned()))?;
        call.headers_mut().remove(&SECRET);
        question.replace(call);
        Ok(client)
    }

    fn check_caller<B>(&self, call: &Request<B>, peer: &Peer) -> Result<(), Reject> {
        // A balancer that does not name its clients could bring any of them.
        if !peer.trusts_forwarded || !self.settings.callers.allow(peer.client.address, call.headers()) {
            return Err(Reason::AuthCaller.into());
        }
        if self.settings.callers.need_secret() {
            self.note_proven(peer.client.address);
        }
        Ok(())
    }

    /// How this call is read and answered.
    pub(super) fn wire<B>(&self, call: &Request<B>) -> Wire {
        match self.settings.dialect {
            Dialect::XForwarded | Dialect::XOriginal | Dialect::Prefix => Wire::Http,
            Dialect::ExtAuthzGrpc if grpc::is_call(call) => Wire::Envoy,
            Dialect::ExtAuthzGrpc => Wire::Unexpected,
        }
    }

    /// Returns true if a proxy at this address may ask, or may with the secret.
    pub(super) fn knows(&self, address: IpAddr) -> bool {
        self.settings.callers.from.contains(address)
    }

    /// Returns true if a proxy has shown the secret from this address: requests of many clients come from there.
    pub(super) fn has_proven(&self, address: IpAddr) -> bool {
        self.proven.read().contains(&address)
    }

    pub(super) fn note_proven(&self, address: IpAddr) {
        if self.has_proven(address) {
            return;
        }
        let mut proven = self.proven.write();
        if proven.len() >= MAX_PROVEN {
            proven.remove(0);
        }
        proven.push(address);
    }

    /// The permit, if the proxy can carry the request. What the gateway answers itself, and what it does with
    /// responses, works only if the request goes through it.
    fn permit(decision: &Decision) -> Result<&Permit, Reject> {
        let through_gateway = |detail| Err(Reject::new(Reason::ThroughGatewayOnly, detail));
        match decision {
            Decision::Forward { permit, .. } => match &**permit.route() {
                Route { capture: Some(_), .. } => through_gateway("the gateway captures the response of this route"),
                Route { respond: Some(_), .. } => through_gateway("the route has a fixed response"),
                _ => Ok(permit),
            },
            Decision::Own(OwnCall::Preflight(_)) => {
                through_gateway("the gateway answers CORS preflights of this route")
            }
            Decision::Own(_) => through_gateway("the gateway responds to this request itself"),
        }
    }

    /// Allows a request that the proxy forwards.
    pub(super) async fn answer(
        &self,
        wire: Wire,
        decision: &Decision,
        forwarder: &Forwarder,
        request: &mut Request<Body>,
        context: &RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        let permit = Self::permit(decision)?;
        let certificate = context.certificate().map(|certificate| forwarder.certificate_headers.of(certificate));
        match wire {
            Wire::Envoy => {
                headers::join_cookies(request.headers_mut());
                let sent = request.headers().clone();
                forwarder.tokens.authorization(request, permit, context).await?;
                forwarder.remove_own_cookies(request.headers_mut());
                envoy::allow(&self.names, permit, &sent, request.headers(), certificate, context.record)
            }
            // `ask` has rejected it.
            Wire::Unexpected => Err(Reason::BadAuthCall.into()),
            Wire::Http => {
                let authorization = forwarder.tokens.authorization(request, permit, context).await?;
                Ok(self.allow(permit, authorization, certificate, context.record))
            }
        }
    }

    /// The response that allows a request. `authorization`: what the backend gets in this header. `certificate`: the
    /// headers about the certificate of the client.
    fn allow(
        &self,
        permit: &Permit,
        authorization: Option<&HeaderValue>,
        certificate: Option<Vec<(HeaderName, HeaderValue)>>,
        record: &Record,
    ) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        headers.reserve(self.names.own.len() + 3);
        for name in &self.names.own {
            headers.insert(name.clone(), HeaderValue::from_static(""));
        }
        set_identity(headers, permit, certificate, record);
        headers.insert(header::AUTHORIZATION, authorization.cloned().unwrap_or(HeaderValue::from_static("")));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}
