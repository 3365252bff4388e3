//! What may be sent a second time: a request that was never sent, to whomever; one that was, only where nothing can be done
//! twice by it (RFC 9110 section 9.2.2), and only if its connection broke off before an answer.

use http::{HeaderMap, Method, Request, Uri, Version};
use http_body::Body as _;

use super::{Failure, Protocol};
use crate::protocols::http::body::Body;

/// How a request comes to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// To the only server: over HTTP/1.1 a copy is kept only where the connection is likely to break off, and over HTTP/2 it is
    /// used only if the server has not looked at the request.
    OfOne,
    /// To one of several: a copy is always kept, as another server can have it.
    OfSeveral,
    /// It was sent before, and is not sent a third time.
    Second,
}

/// A failure. If it may be sent again, the request is back where it was taken from.
pub(super) struct SendFailure {
    pub(super) failure: Failure,
    pub(super) again: Option<RetryDecision>,
}

pub(super) enum RetryDecision {
    /// Certainly never sent.
    Unsent,
    /// Perhaps seen, perhaps not; nobody minds getting it twice.
    Repeatable,
}

impl SendFailure {
    /// Of a request that nobody took.
    pub(super) fn unsent(failure: Failure) -> Self {
        SendFailure { failure, again: Some(RetryDecision::Unsent) }
    }

    /// Puts the copy into the place of the request that was sent.
    pub(super) fn sent(
        error: hyper::Error,
        copy: Option<Box<Request<Body>>>,
        request: &mut Request<Body>,
        protocol: Protocol,
        attempt: Attempt,
    ) -> Self {
        let broke_off = match (protocol, attempt) {
            (Protocol::Http1, _) => broke_off(&error),
            (Protocol::Http2, Attempt::OfOne) => was_not_looked_at(&error),
            // The stream or its connection was reset.
            (Protocol::Http2, _) => !error.is_user(),
        };
        let again = copy.filter(|_| broke_off).map(|copy| {
            *request = *copy;
            RetryDecision::Repeatable
        });
        SendFailure { failure: Failure::broken(error), again }
    }
}

/// Did the connection end before there was an answer?
fn broke_off(error: &hyper::Error) -> bool {
    let is_io = std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>());
    error.is_incomplete_message() || error.is_closed() || (is_io && !error.is_parse())
}

/// Did the server say that it has not looked at the request (RFC 9113 sections 6.8 and 8.7)? Any connection may be going away as one
/// is written to it.
fn was_not_looked_at(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        let said = cause.reason().filter(|_| cause.is_remote());
        (cause.is_go_away() && said == Some(h2::Reason::NO_ERROR))
            || (cause.is_reset() && said == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// A second copy of a request that nobody minds getting twice: safe, without a body, and no upgrade. PUT and DELETE would
/// qualify as idempotent, but the answer to the second is not always that to the first.
pub(super) fn copy_if_repeatable(request: &Request<Body>) -> Option<Box<Request<Body>>> {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !safe || !request.body().is_end_stream() || request.headers().contains_key(http::header::UPGRADE) {
        return None;
    }
    let (method, uri): (Method, Uri) = (request.method().clone(), request.uri().clone());
    let (version, headers): (Version, HeaderMap) = (request.version(), request.headers().clone());
    let mut copy = Box::new(Request::new(Body::empty()));
    (*copy.method_mut(), *copy.uri_mut(), *copy.version_mut(), *copy.headers_mut()) = (method, uri, version, headers);
    Some(copy)
}
