//! Counts what each client address holds of something limited: connections of all workers, or slots of a reserve.
//!
//! The gateway checks it once for each connection, and for a request only while a reserve is in use. There are at most
//! three entries for each thing counted, so the overall limit of those bounds the memory too.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::limits::limiter::Key;
use crate::limits::network::{Network, networks};

pub struct PerAddressLimit {
    /// Maximum for one address: an IPv4 address, or a /64. Larger networks have more: see [`networks`].
    limit: usize,
    counts: Mutex<HashMap<Key, usize, RandomState>>,
}

/// Counts one for its address until it is dropped.
pub struct AddressGuard {
    owner: Arc<PerAddressLimit>,
    address: IpAddr,
    number: usize,
}

impl AddressGuard {
    /// How many the address had when it got this one, which is counted.
    pub fn number(&self) -> usize {
        self.number
    }
}

impl PerAddressLimit {
    /// `limit`: 0 for no limit.
    pub fn new(limit: usize) -> Self {
        PerAddressLimit { limit: if limit == 0 { usize::MAX } else { limit }, counts: Mutex::default() }
    }

    /// `None` if this address, or a network of it, is at its limit.
    pub fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<AddressGuard> {
        self.acquire_below(self.limit, address)
    }

    /// As [`PerAddressLimit::acquire`], with this limit if it is lower.
    pub fn acquire_below(self: &Arc<Self>, limit: usize, address: IpAddr) -> Option<AddressGuard> {
        let limit = limit.min(self.limit);
        let mut counts = self.counts.lock();
        let is_full = |network: Network| {
            counts.get(&network.key).is_some_and(|count| *count >= limit.saturating_mul(network.weight))
        };
        if networks(address).any(is_full) {
            return None;
        }
        let mut number = 0;
        for network in networks(address) {
            let count = counts.entry(network.key).or_default();
            *count += 1;
            // The smallest network comes first.
            number = if number == 0 { *count } else { number };
        }
        Some(AddressGuard { owner: self.clone(), address, number })
    }
}

impl Drop for AddressGuard {
    fn drop(&mut self) {
        let mut counts = self.owner.counts.lock();
        for Network { key, .. } in networks(self.address) {
            if let Some(count) = counts.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_limit() {
        let limit = Arc::new(PerAddressLimit::new(2));
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let v4: Vec<_> = (0..2).map(|_| limit.acquire(address("192.0.2.1")).expect("room")).collect();
        assert!(limit.acquire(address("192.0.2.1")).is_none());
        assert!(limit.acquire(address("::ffff:192.0.2.1")).is_none(), "the same address, mapped");
        let v6 = limit.acquire(address("2001:db8::1")).expect("room");
        let neighbour = limit.acquire(address("2001:db8::2")).expect("room");
        assert!(limit.acquire(address("2001:db8::3")).is_none(), "a customer is a /64");
        assert!(limit.acquire(address("2001:db8:0:1::3")).is_some());
        drop((v4, v6));
        assert!(limit.acquire(address("192.0.2.1")).is_some());
        drop(neighbour);
        assert!(limit.counts.lock().is_empty(), "addresses that hold none are forgotten");
    }

    #[test]
    fn larger_networks_have_twice_and_four_times_the_limit() {
        let limit = Arc::new(PerAddressLimit::new(10));
        let held = |subnets: std::ops::Range<u16>| -> Vec<_> {
            let addresses = subnets.flat_map(|subnet| vec![[0x2001, 0xdb8, 0, subnet, 0, 0, 0, 1]; 20]);
            addresses.filter_map(|address| limit.acquire(address.into())).collect()
        };
        let small = held(0..1);
        assert_eq!(small.len(), 10, "of a /64");
        let medium = held(1..256);
        assert_eq!(small.len() + medium.len(), 20, "of a /56");
        let large = held(0..5000);
        assert_eq!(small.len() + medium.len() + large.len(), 40, "of a /48");
        assert!(limit.acquire([0x2001, 0xdb8, 1, 0, 0, 0, 0, 1].into()).is_some(), "another customer");
        drop((small, medium, large));
        assert!(limit.counts.lock().is_empty());
    }

    #[test]
    fn zero_means_no_limit() {
        let limit = Arc::new(PerAddressLimit::new(0));
        let held: Vec<_> = (0..5000).map_while(|_| limit.acquire([192, 0, 2, 1].into())).collect();
        assert_eq!(held.len(), 5000);
    }
}
