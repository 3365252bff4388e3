//! How many requests a worker has under way at once.

use crate::reject::{Reason, Reject};

/// A worker's part of `limits.requests`. Each counts its own, so that no two cores write to one counter.
#[derive(Clone, Copy)]
pub struct Share {
    requests: u64,
    /// So many more that are calls on tokens: whoever logs out or refreshes must not wait for the crowd.
    reserve: u64,
}

impl Share {
    /// `requests`: over all workers; 0 for any number.
    pub fn of(requests: usize, workers: usize) -> Share {
        let share = requests.div_ceil(workers.max(1)) as u64;
        match requests {
            0 => Share { requests: u64::MAX, reserve: 0 },
            _ => Share { requests: share, reserve: share.div_ceil(10) },
        }
    }

    /// Refuses what is more than the worker can have under way, before anything is done for it and before a byte of its body
    /// is read. `under_way`: with the one that asks.
    pub fn has_room(self, under_way: u64, is_on_tokens: impl FnOnce() -> bool) -> Result<(), Reject> {
        if under_way <= self.requests || under_way <= self.requests + self.reserve && is_on_tokens() {
            return Ok(());
        }
        Err(Reject::new(Reason::Overloaded, format!("{under_way} requests under way on this worker")))
    }
}
