//! `envoy.service.auth.v3.CheckResponse`: what Envoy does with the request. Pure, except that it reads the bodies of
//! the gateway's own responses.
//!
//! Only [`allowed`] makes a response with which Envoy forwards the request. Every other response of the gateway becomes
//! a denial ([`denied`]), whatever its status is, and Envoy sends it to the client. No message may be empty: without a
//! status, it allows the request.

use http::{HeaderName, HeaderValue, Response, header};
use http_body_util::BodyExt;

use crate::protocols::grpc;
use crate::protocols::http::body::Body;
use crate::protocols::http::headers;
use crate::protocols::protobuf::Message;

// CheckResponse
const STATUS: u32 = 1;
const DENIED_RESPONSE: u32 = 2;
const OK_RESPONSE: u32 = 3;
// google.rpc.Status
const CODE: u32 = 1;
// DeniedHttpResponse
const HTTP_STATUS: u32 = 1;
const DENIED_HEADERS: u32 = 2;
const BODY: u32 = 3;
// HttpStatus
const HTTP_CODE: u32 = 1;
// OkHttpResponse
const HEADERS: u32 = 2;
const HEADERS_TO_REMOVE: u32 = 5;
// HeaderValueOption
const HEADER: u32 = 1;
const APPEND_ACTION: u32 = 3;
const OVERWRITE_IF_EXISTS_OR_ADD: u64 = 2;
// HeaderValue
const KEY: u32 = 1;
const VALUE: u32 = 2;

/// The code of success (google.rpc.Code).
const OK: u64 = 0;

/// The request passes. Envoy sets the headers of `set`, in the place of what the client has sent, and removes those of
/// `remove`.
pub(super) fn allowed<'h>(set: impl Iterator<Item = (&'h HeaderName, &'h HeaderValue)>, remove: &[String]) -> Vec<u8> {
    let mut message = Message::default();
    message.message(STATUS, |status| status.number(CODE, OK));
    message.message(OK_RESPONSE, |response| {
        set.for_each(|(name, value)| add(response, HEADERS, name, value.as_bytes()));
        remove.iter().for_each(|name| response.bytes(HEADERS_TO_REMOVE, name.as_bytes()));
    });
    message.0
}

/// The client gets this response.
pub(super) async fn denied(response: Response<Body>) -> Vec<u8> {
    let (head, body) = response.into_parts();
    // Own responses are not streamed: they are there at once, and cannot fail.
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    // Envoy could not read a message with another text.
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let mut message = Message::default();
    message.message(STATUS, |status| status.number(CODE, u64::from(grpc::code(head.status))));
    message.message(DENIED_RESPONSE, |response| {
        response.message(HTTP_STATUS, |status| status.number(HTTP_CODE, u64::from(head.status.as_u16())));
        for name in head.headers.keys().filter(|name| !is_of_message(name)) {
            // All values of a field. Envoy overwrites each with the next.
            let values: Vec<&[u8]> = head.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
            let value = values.join(&b", "[..]);
            if std::str::from_utf8(&value).is_ok() {
                add(response, DENIED_HEADERS, name, &value);
            }
        }
        response.bytes(BODY, text.as_bytes());
    });
    message.0
}

/// Envoy has a connection and a length of its own.
fn is_of_message(name: &HeaderName) -> bool {
    *name == header::CONTENT_LENGTH || headers::hop_by_hop().any(|other| other == name)
}

fn add(message: &mut Message, field: u32, name: &HeaderName, value: &[u8]) {
    message.message(field, |option| {
        option.message(HEADER, |header| {
            header.bytes(KEY, name.as_str().as_bytes());
            header.bytes(VALUE, value);
        });
        option.number(APPEND_ACTION, OVERWRITE_IF_EXISTS_OR_ADD);
    });
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::protocols::protobuf::{Field, Fields, only};
    use crate::types::reject::Reason;

    fn fields(message: &[u8], wanted: u32) -> Vec<&[u8]> {
        let all = Fields(message).map(|field| field.expect("readable"));
        let wanted = all.filter_map(|(number, field)| match field {
            Field::Bytes(bytes) if number == wanted => Some(bytes),
            _ => None,
        });
        wanted.collect()
    }

    /// The number in field 1 of a message.
    fn number(message: &[u8]) -> u64 {
        match Fields(message).next() {
            Some(Ok((1, Field::Number(number)))) => number,
            other => panic!("{other:?}"),
        }
    }

    fn options(message: &[u8], field: u32) -> Vec<String> {
        let text = |option: &&[u8]| {
            let [header] = only(option, [HEADER]).expect("an option");
            let [key, value] = only(header, [KEY, VALUE]).expect("a header").map(String::from_utf8_lossy);
            let action = Fields(option).filter_map(Result::ok).find(|(number, _)| *number == APPEND_ACTION);
            assert_eq!(action, Some((APPEND_ACTION, Field::Number(OVERWRITE_IF_EXISTS_OR_ADD))));
            format!("{key}: {value}")
        };
        fields(message, field).iter().map(text).collect()
    }

    fn denial(status: StatusCode, body: Body) -> Vec<u8> {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        for (name, value) in [("vary", "a"), ("vary", "b"), ("content-length", "3"), ("connection", "close")] {
            response.headers_mut().append(name, HeaderValue::from_static(value));
        }
        response.headers_mut().insert("x-other", HeaderValue::from_bytes(b"\xff").expect("a value"));
        denied(response).now_or_never().expect("at once")
    }

    #[test]
    fn a_denial_has_the_status_the_headers_and_the_body() {
        let message = denial(StatusCode::UNAUTHORIZED, Body::full("abc"));
        let [status, response] = only(&message, [STATUS, DENIED_RESPONSE]).expect("a message");
        assert_eq!(number(status), 16);
        let [http, body] = only(response, [HTTP_STATUS, BODY]).expect("a denial");
        assert_eq!((number(http), body), (401, &b"abc"[..]));
        assert_eq!(options(response, DENIED_HEADERS), ["vary: a, b"]);
        assert!(fields(&message, OK_RESPONSE).is_empty());
        let message = denial(StatusCode::NOT_FOUND, Body::full(&b"\xff"[..]));
        let [response] = only(&message, [DENIED_RESPONSE]).expect("a message");
        assert_eq!(fields(response, BODY), [b""]);
    }

    /// Also one with the status 200.
    #[test]
    fn no_denial_has_the_code_of_success() {
        let statuses = Reason::ALL.iter().map(|reason| reason.status());
        for status in statuses.chain([StatusCode::OK, StatusCode::NO_CONTENT, StatusCode::TEMPORARY_REDIRECT]) {
            let message = denial(status, Body::empty());
            assert_ne!(number(fields(&message, STATUS)[0]), OK, "{status}");
        }
    }

    #[test]
    fn what_is_allowed_sets_and_removes_headers() {
        let set = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"))]);
        let message = allowed(set.iter(), &["x-a".to_owned(), "x_a".to_owned()]);
        let [status, response] = only(&message, [STATUS, OK_RESPONSE]).expect("a message");
        assert_eq!(number(status), OK);
        assert_eq!(options(response, HEADERS), ["authorization: Bearer x"]);
        assert_eq!(fields(response, HEADERS_TO_REMOVE), [b"x-a", b"x_a"]);
    }
}
