//! A rate limit for each address or login, in bounded memory.
//!
//! GCRA, the leaky bucket as one number a key: the time at which the key's bucket will be empty again. Keys that are not
//! heard of are forgotten in two generations, so an attacker who has many addresses costs memory for the newest ones only,
//! and forgetting errs on the side of letting through.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Keys in one generation. Two generations of them are about a megabyte.
const GENERATION: usize = 16_384;

/// How many, and how fast they come back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// So many at once.
    pub burst: u32,
    /// One more after each such time.
    pub every: Duration,
}

/// What a key has left after it has taken one, or was refused one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    pub left: u32,
    /// How long until it has a whole burst again.
    pub full_in: Duration,
    /// Refused: how long until there is one.
    pub wait: Option<Duration>,
}

/// Who is counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(u128);

/// One customer: an IPv4 address, or the /64 that an IPv6 customer has at the least.
impl From<IpAddr> for Key {
    fn from(address: IpAddr) -> Key {
        Key(match address.to_canonical() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
            IpAddr::V6(v6) => v6.to_bits() & !u128::from(u64::MAX),
        })
    }
}

/// A hash, of whoever else is counted.
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
    full_at: Mutex<Generations>,
    /// Keys in one generation.
    room: usize,
    /// So many more than a burst can be owed.
    beyond: u32,
}

#[derive(Default)]
struct Generations {
    current: HashMap<u128, u64, RandomState>,
    previous: HashMap<u128, u64, RandomState>,
}

impl Limiter {
    pub fn new(rate: Rate) -> Self {
        Limiter::with_room(rate, GENERATION)
    }

    /// Remembers so many keys at the least, and twice as many at the most.
    pub fn with_room(rate: Rate, room: usize) -> Self {
        Limiter { rate, full_at: Mutex::default(), room, beyond: 0 }
    }

    /// So many may ask at the same moment, and take when they were all told that there is one: all of that is owed, or it would
    /// be had for nothing again and again.
    pub fn owing(self, beyond: usize) -> Self {
        Limiter { beyond: u32::try_from(beyond).unwrap_or(u32::MAX), ..self }
    }

    /// Takes one, also if there is none left. Nobody owes more than a burst and what is [`Limiter::owing`]: many at once, before
    /// any was answered, cost no longer a wait than so many one after the other.
    pub fn take(&self, key: impl Into<Key>, now: UnixTime) {
        self.lock().take(key.into(), self, now);
    }

    /// How long until there is one again; `None` if there is one now.
    pub fn wait(&self, key: impl Into<Key>, now: UnixTime) -> Option<Duration> {
        self.lock().wait(key.into(), self.rate, now)
    }

    /// Takes one, or says how long until there is one.
    pub fn take_if_any(&self, key: impl Into<Key>, now: UnixTime) -> Result<(), Duration> {
        let (mut generations, key) = (self.lock(), key.into());
        match generations.wait(key, self.rate, now) {
            Some(wait) => Err(wait),
            None => {
                generations.take(key, self, now);
                Ok(())
            }
        }
    }

    /// As [`Limiter::take_if_any`], and says what is left.
    pub fn take_one(&self, key: impl Into<Key>, now: UnixTime) -> Quota {
        let (mut generations, key) = (self.lock(), key.into());
        let wait = generations.wait(key, self.rate, now);
        if wait.is_none() {
            generations.take(key, self, now);
        }
        let owed = generations.get(key).unwrap_or(0).saturating_sub(micros(now));
        let left = self.rate.burst_micros().saturating_sub(owed) / self.rate.every_micros().max(1);
        let left = u32::try_from(left).unwrap_or(u32::MAX).min(self.rate.burst);
        Quota { left, full_in: Duration::from_micros(owed), wait }
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.full_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rate {
    fn every_micros(self) -> u64 {
        u64::try_from(self.every.as_micros()).unwrap_or(u64::MAX)
    }

    /// From an empty bucket to a full one.
    fn burst_micros(self) -> u64 {
        self.micros_of(self.burst)
    }

    fn micros_of(self, many: u32) -> u64 {
        self.every_micros().saturating_mul(u64::from(many))
    }
}

/// Finer than the clock: of a rate of thousands a second, each has less than a millisecond.
fn micros(time: UnixTime) -> u64 {
    time.as_millis().saturating_mul(1000)
}

impl Generations {
    fn take(&mut self, key: Key, limiter: &Limiter, now: UnixTime) {
        let (rate, now) = (limiter.rate, micros(now));
        let full_at = self.get(key).unwrap_or(0).max(now).saturating_add(rate.every_micros());
        let most = rate.micros_of(rate.burst.saturating_add(limiter.beyond));
        self.set(key, full_at.min(now.saturating_add(most)), limiter.room);
    }

    fn wait(&self, key: Key, rate: Rate, now: UnixTime) -> Option<Duration> {
        let free_at = self.get(key)?.saturating_add(rate.every_micros()).saturating_sub(rate.burst_micros());
        (free_at > micros(now)).then(|| Duration::from_micros(free_at - micros(now)))
    }

    fn get(&self, Key(key): Key) -> Option<u64> {
        self.current.get(&key).or_else(|| self.previous.get(&key)).copied()
    }

    fn set(&mut self, Key(key): Key, full_at: u64, room: usize) {
        if self.current.len() >= room && !self.current.contains_key(&key) {
            self.previous = std::mem::take(&mut self.current);
        }
        self.current.insert(key, full_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter() -> Limiter {
        Limiter::new(Rate { burst: 3, every: Duration::from_secs(1) })
    }

    const NOW: UnixTime = UnixTime::from_secs(1_000);

    #[test]
    fn a_burst_and_then_one_after_each_interval() {
        let limiter = limiter();
        let address = IpAddr::from([192, 0, 2, 1]);
        for _ in 0..3 {
            assert_eq!(limiter.wait(address, NOW), None);
            limiter.take(address, NOW);
        }
        assert_eq!(limiter.wait(address, NOW), Some(Duration::from_secs(1)));
        assert_eq!(limiter.wait(address, NOW + Duration::from_millis(999)), Some(Duration::from_millis(1)));
        assert_eq!(limiter.wait(address, NOW + Duration::from_secs(1)), None);
        assert_eq!(limiter.wait(IpAddr::from([192, 0, 2, 2]), NOW), None, "another address has its own");
    }

    #[test]
    fn whoever_took_too_many_owes_a_burst_and_no_more() {
        let limiter = limiter();
        let family = TokenId::from_bytes([7; 16]);
        (0..1_000).for_each(|_| limiter.take(family, NOW));
        assert_eq!(limiter.wait(family, NOW), Some(Duration::from_secs(1)));
        assert_eq!(limiter.take_if_any(family, NOW), Err(Duration::from_secs(1)), "and what is refused costs nothing");
        assert_eq!(limiter.take_if_any(family, NOW + Duration::from_secs(1)), Ok(()));
        assert_eq!(limiter.take_if_any(family, NOW + Duration::from_secs(1)), Err(Duration::from_secs(1)));
    }

    #[test]
    fn what_many_took_at_one_moment_is_owed_as_well() {
        let limiter = limiter().owing(2);
        let address = IpAddr::from([192, 0, 2, 1]);
        (0..5).for_each(|_| limiter.take(address, NOW));
        assert_eq!(limiter.wait(address, NOW), Some(Duration::from_secs(3)));
        limiter.take(address, NOW);
        assert_eq!(limiter.wait(address, NOW), Some(Duration::from_secs(3)), "and no more than that");
    }

    #[test]
    fn an_ipv6_customer_is_a_64() {
        let limiter = limiter();
        let address = |last| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        (0..3).for_each(|last| limiter.take(address(last), NOW));
        assert!(limiter.wait(address(9), NOW).is_some());
        assert_eq!(limiter.wait(IpAddr::from([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1]), NOW), None);
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().expect("an address");
        (0..3).for_each(|_| limiter.take(mapped, NOW));
        assert!(limiter.wait(IpAddr::from([192, 0, 2, 1]), NOW).is_some(), "however an IPv4 address is written");
    }

    #[test]
    fn memory_is_bounded_and_the_newest_are_remembered() {
        let limiter = limiter();
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..100_000 {
            (0..3).for_each(|_| limiter.take(address(number), NOW));
        }
        assert!(limiter.wait(address(99_999), NOW).is_some());
        let generations = limiter.full_at.lock().expect("unpoisoned");
        assert!(generations.current.len() + generations.previous.len() <= 2 * GENERATION);
    }
}
