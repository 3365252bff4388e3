//! Sends a permitted request to its upstream and returns the response. Both bodies are streamed.

use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body as _;

use crate::auth::bearer;
use crate::auth::identity::CertificateHeaders;
use crate::gateway::authorize::Permit;
use crate::gateway::context::RequestContext;
use crate::gateway::forwarded_token::{UpstreamTokens, set_token};
use crate::gateway::redirects;
use crate::gateway::streams::{Held, HeldToken, Termination, TokenBound};
use crate::gateway::upload::{Progress, Upload, response_within};
use crate::limits::pace::MinRate;
use crate::protocols::grpc;
use crate::protocols::http::body::Body;
use crate::protocols::http::header_rules::HeaderRules;
use crate::protocols::http::headers::{self, Hygiene, RareFields, X_FORWARDED_PREFIX};
use crate::protocols::http::{target, trace_context};
use crate::protocols::websocket::{self, Tunnel, UpgradeRequest};
use crate::telemetry::access_log::{Attempts, Record, UpstreamNames};
use crate::tokens::login::{LoginHeaderValues, LoginHeaders};
use crate::types::close_reason::CloseReason;
use crate::types::limit::Limit;
use crate::types::reject::{Reason, Reject};
use crate::upstream::{BrokenResponses, Counts, CurrentServer, PooledConnection, Protocol, Upstream};

/// Sends requests to upstreams.
pub struct Forwarder {
    pub upstreams: Vec<Arc<Upstream>>,
    pub hygiene: Arc<Hygiene>,
    /// `forwarding.x_real_ip`
    pub sets_real_ip: bool,
    /// `None` if no route captures a login: then these headers mean nothing.
    pub login: Option<LoginHeaders>,
    /// If true, a route has `login = "cookie"`: no backend gets the cookies of the gateway.
    pub has_login_cookies: bool,
    /// If true, browsers sign in at a provider: no backend gets the cookies of that.
    pub has_sign_in: bool,
    /// `timeouts.body_idle`
    pub body_idle: Duration,
    /// `timeouts.write`
    pub write: Duration,
    /// `limits.min_upload_rate`
    pub min_upload_rate: MinRate,
    /// `limits.body_size`, in bytes.
    pub body_size: u64,
    /// `limits.request_header_size`, in bytes.
    pub header_list_size: usize,
    pub tokens: UpstreamTokens,
    pub certificate_headers: CertificateHeaders,
}

/// A response on its way to the client, and what has to live as long as its body.
pub struct Forwarded {
    pub response: Response<Body>,
    pub upstream_connection: Option<PooledConnection>,
    pub tunnel: Option<Tunnel>,
    /// Of the server at the other end of the tunnel.
    pub broken_responses: Option<BrokenResponses>,
    /// Ends the response, or the tunnel, with the token. `None` for a response of the gateway itself.
    pub token_bound: Option<TokenBound>,
    /// See [`Forwarder::is_grpc_call`].
    pub is_grpc_call: bool,
    /// What the backend says about a login. Used only on a route that captures logins.
    pub login: Option<Box<LoginHeaderValues>>,
}

impl Forwarded {
    /// A response of the gateway itself.
    pub fn local_reply(response: Response<Body>) -> Self {
        Forwarded {
            response,
            upstream_connection: None,
            tunnel: None,
            broken_responses: None,
            token_bound: None,
            is_grpc_call: false,
            login: None,
        }
    }

    /// Returns true for a response of the gateway itself.
    pub fn is_local(&self) -> bool {
        self.token_bound.is_none()
    }
}

/// What the response needs to know about its request.
struct Sent {
    /// The WebSocket that the client wants to open.
    websocket: Option<UpgradeRequest>,
    /// The token was taken out of the WebSocket subprotocols, where the client expects a choice.
    token_was_subprotocol: bool,
    is_grpc_call: bool,
    /// The server has taken the whole body, or there is none.
    upload_is_complete: bool,
}

impl Forwarder {
    pub(super) async fn forward(
        &self,
        permit: Permit,
        request: &mut Request<Body>,
        host: HeaderValue,
        context: &mut RequestContext<'_>,
    ) -> Result<Forwarded, Reject> {
        let upstream = &self.upstreams[permit.route().upstream];
        context.record.upstream = Some(upstream.names.of(context.worker.number, UpstreamNames::clone).clone());
        if let Some(tracer) = &context.worker.tracer {
            tracer.forward(context.record);
        }
        // Before the head is prepared: then the version is that of the upstream.
        let is_grpc_call = self.is_grpc_call(&permit, request);
        let token = self.tokens.token_for(&permit, context).await?;
        let head = self.prepare_head(request, &permit, upstream, host, token, context);
        let (websocket, token_was_subprotocol) = head?;
        let key = upstream.key(request.headers(), permit.caller().map(|caller| caller.token().subject.as_str()));
        let route = permit.route().clone();
        let certificate = if route.enforce { context.source.certificate.clone() } else { None };
        let token = permit.into_token().map(|cached| HeldToken { cached, route });
        let mut token_bound = TokenBound::by(Held { token, certificate }, &context.worker.streams);
        let min_rate = if is_grpc_call { self.grpc_rate() } else { self.min_upload_rate };
        let rules = context.route.as_ref().and_then(|route| route.request_headers.as_ref());
        *context.upload = self.limit_body(request, context.record.version, &token_bound, min_rate, rules)?;
        let progress = context.upload.as_deref();

        let current_server = CurrentServer::default();
        let worker = context.worker;
        let client = context.client();
        let timeout = upstream.settings.response_timeout;
        let began = Instant::now();
        context.record.attempts = Attempts::begin(context.record.trace, began);
        let result = {
            let counts = Counts { metrics: &worker.metrics, attempts: &context.record.attempts };
            let sending = pin!(upstream.send(worker.number, counts, client, key, &current_server, request));
            response_within(began, timeout, progress, &mut token_bound, sending).await
        };
        context.record.attempts.end();
        if let (Ok(_), Some(waited)) = (&result, context.record.attempts.duration()) {
            upstream.response_times[worker.number].observe(waited);
        }
        let (response, upstream_connection) = result.map_err(|reject| {
            let reject = attribute_failure(reject, progress, upstream, &current_server);
            // The token was good when the request began, so a token reason here means that it has ended since, or has
            // lost a right.
            context.record.ended = ends_a_token(reject.reason).then_some(CloseReason::Token(reject.reason));
            reject
        })?;
        let upload_is_complete = progress.is_none_or(Progress::is_complete);
        let sent = Sent { websocket, token_was_subprotocol, is_grpc_call, upload_is_complete };
        let mut forwarded = self.prepare_response(response, upstream_connection, token_bound, sent, context.record)?;
        if upstream.settings.rewrite_redirects && forwarded.tunnel.is_none() && !is_grpc_call {
            redirects::rewrite(forwarded.response.headers_mut(), upstream, context);
        }
        let rules = context.route.as_ref().and_then(|route| route.response_headers.as_deref());
        if forwarded.tunnel.is_none()
            && let Some(rules) = rules
        {
            rules.apply(forwarded.response.headers_mut());
        }
        Ok(forwarded)
    }

    /// Returns true for a gRPC call: a POST over HTTP/2, to an upstream that speaks HTTP/2. The content type alone
    /// would let any client lift the limits that do not suit a call.
    pub(super) fn is_grpc_call<B>(&self, permit: &Permit, request: &Request<B>) -> bool {
        grpc::is_call(request) && self.upstreams[permit.route().upstream].settings.protocol == Protocol::Http2
    }

    /// gRPC streams messages: the backend decides how fast they come, and `body_idle` bounds their silence.
    fn grpc_rate(&self) -> MinRate {
        MinRate { bytes_per_second: 0, ..self.min_upload_rate }
    }

    /// Writes the head that the upstream gets. Returns the WebSocket that the client wants to open, and whether its
    /// token was among the subprotocols.
    fn prepare_head(
        &self,
        request: &mut Request<Body>,
        permit: &Permit,
        upstream: &Upstream,
        host: HeaderValue,
        token: Option<HeaderValue>,
        context: &RequestContext<'_>,
    ) -> Result<(Option<UpgradeRequest>, bool), Reject> {
        let token_was_subprotocol = set_token(request, permit, token)?;
        self.remove_own_cookies(request.headers_mut());
        // HTTP/2 upstreams cannot carry an HTTP/1 upgrade.
        let websocket = match upstream.settings.protocol {
            Protocol::Http1 => websocket::take_upgrade(request),
            Protocol::Http2 if context.record.method == Method::CONNECT || websocket::is_upgrade_request(request) => {
                return Err(Reject::new(
                    Reason::ProtocolNotSupported,
                    "a WebSocket to an upstream with protocol = \"h2\"",
                ));
            }
            Protocol::Http2 => None,
        };
        self.hygiene.clean_request(request.headers_mut());
        // Before the fields of the gateway, which a beginning such as `X-*` must not remove.
        if let Some(rules) = &permit.route().request_headers {
            rules.apply(request.headers_mut());
        }
        let rare = RareFields::of(request.headers());
        headers::set_forwarded(request.headers_mut(), context.source.forwarded_client(), Some(&host));
        if self.sets_real_ip {
            headers::set_real_ip(request.headers_mut(), context.source.forwarded_client());
        }
        if let Some(prefix) = &permit.route().strip_prefix {
            request.headers_mut().insert(X_FORWARDED_PREFIX.clone(), prefix.field().clone());
            *request.uri_mut() = prefix.strip(request.uri())?;
        }
        set_identity(request, permit, context.record);
        if rare.expect {
            // The gateway itself sends 100 Continue when the upstream reads the body.
            request.headers_mut().remove(header::EXPECT);
        }
        if let Some(certificate) = context.certificate() {
            request.headers_mut().extend(self.certificate_headers.of(certificate));
        }
        match &context.record.trace {
            Some(trace) => trace.set_fields(request.headers_mut()),
            // Without `[trace]`, the trace of a trusted proxy passes, and the backend begins one for all others.
            None if rare.trace && context.source.kind.is_client() => {
                trace_context::remove_fields(request.headers_mut())
            }
            None => {}
        }
        if websocket.is_some() {
            websocket::set_upgrade_headers(request.headers_mut());
        }
        set_target(request, upstream, host, rare.cookie)?;
        Ok((websocket, token_was_subprotocol))
    }

    /// No backend gets a cookie of the gateway.
    pub(super) fn remove_own_cookies(&self, headers: &mut HeaderMap) {
        if self.has_login_cookies {
            bearer::login_cookies::remove(headers);
        }
        if self.has_sign_in {
            bearer::session_cookie::remove(headers);
        }
    }

    /// Puts the limits of size and pace on the body. `client_version`: `set_target` has already overwritten the version
    /// of the request.
    fn limit_body(
        &self,
        request: &mut Request<Body>,
        client_version: Version,
        token_bound: &TokenBound,
        min_rate: MinRate,
        rules: Option<&Arc<HeaderRules>>,
    ) -> Result<Option<Arc<Progress>>, Reject> {
        if request.body().is_known_to_exceed(self.body_size) {
            let detail = format!("over {} bytes by its Content-Length", self.body_size);
            return Err(Reject::new(Reason::BodyTooLarge, detail).of_limit(Limit::BodySize));
        }
        if request.body().is_end_stream() {
            return Ok(None);
        }
        let progress = Arc::new(Progress::begin());
        let hygiene = self.hygiene.clone();
        let rules = rules.cloned();
        let token_bound = token_bound.another();
        let is_http2 = client_version == Version::HTTP_2;
        // Over HTTP/1, the parser has checked them.
        let max_trailers = if is_http2 { self.header_list_size } else { usize::MAX };
        let watch = Box::new(Upload { progress: progress.clone(), hygiene, rules, max_trailers, token_bound });
        let body = mem::take(request.body_mut()).fail_if_truncated(is_http2);
        let limited = body.with_max_size(self.body_size).with_idle_timeout(self.body_idle).with_min_rate(min_rate);
        *request.body_mut() = limited.with_observer(watch);
        Ok(Some(progress))
    }

    /// Checks and cleans the head of the response, and bounds its body.
    fn prepare_response(
        &self,
        mut response: UpstreamHead,
        upstream_connection: PooledConnection,
        mut token_bound: TokenBound,
        sent: Sent,
        record: &Record,
    ) -> Result<Forwarded, Reject> {
        if !headers::has_unambiguous_length(response.headers()) {
            return Err(Reject::new(Reason::UpstreamBroken, "two lengths, or a transfer coding other than chunked"));
        }
        let tunnel = websocket::accept_upgrade(sent.websocket, &mut response, self.write)?;
        // Before hop-by-hop headers are removed: a backend may name these in `Connection`, as they go no further than
        // here.
        let login = self.login.as_ref().and_then(|login| login.take_from(response.headers_mut()));
        headers::clean_response(response.headers_mut());
        if response.status() == StatusCode::NO_CONTENT {
            // RFC 9110 section 8.6. HTTP/2 clients take a length for a body that is missing.
            response.headers_mut().remove(header::CONTENT_LENGTH);
        }
        if let Some(tunnel) = &tunnel {
            tunnel.set_response_head(&mut response);
            if sent.token_was_subprotocol && !response.headers().contains_key(header::SEC_WEBSOCKET_PROTOCOL) {
                let chosen = HeaderValue::from_static(bearer::MARKER);
                response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, chosen);
            }
        }
        let over_http2 = response.version() == Version::HTTP_2;
        *response.version_mut() = Version::HTTP_11;
        // The response to a request that is still being sent may end in a reset.
        let must_end = over_http2 && sent.upload_is_complete;
        token_bound.set_termination(Termination::of(&record.method, sent.is_grpc_call, &response));
        let incoming = |body| Body::incoming(body).with_idle_timeout(self.body_idle).fail_if_truncated(must_end);
        let response = response.map(incoming);
        let broken_responses = tunnel.is_some().then(|| upstream_connection.broken_responses());
        let upstream_connection = tunnel.is_none().then_some(upstream_connection);
        let token_bound = Some(token_bound);
        let is_grpc_call = sent.is_grpc_call;
        Ok(Forwarded { response, upstream_connection, tunnel, broken_responses, token_bound, is_grpc_call, login })
    }
}

type UpstreamHead = Response<hyper::body::Incoming>;

/// Returns the failure of the client's body if it failed. Otherwise records the failure of the server.
fn attribute_failure(
    reject: Reject,
    progress: Option<&Progress>,
    upstream: &Upstream,
    current_server: &CurrentServer,
) -> Reject {
    if let Some(failure) = progress.and_then(Progress::take_failure) {
        return failure;
    }
    upstream.record_failure(current_server, &reject);
    reject
}

/// Returns true if the token of a request is the cause.
fn ends_a_token(reason: Reason) -> bool {
    reason.is_invalid_token() || matches!(reason, Reason::InsufficientScope | Reason::ClaimRejected)
}

/// Names the caller and the request. What the client sent under these names is already removed.
fn set_identity(request: &mut Request<Body>, permit: &Permit, record: &Record) {
    let headers = request.headers_mut();
    if let Some(caller) = permit.caller() {
        for (name, value) in &caller.cached().identity {
            headers.insert(name.clone(), value.clone());
        }
    }
    if let Some(observed) = permit.observed() {
        let reason = HeaderValue::from_static(observed.reason.code());
        headers.insert(HeaderName::from_static(headers::OBSERVED), reason);
    }
    // Thirty-two hexadecimal digits are always a valid header value.
    if let Ok(id) = HeaderValue::from_bytes(&record.request_id.as_hex()) {
        headers.insert(headers::X_REQUEST_ID, id);
    }
}

/// Writes the request's target, and its cookies if it has any, in the form that the upstream's protocol uses.
fn set_target(
    request: &mut Request<Body>,
    upstream: &Upstream,
    host: HeaderValue,
    has_cookies: bool,
) -> Result<(), Reject> {
    let host = if upstream.settings.preserve_host { host } else { upstream.host.clone() };
    match upstream.settings.protocol {
        Protocol::Http1 => {
            *request.version_mut() = Version::HTTP_11;
            *request.uri_mut() = target::origin_form(request.uri());
            request.headers_mut().insert(header::HOST, host);
            if has_cookies {
                headers::join_cookies(request.headers_mut());
            }
            if request.body().size_hint().exact().is_none() {
                // Without this, hyper assumes that a GET has no body.
                request.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
        }
        Protocol::Http2 => {
            *request.version_mut() = Version::HTTP_2;
            *request.uri_mut() = target::absolute_form(request.uri(), &upstream.scheme, &host)?;
            request.headers_mut().remove(header::HOST);
        }
    }
    Ok(())
}
