//! Counts what each client address holds of something limited: connections of all workers, or slots of a reserve.
//!
//! The gateway checks it once for each connection, and for a request only while a reserve is in use. There are never
//! more entries than things counted, so the overall limit of those bounds the memory too.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use crate::limits::limiter::Key;

pub struct PerAddressLimit {
    /// Maximum for one address: an IPv4 address, or the /64 of an IPv6 customer.
    limit: usize,
    counts: Mutex<HashMap<Key, usize, RandomState>>,
}

/// Counts one for its address until it is dropped.
pub struct AddressGuard {
    owner: Arc<PerAddressLimit>,
    key: Key,
}

impl PerAddressLimit {
    /// `limit`: 0 for no limit.
    pub fn new(limit: usize) -> Self {
        PerAddressLimit { limit: if limit == 0 { usize::MAX } else { limit }, counts: Mutex::default() }
    }

    /// `None` if this address is at its limit.
    pub fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<AddressGuard> {
        let key = Key::from(address);
        let mut counts = self.lock();
        let count = counts.entry(key).or_default();
        if *count >= self.limit {
            return None;
        }
        *count += 1;
        Some(AddressGuard { owner: self.clone(), key })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, usize, RandomState>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressGuard {
    fn drop(&mut self) {
        let mut counts = self.owner.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
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
        assert!(limit.lock().is_empty(), "addresses that hold none are forgotten");
    }

    #[test]
    fn zero_means_no_limit() {
        let limit = Arc::new(PerAddressLimit::new(0));
        let held: Vec<_> = (0..5000).map_while(|_| limit.acquire([192, 0, 2, 1].into())).collect();
        assert_eq!(held.len(), 5000);
    }
}
