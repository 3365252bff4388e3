//! `[[rate]]` and `[[route.rate]]`: how many requests a client may send. Off by default.
//!
//! Each address, subject or route has a token bucket. All workers share the buckets, so a limit is exact however the
//! connections are spread. Each limit has several shards, each with a lock that is held for one lookup. Each limit
//! remembers the newest 65,536 to 131,072 clients, which is a few megabytes; a client that was forgotten gets a full
//! bucket.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::RandomState;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::limits::key_rate::{API_KEY, KeyBuckets, KeyLimit};
use crate::limits::limiter::{Key, Limiter, Quota, Rate};
use crate::types::clock::Uptime;
use crate::types::reject::{Reason, Reject};

/// draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// A power of two: the lowest bits of a hash choose the shard.
const SHARDS: usize = 16;
/// Maximum keys in one half of a shard.
const SHARD_CAPACITY: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// An IPv4 address, or an IPv6 /64.
    Address,
    /// `iss` and `sub` of the token; without a token, the address.
    Subject,
    /// All clients of the route together.
    Route,
}

/// Whether gateways on one store share the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// Each gateway allows all of it.
    #[default]
    Replica,
    /// Each gateway allows its part. If clients use them unequally, this is stricter than the limit, never laxer.
    Cluster,
}

/// One `[[rate]]` or `[[route.rate]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RateLimitSettings {
    /// Its index among all rate limits.
    pub number: usize,
    /// The route that it applies to; empty if it applies to every route.
    pub route: String,
    /// The name in the RateLimit header fields.
    pub name: String,
    pub per: Per,
    /// Maximum requests in each window.
    pub requests: u32,
    pub window: Duration,
    /// Maximum requests at once.
    pub burst: u32,
    pub share: Share,
}

impl RateLimitSettings {
    /// Returns true if both are equal but for their index.
    fn is_same_as(&self, other: &RateLimitSettings) -> bool {
        *other == RateLimitSettings { number: other.number, ..self.clone() }
    }

    fn new_shards(&self) -> Arc<[Limiter]> {
        let rate = Rate { burst: self.burst, interval: self.window / self.requests.max(1) };
        (0..SHARDS).map(|_| Limiter::with_capacity(rate, SHARD_CAPACITY)).collect()
    }
}

/// The client that a request is counted for.
pub struct Client<'r> {
    pub address: IpAddr,
    /// `iss` and `sub`
    pub subject: Option<(&'r str, &'r str)>,
    /// An API key with a rate of its own.
    pub key: Option<KeyLimit>,
}

/// All rate limits of a configuration.
#[derive(Default)]
pub struct RateLimits {
    /// By [`RateLimitSettings::number`]. The first `global` apply to every route.
    limits: Vec<RateLimit>,
    global: usize,
    /// Of the API keys with a rate. The same after each reload.
    keys: KeyBuckets,
    hashes: [RandomState; 2],
}

struct RateLimit {
    settings: RateLimitSettings,
    shards: Arc<[Limiter]>,
}

/// The values of the response header fields `RateLimit-Policy` and `RateLimit`.
#[derive(Default)]
pub struct RateLimitHeaders {
    policies: String,
    quotas: String,
}

impl RateLimitHeaders {
    fn add(&mut self, name: &str, requests: u32, window: Duration, quota: &Quota) {
        let comma = if self.policies.is_empty() { "" } else { ", " };
        let remaining = quota.remaining;
        let full_after = quota.full_after.as_millis().div_ceil(1000);
        // Writing to a string does not fail.
        let _ = write!(self.policies, "{comma}\"{name}\";q={requests};w={}", window.as_secs());
        let _ = write!(self.quotas, "{comma}\"{name}\";r={remaining};t={full_after}");
    }

    /// Returns true if no rate limit applied to the request.
    pub fn is_empty(&self) -> bool {
        self.policies.is_empty()
    }

    /// Adds the fields to a response, beside those that the backend may have set for limits of its own.
    pub fn append_to(&self, headers: &mut HeaderMap) {
        for (name, text) in [(RATELIMIT_POLICY, &self.policies), (RATELIMIT, &self.quotas)] {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.append(name, value);
            }
        }
    }
}

impl RateLimits {
    /// `all`: in the order of their numbers. The first `global` apply to every route.
    pub fn new(all: impl Iterator<Item = RateLimitSettings>, global: usize) -> RateLimits {
        RateLimits::reloaded(&RateLimits::default(), all, global)
    }

    /// As [`RateLimits::new`], but a limit that `before` has too keeps its buckets. Otherwise each reload would give
    /// every client another burst.
    pub fn reloaded(before: &RateLimits, all: impl Iterator<Item = RateLimitSettings>, global: usize) -> RateLimits {
        // Two limits of one route may be equal. Each takes over the buckets of one of those before.
        let mut available: HashMap<&str, VecDeque<&RateLimit>> = HashMap::new();
        for limit in &before.limits {
            available.entry(&limit.settings.route).or_default().push_back(limit);
        }
        let limit = |settings: RateLimitSettings| {
            let of_route = available.get_mut(&*settings.route);
            let same = of_route.and_then(|limits| {
                let at = limits.iter().position(|limit| settings.is_same_as(&limit.settings))?;
                limits.remove(at)
            });
            let shards = same.map_or_else(|| settings.new_shards(), |limit| limit.shards.clone());
            RateLimit { settings, shards }
        };
        let keys = before.keys.clone();
        let hashes = before.hashes.clone();
        RateLimits { limits: all.map(limit).collect(), global, keys, hashes }
    }

    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Takes one token of each limit that applies to this request. Rejects the request at the first limit that has
    /// none. `headers` gets the state of each limit that was checked. `replicas`: how many gateways use the store.
    pub fn take(
        &self,
        of_route: &[RateLimitSettings],
        client: &Client<'_>,
        headers: &mut RateLimitHeaders,
        replicas: u32,
        now: Uptime,
    ) -> Result<(), Reject> {
        for limit in self.applying(of_route) {
            let quota = limit.take(self.key(limit.settings.per, client), replicas, now);
            let RateLimitSettings { name, requests, window, .. } = &limit.settings;
            headers.add(name, *requests, *window, &quota);
            check(name, &quota)?;
        }
        // Last, so that a request that the operator's limits reject costs its key nothing.
        if let Some(key) = &client.key {
            let quota = self.keys.take(key, now);
            headers.add(API_KEY, key.requests, key.window, &quota);
            check(API_KEY, &quota)?;
        }
        Ok(())
    }

    /// The state of each limit that applies to this request, with its name. Takes nothing.
    pub fn quotas(
        &self,
        of_route: &[RateLimitSettings],
        client: &Client<'_>,
        replicas: u32,
        now: Uptime,
    ) -> Vec<(String, Quota)> {
        let quota = |limit: &RateLimit| {
            let key = self.key(limit.settings.per, client);
            let sharers = limit.sharers(replicas);
            (limit.settings.name.clone(), limit.shards[key as usize % SHARDS].quota(key, sharers, now))
        };
        let of_key = |key: &KeyLimit| (API_KEY.to_owned(), self.keys.quota(key, now));
        self.applying(of_route).map(quota).chain(client.key.as_ref().map(of_key)).collect()
    }

    fn applying<'l>(&'l self, of_route: &'l [RateLimitSettings]) -> impl Iterator<Item = &'l RateLimit> {
        let of_route = of_route.iter().filter_map(|settings| self.limits.get(settings.number));
        self.limits.iter().take(self.global).chain(of_route)
    }

    /// Each process seeds its hashes anew, so that an attacker cannot find a key that collides with another client's.
    fn key(&self, per: Per, client: &Client<'_>) -> u128 {
        let [high, low] = &self.hashes;
        match (per, client.subject) {
            (Per::Route, _) => 0,
            (Per::Subject, Some(subject)) => {
                u128::from(high.hash_one(subject)) << 64 | u128::from(low.hash_one(subject))
            }
            (Per::Subject | Per::Address, _) => {
                let address = Key::from(client.address);
                u128::from(high.hash_one(address)) << 64 | u128::from(low.hash_one(address))
            }
        }
    }
}

/// Rejects a request for which a limit had no token.
fn check(name: &str, quota: &Quota) -> Result<(), Reject> {
    let Some(wait) = quota.retry_after else { return Ok(()) };
    let wait = Duration::from_secs(wait.as_secs_f64().ceil() as u64);
    Err(Reject::new(Reason::QuotaExceeded, format!("rate {name}")).with_retry_after(wait))
}

impl RateLimit {
    fn take(&self, key: u128, replicas: u32, now: Uptime) -> Quota {
        self.shards[key as usize % SHARDS].try_take_with_quota(key, self.sharers(replicas), now)
    }

    fn sharers(&self, replicas: u32) -> u32 {
        if self.settings.share == Share::Cluster { replicas } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Uptime = Uptime::from_secs(1_000);

    fn settings(number: usize, per: Per, requests: u32, window: u64) -> RateLimitSettings {
        let name = format!("{per:?}-{number}").to_lowercase();
        let window = Duration::from_secs(window);
        let share = Share::Replica;
        RateLimitSettings { number, route: String::new(), name, per, requests, window, burst: requests, share }
    }

    fn take(limits: &RateLimits, client: &Client<'_>, now: Uptime) -> (Result<(), u64>, String) {
        let mut headers = RateLimitHeaders::default();
        let taken = limits.take(&[], client, &mut headers, 3, now);
        (taken.map_err(|reject| reject.retry_after().expect("a delay").as_secs()), headers.quotas)
    }

    #[test]
    fn each_client_has_a_bucket_and_sees_its_quota() {
        let limits = RateLimits::new([settings(0, Per::Subject, 3, 60)].into_iter(), 1);
        let client = |sub| Client { address: [192, 0, 2, 1].into(), subject: Some(("i", sub)), key: None };
        for (remaining, full_after) in [(2, 20), (1, 40), (0, 60)] {
            let expected = format!("\"subject-0\";r={remaining};t={full_after}");
            assert_eq!(take(&limits, &client("alice"), NOW), (Ok(()), expected));
        }
        assert_eq!(take(&limits, &client("alice"), NOW), (Err(20), "\"subject-0\";r=0;t=60".into()));
        assert_eq!(take(&limits, &client("bob"), NOW).0, Ok(()));
        let without_token = Client { subject: None, ..client("") };
        assert_eq!(take(&limits, &without_token, NOW).1, "\"subject-0\";r=2;t=20", "an address has its own");
        let later = NOW + Duration::from_secs(20);
        assert_eq!(take(&limits, &client("alice"), later).0, Ok(()));
        assert_eq!(take(&limits, &client("alice"), later).0, Err(20));
    }

    /// A key that uses only half of its bits would let clients collide.
    #[test]
    fn a_key_has_128_bits_and_depends_on_the_client() {
        let limits = RateLimits::default();
        let key = |per, last, sub| {
            let client = Client { address: [192, 0, 2, last].into(), subject: Some(("i", sub)), key: None };
            let key = limits.key(per, &client);
            ((key >> 64) as u64, key as u64)
        };
        for (one, other) in [
            (key(Per::Address, 1, "a"), key(Per::Address, 2, "a")),
            (key(Per::Subject, 1, "a"), key(Per::Subject, 1, "b")),
        ] {
            assert!(one.0 != other.0 && one.1 != other.1 && one.0 != one.1);
        }
        assert_eq!(key(Per::Address, 1, "a"), key(Per::Address, 1, "b"));
        assert_eq!(key(Per::Subject, 1, "a"), key(Per::Subject, 2, "a"));
        assert_eq!(key(Per::Route, 1, "a"), key(Per::Route, 2, "b"));
    }

    #[test]
    fn every_limit_counts_and_the_first_empty_one_rejects() {
        let all = [settings(0, Per::Route, 100, 1), settings(1, Per::Address, 1, 3600)];
        let limits = RateLimits::new(all.into_iter(), 2);
        let client = |last| Client { address: [192, 0, 2, last].into(), subject: None, key: None };
        assert_eq!(take(&limits, &client(1), NOW), (Ok(()), "\"route-0\";r=99;t=1, \"address-1\";r=0;t=3600".into()));
        assert_eq!(take(&limits, &client(1), NOW).0, Err(3600));
        for last in 2..100 {
            assert_eq!(take(&limits, &client(last), NOW).0, Ok(()));
        }
        assert_eq!(take(&limits, &client(100), NOW), (Err(1), "\"route-0\";r=0;t=1".into()));
    }

    #[test]
    fn an_unchanged_limit_keeps_its_buckets_over_a_reload() {
        let one = settings(0, Per::Address, 1, 60);
        let other = settings(1, Per::Route, 2, 60);
        let client = Client { address: [192, 0, 2, 1].into(), subject: None, key: None };
        let before = RateLimits::new([one.clone(), other.clone()].into_iter(), 2);
        assert_eq!(take(&before, &client, NOW).0, Ok(()));
        let reload = |limits: &[RateLimitSettings]| RateLimits::reloaded(&before, limits.iter().cloned(), limits.len());
        let moved = RateLimitSettings { number: 1, ..one.clone() };
        assert_eq!(take(&reload(&[RateLimitSettings { number: 0, ..other }, moved]), &client, NOW).0, Err(60));
        for changed in [
            RateLimitSettings { route: "/".into(), ..one.clone() },
            RateLimitSettings { name: "other".into(), ..one.clone() },
            RateLimitSettings { per: Per::Route, ..one.clone() },
            RateLimitSettings { requests: 2, ..one.clone() },
            RateLimitSettings { window: Duration::from_secs(61), ..one.clone() },
            RateLimitSettings { burst: 2, ..one.clone() },
            RateLimitSettings { share: Share::Cluster, ..one.clone() },
        ] {
            assert_eq!(take(&reload(std::slice::from_ref(&changed)), &client, NOW).0, Ok(()), "{changed:?}");
        }
        let twice = reload(&[one.clone(), one]);
        assert_eq!(take(&twice, &client, NOW + Duration::from_secs(60)).0, Ok(()), "each of two has its own buckets");
    }

    #[test]
    fn gateways_that_share_a_limit_allow_their_parts_of_it() {
        let shared = RateLimitSettings { share: Share::Cluster, ..settings(0, Per::Route, 12, 60) };
        let limits = RateLimits::new([shared].into_iter(), 1);
        let client = Client { address: [192, 0, 2, 1].into(), subject: None, key: None };
        let accepted = |replicas, now| {
            let take = || limits.take(&[], &client, &mut RateLimitHeaders::default(), replicas, now);
            (0..20).filter(|_| take().is_ok()).count()
        };
        assert_eq!(accepted(3, NOW), 4);
        assert_eq!(accepted(3, NOW + Duration::from_secs(15)), 1, "one in 15 s, as the others");
        assert_eq!(accepted(1, NOW + Duration::from_secs(75)), 12, "alone again");
        assert_eq!(accepted(100, NOW + Duration::from_secs(10_000)), 1, "at least one");
    }

    #[test]
    fn a_key_has_a_rate_of_its_own_which_a_reload_keeps() {
        let limits = RateLimits::default();
        let id = crate::types::ids::TokenId::from_bytes([1; 16]);
        let key = Some(KeyLimit { id, requests: 2, window: Duration::from_secs(60) });
        let client = Client { address: [192, 0, 2, 1].into(), subject: None, key };
        assert_eq!(take(&limits, &client, NOW), (Ok(()), "\"api-key\";r=1;t=30".into()));
        assert_eq!(take(&limits, &client, NOW).0, Ok(()));
        let reloaded = RateLimits::reloaded(&limits, [settings(0, Per::Address, 9, 60)].into_iter(), 1);
        let rejected = take(&reloaded, &client, NOW);
        assert_eq!(rejected, (Err(30), "\"address-0\";r=8;t=7, \"api-key\";r=0;t=60".into()));
        let quotas = reloaded.quotas(&[], &client, 1, NOW);
        assert_eq!((quotas[1].0.as_str(), quotas[1].1.remaining), ("api-key", 0));
    }

    /// At thousands of requests a second, one token takes less than a millisecond.
    #[test]
    fn a_high_rate_is_as_exact_as_a_low_one() {
        let limits = RateLimits::new([settings(0, Per::Route, 10_000, 1)].into_iter(), 1);
        let client = Client { address: [192, 0, 2, 1].into(), subject: None, key: None };
        let accepted = |now| (0..20_000).filter(|_| take(&limits, &client, now).0.is_ok()).count();
        assert_eq!(accepted(NOW), 10_000);
        assert_eq!(accepted(NOW + Duration::from_millis(1)), 10);
        assert_eq!(accepted(NOW + Duration::from_secs(60)), 10_000);
    }
}
