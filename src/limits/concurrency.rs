//! How many requests a worker has under way at once, and whose.
//!
//! One client with many connections would soon have all of them, and everybody else were refused. So some are kept back for
//! addresses that have few. As long as others are free, nobody counts whose they are.

use std::net::IpAddr;
use std::sync::Arc;

use crate::limits::per_address::{AddressGuard, PerAddressLimit};
use crate::types::reject::{Reason, Reject};

/// An address may have this part of what is kept back.
const ADDRESSES: u64 = 8;

/// A worker's part of `limits.concurrent_requests`. Each counts its own, so that no two cores write to one counter.
pub struct ConcurrencyLimit {
    /// For whoever comes.
    for_anybody: u64,
    /// With those that are kept back.
    requests: u64,
    /// So many more that are calls on tokens: whoever logs out or refreshes must not wait for the crowd.
    for_tokens: u64,
    /// Who has any of those that are kept back, or of the calls on tokens.
    holders: Arc<PerAddressLimit>,
}

/// A request's place among those that are kept back, until it is dropped.
pub struct ReservedPermit {
    _member: AddressGuard,
}

impl ConcurrencyLimit {
    /// `concurrent_requests`: over all workers; 0 for any number. `reserve_percent`: of a hundred, so many are kept back.
    pub fn of(requests: usize, reserve: usize, workers: usize) -> ConcurrencyLimit {
        if requests == 0 {
            return ConcurrencyLimit {
                for_anybody: u64::MAX,
                requests: u64::MAX,
                for_tokens: 0,
                holders: PerAddressLimit::of_at_most(0).into(),
            };
        }
        let requests = requests.div_ceil(workers.max(1)) as u64;
        let kept_back = requests * reserve as u64 / 100;
        let each = if kept_back == 0 { 0 } else { (kept_back / ADDRESSES).max(1) };
        ConcurrencyLimit {
            for_anybody: requests - kept_back,
            requests,
            for_tokens: requests.div_ceil(10),
            holders: Arc::new(PerAddressLimit::of_at_most(usize::try_from(each).unwrap_or(usize::MAX))),
        }
    }

    /// Refuses what is more than the worker can have under way, or than this address can, before anything is done for it and
    /// before a byte of its body is read. `under_way`: with the one that asks.
    pub fn acquire(
        &self,
        under_way: u64,
        address: IpAddr,
        is_on_tokens: impl FnOnce() -> bool,
    ) -> Result<Option<ReservedPermit>, Reject> {
        if under_way <= self.for_anybody {
            return Ok(None);
        }
        let overloaded = |whose: &str| {
            let detail = format!("{under_way} requests under way on this worker{whose}");
            Err(Reject::new(Reason::Overloaded, detail))
        };
        if under_way > self.requests && (under_way > self.requests + self.for_tokens || !is_on_tokens()) {
            return overloaded("");
        }
        match self.holders.acquire(address) {
            Some(member) => Ok(Some(ReservedPermit { _member: member })),
            None => overloaded(", and too many of them this address's"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these come in, each on top of those before.
    fn come(
        concurrency: &ConcurrencyLimit,
        held: &mut Vec<Option<ReservedPermit>>,
        last: u8,
        is_on_tokens: bool,
    ) -> usize {
        let before = held.len();
        let address = IpAddr::from([192, 0, 2, last]);
        while let Ok(place) = concurrency.acquire(held.len() as u64 + 1, address, || is_on_tokens) {
            held.push(place);
        }
        held.len() - before
    }

    #[test]
    fn one_address_leaves_room_for_others() {
        let concurrency = ConcurrencyLimit::of(640, 25, 2);
        let mut held = Vec::new();
        assert_eq!(come(&concurrency, &mut held, 66, false), 240 + 10, "of 320, of which 80 are kept back");
        assert_eq!(come(&concurrency, &mut held, 66, true), 0);
        assert_eq!(come(&concurrency, &mut held, 7, false), 10);
        held.drain(250..);
        held.truncate(239);
        assert_eq!(come(&concurrency, &mut held, 66, false), 1 + 10, "what it gave back is its own again");
    }

    #[test]
    fn calls_on_tokens_have_a_tenth_on_top() {
        let concurrency = ConcurrencyLimit::of(100, 0, 1);
        let mut held = Vec::new();
        assert_eq!((come(&concurrency, &mut held, 66, false), come(&concurrency, &mut held, 66, true)), (100, 10));
        let concurrency = ConcurrencyLimit::of(100, 25, 1);
        let mut held: Vec<_> = (0..100).map(|_| None).collect();
        assert_eq!(come(&concurrency, &mut held, 7, false), 0);
        assert_eq!((come(&concurrency, &mut held, 66, true), come(&concurrency, &mut held, 7, true)), (3, 3));
    }

    #[test]
    fn none_is_no_limit() {
        let address = IpAddr::from([192, 0, 2, 66]);
        assert!(
            ConcurrencyLimit::of(0, 25, 2).acquire(1_000_000_000, address, || false).is_ok_and(|place| place.is_none())
        );
    }
}
