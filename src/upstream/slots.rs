//! Room for requests under way to one server, from one worker.
//!
//! A request has its place until its answer is over, however slowly its body comes. Clients with slow uploads would soon have
//! all of them, so some are kept back for addresses that have few: whoever comes then still finds one, unless many addresses
//! attack at once. As long as others are free, nobody counts.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::per_address::{AddressGuard, PerAddressLimit};

/// An address may have this part of the places that are kept back.
const ADDRESSES: usize = 8;

pub(super) struct Slots {
    for_anybody: Arc<Semaphore>,
    kept_back: Arc<Semaphore>,
    /// Who has places that were kept back.
    holders: Arc<PerAddressLimit>,
    all: usize,
}

/// Given back when it is dropped.
pub(super) struct Slot {
    _permit: OwnedSemaphorePermit,
    _holder: Option<AddressGuard>,
}

impl Slots {
    /// `reserve_percent`: of a hundred places, so many are kept back.
    pub(super) fn new(all: usize, reserve: usize) -> Self {
        let kept_back = all * reserve / 100;
        Slots {
            for_anybody: Arc::new(Semaphore::new(all - kept_back)),
            kept_back: Arc::new(Semaphore::new(kept_back)),
            holders: Arc::new(PerAddressLimit::of_at_most((kept_back / ADDRESSES).max(1))),
            all,
        }
    }

    pub(super) fn free(&self) -> usize {
        self.for_anybody.available_permits() + self.kept_back.available_permits()
    }

    /// Is there one for whoever comes next, without a wait?
    pub(super) fn has_room(&self) -> bool {
        self.for_anybody.available_permits() > 0
    }

    pub(super) fn taken(&self) -> usize {
        self.all.saturating_sub(self.free())
    }

    /// Waits for a place for so long. `None` if none became free.
    pub(super) async fn take(&self, address: IpAddr, patience: Duration) -> Option<Slot> {
        if let Ok(permit) = self.for_anybody.clone().try_acquire_owned() {
            return Some(Slot { _permit: permit, _holder: None });
        }
        tokio::time::timeout(patience, self.wait(address)).await.ok().flatten()
    }

    async fn wait(&self, address: IpAddr) -> Option<Slot> {
        let holder = self.holders.acquire(address);
        tokio::select! {
            biased;
            permit = self.for_anybody.clone().acquire_owned() => Some(Slot { _permit: permit.ok()?, _holder: None }),
            permit = self.kept_back.clone().acquire_owned(), if holder.is_some() => {
                Some(Slot { _permit: permit.ok()?, _holder: holder })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn take(slots: &Slots, last: u8) -> Option<Slot> {
        slots.take(IpAddr::from([192, 0, 2, last]), Duration::ZERO).await
    }

    #[tokio::test]
    async fn one_address_leaves_room_for_others() {
        let slots = Slots::new(64, 25);
        let mut greedy = Vec::new();
        while let Some(place) = take(&slots, 66).await {
            greedy.push(place);
        }
        assert_eq!((greedy.len(), slots.free(), slots.taken()), (48 + 2, 14, 50));
        let others: Vec<_> = [take(&slots, 7).await, take(&slots, 8).await].into_iter().flatten().collect();
        assert_eq!((others.len(), slots.free()), (2, 12));
        // What it gives back is anybody's, and its own again.
        drop(greedy);
        assert_eq!(slots.taken(), 2);
        let again = take(&slots, 66).await;
        assert!(again.is_some_and(|place| place._holder.is_none()));
    }

    #[tokio::test]
    async fn without_a_reserve_the_first_have_all() {
        for (all, reserve) in [(3, 0), (1, 25)] {
            let slots = Slots::new(all, reserve);
            let mut taken = Vec::new();
            for _ in 0..all {
                taken.push(take(&slots, 66).await.expect("a place"));
            }
            assert!(take(&slots, 7).await.is_none());
        }
    }
}
