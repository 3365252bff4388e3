//! Finds where one HTTP/1 request ends and the next begins, in one strict way (RFC 9112). Pure.
//!
//! It runs in front of hyper, which accepts requests that can be read in two ways: it takes one of several equal
//! lengths, prefers chunks to a length, ends lines at a bare LF, and cuts off what follows `#`. A proxy in front of the
//! gateway may have read the same bytes in the other way: then a part of one client's body becomes another client's
//! request (request smuggling). So hyper gets only complete heads that can be read in one way.
//!
//! The parser and hyper must agree where a message ends: `tests/it/framing/agreement.rs` compares them.

mod error;
mod head;
mod origin;
mod parser;

pub use error::FramingError;
pub use origin::origin_of;
pub use parser::{Consumed, Framing, Limits};

#[cfg(test)]
mod tests;
