//! Which requests may be retried: a request that was not sent, always; a request that was sent, only if it is safe
//! (RFC 9110 section 9.2.2) and its connection broke before a response.

use http::{HeaderMap, Method, Request, Uri, Version};
use http_body::Body as _;

use super::failure::Failure;
use super::settings::Protocol;
use crate::protocols::http::body::Body;
use crate::telemetry::access_log::Attempts;
use crate::telemetry::metrics::WorkerMetrics;

/// Where a request on its way is counted.
#[derive(Clone, Copy)]
pub struct Counts<'r> {
    pub metrics: &'r WorkerMetrics,
    pub attempts: &'r Attempts,
}

/// Which attempt this is, as far as it decides about a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// To the only server of an upstream. Over HTTP/1.1, a copy is kept only if the connection is likely to break. Over
    /// HTTP/2, the copy is used only if the server has not processed the request.
    OnlyServer,
    /// To one of several servers. A copy is always kept, because another server can get it.
    FirstOfSeveral,
    /// The request was sent once before. It is not sent a third time.
    Retry,
}

/// A failed attempt. If the request may be sent again, it is back where it was taken from.
pub(super) struct SendFailure {
    pub(super) failure: Failure,
    /// `None`: no retry.
    pub(super) retry: Option<RetryReason>,
}

pub(super) enum RetryReason {
    /// The request was certainly not sent.
    Unsent,
    /// The server may have processed the request. It is safe, so a second time does no harm.
    Repeatable,
}

impl SendFailure {
    pub(super) fn unsent(failure: Failure) -> Self {
        SendFailure { failure, retry: Some(RetryReason::Unsent) }
    }

    /// Puts the copy back into `request` if it may be sent again.
    pub(super) fn sent(
        error: hyper::Error,
        copy: Option<Box<Request<Body>>>,
        request: &mut Request<Body>,
        protocol: Protocol,
        attempt: Attempt,
    ) -> Self {
        let may_repeat = match (protocol, attempt) {
            (Protocol::Http1, _) => is_broken_connection(&error),
            (Protocol::Http2, Attempt::OnlyServer) => is_unprocessed(&error),
            // The stream or its connection was reset.
            (Protocol::Http2, _) => !error.is_user(),
        };
        let retry = copy.filter(|_| may_repeat).map(|copy| {
            *request = *copy;
            RetryReason::Repeatable
        });
        SendFailure { failure: Failure::broken(error), retry }
    }
}

/// Returns true if the connection ended before a response.
fn is_broken_connection(error: &hyper::Error) -> bool {
    let is_io = std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>());
    error.is_incomplete_message() || error.is_closed() || (is_io && !error.is_parse())
}

/// Returns true if the server said that it has not processed the request (RFC 9113 sections 6.8 and 8.7). A server may
/// announce the end of any connection just as a request is sent on it.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        let code = cause.reason().filter(|_| cause.is_remote());
        (cause.is_go_away() && code == Some(h2::Reason::NO_ERROR))
            || (cause.is_reset() && code == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// Copies a request that may be sent twice: GET, HEAD or OPTIONS, without a body and without an upgrade. PUT and DELETE
/// are idempotent too, but the response to the second is not always that to the first.
pub(super) fn copy_if_repeatable(request: &Request<Body>) -> Option<Box<Request<Body>>> {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !is_safe || !request.body().is_end_stream() || request.headers().contains_key(http::header::UPGRADE) {
        return None;
    }
    let (method, uri): (Method, Uri) = (request.method().clone(), request.uri().clone());
    let (version, headers): (Version, HeaderMap) = (request.version(), request.headers().clone());
    let mut copy = Box::new(Request::new(Body::empty()));
    (*copy.method_mut(), *copy.uri_mut(), *copy.version_mut(), *copy.headers_mut()) = (method, uri, version, headers);
    Some(copy)
}
