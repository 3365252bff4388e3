//! Errors of bytes that are not valid HTTP/1.

use crate::types::limit::Limit;
use crate::types::reject::Reason;

/// The gateway reads nothing after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramingError {
    pub reason: Reason,
    pub message: &'static str,
    /// The limit that was hit, if the reason does not tell.
    pub limit: Option<Limit>,
}

impl FramingError {
    pub(super) const INVALID_TARGET: FramingError =
        FramingError::malformed("the request target is not a URI; encode characters such as \" and < as %22 and %3C");
    pub(super) const TARGET_TOO_LONG: FramingError = FramingError {
        reason: Reason::UriTooLong,
        message: "the request target has more than 65534 bytes",
        limit: None,
    };

    pub(super) const fn malformed(message: &'static str) -> Self {
        FramingError { reason: Reason::MalformedFraming, message, limit: None }
    }

    pub(super) const fn head_too_large(message: &'static str) -> Self {
        FramingError { reason: Reason::HeadTooLarge, message, limit: None }
    }

    pub(super) const fn too_many_fields(message: &'static str) -> Self {
        FramingError { reason: Reason::HeadTooLarge, message, limit: Some(Limit::RequestHeaderCount) }
    }
}
