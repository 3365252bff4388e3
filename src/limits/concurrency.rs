//! `limits.concurrent_requests`: how many requests a worker has in flight at once.

use std::net::IpAddr;

use crate::limits::per_address::AddressGuard;
use crate::limits::reserve::Reserve;
use crate::types::limit::Limit;
use crate::types::reject::{Reason, Reject};

/// A worker's part of the limit. Each worker counts its own requests, so that no two cores write to one counter.
pub struct ConcurrencyLimit {
    /// Maximum requests in flight before the reserve is used.
    unreserved: u64,
    /// Maximum requests in flight, the reserve included.
    total: u64,
    /// Further requests that are accepted if they refresh or revoke tokens: a client must be able to log out while the
    /// gateway is overloaded.
    token_calls: u64,
    /// Also limits how many of `token_calls` one address may use.
    reserve: Reserve,
}

/// A request's part of the reserve. Dropping it frees that part.
pub struct ReservedPermit {
    _guard: AddressGuard,
}

impl ConcurrencyLimit {
    /// `requests`: maximum requests in flight of all workers, 0 for no limit. `reserve_percent`: how much of it is
    /// reserved.
    pub fn new(requests: usize, reserve_percent: usize, workers: usize) -> ConcurrencyLimit {
        if requests == 0 {
            return ConcurrencyLimit {
                unreserved: u64::MAX,
                total: u64::MAX,
                token_calls: 0,
                reserve: Reserve::none(),
            };
        }
        let total = requests.div_ceil(workers.max(1));
        let reserve = Reserve::new(total, reserve_percent);
        ConcurrencyLimit {
            unreserved: (total - reserve.size()) as u64,
            total: total as u64,
            token_calls: total.div_ceil(10) as u64,
            reserve,
        }
    }

    /// Rejects a request that is over the limit of this worker or of this address. The gateway checks this first,
    /// before it reads the body. `in_flight` counts this request too.
    pub fn acquire(
        &self,
        in_flight: u64,
        address: IpAddr,
        is_token_call: impl FnOnce() -> bool,
    ) -> Result<Option<ReservedPermit>, Reject> {
        if in_flight <= self.unreserved {
            return Ok(None);
        }
        let overloaded = |scope: &str| {
            let detail = format!("{in_flight} requests in flight on this worker{scope}");
            Reject::new(Reason::Overloaded, detail)
        };
        if in_flight > self.total && (in_flight > self.total + self.token_calls || !is_token_call()) {
            return Err(overloaded(""));
        }
        let limit = if in_flight <= self.total { self.total } else { self.total + self.token_calls };
        // This request included.
        let free = usize::try_from(limit + 1 - in_flight).unwrap_or(usize::MAX);
        match self.reserve.acquire(address, free) {
            Some(guard) => Ok(Some(ReservedPermit { _guard: guard })),
            None => Err(overloaded(", and this address has its part of the reserve").of_limit(Limit::ReservePercent)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds requests of one address on top of those in `held` until one is rejected. Returns how many were accepted.
    fn fill(
        concurrency: &ConcurrencyLimit,
        held: &mut Vec<Option<ReservedPermit>>,
        last: u8,
        is_token_call: bool,
    ) -> usize {
        let before = held.len();
        let address = IpAddr::from([192, 0, 2, last]);
        while let Ok(permit) = concurrency.acquire(held.len() as u64 + 1, address, || is_token_call) {
            held.push(permit);
        }
        held.len() - before
    }

    #[test]
    fn one_address_leaves_the_reserve_to_others() {
        let concurrency = ConcurrencyLimit::new(640, 25, 2);
        let mut held = Vec::new();
        assert_eq!(fill(&concurrency, &mut held, 66, false), 240 + 9, "of 320, of which 80 are reserved");
        assert_eq!(fill(&concurrency, &mut held, 66, true), 0);
        assert_eq!(fill(&concurrency, &mut held, 7, false), 8, "a part of what is left");
        held.drain(249..);
        held.truncate(239);
        assert_eq!(fill(&concurrency, &mut held, 66, false), 1 + 9, "freed permits can be used again");
    }

    #[test]
    fn the_part_of_an_address_shrinks_with_the_reserve() {
        let concurrency = ConcurrencyLimit::new(100, 25, 1);
        let mut held = Vec::new();
        let parts: Vec<_> = (1..=30).map(|last| fill(&concurrency, &mut held, last, false)).collect();
        assert_eq!(parts[..8], [75 + 2, 2, 2, 2, 2, 1, 1, 1]);
        assert_eq!(parts.iter().filter(|part| **part > 0).count(), 20, "addresses until nothing is left");
    }

    #[test]
    fn the_whole_reserve_can_be_used() {
        let concurrency = ConcurrencyLimit::new(8, 50, 1);
        let mut held = Vec::new();
        let accepted = [1, 2, 3, 4, 5].map(|last| fill(&concurrency, &mut held, last, false));
        assert_eq!(accepted, [4 + 1, 1, 1, 1, 0]);
    }

    #[test]
    fn token_calls_have_a_tenth_on_top() {
        let concurrency = ConcurrencyLimit::new(100, 0, 1);
        let mut held = Vec::new();
        assert_eq!((fill(&concurrency, &mut held, 66, false), fill(&concurrency, &mut held, 66, true)), (100, 10));
        let concurrency = ConcurrencyLimit::new(100, 25, 1);
        let mut held: Vec<_> = (0..100).map(|_| None).collect();
        assert_eq!(fill(&concurrency, &mut held, 7, false), 0);
        assert_eq!((fill(&concurrency, &mut held, 66, true), fill(&concurrency, &mut held, 7, true)), (1, 1));
    }

    #[test]
    fn zero_means_no_limit() {
        let address = IpAddr::from([192, 0, 2, 66]);
        let unlimited = ConcurrencyLimit::new(0, 25, 2);
        assert!(unlimited.acquire(1_000_000_000, address, || false).is_ok_and(|permit| permit.is_none()));
    }
}
