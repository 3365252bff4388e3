//! gRPC calls, and what they are refused and ended with.
//!
//! A call is forwarded as any other request: its status is a trailer, and trailers pass. Only what the gateway says itself
//! needs a form of its own. A refusal is HTTP 200 with `grpc-status` and `grpc-message` in its head and no body, which gRPC
//! calls Trailers-Only: HTTP 401 with a page of JSON would be read as well, but as "received status 401", without the
//! sentence that says why, and some clients ignore a `grpc-status` that stands beside another status than 200. Logs and
//! metrics tell the HTTP status that the reason has everywhere else, so that no refusal looks like a success.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header};

use crate::protocols::http::body::Body;
use crate::types::close_reason::CloseReason;
use crate::types::ids::RequestId;
use crate::types::reject::Reason;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

// Of the seventeen codes of gRPC, those that a gateway has a use for.
const UNKNOWN: u16 = 2;
const PERMISSION_DENIED: u16 = 7;
const RESOURCE_EXHAUSTED: u16 = 8;
const UNIMPLEMENTED: u16 = 12;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;
const UNAUTHENTICATED: u16 = 16;

/// gRPC is spoken over HTTP/2, by POST. `application/grpc-web` is another protocol, whose clients read HTTP statuses.
pub fn is_call<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_2 && *request.method() == Method::POST && is_grpc(request.headers())
}

/// `application/grpc`, or that with the name of a message format behind a plus sign, or with parameters.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    is_kind(headers, GRPC.as_bytes())
}

/// gRPC in other clothes.
pub fn is_grpc_web(headers: &HeaderMap) -> bool {
    is_kind(headers, b"application/grpc-web")
}

fn is_kind(headers: &HeaderMap, kind: &[u8]) -> bool {
    let rest = headers.get(header::CONTENT_TYPE).and_then(|value| value.as_bytes().strip_prefix(kind));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// The refusal of a call.
pub fn refused(reason: Reason, request_id: RequestId) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, GRPC);
    set_status(headers, reason.status(), &format!("{} (request {request_id})", reason.message()));
    response
}

/// What ends a call that is under way: a status in its trailers.
pub fn trailers(ended: CloseReason) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    set_status(&mut trailers, ended.status(), ended.message());
    trailers
}

fn set_status(headers: &mut HeaderMap, status: StatusCode, message: &str) {
    headers.insert(STATUS, HeaderValue::from(code(status)));
    // Clients decode percent signs in it, and our sentences have none.
    if let Ok(message) = HeaderValue::from_str(message) {
        headers.insert(MESSAGE, message);
    }
}

/// As a gRPC client reads an HTTP status that comes without a code (`http-grpc-status-mapping.md` of gRPC): it must make no
/// difference whether the gateway refuses a call or a proxy before it. Three that have no row there are given their meaning.
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
    fn calls_are_told_from_their_variants() {
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
    fn a_call_is_told_by_its_content_type() {
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

    /// A client would decode what follows a percent sign.
    #[test]
    fn no_message_needs_to_be_encoded() {
        for reason in Reason::ALL {
            assert!(reason.message().bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'%'), "{reason:?}");
        }
    }
}
