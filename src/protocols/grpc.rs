//! gRPC calls: how the gateway rejects them and ends them.
//!
//! A call is forwarded like any other request; its status is a trailer, and trailers pass. A rejection by the gateway
//! is HTTP 200 with `grpc-status` and `grpc-message` in its head and no body, which gRPC calls Trailers-Only. A client
//! would report HTTP 401 with a JSON body as "received status 401" without the reason, and some clients ignore
//! `grpc-status` beside a status other than 200. Logs and metrics have the HTTP status that the reason has for other
//! requests, so that no rejection looks like a success.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header};

use crate::protocols::http::body::Body;
use crate::types::close_reason::CloseReason;
use crate::types::ids::RequestId;
use crate::types::reject::Reason;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

// The status codes of gRPC that the gateway uses.
const UNKNOWN: u16 = 2;
const PERMISSION_DENIED: u16 = 7;
const RESOURCE_EXHAUSTED: u16 = 8;
const UNIMPLEMENTED: u16 = 12;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;
const UNAUTHENTICATED: u16 = 16;

/// Returns true if the request is a gRPC call: a POST over HTTP/2. `application/grpc-web` is another protocol, and its
/// clients read HTTP statuses.
pub fn is_call<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_2 && *request.method() == Method::POST && is_grpc(request.headers())
}

/// Returns true for `application/grpc`, also with a message format after a plus sign or with parameters.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    has_content_type(headers, GRPC.as_bytes())
}

/// Returns true for `application/grpc-web`, also with a message format or with parameters.
pub fn is_grpc_web(headers: &HeaderMap) -> bool {
    has_content_type(headers, b"application/grpc-web")
}

fn has_content_type(headers: &HeaderMap, media_type: &[u8]) -> bool {
    let rest = headers.get(header::CONTENT_TYPE).and_then(|value| value.as_bytes().strip_prefix(media_type));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// The response to a rejected call.
pub fn rejection(reason: Reason, request_id: RequestId) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, GRPC);
    set_status(headers, reason.status(), &format!("{} (request {request_id})", reason.message()));
    response
}

/// The trailers that end a call in flight.
pub fn trailers(reason: CloseReason) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    set_status(&mut trailers, reason.status(), reason.message());
    trailers
}

fn set_status(headers: &mut HeaderMap, status: StatusCode, message: &str) {
    headers.insert(STATUS, HeaderValue::from(code(status)));
    // Clients decode percent signs in it; the messages of the gateway have none.
    if let Ok(message) = HeaderValue::from_str(message) {
        headers.insert(MESSAGE, message);
    }
}

/// The code that a gRPC client derives from an HTTP status without a code (`http-grpc-status-mapping.md` of gRPC), so
/// that it makes no difference whether the gateway or a proxy in front of it rejects a call. 405, 413 and 500 are not
/// in that table.
fn code(status: StatusCode) -> u16 {
    match status {
        StatusCode::BAD_REQUEST | StatusCode::INTERNAL_SERVER_ERROR => INTERNAL,
        StatusCode::UNAUTHORIZED => UNAUTHENTICATED,
        StatusCode::FORBIDDEN => PERMISSION_DENIED,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => UNIMPLEMENTED,
        StatusCode::PAYLOAD_TOO_LARGE => RESOURCE_EXHAUSTED,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_and_grpc_web_are_distinguished() {
        for (kind, plain, web) in [
            ("application/grpc", true, false),
            ("application/grpc+proto", true, false),
            ("application/grpc;charset=utf-8", true, false),
            ("application/grpc-web+proto", false, true),
            ("application/grpc-web-text", false, false),
            ("application/json", false, false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
            assert_eq!((is_grpc(&headers), is_grpc_web(&headers)), (plain, web), "{kind}");
        }
    }

    #[test]
    fn a_call_is_a_post_over_http2_with_its_content_type() {
        let posted = |version, kind: &str| {
            let request = Request::post("/Service/Method").version(version).header("content-type", kind).body(());
            is_call(&request.expect("a request"))
        };
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"] {
            assert!(posted(Version::HTTP_2, kind), "{kind}");
            assert!(!posted(Version::HTTP_11, kind), "{kind} over HTTP/1.1");
        }
        for kind in ["application/grpc-web", "application/grpc-web+proto", "application/json", ""] {
            assert!(!posted(Version::HTTP_2, kind), "{kind}");
        }
    }

    /// A client would decode the characters after a percent sign.
    #[test]
    fn no_message_needs_to_be_encoded() {
        for reason in Reason::ALL {
            assert!(reason.message().bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'%'), "{reason:?}");
        }
    }
}
