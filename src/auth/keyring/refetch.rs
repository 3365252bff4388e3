//! Tokens that name an unknown key, and the one fetch that they may cause.
//!
//! After a rotation at the source the first token with the new `kid` is here before the next refresh; it, and those that
//! come while the source is asked, wait for the answer. But anybody can write a `kid`: however many tokens carry random
//! ones, the source is asked once in a cool-down, and a bounded number of requests waits for a bounded time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::types::clock::UnixTime;

/// Requests that may wait for one issuer. At 1,000 a second and the longest wait, twice as many as come.
const MOST_WAITING: usize = 4096;
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// What a request with an unknown `kid` has learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefetchOutcome {
    /// The source was asked, after the request came: look again.
    Anew,
    /// It was asked in the cool-down, for a token before this one.
    Lately,
    /// Its answer takes too long, or too many wait for it.
    NoAnswer,
}

/// Visits to the source are counted. A request waits for the one that was asked for by it or by others before it. One that
/// was under way for another cause does not count: it may have read the keys before the new one was there.
pub(super) struct Refetch {
    cool_down: Duration,
    longest_wait: Duration,
    state: Mutex<State>,
    wanted: Notify,
    /// The newest visit that is over.
    over: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// Visits that have begun.
    begun: u64,
    /// The visit that is waited for.
    pending: Option<u64>,
    waiting: usize,
    /// When a visit was last asked for.
    asked: Option<UnixTime>,
}

impl Refetch {
    pub(super) fn new(cool_down: Duration) -> Self {
        Refetch {
            cool_down,
            longest_wait: LONGEST_WAIT,
            state: Mutex::default(),
            wanted: Notify::new(),
            over: watch::Sender::new(0),
        }
    }

    /// A request has a token whose key is unknown.
    pub(super) async fn ask(self: &Arc<Self>, now: UnixTime) -> RefetchOutcome {
        let place = match self.take_place(now) {
            Ok(place) => place,
            Err(refused) => return refused,
        };
        let mut over = self.over.subscribe();
        match tokio::time::timeout(self.longest_wait, over.wait_for(|over| *over >= place.visit)).await {
            Ok(Ok(_)) => RefetchOutcome::Anew,
            // The time is up, or the gateway ends.
            Err(_) | Ok(Err(_)) => RefetchOutcome::NoAnswer,
        }
    }

    fn take_place(self: &Arc<Self>, now: UnixTime) -> Result<WaiterSlot, RefetchOutcome> {
        let mut state = self.state();
        let visit = match state.pending {
            Some(visit) => visit,
            None if self.is_cooling_down(state.asked, now) => return Err(RefetchOutcome::Lately),
            None => {
                let visit = state.begun + 1;
                (state.pending, state.asked) = (Some(visit), Some(now));
                self.wanted.notify_one();
                visit
            }
        };
        if state.waiting == MOST_WAITING {
            return Err(RefetchOutcome::NoAnswer);
        }
        state.waiting += 1;
        Ok(WaiterSlot { visit, of: self.clone() })
    }

    /// A visit shall be made without delay, whoever waits for it.
    pub(super) fn wish(&self) {
        let mut state = self.state();
        if state.pending.is_none() {
            state.pending = Some(state.begun + 1);
            self.wanted.notify_one();
        }
    }

    /// A clock that was set back does not prolong it.
    fn is_cooling_down(&self, asked: Option<UnixTime>, now: UnixTime) -> bool {
        asked.is_some_and(|asked| asked <= now && now.since(asked) < self.cool_down)
    }

    /// Returns once a request waits for a visit.
    pub(super) async fn wanted(&self) {
        // A notice may be left over from a visit that was made for another cause.
        while self.state().pending.is_none() {
            self.wanted.notified().await;
        }
    }

    /// The source is about to be asked, for whatever cause. Pass the number to [`Refetch::end`].
    pub(super) fn begin(&self) -> u64 {
        let mut state = self.state();
        state.begun += 1;
        state.begun
    }

    /// The visit is over and what it brought is in force.
    pub(super) fn end(&self, visit: u64) {
        let mut state = self.state();
        state.pending = state.pending.filter(|pending| *pending > visit);
        drop(state);
        self.over.send_replace(visit);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's place among those that wait, given back when it stops waiting.
struct WaiterSlot {
    visit: u64,
    of: Arc<Refetch>,
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        self.of.state().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const T0: UnixTime = UnixTime::from_secs(1_700_000_000);
    const COOL_DOWN: Duration = Duration::from_secs(30);
    const MILLI: Duration = Duration::from_millis(1);

    fn refetch() -> Arc<Refetch> {
        Arc::new(Refetch::new(COOL_DOWN))
    }

    fn ask(refetch: &Arc<Refetch>, now: UnixTime) -> tokio::task::JoinHandle<RefetchOutcome> {
        let refetch = refetch.clone();
        tokio::spawn(async move { refetch.ask(now).await })
    }

    /// A task that answers each wish, and counts.
    fn source(refetch: &Arc<Refetch>, takes: Duration) -> Arc<AtomicUsize> {
        let visits = Arc::<AtomicUsize>::default();
        let (refetch, count) = (refetch.clone(), visits.clone());
        tokio::spawn(async move {
            loop {
                refetch.wanted().await;
                let visit = refetch.begin();
                count.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(takes).await;
                refetch.end(visit);
            }
        });
        visits
    }

    #[tokio::test]
    async fn many_wait_for_one_visit_and_the_next_is_a_cool_down_later() {
        let refetch = refetch();
        let visits = source(&refetch, 20 * MILLI);
        let waiting: Vec<_> = (0..1000).map(|_| ask(&refetch, T0)).collect();
        for task in waiting {
            assert_eq!(task.await.expect("no panic"), RefetchOutcome::Anew);
        }
        assert_eq!(visits.load(Ordering::SeqCst), 1);
        assert_eq!(refetch.ask(T0 + COOL_DOWN - MILLI).await, RefetchOutcome::Lately);
        assert_eq!(visits.load(Ordering::SeqCst), 1);
        assert_eq!(refetch.ask(T0 + COOL_DOWN).await, RefetchOutcome::Anew);
        assert_eq!(visits.load(Ordering::SeqCst), 2);
        assert_eq!(refetch.ask(T0).await, RefetchOutcome::Anew, "the clock was set back");
        assert_eq!(refetch.state().waiting, 0);
    }

    #[tokio::test]
    async fn patience_is_bounded() {
        let refetch = Arc::new(Refetch { longest_wait: 100 * MILLI, ..Refetch::new(COOL_DOWN) });
        let visits = source(&refetch, 150 * MILLI);
        assert_eq!(refetch.ask(T0).await, RefetchOutcome::NoAnswer);
        // It is still under way: those who come now wait for it, too.
        assert_eq!(refetch.ask(T0 + MILLI).await, RefetchOutcome::Anew);
        assert_eq!(visits.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_visit_that_was_under_way_already_is_not_the_one() {
        let refetch = refetch();
        let early = refetch.begin();
        let asking = ask(&refetch, T0);
        tokio::task::yield_now().await;
        refetch.end(early);
        tokio::task::yield_now().await;
        assert!(!asking.is_finished());
        refetch.wanted().await;
        let visit = refetch.begin();
        refetch.end(visit);
        assert_eq!(asking.await.expect("no panic"), RefetchOutcome::Anew);
    }

    #[tokio::test]
    async fn a_visit_for_another_cause_fulfils_the_wish() {
        let refetch = refetch();
        let asking = ask(&refetch, T0);
        tokio::task::yield_now().await;
        // The refresh was due just then; nobody has looked at the wish yet.
        let visit = refetch.begin();
        refetch.end(visit);
        assert_eq!(asking.await.expect("no panic"), RefetchOutcome::Anew);
        let more = tokio::time::timeout(50 * MILLI, refetch.wanted()).await;
        assert!(more.is_err(), "one wish, one visit");
    }

    #[tokio::test]
    async fn places_are_bounded_and_given_back() {
        let refetch = refetch();
        let waiting: Vec<_> = (0..MOST_WAITING).map(|_| ask(&refetch, T0)).collect();
        while refetch.state().waiting < MOST_WAITING {
            tokio::task::yield_now().await;
        }
        let began = std::time::Instant::now();
        assert_eq!(refetch.ask(T0).await, RefetchOutcome::NoAnswer);
        assert!(began.elapsed() < LONGEST_WAIT, "refused at once");
        // Clients that leave give their places back.
        waiting.iter().for_each(|task| task.abort());
        for task in waiting {
            assert!(task.await.is_err_and(|error| error.is_cancelled()));
        }
        assert_eq!(refetch.state().waiting, 0);
    }
}
