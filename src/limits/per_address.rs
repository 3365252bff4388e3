//! How much each address has of something of which it may have so much: connections, over all workers, or places at a server
//! that has few left.
//!
//! Asked once a connection, and for a request only where it has to wait. There are never more entries than what is counted, whose
//! own limit bounds the memory too.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use crate::limits::limiter::Key;

pub struct PerAddressLimit {
    /// Of one address: an IPv4 address, or the /64 of an IPv6 customer.
    most: usize,
    open: Mutex<HashMap<Key, usize, RandomState>>,
}

/// One of what its address has, until it is dropped.
pub struct AddressGuard {
    crowd: Arc<PerAddressLimit>,
    key: Key,
}

impl PerAddressLimit {
    /// `most`: 0 for any number.
    pub fn of_at_most(most: usize) -> Self {
        PerAddressLimit { most: if most == 0 { usize::MAX } else { most }, open: Mutex::default() }
    }

    /// `None` if this address has as many as it may have.
    pub fn acquire(self: &Arc<Self>, address: IpAddr) -> Option<AddressGuard> {
        let key = Key::from(address);
        let mut open = self.lock();
        let count = open.entry(key).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(AddressGuard { crowd: self.clone(), key })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, usize, RandomState>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AddressGuard {
    fn drop(&mut self) {
        let mut open = self.crowd.lock();
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_and_what_is_gone_is_forgotten() {
        let crowd = Arc::new(PerAddressLimit::of_at_most(2));
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let here: Vec<_> = (0..2).map(|_| crowd.acquire(address("192.0.2.1")).expect("room")).collect();
        assert!(crowd.acquire(address("192.0.2.1")).is_none());
        assert!(crowd.acquire(address("::ffff:192.0.2.1")).is_none(), "however it is written");
        let there = crowd.acquire(address("2001:db8::1")).expect("room");
        let neighbour = crowd.acquire(address("2001:db8::2")).expect("room");
        assert!(crowd.acquire(address("2001:db8::3")).is_none(), "a customer is a /64");
        assert!(crowd.acquire(address("2001:db8:0:1::3")).is_some());
        drop((here, there));
        assert!(crowd.acquire(address("192.0.2.1")).is_some());
        drop(neighbour);
        assert!(crowd.lock().is_empty());
    }

    #[test]
    fn none_is_no_limit() {
        let crowd = Arc::new(PerAddressLimit::of_at_most(0));
        let many: Vec<_> = (0..5000).map_while(|_| crowd.acquire([192, 0, 2, 1].into())).collect();
        assert_eq!(many.len(), 5000);
    }
}
