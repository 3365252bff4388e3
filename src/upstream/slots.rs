//! Slots for the requests in flight from one worker to one server.
//!
//! A request holds its slot until its response ends, however slowly its body arrives. Clients with slow uploads could
//! hold all of them, so a part is reserved for addresses with few requests.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::limits::per_address::AddressGuard;
use crate::limits::reserve::Reserve;

pub(super) struct Slots {
    unreserved: Arc<Places>,
    reserved: Arc<Places>,
    /// Limits how many of `reserved` one address may hold.
    reserve: Reserve,
    total: usize,
}

/// On cache lines of its own: each request of its worker writes to it.
#[repr(align(128))]
struct Places(Semaphore);

/// Dropping it frees the slot, also if the client disconnects before the response.
pub(super) struct Slot {
    places: Arc<Places>,
    _reserved_for: Option<AddressGuard>,
}

impl Slot {
    fn of(permit: SemaphorePermit<'_>, places: &Arc<Places>, reserved_for: Option<AddressGuard>) -> Self {
        permit.forget();
        Slot { places: places.clone(), _reserved_for: reserved_for }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.places.0.add_permits(1);
    }
}

impl Slots {
    pub(super) fn new(total: usize, reserve_percent: usize) -> Self {
        let reserve = Reserve::new(total, reserve_percent);
        Slots {
            unreserved: Arc::new(Places(Semaphore::new(total - reserve.size()))),
            reserved: Arc::new(Places(Semaphore::new(reserve.size()))),
            reserve,
            total,
        }
    }

    pub(super) fn free(&self) -> usize {
        self.unreserved.0.available_permits() + self.reserved.0.available_permits()
    }

    /// Returns true if the next request gets a slot without waiting, whatever its address.
    pub(super) fn has_free(&self) -> bool {
        self.unreserved.0.available_permits() > 0
    }

    pub(super) fn in_use(&self) -> usize {
        self.total.saturating_sub(self.free())
    }

    /// Waits for a slot, at most for `timeout`. `None` if none became free.
    pub(super) async fn acquire(&self, address: IpAddr, timeout: Duration) -> Option<Slot> {
        if let Ok(permit) = self.unreserved.0.try_acquire() {
            return Some(Slot::of(permit, &self.unreserved, None));
        }
        tokio::time::timeout(timeout, self.wait(address)).await.ok().flatten()
    }

    async fn wait(&self, address: IpAddr) -> Option<Slot> {
        let guard = self.reserve.acquire(address, self.reserved.0.available_permits());
        tokio::select! {
            biased;
            permit = self.unreserved.0.acquire() => Some(Slot::of(permit.ok()?, &self.unreserved, None)),
            permit = self.reserved.0.acquire(), if guard.is_some() => {
                Some(Slot::of(permit.ok()?, &self.reserved, guard))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn acquire(slots: &Slots, last: u8) -> Option<Slot> {
        slots.acquire(IpAddr::from([192, 0, 2, last]), Duration::ZERO).await
    }

    #[tokio::test]
    async fn one_address_leaves_the_reserve_to_others() {
        let slots = Slots::new(64, 25);
        let mut greedy = Vec::new();
        while let Some(slot) = acquire(&slots, 66).await {
            greedy.push(slot);
        }
        assert_eq!((greedy.len(), slots.free(), slots.in_use()), (48 + 1, 15, 49));
        let others: Vec<_> = [acquire(&slots, 7).await, acquire(&slots, 8).await].into_iter().flatten().collect();
        assert_eq!((others.len(), slots.free()), (2, 13));
        // Freed slots are open to every address, this one too.
        drop(greedy);
        assert_eq!(slots.in_use(), 2);
        let again = acquire(&slots, 66).await;
        assert!(again.is_some_and(|slot| slot._reserved_for.is_none()));
    }

    /// The defaults of `max_concurrent_requests` and `reserve_percent`.
    #[tokio::test]
    async fn twenty_eight_greedy_addresses_leave_a_slot() {
        let slots = Slots::new(256, 25);
        let mut held = Vec::new();
        for (last, expected) in (1..=28).zip([192 + 7, 6, 5, 5, 4, 4, 3, 3, 3, 2, 2, 2, 2].into_iter().chain([1; 15])) {
            let before = held.len();
            while let Some(slot) = acquire(&slots, last).await {
                held.push(slot);
            }
            assert_eq!(held.len() - before, expected, "address {last}");
        }
        assert_eq!(slots.free(), 1);
        assert!(acquire(&slots, 77).await.is_some(), "a new address is served");
    }

    #[tokio::test]
    async fn without_a_reserve_one_address_can_hold_all_slots() {
        for (total, percent) in [(3, 0), (1, 25)] {
            let slots = Slots::new(total, percent);
            let mut held = Vec::new();
            for _ in 0..total {
                held.push(acquire(&slots, 66).await.expect("a slot"));
            }
            assert!(acquire(&slots, 7).await.is_none());
        }
    }
}
