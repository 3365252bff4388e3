//! The idle connections of all workers: when `limits.connections` is nearly used up, the longest idle one is closed.
//!
//! Idle is a connection without a request in flight, also before its first request and between two. It is entered here
//! only after some time without a request, so a busy connection never takes this lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// A connection that is idle for less than this is not closed: its client may be about to send a request. A new client
/// has this time for its handshake and its first request, however many connections come.
const MIN_IDLE: Duration = Duration::from_secs(1);

/// Since when a connection is idle, and a number that makes it unique.
type Place = (Instant, u64);

/// How long between two connections that are closed for one that gets no slot. Rejected clients can come in any number,
/// and a connection takes a moment to close.
const REJECTED_PAUSE: Duration = Duration::from_millis(10);

#[derive(Default)]
pub struct IdleList {
    connections: Mutex<BTreeMap<Place, Arc<Notify>>>,
    next: AtomicU64,
    last_for_rejected: Mutex<Option<Instant>>,
}

/// A connection in the list, until this is dropped.
pub(super) struct Idle {
    list: Arc<IdleList>,
    place: Place,
    must_close: Arc<Notify>,
}

impl IdleList {
    /// Enters a connection that is idle since this time.
    pub(super) fn enter(self: &Arc<Self>, since: Instant) -> Idle {
        let place = (since, self.next.fetch_add(1, Ordering::Relaxed));
        let must_close = Arc::new(Notify::new());
        self.connections.lock().insert(place, must_close.clone());
        Idle { list: self.clone(), place, must_close }
    }

    /// Closes the connection that is idle for the longest time. Returns false if there is none to close.
    pub(super) fn close_longest(&self) -> bool {
        let mut connections = self.connections.lock();
        let Some(longest) = connections.first_entry().filter(|first| first.key().0.elapsed() >= MIN_IDLE) else {
            return false;
        };
        longest.remove().notify_one();
        true
    }

    /// As [`IdleList::close_longest`], for a connection that got no slot itself.
    pub(super) fn close_longest_for_rejected(&self) -> bool {
        let mut last = self.last_for_rejected.lock();
        if last.is_some_and(|last| last.elapsed() < REJECTED_PAUSE) {
            return false;
        }
        *last = Some(Instant::now());
        self.close_longest()
    }
}

impl Idle {
    /// Returns when this connection has to make room for another one.
    pub(super) fn must_close(&self) -> Notified<'_> {
        self.must_close.notified()
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.list.connections.lock().remove(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if the connection has to close.
    async fn closes(idle: &Idle) -> bool {
        tokio::time::timeout(Duration::ZERO, idle.must_close()).await.is_ok()
    }

    #[tokio::test]
    async fn the_longest_idle_connection_is_closed_first() {
        let list = Arc::new(IdleList::default());
        let now = Instant::now();
        let ago = |millis| now.checked_sub(Duration::from_millis(millis)).expect("the machine runs for longer");
        let [newest, second, longest, busy] = [500, 2000, 3000, 4000].map(|millis| list.enter(ago(millis)));
        drop(busy);
        assert!(list.close_longest() && closes(&longest).await && !closes(&second).await);
        assert!(list.close_longest() && closes(&second).await && !closes(&newest).await);
        assert!(!list.close_longest() && !closes(&newest).await, "one that was just used");
        let third = list.enter(ago(2000));
        assert!(list.close_longest_for_rejected() && closes(&third).await);
        let fourth = list.enter(ago(2000));
        assert!(!list.close_longest_for_rejected(), "not for each of many");
        drop((newest, second, longest, third, fourth));
        assert!(list.connections.lock().is_empty());
    }
}
