//! What is recorded about tokens, so that it can be told later who did what, when and from where.

use std::net::IpAddr;

use crate::clock::UnixTime;
use crate::ids::RequestId;

/// When something is asked for, from where, and by which request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occasion {
    pub at: UnixTime,
    /// `None` if nobody's address says anything: a command, a backend that speaks for a user and does not say where from.
    pub client: Option<IpAddr>,
    pub request: Option<RequestId>,
}

impl Occasion {
    /// An IPv4 address that came over an IPv6 socket is written as what it is.
    pub fn new(at: UnixTime, client: IpAddr, request: RequestId) -> Self {
        Occasion { at, client: Some(client.to_canonical()), request: Some(request) }
    }
}

/// Nothing but the time is known.
impl From<UnixTime> for Occasion {
    fn from(at: UnixTime) -> Self {
        Occasion { at, client: None, request: None }
    }
}
