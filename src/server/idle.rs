//! Whether a connection is idle: nothing in flight and no new request for some time.

use std::time::Duration;

use crate::gateway::client::Peer;

/// An HTTP/1 connection that is idle for this long gives its buffers back. Long enough that a busy connection keeps
/// them: to begin again costs about 2 µs. Short enough that of many clients that connect at once, few hold buffers at
/// the same time: freed buffers leave holes in the heap.
const IDLE_AFTER: Duration = Duration::from_millis(100);

/// How often a connection with a request in flight is checked.
const BUSY_INTERVAL: Duration = Duration::from_millis(250);

/// Notices when nothing happens on a connection between two checks. The rest of an upload that continues after its
/// response does not count as a request in flight: see [`super::exchange::Exchange::can_continue`].
pub(super) struct IdleCheck {
    requests: u64,
    /// Whether a request was in flight at the last check.
    was_in_use: bool,
}

impl IdleCheck {
    pub(super) fn new(peer: &Peer) -> Self {
        IdleCheck { requests: peer.requests.get(), was_in_use: false }
    }

    /// Returns true if no request was in flight at the last check, none is now, and none came in between.
    pub(super) fn was_idle(&mut self, peer: &Peer) -> bool {
        let before = std::mem::replace(&mut self.requests, peer.requests.get());
        let is_in_use = peer.has_in_flight();
        let was_in_use = std::mem::replace(&mut self.was_in_use, is_in_use);
        !was_in_use && !is_in_use && self.requests == before
    }

    /// Returns true if no request is in flight, and none came since the last check.
    pub(super) fn is_idle(&self, peer: &Peer) -> bool {
        !peer.has_in_flight() && self.requests == peer.requests.get()
    }

    /// How long to wait before the next check. Streams are checked less often.
    pub(super) fn next_check(&self) -> Duration {
        if self.was_in_use { BUSY_INTERVAL } else { IDLE_AFTER }
    }
}
