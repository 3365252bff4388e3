//! Why the bytes of a connection are not valid HTTP/1.

use std::error::Error;
use std::fmt;

use crate::types::reject::Reason;

/// The gateway reads nothing after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramingError {
    pub reason: Reason,
    pub message: &'static str,
}

impl FramingError {
    pub(super) const fn malformed(message: &'static str) -> Self {
        FramingError { reason: Reason::MalformedFraming, message }
    }

    pub(super) const fn head_too_large(message: &'static str) -> Self {
        FramingError { reason: Reason::HeadTooLarge, message }
    }
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message)
    }
}

impl Error for FramingError {}
