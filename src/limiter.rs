//! A rate limit for each address, in bounded memory.
//!
//! GCRA, the leaky bucket as one number a key: the time at which the key's bucket will be empty again. Keys that are not
//! heard of are forgotten in two generations, so an attacker who has many addresses costs memory for the newest ones only,
//! and forgetting errs on the side of letting through.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::clock::UnixTime;

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

pub struct Limiter {
    rate: Rate,
    full_at: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    current: HashMap<u128, u64, RandomState>,
    previous: HashMap<u128, u64, RandomState>,
}

impl Limiter {
    pub fn new(rate: Rate) -> Self {
        Limiter { rate, full_at: Mutex::default() }
    }

    /// Takes one, also if there is none left.
    pub fn take(&self, address: IpAddr, now: UnixTime) {
        let mut generations = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(address);
        let full_at = generations.get(key).unwrap_or(0).max(now.as_millis());
        generations.set(key, full_at.saturating_add(self.every_millis()));
    }

    /// How long until there is one again; `None` if there is one now.
    pub fn wait(&self, address: IpAddr, now: UnixTime) -> Option<Duration> {
        let generations = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = generations.get(key(address))?;
        let room = self.every_millis().saturating_mul(u64::from(self.rate.burst));
        let free_at = full_at.saturating_add(self.every_millis()).saturating_sub(room);
        (free_at > now.as_millis()).then(|| Duration::from_millis(free_at - now.as_millis()))
    }

    fn every_millis(&self) -> u64 {
        u64::try_from(self.rate.every.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Generations {
    fn get(&self, key: u128) -> Option<u64> {
        self.current.get(&key).or_else(|| self.previous.get(&key)).copied()
    }

    fn set(&mut self, key: u128, full_at: u64) {
        if self.current.len() >= GENERATION && !self.current.contains_key(&key) {
            self.previous = std::mem::take(&mut self.current);
        }
        self.current.insert(key, full_at);
    }
}

/// One customer: an IPv4 address, or the /64 that an IPv6 customer has at the least.
fn key(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits() & !u128::from(u64::MAX),
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
    fn an_ipv6_customer_is_a_64() {
        let limiter = limiter();
        let address = |last| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        (0..3).for_each(|last| limiter.take(address(last), NOW));
        assert!(limiter.wait(address(9), NOW).is_some());
        assert_eq!(limiter.wait(IpAddr::from([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1]), NOW), None);
        let mapped = "::ffff:192.0.2.1".parse().expect("an address");
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
