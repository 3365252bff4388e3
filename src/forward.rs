//! Step 3: a permitted request to its upstream, and the answer back. Streams both ways.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::access_log::Record;
use crate::authorize::Permit;
use crate::bearer;
use crate::body::{Body, BodyError, Watch};
use crate::clock::UnixTime;
use crate::headers::{self, Hygiene, Origin};
use crate::keyring::Keyring;
use crate::login::{LoginHeaders, Said};
use crate::metrics::WorkerMetrics;
use crate::reject::{Reason, Reject};
use crate::route::Onward;
use crate::target;
use crate::token::replacement::Terms;
use crate::tunnel::{self, Tunnel};
use crate::upstream::{Answer, Failure, Lease, Protocol, Upstream};

pub struct Forwarder {
    pub upstreams: Vec<Arc<Upstream>>,
    pub hygiene: Arc<Hygiene>,
    /// Unless no route captures a login: then they mean nothing.
    pub login: Option<LoginHeaders>,
    /// `timeouts.body_idle`
    pub body_idle: Duration,
    /// `limits.body_size`
    pub body_size: u64,
    pub keyring: Arc<Keyring>,
    pub replacement: Terms,
}

/// An answer on its way to the client, and what has to last as long as its body.
pub struct Forwarded {
    pub response: Response<Body>,
    pub lease: Option<Lease>,
    pub tunnel: Option<Tunnel>,
    /// What the upstream said about a login. Only a route that captures logins believes it.
    pub said: Option<Box<Said>>,
}

impl Forwarder {
    pub async fn forward(
        &self,
        permit: Permit,
        mut request: Request<Incoming>,
        host: HeaderValue,
        origin: &Origin,
        record: &mut Record,
        (worker, metrics): (usize, &WorkerMetrics),
    ) -> Result<Forwarded, Reject> {
        let upstream = &self.upstreams[permit.route().upstream];
        record.upstream = Some(upstream.name.clone());
        let asked_as_bearer = self.set_token(&mut request, &permit, record.time)?;
        // An HTTP/2 upstream carries no HTTP/1 upgrade.
        let websocket = match upstream.settings.protocol {
            Protocol::Http1 => tunnel::asked_for(&mut request),
            Protocol::Http2 => None,
        };
        self.hygiene.clean_request(request.headers_mut());
        headers::set_origin(request.headers_mut(), origin, Some(&host));
        self.set_identity(&mut request, &permit, record);
        if websocket.is_some() {
            tunnel::ask(request.headers_mut());
        }
        address(&mut request, upstream, host);

        let (request, progress) = self.limit_body(request)?;
        let sending = pin!(upstream.send(worker, metrics, request));
        let limit = upstream.settings.response_timeout;
        let answered = answer_within(limit, progress.as_deref(), sending).await;
        // Where the request's own body broke off, that is the reason, whatever the upstream made of it.
        let body_failure = || progress.as_ref().and_then(|progress| progress.failure());
        let (mut response, lease) = answered.map_err(|reject| body_failure().unwrap_or(reject))?;

        if !headers::is_framed_plainly(response.headers()) {
            return Err(Reject::new(Reason::UpstreamBroken, "a transfer coding other than chunked"));
        }
        let tunnel = tunnel::agreed(websocket, &mut response)?;
        // Before the rest: a backend may well name them in `Connection`, as they go no further than this.
        let said = self.login.as_ref().and_then(|login| login.take_from(response.headers_mut()));
        headers::clean_response(response.headers_mut());
        if tunnel.is_some() {
            tunnel::ask(response.headers_mut());
            if asked_as_bearer && !response.headers().contains_key(header::SEC_WEBSOCKET_PROTOCOL) {
                let understood = HeaderValue::from_static(bearer::MARKER);
                response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, understood);
            }
        }
        *response.version_mut() = Version::HTTP_11;
        let response = response.map(|body| Body::incoming(body).silent_for_at_most(self.body_idle));
        Ok(Forwarded { response, lease: tunnel.is_none().then_some(lease), tunnel, said })
    }

    /// What the upstream sees of the token. Answers as [`bearer::Places::take_out`].
    fn set_token(&self, request: &mut Request<Incoming>, permit: &Permit, now: UnixTime) -> Result<bool, Reject> {
        let route = permit.route();
        let asked_as_bearer = route.places.take_out(request, route.onward != Onward::Pass)?;
        if let (Onward::Replace(audience), Some(caller)) = (&route.onward, permit.caller()) {
            let (known, keys) = (caller.known(), self.keyring.keys());
            let signing = &keys.own().signing;
            let replaced = known.replacements.authorization(&known.token, audience, &self.replacement, signing, now)?;
            request.headers_mut().insert(header::AUTHORIZATION, replaced);
        }
        Ok(asked_as_bearer)
    }

    /// Who is asking, and which request this is. What the client said under these names is gone by now.
    fn set_identity(&self, request: &mut Request<Incoming>, permit: &Permit, record: &Record) {
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

    fn limit_body(&self, request: Request<Incoming>) -> Result<(Request<Body>, Option<Arc<Progress>>), Reject> {
        if request.body().size_hint().lower() > self.body_size {
            return Err(Reject::new(
                Reason::BodyTooLarge,
                format!("over {} bytes by its Content-Length", self.body_size),
            ));
        }
        if request.body().is_end_stream() {
            return Ok((request.map(|_| Body::empty()), None));
        }
        let progress = Arc::new(Progress::begin());
        let watch = Box::new(Upload { progress: progress.clone(), hygiene: self.hygiene.clone() });
        let limit = |body| Body::incoming(body).at_most(self.body_size).silent_for_at_most(self.body_idle);
        Ok((request.map(|body| limit(body).watched_by(watch)), Some(progress)))
    }
}

/// Where the request goes, in the form that the upstream's protocol wants.
fn address(request: &mut Request<Incoming>, upstream: &Upstream, host: HeaderValue) {
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
    /// Why it broke off.
    failure: Mutex<Option<Reject>>,
}

impl Progress {
    fn begin() -> Self {
        let (last, client_owes, failure) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(None));
        Progress { start: Instant::now(), last, client_owes, failure }
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
}

impl Watch for Upload {
    fn data(&mut self, _len: usize) {
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

    fn end(&mut self) {
        self.progress.moved();
    }
}

/// Waits so long for the head of the answer, counted from the last movement of the request's body: neither a long upload
/// nor a slow client is a slow upstream.
async fn answer_within(
    limit: Duration,
    progress: Option<&Progress>,
    // Pinned by the caller: taken by value it would lie in this future twice, before and after pinning.
    mut sending: Pin<&mut impl Future<Output = Result<Answer, Failure>>>,
) -> Result<Answer, Reject> {
    let mut wait = limit;
    loop {
        match tokio::time::timeout(wait, sending.as_mut()).await {
            Ok(answer) => return Ok(answer?),
            Err(_) => {
                wait = progress.map_or(Duration::ZERO, |progress| progress.time_left(limit));
                if wait.is_zero() {
                    return Err(Reject::new(
                        Reason::UpstreamTimeout,
                        format!("no answer within {}ms", limit.as_millis()),
                    ));
                }
            }
        }
    }
}
