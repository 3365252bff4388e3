//! Why a stream was ended before its end.

use crate::reject::Reason;

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

    /// `grpc-status`: UNAUTHENTICATED, DEADLINE_EXCEEDED, UNAVAILABLE.
    pub const fn grpc_status(self) -> &'static str {
        match self {
            Ended::Token(_) => "16",
            Ended::OutOfTime => "4",
            Ended::Draining => "14",
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
