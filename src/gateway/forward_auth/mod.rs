//! `[forward_auth]`: another proxy asks whether it may forward a request that it has received. The gateway decides as
//! about a request of its own, and forwards nothing.
//!
//! A call becomes the request that it is about ([`ForwardAuth::ask`]) before anything is decided, so that no step
//! after it can take the one for the other. Only [`ForwardAuth::allow`] makes a response with status 200.

mod question;
mod settings;

use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};

pub use settings::{Callers, Dialect, SECRET, Settings};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};

use crate::auth::identity::Identity;
use crate::gateway::authorize::Permit;
use crate::gateway::client::Peer;
use crate::gateway::decide::{Decider, Decision};
use crate::gateway::delivery::Delivery;
use crate::gateway::route::Route;
use crate::protocols::http::body::Body;
use crate::protocols::http::forwarded::{Forwarding, Origin};
use crate::protocols::http::headers::{METHOD_OVERRIDES, OBSERVED, X_REQUEST_ID, names_trace};
use crate::protocols::http::name_pattern::NamePattern;
use crate::telemetry::access_log::Record;
use crate::types::reject::{Reason, Reject};
use question::Question;

/// Headers by which some backends read another path: IIS with URL Rewrite, Laminas, old releases of Symfony.
const PATH_OVERRIDES: [&str; 2] = ["x-original-url", "x-rewrite-url"];

/// The endpoint of a configuration.
pub struct ForwardAuth {
    pub settings: Settings,
    /// The headers that a response 200 always has, empty if need be: a proxy that copies what it gets (Envoy) would
    /// let a forged one pass to the backend otherwise.
    names: Vec<HeaderName>,
    /// The same, in every spelling.
    identity: Vec<NamePattern>,
    /// Headers that name another method.
    overrides: Vec<NamePattern>,
    /// [`PATH_OVERRIDES`]
    other_paths: Vec<NamePattern>,
    /// A route decides by the method.
    decides_by_method: bool,
    /// Addresses that have shown the secret. Empty without `forward_auth.secret_file`.
    proven: RwLock<Vec<IpAddr>>,
}

/// How many addresses of proxies are remembered.
const MAX_PROVEN: usize = 256;

impl ForwardAuth {
    /// `decides_by_method`: a route does.
    pub fn new(settings: Settings, identity: &Identity, decides_by_method: bool) -> Self {
        let mut names: Vec<HeaderName> = Vec::new();
        for name in identity.names().chain([&HeaderName::from_static(OBSERVED)]) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let exact = |name: &HeaderName| NamePattern::exact(name.as_str());
        let overrides = METHOD_OVERRIDES.iter().map(exact).collect();
        let other_paths = PATH_OVERRIDES.into_iter().map(NamePattern::exact).collect();
        let identity = names.iter().map(exact).collect();
        let proven = RwLock::default();
        ForwardAuth { settings, identity, names, overrides, other_paths, decides_by_method, proven }
    }

    /// Turns a call, and its record, into the request that it is about. Returns where that request comes from.
    pub(super) fn ask<B>(
        &self,
        call: &mut Request<B>,
        peer: &Peer,
        (decider, forwarding): (&Decider, &Forwarding),
        delivery: &mut Delivery,
    ) -> Result<Box<Origin>, Reject> {
        delivery.record.client = Some(peer.origin.address);
        decider.check_head_size(call)?;
        let origin = self.read(call, peer, forwarding)?;
        delivery.record.method = call.method().clone();
        delivery.record.uri = call.uri().clone();
        delivery.record.client = Some(origin.address);
        self.check_names(call.headers())?;
        Ok(origin)
    }

    fn read<B>(&self, call: &mut Request<B>, peer: &Peer, forwarding: &Forwarding) -> Result<Box<Origin>, Reject> {
        // A balancer that does not name its clients could bring any of them.
        if !peer.trusts_forwarded || !self.settings.callers.allow(peer.origin.address, call.headers()) {
            return Err(Reason::AuthCaller.into());
        }
        if self.settings.callers.need_secret() {
            self.note_proven(peer.origin.address);
        }
        let is_prefix = self.settings.dialect == Dialect::Prefix;
        if !is_prefix && *call.method() != Method::GET {
            return Err(Reject::from(Reason::MethodNotAllowed).allow("GET"));
        }
        let bad = |detail: String| Reject::new(Reason::BadAuthCall, detail);
        let question = Question::read(self.settings.dialect, &self.settings.path, call).map_err(bad)?;
        let origin = forwarding.origin_in(call.headers()).map_err(|detail| bad(detail.to_owned()))?;
        call.headers_mut().remove(&SECRET);
        question.replace(call);
        Ok(origin)
    }

    /// Rejects what the gateway removes from its own requests and the proxy may not: an identity header, in any
    /// spelling, and another method or path than the one that is decided about. No honest client sends these. A proxy
    /// that does not copy all headers of the response would forward what the client has written.
    fn check_names(&self, headers: &HeaderMap) -> Result<(), Reject> {
        let is_identity = |name: &&HeaderName| self.identity.iter().any(|own| own.matches(name.as_str().as_bytes()));
        let is_override = |name: &&HeaderName| {
            self.overrides.iter().any(|own| own.matches(name.as_str().as_bytes()))
                && (self.decides_by_method || headers.get_all(*name).iter().any(names_trace))
        };
        let is_other_path =
            |name: &&HeaderName| self.other_paths.iter().any(|own| own.matches(name.as_str().as_bytes()));
        match headers.keys().find(|name| is_identity(name) || is_override(name) || is_other_path(name)) {
            Some(name) => Err(Reject::new(Reason::ForgedHeader, name.to_string())),
            None => Ok(()),
        }
    }

    /// Returns true if a proxy has shown the secret from this address: requests of many clients come from there.
    pub fn has_proven(&self, address: IpAddr) -> bool {
        self.proven.read().unwrap_or_else(PoisonError::into_inner).contains(&address)
    }

    fn note_proven(&self, address: IpAddr) {
        if self.has_proven(address) {
            return;
        }
        let mut proven = self.proven.write().unwrap_or_else(PoisonError::into_inner);
        if proven.len() >= MAX_PROVEN {
            proven.remove(0);
        }
        proven.push(address);
    }

    /// The permit, if the proxy can carry the request. What the gateway answers itself, and what it does with
    /// responses, works only if the request goes through it.
    pub fn permit(decision: Decision) -> Result<Permit, Reject> {
        let through_gateway = |detail| Err(Reject::new(Reason::ThroughGatewayOnly, detail));
        match decision {
            Decision::Forward { permit, .. } => match &**permit.route() {
                Route { capture: Some(_), .. } => through_gateway("the gateway captures the response of this route"),
                Route { respond: Some(_), .. } => through_gateway("the route has a fixed response"),
                _ => Ok(permit),
            },
            Decision::Preflight(_) => through_gateway("the gateway answers CORS preflights of this route"),
            _ => through_gateway("the gateway responds to this request itself"),
        }
    }

    /// The response that allows a request. `authorization`: what the backend gets in this header. `certificate`: the
    /// headers about the certificate of the client.
    pub fn allow(
        &self,
        permit: &Permit,
        authorization: Option<&HeaderValue>,
        certificate: Option<Vec<(HeaderName, HeaderValue)>>,
        record: &Record,
    ) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        headers.reserve(self.names.len() + 3);
        for name in &self.names {
            headers.insert(name.clone(), HeaderValue::from_static(""));
        }
        for (name, value) in permit.caller().into_iter().flat_map(|caller| &caller.cached().identity) {
            headers.insert(name.clone(), value.clone());
        }
        headers.extend(certificate.into_iter().flatten());
        if let Some(observed) = permit.observed() {
            headers.insert(OBSERVED, HeaderValue::from_static(observed.reason.code()));
        }
        if let Ok(id) = HeaderValue::from_bytes(&record.request_id.as_hex()) {
            headers.insert(X_REQUEST_ID, id);
        }
        headers.insert(header::AUTHORIZATION, authorization.cloned().unwrap_or(HeaderValue::from_static("")));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}
