//! Reasons to close a connection that the client would keep.

use std::error::Error;
use std::fmt;

use super::flood::{Flood, Violation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DisconnectReason {
    /// The client reads nothing of its response for `timeouts.write`.
    Silent,
    /// The client reads below `limits.min_download_rate`.
    Slow,
    /// Of HTTP/2.
    Violation(Violation),
}

impl DisconnectReason {
    /// Returns `Flood` for the floods that h2 detects itself.
    pub(super) fn from_h2(error: &hyper::Error) -> Option<DisconnectReason> {
        let error: &h2::Error = error.source()?.downcast_ref()?;
        let is_flood = error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM);
        // h2 names most of its limits for resets so.
        let flood = if error.to_string().contains("resets") { Flood::Resets } else { Flood::Frames };
        is_flood.then_some(DisconnectReason::Violation(flood.into()))
    }
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DisconnectReason::Silent => "the client reads nothing of its response",
            DisconnectReason::Slow => "the client reads its response too slowly",
            DisconnectReason::Violation(violation) => match violation {
                Violation::Flood(Flood::Frames) => "the client sends too many frames without data or requests",
                Violation::Flood(Flood::Resets) => "the client cancels too many requests",
                Violation::NoSettings => "the first frame of the client is not SETTINGS",
                Violation::StreamClosed => "the client goes on with a request that it has ended",
            },
        })
    }
}

impl Error for DisconnectReason {}
