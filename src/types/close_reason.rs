//! Reasons for which the gateway closes a stream.

use http::StatusCode;

use crate::types::reject::Reason;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Its token is no longer valid, or its route does not accept it any more: a new request would be rejected for this
    /// reason.
    Token(Reason),
    /// `timeouts.request`
    RequestTimeout,
    /// The gateway shuts down.
    Draining,
}

impl CloseReason {
    /// The stable code in logs and metrics.
    pub const fn code(self) -> &'static str {
        match self {
            CloseReason::Token(reason) => reason.code(),
            CloseReason::RequestTimeout => Reason::RequestTimeout.code(),
            CloseReason::Draining => "draining",
        }
    }

    /// For the client's developer.
    pub const fn message(self) -> &'static str {
        match self {
            CloseReason::Token(reason) => reason.message(),
            CloseReason::RequestTimeout => Reason::RequestTimeout.message(),
            CloseReason::Draining => "the gateway is shutting down",
        }
    }

    /// The status of a request that is rejected for the same reason.
    pub const fn status(self) -> StatusCode {
        match self {
            CloseReason::Token(reason) => reason.status(),
            CloseReason::RequestTimeout => Reason::RequestTimeout.status(),
            CloseReason::Draining => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// RFC 6455 section 7.4.1: 1008 policy violation, 1001 going away. 1013 (try again later) is from the registry of
    /// IANA: the token may be good, so the client should reconnect, and reaches another gateway.
    pub const fn close_code(self) -> u16 {
        match self {
            CloseReason::Token(Reason::RevocationsStale) => 1013,
            CloseReason::Token(_) | CloseReason::RequestTimeout => 1008,
            CloseReason::Draining => 1001,
        }
    }
}
