//! Why a stream was ended before its end.

use http::StatusCode;

use crate::types::reject::Reason;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The token that it stood on is good no longer, for the reason for which a new request would be refused.
    Token(Reason),
    /// `timeouts.request`
    OutOfTime,
    /// The process is about to end.
    Draining,
}

impl CloseReason {
    /// The stable name in logs and metrics.
    pub const fn code(self) -> &'static str {
        match self {
            CloseReason::Token(reason) => reason.code(),
            CloseReason::OutOfTime => Reason::RequestTimeout.code(),
            CloseReason::Draining => "draining",
        }
    }

    /// For the client's developer.
    pub const fn message(self) -> &'static str {
        match self {
            CloseReason::Token(reason) => reason.message(),
            CloseReason::OutOfTime => Reason::RequestTimeout.message(),
            CloseReason::Draining => "the gateway is going away",
        }
    }

    /// That of a refusal for the same cause.
    pub const fn status(self) -> StatusCode {
        match self {
            CloseReason::Token(reason) => reason.status(),
            CloseReason::OutOfTime => Reason::RequestTimeout.status(),
            CloseReason::Draining => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// RFC 6455 section 7.4.1: a policy was violated, or the server goes down.
    pub const fn close_code(self) -> u16 {
        match self {
            CloseReason::Token(_) | CloseReason::OutOfTime => 1008,
            CloseReason::Draining => 1001,
        }
    }
}
