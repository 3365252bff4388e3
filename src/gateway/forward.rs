//! Step 3: a permitted request to its upstream, and the answer back. Streams both ways.

use std::mem;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body as _;

use crate::auth::bearer;
use crate::auth::keyring::Keyring;
use crate::gateway::authorize::Permit;
use crate::gateway::route::TokenForwarding;
use crate::gateway::streams::{Streams, Termination, TokenBound};
use crate::limits::pace::MinRate;
use crate::protocols::grpc;
use crate::protocols::http::body::{Body, BodyEnd, BodyError, MOMENT, Watch};
use crate::protocols::http::headers::{self, Hygiene, Origin};
use crate::protocols::http::target;
use crate::protocols::websocket::{self, Tunnel};
use crate::telemetry::access_log::Record;
use crate::telemetry::metrics::WorkerMetrics;
use crate::tokens::jwt::replacement::ReplacementSettings;
use crate::tokens::login::{LoginHeaderValues, LoginHeaders};
use crate::types::clock::UnixTime;
use crate::types::close_reason::CloseReason;
use crate::types::reject::{Reason, Reject};
use crate::upstream::{CurrentServer, Failure, Lease, Protocol, Upstream, UpstreamResponse};

pub struct Forwarder {
    pub upstreams: Vec<Arc<Upstream>>,
    pub hygiene: Arc<Hygiene>,
    /// Unless no route captures a login: then they mean nothing.
    pub login: Option<LoginHeaders>,
    /// `timeouts.body_idle`
    pub body_idle: Duration,
    /// `limits.upload_rate`
    pub upload: MinRate,
    /// `limits.body_size`
    pub body_size: u64,
    pub keyring: Arc<Keyring>,
    pub replacement: ReplacementSettings,
}

/// An answer on its way to the client, and what has to last as long as its body.
pub struct Forwarded {
    pub response: Response<Body>,
    pub lease: Option<Lease>,
    pub tunnel: Option<Tunnel>,
    /// The token whose end is also the answer's, or the tunnel's. `None` if no upstream had a part in it.
    pub held: Option<TokenBound>,
    /// What the upstream said about a login. Only a route that captures logins believes it.
    pub said: Option<Box<LoginHeaderValues>>,
}

impl Forwarder {
    pub async fn forward(
        &self,
        permit: Permit,
        request: &mut Request<Body>,
        host: HeaderValue,
        origin: &Origin,
        record: &mut Record,
        (worker, metrics, streams): (usize, &WorkerMetrics, &Arc<Streams>),
    ) -> Result<Forwarded, Reject> {
        let upstream = &self.upstreams[permit.route().upstream];
        record.upstream = Some(upstream.name.clone());
        let asked_as_bearer = self.set_token(request, &permit, record.time)?;
        // An HTTP/2 upstream carries no HTTP/1 upgrade.
        let websocket = match upstream.settings.protocol {
            Protocol::Http1 => websocket::asked_for(request),
            Protocol::Http2 if record.method == Method::CONNECT || websocket::is_asked_for(request) => {
                return Err(Reject::new(Reason::ProtocolRefused, "a WebSocket, and its upstream speaks HTTP/2"));
            }
            Protocol::Http2 => None,
        };
        self.hygiene.clean_request(request.headers_mut());
        headers::set_origin(request.headers_mut(), origin, Some(&host));
        self.set_identity(request, &permit, record);
        if websocket.is_some() {
            websocket::ask(request.headers_mut());
        }
        address(request, upstream, host);
        let key = upstream.key(request.headers(), permit.caller().map(|caller| caller.token().subject.as_str()));

        let mut held = TokenBound::by(permit.holder(), streams);
        let progress = self.limit_body(request, record.version, &held)?;
        let whereabouts = CurrentServer::default();
        let sending = pin!(upstream.send(worker, metrics, origin.address, key, &whereabouts, request));
        let limit = upstream.settings.response_timeout;
        let answered = answer_within(limit, progress.as_deref(), &mut held, sending).await;
        // Where the request's own body broke off, that is the reason, whatever the upstream made of it.
        let body_failure = || progress.as_ref().and_then(|progress| progress.failure());
        let (mut response, lease) = answered.map_err(|reject| {
            let reject = body_failure().unwrap_or_else(|| {
                upstream.failed(&whereabouts, &reject);
                reject
            });
            // Whoever comes so far was authenticated: only an end can be about the token.
            record.ended = reject.reason.is_about_the_token().then_some(CloseReason::Token(reject.reason));
            reject
        })?;

        if !headers::is_framed_plainly(response.headers()) {
            return Err(Reject::new(Reason::UpstreamBroken, "two lengths, or a transfer coding other than chunked"));
        }
        let tunnel = websocket::agreed(websocket, &mut response, self.body_idle)?;
        // Before the rest: a backend may well name them in `Connection`, as they go no further than this.
        let said = self.login.as_ref().and_then(|login| login.take_from(response.headers_mut()));
        headers::clean_response(response.headers_mut());
        if response.status() == StatusCode::NO_CONTENT {
            // RFC 9110 section 8.6. HTTP/2 clients take a length for a body that is missing.
            response.headers_mut().remove(header::CONTENT_LENGTH);
        }
        if let Some(tunnel) = &tunnel {
            tunnel.announce(&mut response);
            if asked_as_bearer && !response.headers().contains_key(header::SEC_WEBSOCKET_PROTOCOL) {
                let understood = HeaderValue::from_static(bearer::MARKER);
                response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, understood);
            }
        }
        let over_http2 = response.version() == Version::HTTP_2;
        *response.version_mut() = Version::HTTP_11;
        // What answers a request that is still being sent may end in a reset.
        let must_end = over_http2 && progress.is_none_or(|progress| progress.is_complete());
        held.set_termination(Termination::of(&record.method, &response));
        let incoming = |body| Body::incoming(body).silent_for_at_most(self.body_idle).that_must_end(must_end);
        let response = response.map(incoming);
        Ok(Forwarded { response, lease: tunnel.is_none().then_some(lease), tunnel, held: Some(held), said })
    }

    /// What the upstream sees of the token. Answers as [`bearer::TokenLocations::rewrite_for_upstream`].
    fn set_token(&self, request: &mut Request<Body>, permit: &Permit, now: UnixTime) -> Result<bool, Reject> {
        let route = permit.route();
        let asked_as_bearer =
            route.places.rewrite_for_upstream(request, route.token_forwarding != TokenForwarding::Pass)?;
        if let (TokenForwarding::Replace(audience), Some(caller)) = (&route.token_forwarding, permit.caller()) {
            let (known, keys) = (caller.known(), self.keyring.keys());
            let signing = &keys.own().signing;
            let replaced = known.replacements.authorization(&known.token, audience, &self.replacement, signing, now)?;
            request.headers_mut().insert(header::AUTHORIZATION, replaced);
        }
        Ok(asked_as_bearer)
    }

    /// Who is asking, and which request this is. What the client said under these names is gone by now.
    fn set_identity(&self, request: &mut Request<Body>, permit: &Permit, record: &Record) {
        let headers = request.headers_mut();
        if let Some(caller) = permit.caller() {
            for (name, value) in &caller.known().identity {
                headers.insert(name.clone(), value.clone());
            }
        }
        if let Some(observed) = permit.observed() {
            let reason = HeaderValue::from_static(observed.reason.code());
            headers.insert(HeaderName::from_static(headers::OBSERVED), reason);
        }
        // Thirty-two hexadecimal digits are always a header value.
        if let Ok(id) = HeaderValue::from_bytes(&record.request_id.as_hex()) {
            headers.insert(headers::X_REQUEST_ID, id);
        }
        // It was for us: the body is asked for when the upstream takes it.
        headers.remove(header::EXPECT);
    }

    /// `came_over`: the request's own version is the upstream's by now.
    fn limit_body(
        &self,
        request: &mut Request<Body>,
        came_over: Version,
        held: &TokenBound,
    ) -> Result<Option<Arc<Progress>>, Reject> {
        if request.body().is_known_to_exceed(self.body_size) {
            return Err(Reject::new(
                Reason::BodyTooLarge,
                format!("over {} bytes by its Content-Length", self.body_size),
            ));
        }
        if request.body().is_end_stream() {
            return Ok(None);
        }
        let progress = Arc::new(Progress::begin());
        let (hygiene, held) = (self.hygiene.clone(), held.another());
        let watch = Box::new(Upload { progress: progress.clone(), hygiene, held });
        // Streams of messages: how fast they come is the backend's business, and `body_idle` bounds their silence.
        let least = if grpc::is_grpc(request.headers()) { MinRate { rate: 0, ..self.upload } } else { self.upload };
        let body = mem::take(request.body_mut()).that_must_end(came_over == Version::HTTP_2);
        let limited = body.at_most(self.body_size).silent_for_at_most(self.body_idle).at_least(least);
        *request.body_mut() = limited.watched_by(watch);
        Ok(Some(progress))
    }
}

/// Where the request goes, in the form that the upstream's protocol wants.
fn address(request: &mut Request<Body>, upstream: &Upstream, host: HeaderValue) {
    let host = if upstream.settings.preserve_host { host } else { upstream.host.clone() };
    match upstream.settings.protocol {
        Protocol::Http1 => {
            *request.version_mut() = Version::HTTP_11;
            *request.uri_mut() = target::origin_form(request.uri());
            request.headers_mut().insert(header::HOST, host);
            headers::join_cookies(request.headers_mut());
            if request.body().size_hint().exact().is_none() {
                // hyper would take it for granted that a GET has no body.
                request.headers_mut().insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
        }
        Protocol::Http2 => {
            *request.version_mut() = Version::HTTP_2;
            let mut parts = target::origin_form(request.uri()).into_parts();
            parts.scheme = Some(upstream.scheme.clone());
            parts.authority = host.to_str().ok().and_then(|host| host.parse().ok());
            *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
            request.headers_mut().remove(header::HOST);
        }
    }
}

/// How far the request's body has come.
struct Progress {
    start: Instant,
    /// When it last moved, in milliseconds after `start`.
    last: AtomicU64,
    /// Is it the client who keeps us waiting?
    client_owes: AtomicBool,
    complete: AtomicBool,
    /// Why it broke off.
    failure: Mutex<Option<Reject>>,
}

impl Progress {
    fn begin() -> Self {
        let (last, failure) = (AtomicU64::new(0), Mutex::new(None));
        let (client_owes, complete) = (AtomicBool::new(false), AtomicBool::new(false));
        Progress { start: Instant::now(), last, client_owes, complete, failure }
    }

    fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }

    fn failure(&self) -> Option<Reject> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn moved(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
        self.client_owes.store(false, Ordering::Relaxed);
    }

    /// What is left of the upstream's time.
    fn time_left(&self, limit: Duration) -> Duration {
        if self.client_owes.load(Ordering::Relaxed) {
            // `body_idle` decides how long a client may be silent.
            return limit;
        }
        let moved = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed));
        (moved + limit).saturating_duration_since(Instant::now())
    }
}

/// Watches the request's body on its way up.
struct Upload {
    progress: Arc<Progress>,
    hygiene: Arc<Hygiene>,
    held: TokenBound,
}

impl Watch for Upload {
    fn data(&mut self, _data: &mut Bytes) {
        self.progress.moved();
    }

    fn waiting(&mut self) {
        self.progress.client_owes.store(true, Ordering::Relaxed);
    }

    fn trailers(&mut self, trailers: &mut HeaderMap) {
        self.hygiene.clean_trailers(trailers);
    }

    fn failed(&mut self, error: &BodyError) {
        *self.progress.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.reject());
    }

    fn lasts(&mut self) -> bool {
        self.held.lasts();
        true
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<BodyEnd> {
        self.held.poll_end(context)
    }

    fn end(&mut self) {
        self.progress.moved();
        self.progress.complete.store(true, Ordering::Relaxed);
    }
}

impl Forwarded {
    /// An answer that no upstream had a part in.
    pub fn own(response: Response<Body>) -> Self {
        Forwarded { response, lease: None, tunnel: None, held: None, said: None }
    }
}

/// Waits so long for the head of the answer, counted from the last movement of the request's body: neither a long upload
/// nor a slow client is a slow upstream.
async fn answer_within(
    limit: Duration,
    progress: Option<&Progress>,
    held: &mut TokenBound,
    // Pinned by the caller: taken by value it would lie in this future twice, before and after pinning.
    mut sending: Pin<&mut impl Future<Output = Result<UpstreamResponse, Failure>>>,
) -> Result<UpstreamResponse, Reject> {
    let moment = limit.min(MOMENT);
    if let Ok(answer) = tokio::time::timeout(moment, sending.as_mut()).await {
        return Ok(answer?);
    }
    // Boxed, as the rare case: every request's future is as large as the largest step in it.
    Box::pin(async move {
        let mut wait = progress.map_or(limit - moment, |progress| progress.time_left(limit));
        let mut end = pin!(token_end(held));
        while !wait.is_zero() {
            tokio::select! {
                biased;
                answer = sending.as_mut() => return Ok(answer?),
                reason = end.as_mut() => return Err(Reject::new(reason, "while an answer was waited for")),
                () = tokio::time::sleep(wait) => {}
            }
            wait = progress.map_or(Duration::ZERO, |progress| progress.time_left(limit));
        }
        Err(Reject::new(Reason::UpstreamTimeout, format!("no answer within {}ms", limit.as_millis())))
    })
    .await
}

/// Returns when the token is good no longer that a request stands on.
async fn token_end(held: &mut TokenBound) -> Reason {
    held.lasts();
    held.end().await
}
