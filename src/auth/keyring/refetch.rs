//! The one fetch that tokens with an unknown `kid` can cause.
//!
//! After the issuer rotates its keys, the first token with the new `kid` arrives before the next refresh. That token,
//! and those that arrive while the keys are fetched, wait for the fetch. But a `kid` is only text, and an attacker can
//! send tokens with random ones: the issuer gets one request per cooldown, and a limited number of requests waits for a
//! limited time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::types::clock::Uptime;
use crate::types::reject::{Reason, Reject};

/// Maximum number of requests that wait for one issuer: twice those of [`MAX_WAIT`] at 1,000 requests a second.
const MAX_WAITING: usize = 4096;
/// Maximum time that a request waits.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// What a request with an unknown `kid` learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefetchOutcome {
    /// A fetch began after the request arrived, and ended. Look for the key again.
    Fetched,
    /// An earlier token caused a fetch within the cooldown.
    CoolingDown,
    /// The fetch takes too long, or too many requests wait for it.
    TimedOut,
}

/// If the keys cannot be fetched, a token with an unknown one may still be good.
pub(super) fn unless_failing(still: Reject, is_failing: bool) -> Reject {
    match still.reason {
        Reason::UnknownKey if is_failing => {
            Reject::new(Reason::KeysUnavailable, "unknown key, and fetching the keys of its issuer fails")
        }
        _ => still,
    }
}

/// Fetches are numbered. A request waits for the first one that begins after it arrived. A fetch that runs already does
/// not count: it may have read the key set before the new key was in it.
pub(super) struct Refetch {
    cooldown: Duration,
    max_wait: Duration,
    state: Mutex<RefetchState>,
    requested: Notify,
    /// The number of the last fetch that ended.
    finished: watch::Sender<u64>,
}

#[derive(Default)]
struct RefetchState {
    /// The number of the last fetch that began.
    started: u64,
    /// The number of the fetch that requests wait for.
    pending: Option<u64>,
    waiting: usize,
    /// When a token last caused a fetch.
    last_request: Option<Uptime>,
}

impl Refetch {
    pub(super) fn new(cooldown: Duration) -> Self {
        Refetch {
            cooldown,
            max_wait: MAX_WAIT,
            state: Mutex::default(),
            requested: Notify::new(),
            finished: watch::Sender::new(0),
        }
    }

    /// Requests a fetch, if none is pending and no cooldown applies, and waits for it.
    pub(super) async fn wait(self: &Arc<Self>, now: Uptime) -> RefetchOutcome {
        let slot = match self.take_slot(now) {
            Ok(slot) => slot,
            Err(outcome) => return outcome,
        };
        let mut finished = self.finished.subscribe();
        match tokio::time::timeout(self.max_wait, finished.wait_for(|finished| *finished >= slot.fetch)).await {
            Ok(Ok(_)) => RefetchOutcome::Fetched,
            // Timed out, or the gateway shuts down.
            Err(_) | Ok(Err(_)) => RefetchOutcome::TimedOut,
        }
    }

    fn take_slot(self: &Arc<Self>, now: Uptime) -> Result<WaiterSlot, RefetchOutcome> {
        let mut state = self.state.lock();
        let fetch = match state.pending {
            Some(fetch) => fetch,
            None if state.last_request.is_some_and(|last| now.since(last) < self.cooldown) => {
                return Err(RefetchOutcome::CoolingDown);
            }
            None => {
                let fetch = state.started + 1;
                (state.pending, state.last_request) = (Some(fetch), Some(now));
                self.requested.notify_one();
                fetch
            }
        };
        if state.waiting == MAX_WAITING {
            return Err(RefetchOutcome::TimedOut);
        }
        state.waiting += 1;
        Ok(WaiterSlot { fetch, refetch: self.clone() })
    }

    /// Requests a fetch without a cooldown.
    pub(super) fn request_now(&self) {
        let mut state = self.state.lock();
        if state.pending.is_none() {
            state.pending = Some(state.started + 1);
            self.requested.notify_one();
        }
    }

    /// Returns once a fetch is requested.
    pub(super) async fn requested(&self) {
        // The notification may be left over from a fetch that began for another reason.
        while self.state.lock().pending.is_none() {
            self.requested.notified().await;
        }
    }

    /// A fetch begins, for any reason. Returns its number for [`Refetch::finish`].
    pub(super) fn start(&self) -> u64 {
        let mut state = self.state.lock();
        state.started += 1;
        state.started
    }

    /// The fetch ended and its keys are in force.
    pub(super) fn finish(&self, fetch: u64) {
        let mut state = self.state.lock();
        state.pending = state.pending.filter(|pending| *pending > fetch);
        drop(state);
        self.finished.send_replace(fetch);
    }
}

/// Counts one request among the waiting ones until it is dropped.
struct WaiterSlot {
    fetch: u64,
    refetch: Arc<Refetch>,
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        self.refetch.state.lock().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const T0: Uptime = Uptime::from_secs(1_700_000_000);
    const COOLDOWN: Duration = Duration::from_secs(30);
    const MILLI: Duration = Duration::from_millis(1);

    fn refetch() -> Arc<Refetch> {
        Arc::new(Refetch::new(COOLDOWN))
    }

    fn spawn_wait(refetch: &Arc<Refetch>, now: Uptime) -> tokio::task::JoinHandle<RefetchOutcome> {
        let refetch = refetch.clone();
        tokio::spawn(async move { refetch.wait(now).await })
    }

    /// A task that answers each request for a fetch, and counts the fetches.
    fn source(refetch: &Arc<Refetch>, takes: Duration) -> Arc<AtomicUsize> {
        let fetches = Arc::<AtomicUsize>::default();
        let refetch = refetch.clone();
        let count = fetches.clone();
        tokio::spawn(async move {
            loop {
                refetch.requested().await;
                let fetch = refetch.start();
                count.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(takes).await;
                refetch.finish(fetch);
            }
        });
        fetches
    }

    #[tokio::test]
    async fn waiting_requests_share_one_fetch_per_cooldown() {
        let refetch = refetch();
        let fetches = source(&refetch, 20 * MILLI);
        let waiting: Vec<_> = (0..1000).map(|_| spawn_wait(&refetch, T0)).collect();
        for task in waiting {
            assert_eq!(task.await.expect("no panic"), RefetchOutcome::Fetched);
        }
        assert_eq!(fetches.load(Ordering::SeqCst), 1);
        assert_eq!(refetch.wait(T0 + COOLDOWN - MILLI).await, RefetchOutcome::CoolingDown);
        assert_eq!(fetches.load(Ordering::SeqCst), 1);
        assert_eq!(refetch.wait(T0 + COOLDOWN).await, RefetchOutcome::Fetched);
        assert_eq!(fetches.load(Ordering::SeqCst), 2);
        assert_eq!(refetch.wait(T0).await, RefetchOutcome::CoolingDown, "another worker read the clock earlier");
        assert_eq!(refetch.state.lock().waiting, 0);
    }

    #[tokio::test]
    async fn a_request_waits_for_a_limited_time() {
        let refetch = Arc::new(Refetch { max_wait: 100 * MILLI, ..Refetch::new(COOLDOWN) });
        let fetches = source(&refetch, 150 * MILLI);
        assert_eq!(refetch.wait(T0).await, RefetchOutcome::TimedOut);
        // The fetch still runs: a later request waits for it, too.
        assert_eq!(refetch.wait(T0 + MILLI).await, RefetchOutcome::Fetched);
        assert_eq!(fetches.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn does_not_wait_for_a_fetch_that_runs_already() {
        let refetch = refetch();
        let early = refetch.start();
        let waiting = spawn_wait(&refetch, T0);
        tokio::task::yield_now().await;
        refetch.finish(early);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        refetch.requested().await;
        let fetch = refetch.start();
        refetch.finish(fetch);
        assert_eq!(waiting.await.expect("no panic"), RefetchOutcome::Fetched);
    }

    #[tokio::test]
    async fn a_scheduled_refresh_satisfies_waiting_requests() {
        let refetch = refetch();
        let waiting = spawn_wait(&refetch, T0);
        tokio::task::yield_now().await;
        // A scheduled refresh begins before the task sees the request.
        let fetch = refetch.start();
        refetch.finish(fetch);
        assert_eq!(waiting.await.expect("no panic"), RefetchOutcome::Fetched);
        let more = tokio::time::timeout(50 * MILLI, refetch.requested()).await;
        assert!(more.is_err(), "one request, one fetch");
    }

    /// The keys may have changed after the fetch that runs has begun.
    #[test]
    fn a_request_for_a_fetch_is_not_met_by_an_earlier_one() {
        let refetch = refetch();
        for _ in 0..3 {
            let running = refetch.start();
            refetch.request_now();
            refetch.finish(running);
            assert!(refetch.state.lock().pending.is_some());
            let next = refetch.start();
            refetch.finish(next);
            assert!(refetch.state.lock().pending.is_none());
        }
    }

    #[tokio::test]
    async fn limits_and_frees_the_slots_of_waiting_requests() {
        let refetch = refetch();
        let waiting: Vec<_> = (0..MAX_WAITING).map(|_| spawn_wait(&refetch, T0)).collect();
        while refetch.state.lock().waiting < MAX_WAITING {
            tokio::task::yield_now().await;
        }
        let began = std::time::Instant::now();
        assert_eq!(refetch.wait(T0).await, RefetchOutcome::TimedOut);
        assert!(began.elapsed() < MAX_WAIT, "rejected at once");
        // A client that disconnects frees its slot.
        waiting.iter().for_each(|task| task.abort());
        for task in waiting {
            assert!(task.await.is_err_and(|error| error.is_cancelled()));
        }
        assert_eq!(refetch.state.lock().waiting, 0);
    }
}
