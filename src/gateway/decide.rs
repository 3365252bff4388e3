//! Decides what happens to a request, before anything is done: find the route, authenticate, authorize. No step reads a
//! clock. Only authentication may wait: for the signature queue, and for an issuer's keys if the token's key is
//! unknown.
//!
//! The gateway decides about every request in this way, and `bearward explain` about a request that the operator
//! describes.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};

use crate::auth::authenticate::{Authenticator, Caller};
use crate::auth::bearer::{TokenLocation, session_cookie};
use crate::auth::context::AuthContext;
use crate::auth::proofs::ProofRule;
use crate::gateway::authorize::{Permit, authorize, without_token};
use crate::gateway::context::RequestContext;
use crate::gateway::cookie_refresh;
use crate::gateway::cors::{self, Cors};
use crate::gateway::csrf::{self, CsrfRequest};
use crate::gateway::endpoints::Endpoint;
use crate::gateway::https::Https;
use crate::gateway::own_call::OwnCall;
use crate::gateway::route::{Capture, Route};
use crate::gateway::route_table::{Action, RouteTable};
use crate::protocols::http::header_list;
use crate::protocols::http::headers;
use crate::protocols::http::path::CanonicalPath;
use crate::protocols::http::target;
use crate::protocols::websocket;
use crate::types::limit::Limit;
use crate::types::per_worker::PerWorker;
use crate::types::reject::{Reason, Reject};
use crate::types::step::Step;

/// Everything that a decision needs besides the request. Immutable: a reload makes a new one.
pub struct Decider {
    /// Shared with the streams, which find their routes again after a reload.
    pub routes: Arc<RouteTable>,
    pub authenticator: Authenticator,
    pub cors: Cors,
    pub https: Https,
    /// `limits.request_header_count`
    pub headers: usize,
    /// `limits.request_header_size`, in bytes.
    pub header_list_size: usize,
    /// `limits.uri_size`
    pub uri_size: usize,
}

/// What the gateway does with a request.
pub enum Decision {
    Forward { permit: Permit, host: HeaderValue },
    Own(OwnCall),
}

/// The path of a request, before its route is known.
enum RequestPath<'r> {
    Canonical(CanonicalPath<'r>),
    /// Rejected, unless a route has `paths` for it.
    Ambiguous {
        path: &'r str,
        reject: Box<Reject>,
    },
}

impl Decider {
    /// Writes into the record what it finds on the way, also for a request that a later check rejects.
    pub async fn decide<B>(&self, request: &Request<B>, context: &mut RequestContext<'_>) -> Result<Decision, Reject> {
        // First of all: the request has exactly one framing, one host and one path, or it is rejected.
        if !headers::has_unambiguous_length(request.headers()) {
            return Err(Reject::new(Reason::MalformedFraming, "a transfer coding other than chunked"));
        }
        if headers::exceeds_count(request.headers(), self.headers) {
            let reject = Reject::new(Reason::HeadTooLarge, "more fields than limits.request_header_count");
            return Err(reject.of_limit(Limit::RequestHeaderCount));
        }
        let host = target::host(request, self.uri_size)?;
        let host_name = host.to_str().unwrap_or_default();
        context.record.host = Some(host.clone());
        self.check_server_name(host_name, context)?;
        context.steps.report(Step::Host, || host_name.to_owned());
        let path = self.path(request.uri().path())?;
        context.steps.report(Step::Path, || request.uri().path().to_owned());
        if !context.source.is_https()
            && let Some(redirect) = &self.https.redirect
        {
            let response = redirect.response(host_name, request.uri())?;
            return Ok(Decision::Own(OwnCall::RedirectToHttps(Box::new(response))));
        }
        if let Some(preflight) = self.preflight(request, host_name, &path, context) {
            return preflight;
        }
        match self.find(host_name, request.method(), &path)? {
            Action::Forward(found) => {
                let route = note_route(found, context);
                // Before the token: without the backend, no token helps.
                if let Some(maintenance) = &route.maintenance {
                    return Err(maintenance.reject());
                }
                let permit = self.permit(route, request, &host, context).await?;
                Ok(Decision::Forward { permit, host })
            }
            Action::Own(call) => Ok(Decision::Own(call)),
            Action::OtherMethod { route, reject } => {
                let route = note_route(route, context);
                // Boxed because it is rare.
                Err(Box::pin(self.other_method(route, reject, request, &host, context)).await)
            }
        }
    }

    /// The rejection of a method that no route of this path has. The token comes first: a client without one learns
    /// that it needs one, and not which methods there are.
    async fn other_method<B>(
        &self,
        route: Arc<Route>,
        not_allowed: Reject,
        request: &Request<B>,
        host: &HeaderValue,
        context: &mut RequestContext<'_>,
    ) -> Reject {
        let caller = match route.certificate.check(context.certificate()) {
            Ok(()) => self.caller(&route, request, host, context).await,
            Err(reject) => Err(reject),
        };
        match caller {
            Ok(caller) => {
                context.record.caller = Some(caller.token().clone());
                not_allowed
            }
            // A refreshed token would be good for the route, which does not have this method.
            Err(expired) if cookie_refresh::can_help(&expired, context) => not_allowed,
            Err(reject) => reject,
        }
    }

    /// Rejects a head of HTTP/2 that is too large. Over HTTP/1, the parser has done so.
    pub fn check_head_size<B>(&self, request: &Request<B>) -> Result<(), Reject> {
        if request.version() == Version::HTTP_2 { self.check_header_list(request) } else { Ok(()) }
    }

    /// As [`Decider::check_head_size`], for a request that was not read from a connection.
    pub fn check_header_list<B>(&self, request: &Request<B>) -> Result<(), Reject> {
        if header_list::size_of_head(request) >= self.header_list_size {
            return Err(Reject::new(Reason::HeadTooLarge, "the head is larger than limits.request_header_size"));
        }
        Ok(())
    }

    /// The maximum size of a message about a request, in bytes. It has the path and the host twice, and the addresses
    /// of the connection.
    pub fn max_check_size(&self) -> u64 {
        2 * self.header_list_size as u64
    }

    /// # Errors
    /// If the path is ambiguous and no route allows any form of ambiguity.
    fn path<'r>(&self, path: &'r str) -> Result<RequestPath<'r>, Reject> {
        match CanonicalPath::parse(path) {
            Ok(path) => Ok(RequestPath::Canonical(path)),
            Err(reject) if self.routes.has_loosened() => Ok(RequestPath::Ambiguous { path, reject: Box::new(reject) }),
            Err(reject) => Err(reject),
        }
    }

    fn find(&self, host: &str, method: &Method, path: &RequestPath<'_>) -> Result<Action<'_>, Reject> {
        match path {
            RequestPath::Canonical(path) => self.routes.find(host, method, path),
            RequestPath::Ambiguous { path, reject } => match self.routes.find_loosened(host, method, path) {
                Some(route) => Ok(Action::Forward(route)),
                None => Err(Reject::new(reject.reason, reject.detail.clone())),
            },
        }
    }

    /// The decision about a request with a token that was refreshed on the way.
    pub fn decide_refreshed(&self, caller: Caller, context: &mut RequestContext<'_>) -> Result<Decision, Reject> {
        let (Some(route), Some(host)) = (context.route.clone(), context.record.host.clone()) else {
            return Err(Reject::new(Reason::Internal, "a request without route or host was refreshed"));
        };
        context.record.caller = Some(caller.token().clone());
        Ok(Decision::Forward { permit: authorize(route, Ok(caller))?, host })
    }

    /// Why this request must end its connection; `None` if it need not. [`Decider::decide`] checks the same.
    pub fn malformed<B>(&self, request: &Request<B>) -> Option<Reject> {
        let found = if headers::has_unambiguous_length(request.headers()) {
            target::host(request, usize::MAX).err()
        } else {
            Some(Reject::new(Reason::MalformedFraming, "a transfer coding other than chunked"))
        };
        found.filter(|reject| reject.reason.must_close_connection())
    }

    /// A TLS connection serves the host that its handshake named. Another host may have another certificate and other
    /// rules (RFC 9110 section 7.4).
    fn check_server_name(&self, host: &str, context: &RequestContext<'_>) -> Result<(), Reject> {
        let (Some(sni), host) = (context.source.server_name, target::without_port(host)) else { return Ok(()) };
        if sni.eq_ignore_ascii_case(host) {
            return Ok(());
        }
        let has_same_certificate = || context.source.listener.is_some_and(|side| side.has_same_certificate(sni, host));
        if self.routes.have_same_routes(sni, host) && has_same_certificate() {
            return Ok(());
        }
        Err(Reject::new(Reason::Misdirected, format!("the TLS handshake named {sni}")))
    }

    /// Decides about a CORS preflight by the request that it asks for. `None`: the request is no preflight, or no
    /// policy covers what it asks for.
    fn preflight<B>(
        &self,
        request: &Request<B>,
        host: &str,
        path: &RequestPath<'_>,
        context: &mut RequestContext<'_>,
    ) -> Option<Result<Decision, Reject>> {
        if !cors::is_preflight(request.method(), request.headers()) {
            return None;
        }
        let asked = cors::requested_method(request.headers())?;
        let policy = match self.find(host, &asked, path) {
            Ok(Action::Forward(found)) => {
                let route = found.of(context.worker.number, Route::of_a_worker).clone();
                if route.preflight {
                    return None;
                }
                let policy = route.cors.clone()?;
                context.record.route = Some(route.name.clone());
                context.steps.report(Step::Route, || route.name.to_string());
                *context.route = Some(route);
                policy
            }
            Ok(Action::Own(call)) if call.is_public() => {
                return Some(Ok(Decision::Own(OwnCall::Preflight(cors::public_preflight()))));
            }
            // Otherwise a route for OPTIONS would forward it.
            Err(reject) | Ok(Action::OtherMethod { reject, .. }) => {
                return self.cors.own.is_some().then_some(Err(reject));
            }
            // A user sees these. No other page loads them.
            Ok(Action::Own(OwnCall::Endpoint(Endpoint::Browser(_)))) => {
                return Some(Ok(Decision::Own(OwnCall::Preflight(cors::refused_preflight()))));
            }
            Ok(Action::Own(_)) => self.cors.own.clone()?,
        };
        let response = policy.preflight(request.headers(), &asked);
        Some(response.map(|response| Decision::Own(OwnCall::Preflight(response))))
    }

    async fn permit<B>(
        &self,
        route: Arc<Route>,
        request: &Request<B>,
        host: &HeaderValue,
        context: &mut RequestContext<'_>,
    ) -> Result<Permit, Reject> {
        // Only public routes and CORS preflights need no token. Every other request is verified.
        let certificate = route.certificate.check(context.certificate());
        let route = match without_token(route, request.method(), request.headers(), certificate.is_ok()) {
            Ok(permit) => {
                context.steps.report(Step::Token, || "not required".into());
                return Ok(permit);
            }
            Err(route) => route,
        };
        let caller = match certificate {
            Ok(()) => self.caller(&route, request, host, context).await,
            Err(reject) => Err(reject),
        };
        context.record.caller = caller.as_ref().ok().map(|caller| caller.token().clone());
        let permit = authorize(route, caller)?;
        context.record.observed = permit.observed().cloned();
        if let Some(caller) = permit.caller() {
            self.authenticator.note_use(caller, context.now);
            context.steps.report(Step::Rules, || permit.route().rules());
        }
        Ok(permit)
    }

    async fn caller<B>(
        &self,
        route: &Route,
        request: &Request<B>,
        host: &HeaderValue,
        context: &RequestContext<'_>,
    ) -> Result<Caller, Reject> {
        let found = route.places.find(request, self.authenticator.token_size)?;
        context.steps.report(Step::Token, || format!("in {}", found.location));
        if found.location.is_cookie() {
            let target = CsrfRequest {
                method: request.method(),
                websocket: websocket::is_upgrade_request(request),
                logout: route.capture == Some(Capture::Logout),
                host,
                scheme: &context.source.forwarded_client().scheme,
            };
            csrf::check(request.headers(), &target, &route.origins)?;
            context.steps.report(Step::Origin, || "not from another site".into());
        }
        let auth = context.auth_by(request.headers());
        if found.location == TokenLocation::SignIn {
            let provider = route.sign_in.as_deref();
            return self.signed_in(request.headers(), &AuthContext { api_keys: false, provider, ..auth }).await;
        }
        let auth = AuthContext { api_keys: auth.api_keys && found.location.can_have_api_key(), ..auth };
        let caller = self.authenticator.authenticate(found.token(), &auth).await?;
        if route.proof == ProofRule::Off && caller.cached().is_bound {
            auth.metrics.unproven_tokens.inc();
        }
        Ok(caller)
    }

    /// The caller of the first cookie that is good: one that another host has set must not lock the user out.
    async fn signed_in(&self, headers: &HeaderMap, auth: &AuthContext<'_>) -> Result<Caller, Reject> {
        let mut first = None;
        for token in session_cookie::tokens(headers, self.authenticator.token_size) {
            match self.authenticator.authenticate(token?, auth).await {
                Err(bad) if bad.reason.status() == StatusCode::UNAUTHORIZED => first = first.or(Some(bad)),
                result => return result,
            }
        }
        Err(first.unwrap_or_else(|| Reason::NoToken.into()))
    }
}

/// The route, by the reference of this worker. From now on the request counts for it.
fn note_route(found: &PerWorker<Route>, context: &mut RequestContext<'_>) -> Arc<Route> {
    let route = found.of(context.worker.number, Route::of_a_worker).clone();
    context.record.route = Some(route.name.clone());
    *context.route = Some(route.clone());
    context.steps.report(Step::Route, || route.name.to_string());
    route
}
