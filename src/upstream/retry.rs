//! The requests that may be retried: a request that was not sent, always; a request that was sent and has no body, if
//! the server has certainly not processed it (RFC 9113 section 8.7), or if it is safe (RFC 9110 section 9.2.1) and its
//! connection broke before a response.

use http::{HeaderMap, Method, Request, Uri, Version};
use http_body::Body as _;

use super::failure::Failure;
use super::settings::Protocol;
use crate::protocols::http::body::Body;
use crate::telemetry::access_log::Attempts;
use crate::telemetry::metrics::WorkerMetrics;
use crate::types::reject::with_causes;

/// How often a request is sent again because servers have ended their connections without it: the next connection may
/// end as well before it, after `keepalive_requests` of nginx. The HTTP/2 client of Go sends it as often.
pub(super) const MAX_CLOSINGS: usize = 6;

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
    /// The request was sent once before. It is not sent a third time, unless the server ends the connection without it.
    Retry,
}

/// A failed attempt. If the request may be sent again, it is back where it was taken from.
pub(super) struct SendFailure {
    pub(super) failure: Failure,
    /// `None`: no retry.
    pub(super) retry: Option<RetryReason>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryReason {
    /// The request was certainly not sent.
    Unsent,
    /// The server has certainly not processed the request, because it ends the connection in good order.
    Closing,
    /// The server has certainly not processed the request, for another reason.
    Refused,
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
        let unprocessed = if protocol == Protocol::Http2 { unprocessed(&error) } else { None };
        let retry = copy.and_then(|copy| {
            let reason = match unprocessed {
                Some(RetryReason::Closing) => RetryReason::Closing,
                _ if attempt == Attempt::Retry => return None,
                Some(reason) => reason,
                None => repeatable(&error, &copy, protocol, attempt)?,
            };
            *request = *copy;
            Some(reason)
        });
        let failure = match unprocessed {
            Some(RetryReason::Closing) => Failure::Closing(with_causes(&error)),
            _ => Failure::broken(error),
        };
        SendFailure { failure, retry }
    }
}

/// For a request that the server may have processed. `None`: it must not be sent again.
fn repeatable(
    error: &hyper::Error,
    request: &Request<Body>,
    protocol: Protocol,
    attempt: Attempt,
) -> Option<RetryReason> {
    let may_repeat = match (protocol, attempt) {
        (Protocol::Http1, _) => is_broken_connection(error),
        (Protocol::Http2, Attempt::OnlyServer) => false,
        // The stream or its connection was reset.
        (Protocol::Http2, _) => !error.is_user(),
    };
    (may_repeat && is_safe(request.method())).then_some(RetryReason::Repeatable)
}

/// Returns true if the connection ended before a response.
fn is_broken_connection(error: &hyper::Error) -> bool {
    let is_io = std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>());
    error.is_incomplete_message() || error.is_closed() || (is_io && !error.is_parse())
}

/// How the server said that it has not processed the request (RFC 9113 section 8.7): it refused the stream, or ends the
/// connection at an earlier stream, as any server may just when a request is sent. h2 gives the GOAWAY of a server,
/// whatever its code, only to the streams after the last one that it names, and to those that were not sent.
fn unprocessed(error: &hyper::Error) -> Option<RetryReason> {
    let cause = std::error::Error::source(error)?.downcast_ref::<h2::Error>()?;
    if !cause.is_remote() {
        return None;
    }
    match cause.reason() {
        Some(h2::Reason::NO_ERROR) if cause.is_go_away() => Some(RetryReason::Closing),
        Some(h2::Reason::REFUSED_STREAM) if cause.is_reset() => Some(RetryReason::Refused),
        _ => cause.is_go_away().then_some(RetryReason::Refused),
    }
}

/// PUT and DELETE are idempotent too, but the response to the second is not always that to the first.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Copies a request that may be sent twice. It has no body and no upgrade, and over HTTP/1.1, where no server says what
/// it has not processed, it is safe.
pub(super) fn copy_if_repeatable(request: &Request<Body>, protocol: Protocol) -> Option<Box<Request<Body>>> {
    let may_repeat = protocol == Protocol::Http2 || is_safe(request.method());
    if !may_repeat || !request.body().is_end_stream() || request.headers().contains_key(http::header::UPGRADE) {
        return None;
    }
    let method: Method = request.method().clone();
    let uri: Uri = request.uri().clone();
    let version: Version = request.version();
    let headers: HeaderMap = request.headers().clone();
    let mut copy = Box::new(Request::new(Body::empty()));
    (*copy.method_mut(), *copy.uri_mut(), *copy.version_mut(), *copy.headers_mut()) = (method, uri, version, headers);
    Some(copy)
}
