//! How often a client may ask: `[[rate]]` and `[[route.rate]]`. Off until one is written.
//!
//! A bucket of tokens for each address, subject or route. All workers share them, so a limit is exact however connections are
//! spread; each limit is in shards with a lock of their own, held for one look-up, and none is touched while there is no limit.
//! Of one limit, the newest 65,536 to 131,072 clients are remembered: some megabytes, and forgetting errs on the side of
//! letting through.

use std::fmt::Write;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::RandomState;
use http::{HeaderName, HeaderValue, Response};

use crate::limits::limiter::{Key, Limiter, Quota, Rate};
use crate::types::clock::UnixTime;
use crate::types::reject::{Reason, Reject};

/// draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// A power of two: a shard is chosen by the lowest bits of a hash.
const SHARDS: usize = 16;
/// Keys in a generation of a shard.
const ROOM: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// An IPv4 address, or an IPv6 /64.
    Address,
    /// `iss` and `sub` of the token; without one, the address.
    Subject,
    /// Everybody together.
    Route,
}

/// One `[[rate]]` or `[[route.rate]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Its place among all of them.
    pub number: usize,
    /// Which route it is of, by what tells routes apart; empty where it is for every route.
    pub route: String,
    /// What clients know it by.
    pub name: String,
    pub per: Per,
    /// So many in each window.
    pub requests: u32,
    pub window: Duration,
    /// So many at once.
    pub burst: u32,
}

impl Settings {
    /// Wherever it stands among the others.
    fn is_same_as(&self, other: &Settings) -> bool {
        *other == Settings { number: other.number, ..self.clone() }
    }

    fn empty_buckets(&self) -> Arc<[Limiter]> {
        let rate = Rate { burst: self.burst, every: self.window / self.requests.max(1) };
        (0..SHARDS).map(|_| Limiter::with_room(rate, ROOM)).collect()
    }
}

/// Who asks.
pub struct Client<'r> {
    pub address: IpAddr,
    /// `iss` and `sub`
    pub subject: Option<(&'r str, &'r str)>,
}

#[derive(Default)]
pub struct Rates {
    /// By [`Settings::number`]. The first ones are for every route.
    limits: Vec<Limit>,
    everywhere: usize,
    hashes: [RandomState; 2],
}

struct Limit {
    settings: Settings,
    shards: Arc<[Limiter]>,
}

/// What a client is told of its limits: `RateLimit-Policy` and `RateLimit`.
#[derive(Default)]
pub struct RateLimitHeaders {
    policies: String,
    left: String,
}

impl RateLimitHeaders {
    fn add(&mut self, settings: &Settings, quota: &Quota) {
        let comma = if self.policies.is_empty() { "" } else { ", " };
        let Settings { name, requests, window, .. } = settings;
        // Writing to a string does not fail.
        let _ = write!(self.policies, "{comma}\"{name}\";q={requests};w={}", window.as_secs());
        let _ = write!(self.left, "{comma}\"{name}\";r={};t={}", quota.left, quota.full_in.as_millis().div_ceil(1000));
    }

    pub fn is_anything(&self) -> bool {
        !self.policies.is_empty()
    }

    /// On an answer, beside what an upstream says of limits of its own.
    pub fn on<B>(&self, mut response: Response<B>) -> Response<B> {
        for (name, text) in [(RATELIMIT_POLICY, &self.policies), (RATELIMIT, &self.left)] {
            if let Ok(value) = HeaderValue::from_str(text) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

impl Rates {
    /// `all`: in the order of their numbers, the first `everywhere` of which are for every route.
    pub fn new(all: impl Iterator<Item = Settings>, everywhere: usize) -> Rates {
        Rates::after(&Rates::default(), all, everywhere)
    }

    /// As [`Rates::new`], but a limit that is among those of `before` goes on counting where that is, or each reload would give
    /// everybody another burst.
    pub fn after(before: &Rates, all: impl Iterator<Item = Settings>, everywhere: usize) -> Rates {
        // Two of one route may be equal, and each has its own buckets.
        let mut before_left: Vec<&Limit> = before.limits.iter().collect();
        let limit = |settings: Settings| {
            let same = before_left.iter().position(|limit| settings.is_same_as(&limit.settings));
            let shards = match same.map(|place| before_left.remove(place)) {
                Some(limit) => limit.shards.clone(),
                None => settings.empty_buckets(),
            };
            Limit { settings, shards }
        };
        Rates { limits: all.map(limit).collect(), everywhere, hashes: before.hashes.clone() }
    }

    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Takes one of each limit that concerns this request, or refuses it at the first that has none. `told` learns of all that
    /// were asked.
    pub fn take(
        &self,
        of_route: &[Settings],
        client: &Client<'_>,
        told: &mut RateLimitHeaders,
        now: UnixTime,
    ) -> Result<(), Reject> {
        let here = of_route.iter().filter_map(|settings| self.limits.get(settings.number));
        for limit in self.limits.iter().take(self.everywhere).chain(here) {
            let quota = limit.take(self.key(limit.settings.per, client), now);
            told.add(&limit.settings, &quota);
            if let Some(wait) = quota.wait {
                let mut reject = Reject::new(Reason::QuotaExceeded, format!("rate {}", limit.settings.name));
                reject.retry_after = Some(Duration::from_secs(wait.as_secs_f64().ceil() as u64));
                return Err(reject);
            }
        }
        Ok(())
    }

    /// A stranger cannot aim at somebody else's bucket: the hashes are seeded anew by each process.
    fn key(&self, per: Per, client: &Client<'_>) -> u128 {
        let [one, other] = &self.hashes;
        match (per, client.subject) {
            (Per::Route, _) => 0,
            (Per::Subject, Some(subject)) => {
                u128::from(one.hash_one(subject)) << 64 | u128::from(other.hash_one(subject))
            }
            (Per::Subject | Per::Address, _) => {
                let address = Key::from(client.address);
                u128::from(one.hash_one(address)) << 64 | u128::from(other.hash_one(address))
            }
        }
    }
}

impl Limit {
    fn take(&self, key: u128, now: UnixTime) -> Quota {
        self.shards[key as usize % SHARDS].take_one(key, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixTime = UnixTime::from_secs(1_000);

    fn settings(number: usize, per: Per, requests: u32, window: u64) -> Settings {
        let (name, window) = (format!("{per:?}-{number}").to_lowercase(), Duration::from_secs(window));
        Settings { number, route: String::new(), name, per, requests, window, burst: requests }
    }

    fn taken(rates: &Rates, client: &Client<'_>, now: UnixTime) -> (Result<(), u64>, String) {
        let mut told = RateLimitHeaders::default();
        let taken = rates.take(&[], client, &mut told, now);
        (taken.map_err(|reject| reject.retry_after.expect("it passes").as_secs()), told.left)
    }

    #[test]
    fn each_client_has_a_bucket_and_is_told_how_full_it_is() {
        let rates = Rates::new([settings(0, Per::Subject, 3, 60)].into_iter(), 1);
        let client = |sub| Client { address: [192, 0, 2, 1].into(), subject: Some(("i", sub)) };
        for (left, full_in) in [(2, 20), (1, 40), (0, 60)] {
            let expected = format!("\"subject-0\";r={left};t={full_in}");
            assert_eq!(taken(&rates, &client("alice"), NOW), (Ok(()), expected));
        }
        assert_eq!(taken(&rates, &client("alice"), NOW), (Err(20), "\"subject-0\";r=0;t=60".into()));
        assert_eq!(taken(&rates, &client("bob"), NOW).0, Ok(()));
        let nobody = Client { subject: None, ..client("") };
        assert_eq!(taken(&rates, &nobody, NOW).1, "\"subject-0\";r=2;t=20", "an address has its own");
        let later = NOW + Duration::from_secs(20);
        assert_eq!(taken(&rates, &client("alice"), later).0, Ok(()));
        assert_eq!(taken(&rates, &client("alice"), later).0, Err(20));
    }

    #[test]
    fn every_limit_counts_and_the_first_that_is_used_up_refuses() {
        let rates = Rates::new([settings(0, Per::Route, 100, 1), settings(1, Per::Address, 1, 3600)].into_iter(), 2);
        let client = |last| Client { address: [192, 0, 2, last].into(), subject: None };
        assert_eq!(taken(&rates, &client(1), NOW), (Ok(()), "\"route-0\";r=99;t=1, \"address-1\";r=0;t=3600".into()));
        assert_eq!(taken(&rates, &client(1), NOW).0, Err(3600));
        for last in 2..100 {
            assert_eq!(taken(&rates, &client(last), NOW).0, Ok(()));
        }
        assert_eq!(taken(&rates, &client(100), NOW), (Err(1), "\"route-0\";r=0;t=1".into()));
    }

    #[test]
    fn a_limit_that_was_there_before_goes_on_counting_wherever_it_stands_now() {
        let (one, other) = (settings(0, Per::Address, 1, 60), settings(1, Per::Route, 2, 60));
        let client = Client { address: [192, 0, 2, 1].into(), subject: None };
        let before = Rates::new([one.clone(), other.clone()].into_iter(), 2);
        assert_eq!(taken(&before, &client, NOW).0, Ok(()));
        let of = |limits: &[Settings]| Rates::after(&before, limits.iter().cloned(), limits.len());
        let moved = Settings { number: 1, ..one.clone() };
        assert_eq!(taken(&of(&[Settings { number: 0, ..other }, moved]), &client, NOW).0, Err(60));
        for changed in [
            Settings { route: "/".into(), ..one.clone() },
            Settings { name: "other".into(), ..one.clone() },
            Settings { per: Per::Route, ..one.clone() },
            Settings { requests: 2, ..one.clone() },
            Settings { window: Duration::from_secs(61), ..one.clone() },
            Settings { burst: 2, ..one.clone() },
        ] {
            assert_eq!(taken(&of(std::slice::from_ref(&changed)), &client, NOW).0, Ok(()), "{changed:?}");
        }
        let twice = of(&[one.clone(), one]);
        assert_eq!(taken(&twice, &client, NOW + Duration::from_secs(60)).0, Ok(()), "each of two has its own buckets");
    }

    /// Thousands a second have less than a millisecond each.
    #[test]
    fn a_high_rate_is_as_exact_as_a_low_one() {
        let rates = Rates::new([settings(0, Per::Route, 10_000, 1)].into_iter(), 1);
        let client = Client { address: [192, 0, 2, 1].into(), subject: None };
        let passed = |now| (0..20_000).filter(|_| taken(&rates, &client, now).0.is_ok()).count();
        assert_eq!(passed(NOW), 10_000);
        assert_eq!(passed(NOW + Duration::from_millis(1)), 10);
        assert_eq!(passed(NOW + Duration::from_secs(60)), 10_000);
    }
}
