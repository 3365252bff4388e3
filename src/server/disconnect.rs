//! Reasons to close a connection that the client would keep.

use std::error::Error;

use super::flood::{Flood, Violation};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DisconnectReason {
    /// The client reads nothing of its response for `timeouts.write`.
    #[error("the client reads nothing of its response")]
    Silent,
    /// The client reads below `limits.min_download_rate`.
    #[error("the client reads its response too slowly")]
    Slow,
    /// Of HTTP/2.
    #[error("{}", text(*.0))]
    Violation(Violation),
}

impl DisconnectReason {
    /// Returns a flood of frames for each flood that h2 detects itself. Only the client learns from h2 which one it is.
    pub(super) fn from_h2(error: &hyper::Error) -> Option<DisconnectReason> {
        let error: &h2::Error = error.source()?.downcast_ref()?;
        let is_flood = error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM);
        is_flood.then_some(DisconnectReason::Violation(Flood::Frames.into()))
    }
}

fn text(violation: Violation) -> &'static str {
    match violation {
        Violation::Flood(Flood::Frames) => "the client sends too many frames without data or requests",
        Violation::Flood(Flood::Resets) => "the client cancels too many requests",
        Violation::NoSettings => "the first frame of the client is not SETTINGS",
        Violation::StreamClosed => "the client goes on with a request that it has ended",
    }
}
