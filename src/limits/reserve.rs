//! A reserve: the part of a limit that is kept for addresses that have few requests in flight.
//!
//! Without it, one client with many connections takes all of a limit, and the gateway rejects every other client. The
//! part that is not reserved is open to every request, so requests are counted by address only while that part is used
//! up.

use std::net::IpAddr;
use std::sync::Arc;

use crate::limits::per_address::{AddressGuard, PerAddressLimit};

/// One address may use an eighth of what is left of the reserve, so the reserve lasts for many more than eight.
const ADDRESSES: usize = 8;

pub struct Reserve {
    size: usize,
    per_address: Arc<PerAddressLimit>,
}

impl Reserve {
    /// Reserves `percent` of `total`.
    pub fn new(total: usize, percent: usize) -> Self {
        let size = total * percent / 100;
        Reserve::of_size(size)
    }

    /// No reserve. Acquiring from it always succeeds.
    pub fn none() -> Self {
        Reserve::of_size(0)
    }

    fn of_size(size: usize) -> Self {
        let limit = if size == 0 { 0 } else { (size / ADDRESSES).max(1) };
        Reserve { size, per_address: Arc::new(PerAddressLimit::new(limit)) }
    }

    /// What is left of a reserve for an address that has this many in total: an eighth of what is free, so the more
    /// addresses take part of it, the less each can have. Some hundred addresses cannot use it up.
    pub fn share_of_free(free: usize) -> usize {
        (free / ADDRESSES).max(1)
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Counts one for this address until the guard is dropped. `None` if the address has its part of the reserve
    /// already, which is an eighth of what is `free` of it.
    pub fn acquire(&self, address: IpAddr, free: usize) -> Option<AddressGuard> {
        match self.size {
            0 => self.per_address.acquire(address),
            _ => self.per_address.acquire_below(Self::share_of_free(free), address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_an_eighth_of_what_is_free_and_at_least_one() {
        assert_eq!([0, 7, 16, 17, 800].map(Reserve::share_of_free), [1, 1, 2, 2, 100]);
    }

    #[test]
    fn an_address_has_an_eighth_and_at_least_one() {
        for (total, percent, size, per_address) in [(320, 25, 80, 10), (64, 25, 16, 2), (10, 25, 2, 1), (3, 0, 0, 100)]
        {
            let reserve = Reserve::new(total, percent);
            for free in [reserve.size(), usize::MAX] {
                let held: Vec<_> = (0..100).map_while(|_| reserve.acquire([192, 0, 2, 1].into(), free)).collect();
                assert_eq!((reserve.size(), held.len()), (size, per_address), "{percent} % of {total}");
            }
            assert!(reserve.acquire([192, 0, 2, 2].into(), 1).is_some());
        }
    }
}
