//! gRPC calls: how the gateway rejects them, ends them, and answers one itself.
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
const OK: u16 = 0;
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
    set_status(headers, code(reason.status()), &format!("{} (request {request_id})", reason.message()));
    response
}

/// Why a body is not the message of a unary call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMessage {
    Compressed,
    /// No message, or more or less than one.
    NotOne,
}

/// The message in the body of a unary call: a flag, the length in four bytes, the message ("Length-Prefixed-Message" in
/// `PROTOCOL-HTTP2.md` of gRPC).
pub fn only_message(body: &[u8]) -> Result<&[u8], BadMessage> {
    let (head, message) = body.split_first_chunk::<5>().ok_or(BadMessage::NotOne)?;
    let [flag, length @ ..] = *head;
    match flag {
        0 if u32::from_be_bytes(length) as usize == message.len() => Ok(message),
        1 => Err(BadMessage::Compressed),
        _ => Err(BadMessage::NotOne),
    }
}

/// The response of a unary call that the gateway answers itself.
pub fn response(message: &[u8]) -> Response<Body> {
    // No message of the gateway comes near four gigabytes. A wrong length would be rejected by its reader.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, HeaderValue::from(OK));
    let body = Body::with_trailers([&[0], &length[..], message].concat(), trailers);
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
    response
}

/// The response to a call in a form that the gateway does not support. Clients then know that they need not repeat it.
pub fn unimplemented(reason: Reason) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
    set_status(response.headers_mut(), UNIMPLEMENTED, reason.message());
    response
}

/// The trailers that end a call in flight.
pub fn trailers(reason: CloseReason) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    set_status(&mut trailers, code(reason.status()), reason.message());
    trailers
}

fn set_status(headers: &mut HeaderMap, code: u16, message: &str) {
    headers.insert(STATUS, HeaderValue::from(code));
    // Clients decode percent signs in it; the messages of the gateway have none.
    if let Ok(message) = HeaderValue::from_str(message) {
        headers.insert(MESSAGE, message);
    }
}

/// The code that a gRPC client derives from an HTTP status without a code (`http-grpc-status-mapping.md` of gRPC), so
/// that it makes no difference whether the gateway or a proxy in front of it rejects a call. 405, 413 and 500 are not
/// in that table. Never that of success.
pub fn code(status: StatusCode) -> u16 {
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

    #[test]
    fn a_body_is_exactly_one_message() {
        for (body, expected) in [
            (&b"\0\0\0\0\x02ab"[..], Ok(&b"ab"[..])),
            (b"\0\0\0\0\0", Ok(b"")),
            (b"\x01\0\0\0\x02ab", Err(BadMessage::Compressed)),
            (b"\x02\0\0\0\x02ab", Err(BadMessage::NotOne)),
            (b"\0\0\0\0\x03ab", Err(BadMessage::NotOne)),
            (b"\0\0\0\0\x01ab", Err(BadMessage::NotOne)),
            (b"\0\xff\xff\xff\xffab", Err(BadMessage::NotOne)),
            (b"\0\0\0\0\0\0\0\0\0\0", Err(BadMessage::NotOne)),
            (b"\0\0\0\0", Err(BadMessage::NotOne)),
            (b"", Err(BadMessage::NotOne)),
        ] {
            assert_eq!(only_message(body), expected, "{body:?}");
        }
    }

    #[test]
    fn no_rejection_has_the_code_of_success() {
        assert!(Reason::ALL.iter().all(|reason| code(reason.status()) != OK));
    }

    /// A client would decode the characters after a percent sign.
    #[test]
    fn no_message_needs_to_be_encoded() {
        for reason in Reason::ALL {
            assert!(reason.message().bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'%'), "{reason:?}");
        }
    }
}
