//! `[forward_auth]`: another proxy asks whether it may forward a request that it has received. The gateway decides as
//! about a request of its own, and forwards nothing.
//!
//! A call becomes the request that it is about ([`ForwardAuth::ask`]) before anything is decided, so that no step
//! after it can take the one for the other. Only [`ForwardAuth::allow`] makes a response with status 200, and only
//! [`ForwardAuth::allow_over_grpc`] a message that allows a request.

mod check_request;
mod check_response;
mod names;
mod question;
mod settings;

use std::net::IpAddr;

pub use settings::{CHECK_PATH, Callers, Dialect, ForwardAuthSettings, SECRET};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use parking_lot::RwLock;

use crate::auth::identity::Identity;
use crate::gateway::authorize::Permit;
use crate::gateway::client::Peer;
use crate::gateway::context::RequestContext;
use crate::gateway::decide::{Decider, Decision};
use crate::gateway::delivery::Delivery;
use crate::gateway::forward::Forwarder;
use crate::gateway::own_call::OwnCall;
use crate::gateway::route::Route;
use crate::gateway::token_calls::TokenCalls;
use crate::protocols::grpc::{self, BadMessage};
use crate::protocols::http::body::Body;
use crate::protocols::http::forwarded::{ForwardedClient, Forwarding};
use crate::protocols::http::headers::{self, OBSERVED, X_REQUEST_ID};
use crate::protocols::http::name_pattern::NamePattern;
use crate::telemetry::access_log::Record;
use crate::types::clock::Clock;
use crate::types::reject::{Reason, Reject};
use check_request::CheckRequest;
use names::Names;
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

/// What a call is read with.
#[derive(Clone, Copy)]
pub(super) struct With<'g> {
    pub(super) decider: &'g Decider,
    pub(super) forwarding: &'g Forwarding,
    pub(super) token_calls: &'g TokenCalls,
    pub(super) clock: &'g dyn Clock,
}

/// A response with which Envoy forwards the request: its message.
#[derive(Clone)]
struct Allowed(Vec<u8>);

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
        peer: &Peer,
        with: With<'_>,
        delivery: &mut Delivery,
    ) -> Result<Box<ForwardedClient>, Reject> {
        delivery.record.client = Some(peer.client.address);
        with.decider.check_head_size(call)?;
        self.check_caller(call, peer)?;
        if self.settings.dialect == Dialect::ExtAuthzGrpc {
            return self.ask_over_grpc(call, with, delivery).await;
        }
        let client = self.read(call, with.forwarding)?;
        describe(call, &client, delivery);
        // What the gateway removes from its own requests and the proxy may not. A proxy that does not copy all headers
        // of the response would forward what the client has written.
        if let Some(name) = self.names.forbidden(call.headers()).next() {
            return Err(Reject::new(Reason::ForgedHeader, name.to_string()));
        }
        Ok(client)
    }

    /// As [`ForwardAuth::ask`], by the message of a call of gRPC.
    async fn ask_over_grpc(
        &self,
        call: &mut Request<Body>,
        with: With<'_>,
        delivery: &mut Delivery,
    ) -> Result<Box<ForwardedClient>, Reject> {
        if !grpc::is_call(call) {
            return Err(Reject::new(Reason::BadAuthCall, "not a gRPC call over HTTP/2"));
        }
        let body = with.token_calls.read_in_time(call, with.decider.max_check_size()).await.map_err(as_head)?;
        delivery.record.received = body.len() as u64;
        delivery.record.time = with.clock.now();
        let message = grpc::only_message(&body).map_err(|bad| match bad {
            BadMessage::Compressed => Reject::from(Reason::CompressedCall),
            BadMessage::NotOne => Reject::new(Reason::BadAuthCall, "the body is not one message"),
        })?;
        let check = CheckRequest::read(message, with.decider.headers)?;
        let client = with.forwarding.client_behind(check.source, check.scheme, &check.headers);
        let client = client.map_err(|detail| Reject::new(Reason::BadAuthCall, detail))?;
        *call.headers_mut() = check.headers;
        check.question.replace(call);
        describe(call, &client, delivery);
        with.decider.check_header_list(call)?;
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

    /// Returns true if this call gets a message of gRPC in response, whatever is decided.
    pub(super) fn replies_over_grpc<B>(&self, call: &Request<B>) -> bool {
        self.settings.dialect == Dialect::ExtAuthzGrpc && grpc::is_call(call)
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
        decision: &Decision,
        forwarder: &Forwarder,
        request: &mut Request<Body>,
        context: &RequestContext<'_>,
    ) -> Result<Response<Body>, Reject> {
        let permit = Self::permit(decision)?;
        let certificate = context.certificate().map(|certificate| forwarder.certificate_headers.of(certificate));
        if self.settings.dialect == Dialect::ExtAuthzGrpc {
            headers::join_cookies(request.headers_mut());
            let sent = request.headers().clone();
            forwarder.tokens.authorization(request, permit, context).await?;
            forwarder.remove_own_cookies(request.headers_mut());
            return self.allow_over_grpc(permit, &sent, request.headers(), certificate, context.record);
        }
        let authorization = forwarder.tokens.authorization(request, permit, context).await?;
        Ok(self.allow(permit, authorization, certificate, context.record))
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

    /// As [`ForwardAuth::allow`]. `sent`, `left`: the headers of the client, and what the backend gets of them. Forged
    /// ones are no reason for a rejection: Envoy removes what the message names.
    fn allow_over_grpc(
        &self,
        permit: &Permit,
        sent: &HeaderMap,
        left: &HeaderMap,
        certificate: Option<Vec<(HeaderName, HeaderValue)>>,
        record: &Record,
    ) -> Result<Response<Body>, Reject> {
        let mut set = HeaderMap::new();
        // What a token is taken from. A subprotocol stays: a browser fails without a choice of the server.
        for name in [header::AUTHORIZATION, header::COOKIE] {
            if let Some(value) = left.get(&name)
                && left.get_all(&name) != sent.get_all(&name)
            {
                // Texts of Protocol Buffers are UTF-8.
                value.to_str().map_err(|_| Reject::new(Reason::BadAuthCall, format!("{name} is not ASCII")))?;
                set.insert(name, value.clone());
            }
        }
        set_identity(&mut set, permit, certificate, record);
        let mut removed = self.names.removed(&set, sent, left);
        removed.retain(|name| **name != header::SEC_WEBSOCKET_PROTOCOL);
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(Allowed(check_response::allowed(set.iter(), &removed)));
        Ok(response)
    }

    /// The message of gRPC for a response. `rejected`: why the request was rejected.
    pub(super) async fn over_grpc(mut response: Response<Body>, rejected: Option<Reason>) -> Response<Body> {
        match (response.extensions_mut().remove(), rejected) {
            (Some(Allowed(message)), None) => grpc::response(&message),
            (_, Some(reason @ Reason::CompressedCall)) => grpc::unimplemented(reason),
            _ => grpc::response(&check_response::denied(response).await),
        }
    }
}

/// The message has mostly the head of the request, and not its body.
fn as_head(reject: Reject) -> Reject {
    match reject.reason {
        Reason::BodyTooLarge => Reject::new(Reason::HeadTooLarge, reject.detail),
        _ => reject,
    }
}

/// From here on, the record is that of the request that the call is about.
fn describe<B>(call: &Request<B>, client: &ForwardedClient, delivery: &mut Delivery) {
    delivery.record.method = call.method().clone();
    delivery.record.uri = call.uri().clone();
    delivery.record.client = Some(client.address);
}

/// Names the caller, its certificate and the request.
fn set_identity(
    headers: &mut HeaderMap,
    permit: &Permit,
    certificate: Option<Vec<(HeaderName, HeaderValue)>>,
    record: &Record,
) {
    for (name, value) in permit.caller().into_iter().flat_map(|caller| &caller.cached().identity) {
        headers.insert(name.clone(), value.clone());
    }
    for (name, value) in certificate.into_iter().flatten() {
        headers.insert(name, value);
    }
    if let Some(observed) = permit.observed() {
        headers.insert(HeaderName::from_static(OBSERVED), HeaderValue::from_static(observed.reason.code()));
    }
    if let Ok(id) = HeaderValue::from_bytes(&record.request_id.as_hex()) {
        headers.insert(X_REQUEST_ID, id);
    }
}
