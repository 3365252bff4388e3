//! A rate limit for each address or login, in bounded memory.
//!
//! It is GCRA, the leaky bucket stored as one number for each key: the time at which the bucket will be full again.
//! Keys are kept in two halves and the older one is dropped, so an attacker with many addresses uses no more memory. A
//! dropped key gets a full bucket.
//!
//! Buckets are filled by [`Uptime`]: a system clock that is set back by an hour would otherwise leave every bucket
//! empty for an hour.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::types::clock::Uptime;
use crate::types::ids::TokenId;

/// Maximum keys in one half. Two halves of this size use about 1 MB.
const CAPACITY: usize = 16_384;

/// The size of a bucket, and how fast it refills.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Maximum tokens that can be taken at once.
    pub burst: u32,
    /// How long until one token is refilled.
    pub interval: Duration,
}

/// The state of a bucket after [`Limiter::try_take_with_quota`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    pub remaining: u32,
    /// How long until the bucket is full.
    pub full_after: Duration,
    /// How long until there is a token, if none could be taken.
    pub retry_after: Option<Duration>,
}

/// Identifies a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u128);

impl Key {
    pub fn to_bits(self) -> u128 {
        self.0
    }
}

/// One customer: an IPv4 address, or an IPv6 /64, the smallest network that a customer gets.
impl From<IpAddr> for Key {
    fn from(address: IpAddr) -> Key {
        Key(match address.to_canonical() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits() & !u128::from(u64::MAX),
        })
    }
}

/// A hash of any other key.
impl From<u128> for Key {
    fn from(hash: u128) -> Key {
        Key(hash)
    }
}

impl From<TokenId> for Key {
    fn from(family: TokenId) -> Key {
        Key(family.as_u128())
    }
}

pub struct Limiter {
    rate: Rate,
    buckets: Mutex<Halves>,
    /// Maximum keys in one half.
    capacity: usize,
    /// Maximum tokens that a key can owe beyond a burst.
    overdraft: u32,
}

/// When each bucket is full again, in microseconds of uptime: at thousands of requests a second one token takes less
/// than a millisecond.
#[derive(Default)]
struct Halves {
    current: HashMap<u128, u64, RandomState>,
    previous: HashMap<u128, u64, RandomState>,
}

impl Limiter {
    pub fn new(rate: Rate) -> Self {
        Limiter::with_capacity(rate, CAPACITY)
    }

    /// Remembers at least `capacity` keys, and at most twice as many.
    pub fn with_capacity(rate: Rate, capacity: usize) -> Self {
        Limiter { rate, buckets: Mutex::default(), capacity, overdraft: 0 }
    }

    /// Lets a key owe `tokens` beyond a burst. Use it where several tasks check [`Limiter::retry_after`] before any of
    /// them takes a token: without it, the tokens taken beyond the burst would be free.
    pub fn with_overdraft(self, tokens: usize) -> Self {
        Limiter { overdraft: u32::try_from(tokens).unwrap_or(u32::MAX), ..self }
    }

    /// Takes a token even if none is left. The debt is at most a burst and the overdraft, so taking many at once costs
    /// no longer wait than that.
    pub fn take(&self, key: impl Into<Key>, now: Uptime) {
        self.buckets.lock().take(key.into(), self, now);
    }

    /// Gives back a token that was taken.
    pub fn give_back(&self, key: impl Into<Key>) {
        let mut buckets = self.buckets.lock();
        let key = key.into();
        if let Some(full_at) = buckets.get(key) {
            buckets.set(key, full_at.saturating_sub(self.rate.interval_micros()), self.capacity);
        }
    }

    /// How long until there is a token; `None` if there is one now.
    pub fn retry_after(&self, key: impl Into<Key>, now: Uptime) -> Option<Duration> {
        self.buckets.lock().retry_after(key.into(), self.rate, now)
    }

    /// Takes a token. If there is none, fails with how long until there is one.
    pub fn try_take(&self, key: impl Into<Key>, now: Uptime) -> Result<(), Duration> {
        let mut buckets = self.buckets.lock();
        let key = key.into();
        match buckets.retry_after(key, self.rate, now) {
            Some(wait) => Err(wait),
            None => {
                buckets.take(key, self, now);
                Ok(())
            }
        }
    }

    /// As [`Limiter::try_take`], and returns the state of the bucket. `sharers` limiters share the rate: each has that
    /// part of it. Their number can change from call to call.
    pub fn try_take_with_quota(&self, key: impl Into<Key>, sharers: u32, now: Uptime) -> Quota {
        self.try_take_at(self.rate.shared_by(sharers), key, now)
    }

    /// As [`Limiter::try_take_with_quota`] at a rate of the key itself.
    pub fn try_take_at(&self, rate: Rate, key: impl Into<Key>, now: Uptime) -> Quota {
        let mut buckets = self.buckets.lock();
        let key = key.into();
        let retry_after = buckets.retry_after(key, rate, now);
        if retry_after.is_none() {
            buckets.take_at(rate, key, self, now);
        }
        buckets.quota(key, rate, retry_after, now)
    }

    /// The state of the bucket at a rate of the key itself. Takes nothing.
    pub fn quota_at(&self, rate: Rate, key: impl Into<Key>, now: Uptime) -> Quota {
        let buckets = self.buckets.lock();
        let key = key.into();
        buckets.quota(key, rate, buckets.retry_after(key, rate, now), now)
    }

    /// The state of the bucket. Takes nothing.
    pub fn quota(&self, key: impl Into<Key>, sharers: u32, now: Uptime) -> Quota {
        self.quota_at(self.rate.shared_by(sharers), key, now)
    }
}

impl Rate {
    /// The part of one of several that share this rate. A burst is at least one.
    fn shared_by(self, sharers: u32) -> Rate {
        let sharers = sharers.max(1);
        Rate { burst: (self.burst / sharers).max(1), interval: self.interval.saturating_mul(sharers) }
    }

    fn interval_micros(self) -> u64 {
        u64::try_from(self.interval.as_micros()).unwrap_or(u64::MAX)
    }

    /// How long an empty bucket takes to fill.
    fn burst_micros(self) -> u64 {
        self.micros_of(self.burst)
    }

    fn micros_of(self, tokens: u32) -> u64 {
        self.interval_micros().saturating_mul(u64::from(tokens))
    }
}

impl Halves {
    fn take(&mut self, key: Key, limiter: &Limiter, now: Uptime) {
        self.take_at(limiter.rate, key, limiter, now);
    }

    fn take_at(&mut self, rate: Rate, key: Key, limiter: &Limiter, now: Uptime) {
        let now = now.as_micros();
        let full_at = self.get(key).unwrap_or(0).max(now).saturating_add(rate.interval_micros());
        let max_debt = rate.micros_of(rate.burst.saturating_add(limiter.overdraft));
        self.set(key, full_at.min(now.saturating_add(max_debt)), limiter.capacity);
    }

    fn retry_after(&self, key: Key, rate: Rate, now: Uptime) -> Option<Duration> {
        let free_at = self.get(key)?.saturating_add(rate.interval_micros()).saturating_sub(rate.burst_micros());
        (free_at > now.as_micros()).then(|| Duration::from_micros(free_at - now.as_micros()))
    }

    fn quota(&self, key: Key, rate: Rate, retry_after: Option<Duration>, now: Uptime) -> Quota {
        let owed = self.get(key).unwrap_or(0).saturating_sub(now.as_micros());
        let remaining = rate.burst_micros().saturating_sub(owed) / rate.interval_micros().max(1);
        let remaining = u32::try_from(remaining).unwrap_or(u32::MAX).min(rate.burst);
        Quota { remaining, full_after: Duration::from_micros(owed), retry_after }
    }

    fn get(&self, Key(key): Key) -> Option<u64> {
        self.current.get(&key).or_else(|| self.previous.get(&key)).copied()
    }

    fn set(&mut self, Key(key): Key, full_at: u64, capacity: usize) {
        if self.current.len() >= capacity && !self.current.contains_key(&key) {
            self.previous = std::mem::take(&mut self.current);
        }
        self.current.insert(key, full_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter() -> Limiter {
        Limiter::new(Rate { burst: 3, interval: Duration::from_secs(1) })
    }

    const NOW: Uptime = Uptime::from_secs(1_000);

    #[test]
    fn a_burst_and_then_one_after_each_interval() {
        let limiter = limiter();
        let address = IpAddr::from([192, 0, 2, 1]);
        for _ in 0..3 {
            assert_eq!(limiter.retry_after(address, NOW), None);
            limiter.take(address, NOW);
        }
        assert_eq!(limiter.retry_after(address, NOW), Some(Duration::from_secs(1)));
        assert_eq!(limiter.retry_after(address, NOW + Duration::from_millis(999)), Some(Duration::from_millis(1)));
        assert_eq!(limiter.retry_after(address, NOW + Duration::from_secs(1)), None);
        assert_eq!(limiter.retry_after(IpAddr::from([192, 0, 2, 2]), NOW), None, "another address has its own");
    }

    #[test]
    fn the_newest_keys_are_remembered() {
        let limiter = Limiter::with_capacity(Rate { burst: 1, interval: Duration::from_hours(1) }, 2);
        let take = |keys: &[u128]| keys.iter().for_each(|key| limiter.take(*key, NOW));
        let is_known = |key: &u128| limiter.retry_after(*key, NOW).is_some();
        let known = || (1..=5).filter(is_known).collect::<Vec<_>>();
        take(&[1, 2, 2, 2, 3, 4]);
        assert_eq!(known(), [1, 2, 3, 4]);
        take(&[5]);
        assert_eq!(known(), [3, 4, 5], "at most twice the capacity");
    }

    #[test]
    fn a_token_can_be_given_back() {
        let limiter = limiter();
        let address = IpAddr::from([192, 0, 2, 1]);
        (0..3).for_each(|_| assert_eq!(limiter.try_take(address, NOW), Ok(())));
        assert_eq!(limiter.try_take(address, NOW), Err(Duration::from_secs(1)));
        limiter.give_back(address);
        assert_eq!(limiter.try_take(address, NOW), Ok(()));
        assert_eq!(limiter.try_take(address, NOW), Err(Duration::from_secs(1)));
        (0..100).for_each(|_| limiter.give_back(address));
        (0..3).for_each(|_| assert_eq!(limiter.try_take(address, NOW), Ok(()), "a bucket is never more than full"));
        assert_eq!(limiter.try_take(address, NOW), Err(Duration::from_secs(1)));
        limiter.give_back(IpAddr::from([192, 0, 2, 2]));
        assert_eq!(limiter.retry_after(IpAddr::from([192, 0, 2, 2]), NOW), None);
    }

    #[test]
    fn a_key_owes_at_most_a_burst() {
        let limiter = limiter();
        let family = TokenId::from_bytes([7; 16]);
        (0..1_000).for_each(|_| limiter.take(family, NOW));
        assert_eq!(limiter.retry_after(family, NOW), Some(Duration::from_secs(1)));
        assert_eq!(limiter.try_take(family, NOW), Err(Duration::from_secs(1)), "a failed take costs nothing");
        assert_eq!(limiter.try_take(family, NOW + Duration::from_secs(1)), Ok(()));
        assert_eq!(limiter.try_take(family, NOW + Duration::from_secs(1)), Err(Duration::from_secs(1)));
    }

    #[test]
    fn a_key_owes_at_most_a_burst_and_the_overdraft() {
        let limiter = limiter().with_overdraft(2);
        let address = IpAddr::from([192, 0, 2, 1]);
        (0..5).for_each(|_| limiter.take(address, NOW));
        assert_eq!(limiter.retry_after(address, NOW), Some(Duration::from_secs(3)));
        limiter.take(address, NOW);
        assert_eq!(limiter.retry_after(address, NOW), Some(Duration::from_secs(3)), "and no more than that");
    }

    #[test]
    fn an_ipv6_customer_is_a_64() {
        let limiter = limiter();
        let address = |last| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        (0..3).for_each(|last| limiter.take(address(last), NOW));
        assert!(limiter.retry_after(address(9), NOW).is_some());
        assert_eq!(limiter.retry_after(IpAddr::from([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1]), NOW), None);
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().expect("an address");
        (0..3).for_each(|_| limiter.take(mapped, NOW));
        assert!(limiter.retry_after(IpAddr::from([192, 0, 2, 1]), NOW).is_some(), "mapped or not, one IPv4 address");
    }

    #[test]
    fn memory_is_bounded_and_the_newest_are_remembered() {
        let limiter = limiter();
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..100_000 {
            (0..3).for_each(|_| limiter.take(address(number), NOW));
        }
        assert!(limiter.retry_after(address(99_999), NOW).is_some());
        let buckets = limiter.buckets.lock();
        assert!(buckets.current.len() + buckets.previous.len() <= 2 * CAPACITY);
    }
}
