//! The age of this gateway's copy of a shared store: the revocations, the signing keys, and the clock.
//!
//! Every request compares the time of the last complete poll with the time now. A gateway that was paused or cut off
//! therefore knows in its first request that it may have missed a revocation. A store of one gateway has none of this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::store::error::FailureKind;
use crate::store::staleness::{StaleCause, Staleness};
use crate::store::store_time::StoreTime;
use crate::types::boot_time::BootTime;

/// Before the signing keys of the gateway are loaded, their version does not matter.
const ANY_KEYS: u64 = u64::MAX;

/// Written by the follower of the store, read by all threads.
pub struct Freshness {
    /// `store.max_staleness`
    max_staleness: Duration,
    /// `store.on_stale` is "serve".
    pub serves_stale: bool,
    /// `store.strict`: a revocation waits for all gateways, so that each of them must be known to the others.
    is_strict: bool,
    /// Since then everything is known here, as far as it counts; 0: never.
    complete_at: AtomicU64,
    /// When the last poll was sent that read everything; 0: none was.
    polled_at: AtomicU64,
    /// With `is_strict`: since when this gateway is in the list of gateways; 0: it is not.
    listed_at: AtomicU64,
    /// Notified when more was applied.
    moved: Arc<Notify>,
    /// When the whole log was read for the first time.
    loaded: watch::Sender<bool>,
    /// The version of the signing keys in the store, and the one in force here.
    keys: watch::Sender<u64>,
    keys_in_force: AtomicU64,
    pub store_time: StoreTime,
    /// Why the last poll failed. `None`: it did not.
    failing: Mutex<Option<FailureKind>>,
    pub counts: FollowerCounts,
}

/// For metrics.
#[derive(Default)]
pub struct FollowerCounts {
    /// The newest entry of the log that is applied with all before it.
    pub applied: AtomicU64,
    /// The newest entry of the log.
    pub newest: AtomicU64,
    /// How often the log was read from its start again.
    pub reloads: AtomicU64,
    /// How often the log was another one: the store was rolled back.
    pub forks: AtomicU64,
    /// Gaps in the log.
    pub gaps: AtomicU64,
    /// Revocations that the store has lost, and that this gateway knows.
    pub lost: AtomicU64,
    /// Revocations that the store had lost, and that this gateway wrote back.
    pub written_back: AtomicU64,
    /// The gateways that use the store now, this one included.
    pub live: AtomicU64,
    /// How often this gateway found that the clock of the store was set back.
    pub set_back: AtomicU64,
    /// Refreshes of families of which the last rotation lay ahead of the time of the store.
    pub ahead: AtomicU64,
}

impl Freshness {
    pub fn new(max_staleness: Duration, serves_stale: bool, is_strict: bool) -> Self {
        Freshness {
            max_staleness,
            serves_stale,
            is_strict,
            complete_at: AtomicU64::new(0),
            polled_at: AtomicU64::new(0),
            listed_at: AtomicU64::new(0),
            moved: Arc::default(),
            loaded: watch::Sender::new(false),
            keys: watch::Sender::new(0),
            keys_in_force: AtomicU64::new(ANY_KEYS),
            store_time: StoreTime::default(),
            failing: Mutex::default(),
            counts: FollowerCounts::default(),
        }
    }

    /// Returns true if this gateway may have missed revocations for longer than `store.max_staleness`.
    ///
    /// Call it after the look-up of the revocation: a process that was stopped between the two is then stale.
    pub fn is_stale(&self) -> bool {
        self.age() > self.max_staleness
    }

    /// Returns true from half of `store.max_staleness` on, so that load balancers leave before clients see 503.
    pub fn is_half_stale(&self) -> bool {
        self.age() > self.max_staleness / 2
    }

    /// The reason why the gateway is not ready, if it is not. It names no server, user or file: a probe has no token.
    pub fn not_ready(&self) -> Option<String> {
        if self.is_half_stale() {
            return Some(self.staleness());
        }
        self.store_time.not_ready()
    }

    /// How old the knowledge of revocations is, why, and what follows from it.
    pub fn staleness(&self) -> String {
        let staleness = Staleness {
            cause: self.stale_cause(),
            age: self.age(),
            limit: self.max_staleness,
            serves_stale: self.serves_stale,
        };
        staleness.to_string()
    }

    fn stale_cause(&self) -> Option<StaleCause> {
        if let Some(kind) = *self.failing.lock() {
            return Some(StaleCause::Store(kind));
        }
        if self.keys_in_force.load(Ordering::Acquire) < *self.keys.borrow() {
            return Some(StaleCause::SigningKeys);
        }
        let is_unacknowledged = self.is_strict && self.polled_at.load(Ordering::Acquire) > 0;
        is_unacknowledged.then_some(StaleCause::Unacknowledged)
    }

    /// A poll has failed.
    pub fn failed(&self, kind: FailureKind) {
        *self.failing.lock() = Some(kind);
    }

    /// The store has answered a poll.
    pub fn answered(&self) {
        *self.failing.lock() = None;
    }

    /// The time since the last complete poll.
    pub fn age(&self) -> Duration {
        match self.complete_at.load(Ordering::Acquire) {
            0 => Duration::MAX,
            at => BootTime::now().since(BootTime::from_micros(at)),
        }
    }

    /// Returns when the whole log was read once.
    pub async fn loaded(&self) {
        // The sender is here, so that it is not closed.
        let _ = self.loaded.subscribe().wait_for(|loaded| *loaded).await;
    }

    /// Returns true if the whole log was read once.
    pub fn is_loaded(&self) -> bool {
        *self.loaded.borrow()
    }

    /// A poll that was sent at `sent` has read everything, and everything is in force. It does not count while the
    /// signing keys of that poll are not: a key may have been revoked.
    ///
    /// `has_moved`: it brought entries, which another gateway may wait for.
    pub fn completed(&self, sent: BootTime, has_moved: bool) {
        let in_force = self.keys_in_force.load(Ordering::Acquire);
        if in_force < *self.keys.borrow() {
            return;
        }
        self.polled_at.fetch_max(sent.as_micros(), Ordering::AcqRel);
        if has_moved || !self.is_loaded() {
            self.moved.notify_one();
        }
        if !self.is_strict {
            self.complete(sent);
        }
    }

    fn complete(&self, at: BootTime) {
        self.complete_at.fetch_max(at.as_micros(), Ordering::AcqRel);
        self.loaded.send_if_modified(|loaded| !std::mem::replace(loaded, true));
    }

    /// When the last poll was sent that read everything.
    pub fn polled_at(&self) -> BootTime {
        BootTime::from_micros(self.polled_at.load(Ordering::Acquire))
    }

    /// The store has acknowledged a heartbeat that was sent at `sent`, when the last complete poll was that of
    /// `polled`. With `store.strict`, this gateway is fresh only as far as the others know it: they stop waiting for it
    /// when they have not heard of it for too long. A poll from before it was listed does not count, because a
    /// revocation in between did not wait for it.
    pub fn acknowledged(&self, sent: BootTime, polled: BootTime, is_new: bool) {
        if !self.is_strict {
            return;
        }
        let listed_at = self.listed_at.load(Ordering::Acquire);
        if is_new || listed_at == 0 {
            self.listed_at.store(BootTime::now().as_micros(), Ordering::Release);
        } else if polled.as_micros() >= listed_at {
            self.complete(polled.min(sent));
        }
    }

    /// How many gateways use the store now, this one included.
    pub fn replicas(&self) -> u32 {
        u32::try_from(self.counts.live.load(Ordering::Relaxed)).unwrap_or(u32::MAX).max(1)
    }

    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    pub fn max_staleness(&self) -> Duration {
        self.max_staleness
    }

    /// Notified after each complete poll that brought entries.
    pub fn moved(&self) -> Arc<Notify> {
        self.moved.clone()
    }

    /// The store has this version of the signing keys.
    pub fn found_keys(&self, version: u64) {
        self.keys.send_if_modified(|known| std::mem::replace(known, version) != version);
    }

    /// Tells of each new version of the signing keys.
    pub fn keys(&self) -> watch::Receiver<u64> {
        self.keys.subscribe()
    }

    /// The signing keys of this version, or of a later one, are in force.
    pub fn keys_in_force(&self, version: u64) {
        self.keys_in_force.store(version, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_ready(future: impl Future) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn only_a_recent_complete_poll_is_fresh() {
        let freshness = Freshness::new(Duration::from_secs(10), false, false);
        assert!(freshness.is_stale() && freshness.is_half_stale(), "before the first poll");
        let ago = |secs: u64| BootTime::from_micros(BootTime::now().as_micros() - secs * 1_000_000);
        for (secs, half_stale, stale) in [(11, true, true), (9, true, false), (4, false, false)] {
            freshness.completed(ago(secs), false);
            assert_eq!((freshness.is_half_stale(), freshness.is_stale()), (half_stale, stale), "{secs}");
        }
        freshness.completed(ago(20), false);
        assert!(!freshness.is_stale(), "an older poll that is reported late changes nothing");
    }

    #[test]
    fn a_poll_counts_when_its_signing_keys_are_in_force() {
        let freshness = Freshness::new(Duration::from_secs(10), false, false);
        freshness.found_keys(3);
        freshness.keys_in_force(2);
        freshness.completed(BootTime::now(), false);
        assert!(freshness.is_stale());
        freshness.keys_in_force(3);
        freshness.completed(BootTime::now(), false);
        assert!(!freshness.is_stale());
    }

    #[test]
    fn with_strict_revocations_only_acknowledged_heartbeats_count() {
        let freshness = Freshness::new(Duration::from_secs(10), false, true);
        let early = BootTime::now();
        freshness.completed(early, false);
        freshness.acknowledged(BootTime::now(), freshness.polled_at(), true);
        assert!(freshness.is_stale(), "the poll was before this gateway was listed");
        freshness.completed(BootTime::now(), false);
        assert!(freshness.is_stale(), "no heartbeat has told of it");
        freshness.acknowledged(BootTime::now(), freshness.polled_at(), false);
        assert!(!freshness.is_stale());
    }

    #[test]
    fn a_gateway_says_why_it_is_not_ready() {
        let freshness = Freshness::new(Duration::from_secs(10), false, false);
        assert_eq!(freshness.not_ready().as_deref(), Some("the revocations were not read yet"));
        freshness.completed(BootTime::from_micros(BootTime::now().as_micros() - 8_000_000), false);
        let stale = freshness.not_ready().expect("a reason");
        assert!(stale.contains("those of 8.0s ago, half of store.max_staleness is 5.0s"), "{stale}");
        freshness.failed(FailureKind::Unreachable);
        assert_eq!(freshness.stale_cause(), Some(StaleCause::Store(FailureKind::Unreachable)));
        freshness.answered();
        freshness.found_keys(2);
        for (in_force, cause) in [(1, Some(StaleCause::SigningKeys)), (2, None)] {
            freshness.keys_in_force(in_force);
            assert_eq!(freshness.stale_cause(), cause);
        }
        freshness.completed(BootTime::now(), false);
        assert_eq!(freshness.not_ready(), None, "no poll has measured the clocks");
        freshness.store_time.set(0, Duration::ZERO);
        assert!(freshness.not_ready().is_some_and(|reason| reason.starts_with("the clock of this machine")));
    }

    #[test]
    fn waiters_notice_the_first_poll_and_what_moves() {
        let freshness = Freshness::new(Duration::from_secs(10), false, false);
        let moved = freshness.moved();
        let mut keys = freshness.keys();
        assert!(!is_ready(freshness.loaded()) && !is_ready(moved.notified()));
        for (has_moved, is_noticed) in [(false, true), (false, false), (true, true)] {
            freshness.completed(BootTime::now(), has_moved);
            assert_eq!((is_ready(moved.notified()), is_ready(freshness.loaded())), (is_noticed, true));
        }
        for (version, is_new) in [(3, true), (3, false), (4, true)] {
            freshness.found_keys(version);
            assert_eq!(is_ready(keys.changed()), is_new, "{version}");
        }
    }

    /// Also if it is listed again, after the others had given it up.
    #[test]
    fn only_a_poll_after_it_was_listed_makes_a_strict_gateway_fresh() {
        let freshness = Freshness::new(Duration::from_secs(10), false, true);
        assert!(freshness.is_strict() && freshness.max_staleness() == Duration::from_secs(10));
        let polled = |is_new| {
            freshness.completed(BootTime::now(), false);
            freshness.acknowledged(BootTime::now(), freshness.polled_at(), is_new);
            freshness.age()
        };
        assert_eq!([polled(false), polled(true)], [Duration::MAX; 2], "neither poll was after it was listed");
        assert_ne!(polled(false), Duration::MAX);
    }

    #[test]
    fn a_gateway_counts_itself_before_it_knows_of_others() {
        let freshness = Freshness::new(Duration::from_secs(10), false, false);
        assert!(!freshness.is_strict());
        for (live, replicas) in [(0, 1), (1, 1), (3, 3)] {
            freshness.counts.live.store(live, Ordering::Relaxed);
            assert_eq!(freshness.replicas(), replicas);
        }
    }

    #[test]
    fn a_start_that_waits_for_the_log_is_woken_once() {
        let freshness = Freshness::new(Duration::from_secs(10), false, false);
        let mut loaded = freshness.loaded.subscribe();
        for is_first in [true, false] {
            freshness.completed(BootTime::now(), true);
            assert_eq!(is_ready(loaded.changed()), is_first);
        }
    }
}
