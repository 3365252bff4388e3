//! The rate of an API key, which its issuer has set.

use std::sync::Arc;
use std::time::Duration;

use crate::limits::limiter::{Limiter, Quota, Rate};
use crate::types::clock::Uptime;
use crate::types::ids::TokenId;

/// The name of the limit in header fields.
pub(super) const API_KEY: &str = "api-key";

const SHARDS: usize = 16;
/// Maximum keys in one half of a shard. A key that was forgotten gets a full bucket.
const SHARD_CAPACITY: usize = 4_096;

/// The limit of one API key: as many requests in each window as at once.
#[derive(Clone, Copy)]
pub struct KeyLimit {
    pub id: TokenId,
    pub requests: u32,
    pub window: Duration,
}

impl KeyLimit {
    fn rate(&self) -> Rate {
        Rate { burst: self.requests, interval: self.window / self.requests.max(1) }
    }
}

/// The buckets of all API keys with a rate. A reload keeps them.
#[derive(Clone)]
pub(super) struct KeyBuckets(Arc<[Limiter]>);

impl Default for KeyBuckets {
    fn default() -> Self {
        // Each key has a rate of its own.
        let rate = Rate { burst: 1, interval: Duration::ZERO };
        KeyBuckets((0..SHARDS).map(|_| Limiter::with_capacity(rate, SHARD_CAPACITY)).collect())
    }
}

impl KeyBuckets {
    pub(super) fn take(&self, key: &KeyLimit, now: Uptime) -> Quota {
        self.of(key).try_take_at(key.rate(), key.id, now)
    }

    /// Takes nothing.
    pub(super) fn quota(&self, key: &KeyLimit, now: Uptime) -> Quota {
        self.of(key).quota_at(key.rate(), key.id, now)
    }

    fn of(&self, key: &KeyLimit) -> &Limiter {
        &self.0[key.id.as_u128() as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Uptime = Uptime::from_secs(1_000);

    #[test]
    fn each_key_has_its_own_bucket_at_its_own_rate() {
        let buckets = KeyBuckets::default();
        let key =
            |id, requests| KeyLimit { id: TokenId::from_bytes([id; 16]), requests, window: Duration::from_secs(60) };
        for (key, left) in [(key(1, 2), 1), (key(1, 2), 0), (key(2, 9), 8), (key(17, 1), 0)] {
            let quota = buckets.take(&key, NOW);
            assert_eq!((quota.remaining, quota.retry_after), (left, None), "{}", key.id);
            assert_eq!(buckets.quota(&key, NOW).remaining, left);
        }
        assert_eq!(buckets.clone().take(&key(1, 2), NOW).retry_after, Some(Duration::from_secs(30)));
        assert_eq!(buckets.take(&key(1, 2), NOW + Duration::from_secs(30)).retry_after, None);
    }
}
