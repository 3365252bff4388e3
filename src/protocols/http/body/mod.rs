//! The one body type, for requests to backends and responses to clients.
//!
//! Frames pass through unchanged, one at a time, as they arrive: a streamed body is never buffered. A body can have a
//! maximum size, an idle timeout, a minimum rate and a deadline, and it reports its progress to a [`BodyObserver`].

mod error;
mod observer;
mod streamed;

use bytes::Bytes;
use http_body_util::BodyExt;

use crate::types::reject::{Reason, Reject};

pub use error::BodyError;
pub use observer::{BodyEnd, BodyObserver};
pub use streamed::{Body, LONG_RUNNING_AFTER, OnRest};

/// Reads a whole small body, for requests that the gateway handles itself. If it fails, `is_end_stream` of the body
/// says whether there is more to read.
pub async fn read(body: &mut Body, limit: u64) -> Result<Bytes, Reject> {
    if body.is_known_to_exceed(limit) {
        return Err(Reject::new(Reason::BodyTooLarge, format!("over {limit} bytes by its Content-Length")));
    }
    body.limit_size(limit);
    match body.collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(BodyError::TooLarge) => Err(Reject::new(Reason::BodyTooLarge, format!("over {limit} bytes"))),
        Err(error) => Err(error.reject()),
    }
}

#[cfg(test)]
mod tests;
