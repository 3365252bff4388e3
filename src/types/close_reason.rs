//! Why a stream was ended before its end.

use http::StatusCode;

use crate::types::reject::Reason;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The token that it stood on is good no longer, for the reason for which a new request would be refused.
    Token(Reason),
    /// `timeouts.request`
    OutOfTime,
    /// The process is about to end.
    Draining,
}

impl Ended {
    /// The stable name in logs and metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Ended::Token(reason) => reason.code(),
            Ended::OutOfTime => Reason::RequestTimeout.code(),
            Ended::Draining => "draining",
        }
    }

    /// For the client's developer.
    pub const fn message(self) -> &'static str {
        match self {
            Ended::Token(reason) => reason.message(),
            Ended::OutOfTime => Reason::RequestTimeout.message(),
            Ended::Draining => "the gateway is going away",
        }
    }

    /// That of a refusal for the same cause.
    pub const fn status(self) -> StatusCode {
        match self {
            Ended::Token(reason) => reason.status(),
            Ended::OutOfTime => Reason::RequestTimeout.status(),
            Ended::Draining => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// RFC 6455 section 7.4.1: a policy was violated, or the server goes down.
    pub const fn close_code(self) -> u16 {
        match self {
            Ended::Token(_) | Ended::OutOfTime => 1008,
            Ended::Draining => 1001,
        }
    }
}
