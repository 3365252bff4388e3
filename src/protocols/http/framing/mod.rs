//! Finds where one HTTP/1 request ends and the next begins, in one strict way (RFC 9112). Pure.
//!
//! It runs in front of hyper, which accepts requests that can be read in two ways: it takes one of several equal
//! lengths, prefers chunks to a length, ends lines at a bare LF, and cuts off what follows `#`. A proxy in front of the
//! gateway may have read the same bytes in the other way: then a part of one client's body becomes another client's
//! request (request smuggling). So hyper gets only complete heads that can be read in one way.
//!
//! The parser and hyper must agree where a message ends: `tests/it/protocols/framing/agreement.rs` compares them.

mod error;
mod head;
mod origin;
mod parser;
mod target;

use http::{HeaderValue, Method, Uri};

pub use error::FramingError;
use origin::origin_of;
pub use parser::{Consumed, Framing, Limits};
use target::request_line_of;

/// A head that hyper never sees.
#[derive(Debug)]
pub struct RejectedHead {
    pub fault: FramingError,
    /// Its Origin, if that could be read.
    pub origin: Option<HeaderValue>,
    /// Its method and path, if only its target is at fault. Those of any other one could be read in two ways.
    pub line: Option<(Method, Uri)>,
}

impl RejectedHead {
    /// `head`: what was read of it.
    pub fn new(fault: FramingError, head: &[u8]) -> Self {
        let line = (fault == FramingError::INVALID_TARGET).then(|| request_line_of(head)).flatten();
        RejectedHead { fault, origin: origin_of(head), line }
    }
}

#[cfg(test)]
mod tests;
