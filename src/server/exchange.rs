//! State shared by the read side of a connection and the responses to its requests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use http::StatusCode;
use parking_lot::Mutex;

use super::disconnect::DisconnectReason;
use crate::protocols::http::framing::RejectedHead;

/// A head that hyper never sees.
#[derive(Debug)]
pub(super) struct MalformedHead {
    /// The number of valid heads before it.
    pub(super) after: u64,
    pub(super) rejected: RejectedHead,
}

/// The state of one connection, shared by its stream and its service. One thread writes it; the atomics only make it
/// `Sync`.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// While true, a shutdown does nothing: hyper can be dropped and the stream stays open.
    keep_open: AtomicBool,
    /// The number of requests when the last response was made.
    answered: AtomicU64,
    /// If true, the last response was 101.
    is_tunnel: AtomicBool,
    /// If true, `reader` waits for the next response.
    is_awaited: AtomicBool,
    reader: Mutex<Option<Waker>>,
    malformed: OnceLock<MalformedHead>,
    /// How many of the last responses in a row were 429.
    limited_in_a_row: AtomicU32,
    /// If true, the connection closes after the request in flight.
    closes: AtomicBool,
    /// If true, the next bytes are not a head: a body is incomplete, or the client sent something malformed.
    incomplete: AtomicBool,
    /// How many heads the client has sent.
    heads: AtomicU64,
    disconnected: OnceLock<DisconnectReason>,
}

impl Exchange {
    /// Returns true if the connection can carry another request. If not, the gateway must not read what still arrives
    /// as one: neither the rest of a body that was rejected, nor what follows the last response (RFC 9112 section 9.6).
    pub(super) fn can_continue(&self) -> bool {
        !self.closes.load(Ordering::Relaxed) && !self.incomplete.load(Ordering::Relaxed)
    }

    /// The connection closes after the request in flight.
    pub(super) fn set_closes(&self) {
        self.closes.store(true, Ordering::Relaxed);
    }

    /// Records why the gateway disconnects the client: hyper's errors do not keep the type of ours. Returns the first
    /// reason.
    pub(super) fn disconnect(&self, reason: DisconnectReason) -> DisconnectReason {
        *self.disconnected.get_or_init(|| reason)
    }

    /// Why the gateway has disconnected the client.
    pub(super) fn disconnected(&self) -> Option<DisconnectReason> {
        self.disconnected.get().copied()
    }

    pub(super) fn set_incomplete(&self, incomplete: bool, heads: u64) {
        self.heads.store(heads, Ordering::Relaxed);
        self.incomplete.store(incomplete, Ordering::Relaxed);
    }

    /// Returns true if the client has not sent all of this request yet. A client may also have sent a part of the next.
    /// A malformed head comes after the end of this request, and gets a response of its own.
    pub(super) fn is_incomplete(&self, request: u64) -> bool {
        let in_body = self.incomplete.load(Ordering::Relaxed) && !self.is_malformed();
        in_body && self.heads.load(Ordering::Relaxed) == request
    }

    /// Returns true if the client has not sent all of a request, or of its malformed head.
    pub(super) fn has_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Relaxed)
    }

    pub(super) fn keeps_open(&self) -> bool {
        self.keep_open.load(Ordering::Relaxed)
    }

    pub(super) fn set_keep_open(&self, keep_open: bool) {
        self.keep_open.store(keep_open, Ordering::Relaxed);
    }

    /// Nothing is read after a malformed head, so this is called once.
    pub(super) fn set_malformed(&self, head: MalformedHead) {
        let _ = self.malformed.set(head);
    }

    /// Returns true if the client has sent a malformed head.
    pub(super) fn is_malformed(&self) -> bool {
        self.malformed.get().is_some()
    }

    /// Returns the malformed head if the request after `requests` others is its placeholder.
    pub(super) fn malformed_after(&self, requests: u64) -> Option<&MalformedHead> {
        self.malformed.get().filter(|head| head.after == requests)
    }

    /// Counts a response and returns how many 429 responses in a row came before it; 0 if it is not a 429 itself.
    pub(super) fn count_limited(&self, is_limited: bool) -> u32 {
        let before = self.limited_in_a_row.load(Ordering::Relaxed);
        let now = if is_limited { before.saturating_add(1) } else { 0 };
        if now != before {
            self.limited_in_a_row.store(now, Ordering::Relaxed);
        }
        if is_limited { before } else { 0 }
    }

    /// Returns the number of requests when the last response was made.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Acquire)
    }

    /// Records a response before it is written: the bytes after a 101 are not HTTP.
    pub(super) fn record_response(&self, requests: u64, status: StatusCode) {
        if status == StatusCode::SWITCHING_PROTOCOLS {
            self.is_tunnel.store(true, Ordering::Relaxed);
        }
        self.answered.store(requests, Ordering::Release);
        if self.is_awaited.load(Ordering::Relaxed) {
            self.wake_reader();
        }
    }

    /// Apart, because few responses have a reader.
    #[cold]
    fn wake_reader(&self) {
        self.is_awaited.store(false, Ordering::Relaxed);
        if let Some(reader) = self.reader.lock().take() {
            reader.wake();
        }
    }

    /// Wakes this reader at the next response. hyper does not read again by itself after it has written one.
    pub(super) fn wait_for_response(&self, reader: &Waker) {
        *self.reader.lock() = Some(reader.clone());
        self.is_awaited.store(true, Ordering::Relaxed);
    }

    /// Returns true if the last response was 101.
    pub(super) fn is_tunnel(&self) -> bool {
        self.is_tunnel.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_response_wakes_the_reader_that_waits_for_it() {
        let exchange = Exchange::default();
        let wakes = Arc::new(Wakes::default());
        exchange.record_response(1, StatusCode::OK);
        exchange.wait_for_response(&Waker::from(wakes.clone()));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        exchange.record_response(2, StatusCode::OK);
        exchange.record_response(3, StatusCode::OK);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    }
}
