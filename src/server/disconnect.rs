//! Why we end a connection that its client would go on with.

use std::error::Error;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DisconnectReason {
    /// It takes nothing of its answer.
    Silent,
    /// It takes too little.
    Slow,
    /// It sends frames that ask for nothing.
    Flood,
}

impl DisconnectReason {
    /// What h2 counts itself.
    pub(super) fn by_h2(error: &hyper::Error) -> Option<DisconnectReason> {
        let error: &h2::Error = error.source()?.downcast_ref()?;
        let calmed = error.is_library() && error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM);
        calmed.then_some(DisconnectReason::Flood)
    }
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DisconnectReason::Silent => "the client does not read",
            DisconnectReason::Slow => "the client reads more slowly than allowed",
            DisconnectReason::Flood => "the client sends too many frames that ask for nothing",
        })
    }
}

impl Error for DisconnectReason {}
