//! Asks the store for the gateway's own keys when a token names a `kid` that is not known here.
//!
//! Another gateway may have created the key a moment ago, and the news of it may be on its way. The question is bounded
//! as that to another issuer: see `refetch`.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::refetch::{Refetch, RefetchOutcome};
use crate::types::clock::Uptime;

/// Between two questions that tokens cause. A flood of forged tokens makes at most 50 a second. One costs the store as
/// much as a poll, of which there are four a second.
const COOLDOWN: Duration = Duration::from_millis(20);

/// For keys that other gateways change too.
pub struct OwnRefetch {
    refetch: Arc<Refetch>,
    /// The last question was not answered.
    is_failing: AtomicBool,
}

impl Default for OwnRefetch {
    fn default() -> Self {
        OwnRefetch { refetch: Arc::new(Refetch::new(COOLDOWN)), is_failing: AtomicBool::new(false) }
    }
}

impl OwnRefetch {
    /// Waits until the keys were read again, for a token with an unknown `kid`.
    pub(super) async fn wait(&self, now: Uptime) -> RefetchOutcome {
        self.refetch.wait(now).await
    }

    /// Returns true if the store was not asked, or did not answer. Then a token with an unknown key may still be valid:
    /// otherwise, forged tokens could use up the questions, and a new key of another gateway would be rejected.
    pub(super) fn is_unknown(&self, outcome: RefetchOutcome) -> bool {
        outcome == RefetchOutcome::CoolingDown || self.is_failing.load(Ordering::Acquire)
    }

    /// Returns once a token has asked.
    pub async fn requested(&self) {
        self.refetch.requested().await;
    }

    /// Runs `read`, which reads the keys and puts them in force, for all tokens that wait.
    pub async fn answer<E>(&self, read: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        let number = self.refetch.start();
        let result = read.await;
        self.is_failing.store(result.is_err(), Ordering::Release);
        self.refetch.finish(number);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Uptime = Uptime::from_secs(1_700_000_000);

    #[tokio::test]
    async fn a_flood_of_unknown_kids_asks_once_per_cooldown() {
        let own = Arc::new(OwnRefetch::default());
        let waiting: Vec<_> = (0..1_000)
            .map(|_| {
                let own = own.clone();
                tokio::spawn(async move { own.wait(T0).await })
            })
            .collect();
        own.requested().await;
        // Until all of them wait.
        for _ in 0..waiting.len() {
            tokio::task::yield_now().await;
        }
        own.answer(async { Ok::<_, ()>(()) }).await.expect("it works");
        for task in waiting {
            assert_eq!(task.await.expect("no panic"), RefetchOutcome::Fetched);
        }
        assert!(!own.is_unknown(RefetchOutcome::Fetched));
        assert_eq!(own.wait(T0 + COOLDOWN / 2).await, RefetchOutcome::CoolingDown);
        assert!(own.is_unknown(RefetchOutcome::CoolingDown));
        assert!(tokio::time::timeout(COOLDOWN / 50, own.requested()).await.is_err(), "one question for all of them");
        own.answer(async { Err(()) }).await.expect_err("the store is away");
        assert!(own.is_unknown(RefetchOutcome::Fetched));
    }
}
