//! The consequences of a reason besides its status: a challenge, the end of the connection, a pause.

use std::time::Duration;

use http::StatusCode;

use super::reason::Reason;

impl Reason {
    /// The position in [`Reason::ALL`], for tables of counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns true if the client sent too many requests.
    pub fn is_limit(self) -> bool {
        self.status() == StatusCode::TOO_MANY_REQUESTS
    }

    /// Returns true if a limit was exceeded, by the number of requests or the size of one.
    pub fn is_limit_exceeded(self) -> bool {
        self.is_limit() || self == Reason::BodyTooLarge
    }

    /// Returns true if the response needs `WWW-Authenticate` (RFC 6750 section 3).
    pub fn has_challenge(self) -> bool {
        matches!(self.status(), StatusCode::UNAUTHORIZED) || self == Reason::InsufficientScope
    }

    /// Returns true if the token has no proof, or one that does not fit.
    pub fn is_about_proof(self) -> bool {
        matches!(self.public_code(), "invalid_dpop_proof" | "use_dpop_nonce")
            || matches!(self, Reason::BoundToKey | Reason::TokenNotBound | Reason::ProofKey)
    }

    /// Returns true if the connection must be closed, because the next request on it could be misread.
    pub const fn must_close_connection(self) -> bool {
        matches!(
            self,
            Reason::BadHost
                | Reason::MalformedFraming
                | Reason::ConnectNotAllowed
                | Reason::BodyTimeout
                | Reason::BodyTooSlow
        )
    }

    /// Returns true if the token is the cause, so that a repeated request would be rejected again.
    pub fn is_invalid_token(self) -> bool {
        self.status() == StatusCode::UNAUTHORIZED || self == Reason::SeveralTokens
    }

    /// `Retry-After` for rejections that pass by themselves. A conflict does not: a refresh that is repeated after the
    /// grace period ends its session.
    pub const fn default_retry_after(self) -> Option<Duration> {
        match self.status() {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}
