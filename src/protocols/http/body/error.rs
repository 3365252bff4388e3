//! Errors of a body.

use std::error::Error;
use std::io;
use std::time::Duration;

use crate::types::limit::Limit;
use crate::types::reject::{Reason, Reject, with_causes};

#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body cannot be read")]
    Http(#[source] hyper::Error),
    #[error("the body is larger than allowed")]
    TooLarge,
    #[error("no byte of the body for {}s", .0.as_secs())]
    IdleTimeout(Duration),
    /// The stream was reset before the end of the body.
    #[error("the stream was reset before the end of the body")]
    Truncated,
    #[error("the body is slower than allowed")]
    TooSlow,
    #[error("trailers larger than limits.request_header_size")]
    TrailersTooLarge,
    /// The gateway ended it: its token is not valid any more, or the request took too long.
    #[error("the gateway ended the body: {}", .0.message())]
    Ended(Reason),
}

impl BodyError {
    /// Returns true if the sender has left or cancelled its stream, and has sent nothing that is wrong.
    pub fn is_by_leaving(&self) -> bool {
        let BodyError::Http(error) = self else { return matches!(self, BodyError::Truncated) };
        let mut cause = error.source();
        while let Some(current) = cause {
            let io = current.downcast_ref::<io::Error>().map(io::Error::kind);
            if matches!(io, Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)) {
                return false;
            }
            cause = current.source();
        }
        true
    }

    /// The rejection of a request with this body.
    pub fn reject(&self) -> Reject {
        let reason = match self {
            BodyError::Http(_) | BodyError::Truncated | BodyError::TrailersTooLarge => Reason::MalformedFraming,
            BodyError::TooLarge => Reason::BodyTooLarge,
            BodyError::IdleTimeout(_) => Reason::BodyTimeout,
            BodyError::TooSlow => Reason::BodyTooSlow,
            BodyError::Ended(reason) => *reason,
        };
        let limit = matches!(self, BodyError::TooLarge).then_some(Limit::BodySize);
        Reject::new(reason, with_causes(self)).of_limit(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_says_why_the_body_failed() {
        for (error, reason, detail) in [
            (BodyError::TooLarge, Reason::BodyTooLarge, "larger than allowed"),
            (BodyError::IdleTimeout(Duration::from_secs(30)), Reason::BodyTimeout, "for 30s"),
            (BodyError::Truncated, Reason::MalformedFraming, "was reset"),
            (BodyError::TooSlow, Reason::BodyTooSlow, "slower than allowed"),
            (BodyError::TrailersTooLarge, Reason::MalformedFraming, "limits.request_header_size"),
            (BodyError::Ended(Reason::Revoked), Reason::Revoked, Reason::Revoked.message()),
        ] {
            let reject = error.reject();
            assert!(reject.reason == reason && reject.detail.contains(detail), "{reject:?}");
            assert!(error.source().is_none());
        }
    }
}
