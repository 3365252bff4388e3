//! The observer of a body, which learns of its progress and can end it.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use super::error::BodyError;
use crate::types::reject::Reason;

/// Observes a body. If it is dropped without [`BodyObserver::on_complete`], the body is not complete.
pub trait BodyObserver: Send + Sync {
    /// This data is about to pass. The observer may shorten it.
    fn on_data(&mut self, data: &mut Bytes);
    /// The next frame is not there yet.
    fn on_pending(&mut self) {}
    /// These trailers are about to pass. The observer may change or reject them.
    fn on_trailers(&mut self, _trailers: &mut HeaderMap) -> Result<(), BodyError> {
        Ok(())
    }
    /// The body failed.
    fn on_error(&mut self, _error: &BodyError) {}
    /// The body takes long or has many frames. Returns true if [`BodyObserver::poll_end`] is to be polled from now on.
    fn on_long_running(&mut self) -> bool {
        false
    }
    /// Ready if the body has to end now, before its own end.
    fn poll_end(&mut self, _context: &mut Context<'_>) -> Poll<BodyEnd> {
        Poll::Pending
    }
    /// The source of the body failed. Returns how the body ends if it was about to be ended anyway.
    fn end_after_error(&mut self) -> Option<BodyEnd> {
        None
    }
    /// The body is complete.
    fn on_complete(&mut self);
}

/// How a body ends before its own end.
pub enum BodyEnd {
    /// Like a complete body.
    EndOfStream,
    /// Like a complete body, after this data.
    Data(Bytes),
    /// Like a complete body, with these trailers.
    Trailers(Box<HeaderMap>),
    /// With an error, so that the reader knows that the body is not complete.
    Abort(Reason),
}
