//! The gateway's own responses: rejections, and JSON.
//!
//! A rejection is a JSON object, the same on every path: `{"success":false,"error":…,"error_description":…,"status":…,
//! "requestId":…}`, with `login_url` if a browser can sign in. A client that lists `application/problem+json` in Accept also gets the members of RFC 9457, and a
//! gRPC call gets a gRPC status.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use serde::Serialize;

use crate::protocols::grpc;
use crate::protocols::http::body::Body;
use crate::protocols::http::challenges::{Challenges, REALM};
use crate::types::ids::RequestId;
use crate::types::reject::Reject;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const ANY_ORIGIN: HeaderValue = HeaderValue::from_static("*");
/// The nonce for the next proof of the client (RFC 9449 section 8).
pub const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

#[derive(Serialize)]
struct Rejection<'r> {
    success: bool,
    error: &'r str,
    error_description: &'r str,
    status: u16,
    #[serde(rename = "requestId")]
    request_id: RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    login_url: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    problem: Option<Problem<'r>>,
}

/// RFC 9457 section 3.1. Without `type`, which would be `about:blank`.
#[derive(Serialize)]
struct Problem<'r> {
    title: &'r str,
    detail: &'r str,
}

/// The format of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectFormat {
    Json,
    /// RFC 9457.
    Problem,
    Grpc,
}

impl RejectFormat {
    pub fn for_request<B>(request: &Request<B>) -> RejectFormat {
        match () {
            () if grpc::is_call(request) => RejectFormat::Grpc,
            () => RejectFormat::with_status(request.headers()),
        }
    }

    /// The format for a client that reads the status. A gRPC call is rejected with 200.
    pub fn with_status(headers: &HeaderMap) -> RejectFormat {
        if wants_problem(headers) { RejectFormat::Problem } else { RejectFormat::Json }
    }
}

/// The response to a rejected request. `challenges`: for `WWW-Authenticate`, if the reason has one.
pub fn reject(
    reject: &Reject,
    challenges: Challenges<'_>,
    request_id: RequestId,
    format: RejectFormat,
) -> Response<Body> {
    match format {
        RejectFormat::Grpc => {
            let mut response = grpc::rejection(reject.reason, request_id);
            set_nonce(reject, response.headers_mut());
            response
        }
        _ => render(reject, reject.message(), challenges, request_id, format == RejectFormat::Problem),
    }
}

/// As [`fn@reject`], with the detail that otherwise is only logged. For callers of the admin API, who may read the log.
pub fn reject_with_detail(reject: &Reject, request_id: RequestId, wants_problem: bool) -> Response<Body> {
    let challenges = Challenges::bearer(&REALM);
    match &*reject.detail {
        "" => render(reject, reject.message(), challenges, request_id, wants_problem),
        detail => render(reject, &format!("{}: {detail}", reject.message()), challenges, request_id, wants_problem),
    }
}

fn render(
    reject: &Reject,
    description: &str,
    challenges: Challenges<'_>,
    request_id: RequestId,
    wants_problem: bool,
) -> Response<Body> {
    let reason = reject.reason;
    let status = reason.status();
    let rejection = Rejection {
        success: false,
        error: reject.public_code(),
        error_description: description,
        status: status.as_u16(),
        request_id,
        login_url: reject.login_url(),
        problem: wants_problem
            .then(|| Problem { title: status.canonical_reason().unwrap_or("Rejected"), detail: description }),
    };
    let mut response = json(status, &rejection);
    let headers = response.headers_mut();
    set_nonce(reject, headers);
    if wants_problem {
        headers.insert(header::CONTENT_TYPE, PROBLEM);
    }
    for challenge in challenges.of(reject) {
        headers.append(header::WWW_AUTHENTICATE, challenge);
    }
    if let Some(allow) = reject.allow() {
        headers.insert(header::ALLOW, allow.clone());
    }
    if let Some(after) = reject.retry_after() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
    }
    if reason.must_close_connection() {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn set_nonce(reject: &Reject, headers: &mut HeaderMap) {
    if let Some(nonce) = reject.dpop_nonce() {
        headers.insert(DPOP_NONCE, nonce.clone());
    }
}

/// A JSON response that must not be cached.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    // The gateway's own types always serialize. If one did not, an empty object is still JSON.
    let text = serde_json::to_vec(value).unwrap_or_else(|_| b"{}".to_vec());
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

/// A public JSON document that may be cached for ten minutes. Pages of every origin may read it.
pub fn public_document(text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::full(text));
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=600"));
    response
}

/// A public JSON response that may be cached for `max_age`. Pages of every origin may read it.
pub fn public_json(value: &impl Serialize, max_age: Duration) -> Response<Body> {
    let mut response = json(StatusCode::OK, value);
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY_ORIGIN);
    let text = format!("public, max-age={}", max_age.as_secs());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_str(&text).unwrap_or(NO_STORE));
    response
}

/// Returns true if the client lists `application/problem+json`.
pub fn wants_problem(headers: &HeaderMap) -> bool {
    let lists = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains("application/problem+json"));
    headers.get_all(header::ACCEPT).iter().any(lists)
}

/// A redirect that nothing keeps, and that tells the other site nothing. `None`: the target is no header.
pub fn redirect(status: StatusCode, location: &str) -> Option<Response<Body>> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let mut location = HeaderValue::from_str(location).ok()?;
    // It can have a state.
    location.set_sensitive(true);
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, location);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Some(response)
}

#[cfg(test)]
mod tests {
    use http::Version;

    use super::*;

    #[test]
    fn a_rejection_has_the_format_that_its_client_reads() {
        let grpc = Some("application/grpc");
        for (version, content_type, accept, expected) in [
            (Version::HTTP_11, None, None, RejectFormat::Json),
            (Version::HTTP_11, None, Some("text/html, */*"), RejectFormat::Json),
            (Version::HTTP_11, None, Some("text/html, application/problem+json"), RejectFormat::Problem),
            (Version::HTTP_2, grpc, None, RejectFormat::Grpc),
            (Version::HTTP_2, grpc, Some("application/problem+json"), RejectFormat::Grpc),
            (Version::HTTP_11, grpc, None, RejectFormat::Json),
        ] {
            let mut request = Request::post("/").version(version);
            for (name, value) in [(header::CONTENT_TYPE, content_type), (header::ACCEPT, accept)] {
                request = value.into_iter().fold(request, |request, value| request.header(&name, value));
            }
            let request = request.body(()).expect("a request");
            assert_eq!(RejectFormat::for_request(&request), expected, "{version:?} {content_type:?} {accept:?}");
        }
    }

    #[test]
    fn a_redirect_is_not_cached() {
        let response = redirect(StatusCode::SEE_OTHER, "https://a/?state=x").expect("a header");
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(response.headers()["referrer-policy"], "no-referrer");
        assert!(redirect(StatusCode::SEE_OTHER, "https://a/\r\nSet-Cookie: a=b").is_none());
    }
}
