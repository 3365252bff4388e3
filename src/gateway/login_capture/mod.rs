//! Captures the login and the logout of a backend that knows nothing of tokens.
//!
//! Login: a response that names a subject becomes a token pair. The family is durable before the response is sent, and
//! the members of the pair are added to the backend's JSON. A response that cannot carry them becomes 503, because a
//! client that reads "welcome" without a token would not be logged in. The same happens if a mass revocation overtakes
//! the login.
//!
//! With `login = "cookie"`, the pair is set as cookies instead, and the response stays as it is: a page or a redirect.
//!
//! Logout: after a 2xx response, the caller's family is revoked, durably, before the response is sent. On a route with
//! `token_from = ["login_cookie"]`, a redirect counts as well, and the cookies are removed.

mod merge;

use std::sync::Arc;

use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Body as HttpBody;

use crate::auth::proof_verifier::GrantProof;
use crate::broker::{Broker, TokenPair};
use crate::gateway::authorize::Permit;
use crate::gateway::call_checks::CallChecks;
use crate::gateway::context::RequestContext;
use crate::gateway::cookie_refresh::NewCookies;
use crate::gateway::forward::Forwarded;
use crate::gateway::route::Capture;
use crate::limits::throttle::Attempt;
use crate::protocols::http::body::{self, Body};
use crate::protocols::http::{content_coding, media_type};
use crate::tokens::audit_event::EventContext;
use crate::tokens::bound::Bound;
use crate::tokens::jwt::VerifiedToken;
use crate::tokens::login::{Login, LoginHeaderValues};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};
use merge::{JsonObject, MergeError};

/// A request with a response that is captured.
pub struct Captured {
    capture: Capture,
    /// What the client has proved.
    proof: GrantProof,
    caller: Option<Arc<VerifiedToken>>,
    /// The route accepts the cookie of a captured login.
    login_cookie: bool,
    /// The request could carry a password.
    is_submission: bool,
    /// Only a page of another site that the browser trusts could have caused the request.
    has_checked_origin: bool,
    /// Only for a login.
    attempt: Option<Attempt>,
}

/// What a captured response is held to.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Maximum body of a login's response, in bytes.
    pub max_response: u64,
    /// When the response began. What the backend says holds as of then: it may end all old sessions of a user before it
    /// begins a new one.
    pub begun: UnixTime,
}

/// Prepares a request with a captured response: what comes back must be one whole response that can be read.
pub fn begin<B: HttpBody>(
    capture: Capture,
    permit: &Permit,
    request: &mut Request<B>,
    checks: &CallChecks<'_>,
    context: &RequestContext<'_>,
) -> Result<Captured, Reject> {
    checks.admit_capture(capture, permit, request.method(), request.headers(), context)?;
    let mut attempt = None;
    if capture != Capture::Logout {
        attempt = Some(checks.throttle.begin_attempt(context.client())?);
    }
    let is_submission = may_submit(permit, request);
    let has_checked_origin = !request.method().is_safe();
    let headers = request.headers_mut();
    // A tunnel has no response to read.
    headers.remove(header::UPGRADE);
    if capture == Capture::Login {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.remove(header::RANGE);
    }
    let caller = permit.caller().map(|caller| caller.token().clone());
    let login_cookie = permit.route().places.login_cookie;
    let proof = GrantProof::default();
    Ok(Captured { capture, proof, caller, login_cookie, is_submission, has_checked_origin, attempt })
}

/// Returns true if the backend could take the request as a login. A GET without a query, a body and credentials only
/// loads the page with the form.
fn may_submit<B: HttpBody>(permit: &Permit, request: &Request<B>) -> bool {
    let has_credentials = permit.caller().is_none() && request.headers().contains_key(header::AUTHORIZATION);
    !request.method().is_safe()
        || request.uri().query().is_some_and(|query| !query.is_empty())
        || !request.body().is_end_stream()
        || has_credentials
}

/// Returns true if a backend may have checked a password before the request failed. It has not if no server got it.
fn was_checked(is_submission: bool, reason: Reason) -> bool {
    let was_sent = !matches!(reason, Reason::UpstreamConnect | Reason::UpstreamConnectTimeout | Reason::UpstreamBusy);
    is_submission && was_sent
}

impl Captured {
    /// The login of a client that sends a proof is bound to its key, and gets no tokens if the proof is bad. That of a
    /// client with a certificate can be bound to it. A browser that keeps the tokens in cookies sends no proofs.
    pub async fn bind(
        mut self,
        headers: &HeaderMap,
        checks: &CallChecks<'_>,
        context: &RequestContext<'_>,
    ) -> Result<Self, Reject> {
        if self.capture == Capture::Login {
            match Box::pin(checks.grant_proof(headers, context)).await {
                Ok(proof) => self.proof = proof,
                Err(reject) => {
                    self.abandon(reject.reason);
                    return Err(reject);
                }
            }
        }
        Ok(self)
    }

    /// The backend gave no response. A closed connection may be how it rejects a wrong password, so the attempt counts
    /// unless the request was not sent.
    pub fn abandon(self, reason: Reason) {
        if let Some(attempt) = self.attempt {
            attempt.end(was_checked(self.is_submission, reason));
        }
    }

    pub async fn finish(
        self,
        forwarded: Forwarded,
        checks: &CallChecks<'_>,
        broker: &Broker,
        limits: Limits,
        context: &mut RequestContext<'_>,
    ) -> Result<Forwarded, Reject> {
        if let Some(attempt) = self.attempt {
            // A backend may report a wrong password with any status: 200 and the form again, a redirect, or 500.
            let has_failed = self.is_submission && forwarded.login.is_none();
            attempt.end(forwarded.response.status().is_client_error() || has_failed);
        }
        if self.capture == Capture::CookieLogin && !self.has_checked_origin && forwarded.login.is_some() {
            return Err(rejected("a login by a method that any page can cause (expected POST)"));
        }
        match (self.capture, self.caller) {
            (Capture::Login, _) => {
                if forwarded.login.is_some() {
                    checks.use_up_everywhere(self.proof, context).await?;
                }
                login(forwarded, self.proof.bound, broker, limits, context).await
            }
            (Capture::CookieLogin, _) => cookie_login(forwarded, broker, limits, context).await,
            (Capture::Logout, Some(caller)) => {
                logout(forwarded, broker, &caller, self.login_cookie, context.event()).await
            }
            // A preflight has no caller.
            (Capture::Logout, None) => Ok(forwarded),
        }
    }
}

async fn login(
    mut forwarded: Forwarded,
    proved: Bound,
    broker: &Broker,
    limits: Limits,
    context: &mut RequestContext<'_>,
) -> Result<Forwarded, Reject> {
    // No user has logged in: the password was wrong, or the backend asks for a second factor.
    let Some(values) = forwarded.login.take() else { return Ok(forwarded) };
    let (head, mut body) = forwarded.response.into_parts();
    check_head(&head)?;
    let (login, event) = begin_login(&values, limits.begun, context)?;
    let content = body::read(&mut body, limits.max_response).await.map_err(|broken| {
        if broken.reason != Reason::BodyTooLarge
            && let Some(connection) = &forwarded.upstream_connection
        {
            connection.record_broken_body(&broken.detail);
        }
        rejected(broken.detail)
    })?;
    let object =
        JsonObject::read(&content, TokenPair::member_names(broker.settings.extra_fields)).map_err(unmergeable)?;
    // The body is complete: the upstream connection need not wait for the store.
    if let Some(connection) = forwarded.upstream_connection.take() {
        connection.release(std::time::Instant::now());
    }
    let bound_to = proved.with_certificate_if(broker.settings.certificate_bound);
    let pair = issue(Login { bound_to, ..login }, broker, event, context).await?;
    let response = respond(head, object.with(&pair).map_err(unmergeable)?);
    Ok(Forwarded { response, ..forwarded })
}

async fn cookie_login(
    mut forwarded: Forwarded,
    broker: &Broker,
    limits: Limits,
    context: &mut RequestContext<'_>,
) -> Result<Forwarded, Reject> {
    let Some(values) = forwarded.login.take() else { return Ok(forwarded) };
    let status = forwarded.response.status();
    if !can_log_in(status) {
        return Err(rejected(format!("a login response with status {} (expected 2xx or a redirect)", status.as_u16())));
    }
    let (login, event) = begin_login(&values, limits.begun, context)?;
    let pair = issue(login, broker, event, context).await?;
    Ok(NewCookies::of(&pair.access_token, &pair.refresh_token)?.add_to(forwarded))
}

/// What the backend says about the user, and when and for which client.
fn begin_login(
    values: &LoginHeaderValues,
    begun: UnixTime,
    context: &RequestContext<'_>,
) -> Result<(Login, EventContext), Reject> {
    let event = EventContext { at: begun, ..context.event() };
    let login = values.login().map_err(|error| rejected(error.to_string()))?;
    Ok((Login { address: event.client, ..login }, event))
}

async fn issue(
    login: Login,
    broker: &Broker,
    event: EventContext,
    context: &mut RequestContext<'_>,
) -> Result<TokenPair, Reject> {
    let issued = broker.issue(login, event).await;
    let pair = issued.map_err(|reject| match reject.reason {
        Reason::StoreUnavailable => reject,
        // The client is not at fault.
        _ => rejected(reject.detail),
    })?;
    context.record.token_id = Some(pair.token_id());
    Ok(pair)
}

fn can_log_in(status: StatusCode) -> bool {
    status.is_success() || is_redirect(status)
}

/// A response after which a browser loads another page.
fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301..=303 | 307 | 308)
}

fn unmergeable(error: MergeError) -> Reject {
    rejected(error.to_string())
}

fn rejected(detail: impl Into<std::borrow::Cow<'static, str>>) -> Reject {
    Reject::new(Reason::LoginCapture, detail)
}

/// Checks, before the body is read, that the response has a complete JSON body without compression.
fn check_head(head: &Parts) -> Result<(), Reject> {
    // The other 2xx have no body (204, 205) or a part of one (206).
    let complete =
        [StatusCode::OK, StatusCode::CREATED, StatusCode::ACCEPTED, StatusCode::NON_AUTHORITATIVE_INFORMATION];
    if !complete.contains(&head.status) {
        return Err(rejected(format!("a login response with status {} (expected 200 to 203)", head.status.as_u16())));
    }
    if content_coding::other_than_identity(&head.headers).is_some() {
        return Err(rejected("a compressed login response, although the request accepts only `identity`"));
    }
    if !is_json(&head.headers) {
        return Err(rejected("the Content-Type of the login response is not application/json"));
    }
    Ok(())
}

/// Returns true for `application/json` and for types with the suffix `+json` (RFC 6839 section 3.1).
fn is_json(headers: &HeaderMap) -> bool {
    let kind = media_type::of(headers).unwrap_or_default().to_ascii_lowercase();
    kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json")
}

/// Headers that describe the old body, or that allow a cache to keep it.
const OUTDATED: [HeaderName; 13] = [
    header::ETAG,
    header::LAST_MODIFIED,
    header::CONTENT_ENCODING,
    header::ACCEPT_RANGES,
    header::AGE,
    header::EXPIRES,
    header::TRAILER,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    // These outrank Cache-Control (RFC 9213).
    HeaderName::from_static("cdn-cache-control"),
    HeaderName::from_static("surrogate-control"),
];

fn respond(mut head: Parts, content: Vec<u8>) -> Response<Body> {
    for name in &OUTDATED {
        head.headers.remove(name);
    }
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(content.len()));
    head.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Response::from_parts(head, Body::full(content))
}

async fn logout(
    forwarded: Forwarded,
    broker: &Broker,
    caller: &VerifiedToken,
    login_cookie: bool,
    event: EventContext,
) -> Result<Forwarded, Reject> {
    let status = forwarded.response.status();
    if !(status.is_success() || login_cookie && is_redirect(status)) {
        return Ok(forwarded);
    }
    broker.revoke_login_of(caller, event).await?;
    Ok(if login_cookie { NewCookies::none().add_to(forwarded) } else { forwarded })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_or_a_redirect_can_log_a_browser_in() {
        for (status, expected) in [
            (200, true),
            (204, true),
            (301, true),
            (303, true),
            (307, true),
            (308, true),
            (300, false),
            (304, false),
            (305, false),
            (401, false),
            (500, false),
        ] {
            assert_eq!(can_log_in(StatusCode::from_u16(status).expect("a status")), expected, "{status}");
        }
    }

    #[test]
    fn a_failed_request_counts_as_a_guess_if_a_server_got_one() {
        for (reason, expected) in [
            (Reason::UpstreamBroken, true),
            (Reason::UpstreamTimeout, true),
            (Reason::UpstreamConnect, false),
            (Reason::UpstreamConnectTimeout, false),
            (Reason::UpstreamBusy, false),
        ] {
            assert_eq!([was_checked(true, reason), was_checked(false, reason)], [expected, false], "{reason:?}");
        }
    }

    #[test]
    fn json_is_a_media_type_of_applications() {
        for (media_type, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/problem+json", true),
            ("application/xml", false),
            ("text/vnd+json", false),
            ("text/json", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(media_type))]);
            assert_eq!(is_json(&headers), expected, "{media_type}");
        }
    }
}
