//! How many requests may be sent a second time. A group of servers that is dying must not be finished off by it.
//!
//! Only requests that were sent count: one that no server could be connected for makes no work twice.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Seconds that are looked back upon.
const WINDOW: usize = 10;
/// Repeats that are allowed in a window whatever the traffic: a share of few requests is none.
const LEAST: u64 = 10;

pub(super) struct Budget {
    percent: u64,
    window: Mutex<Window>,
}

struct Window {
    /// Requests and repeats in all, at the end of each of the last seconds; the oldest first. Never empty.
    past: VecDeque<(u64, u64)>,
    repeats: u64,
}

impl Budget {
    /// Of a hundred requests, so many may be repeated.
    pub(super) fn new(percent: usize) -> Self {
        let window = Window { past: VecDeque::from([(0, 0)]), repeats: 0 };
        Budget { percent: percent as u64, window: Mutex::new(window) }
    }

    /// May one more be repeated? `requests` in all so far. 0 percent allows none at all.
    pub(super) fn spend(&self, requests: u64) -> bool {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (requests_before, repeats_before) = window.past.front().copied().unwrap_or_default();
        let recent = requests.saturating_sub(requests_before);
        let allowed = if self.percent == 0 { 0 } else { LEAST + recent * self.percent / 100 };
        let is_allowed = window.repeats - repeats_before < allowed;
        window.repeats += u64::from(is_allowed);
        is_allowed
    }

    /// A second is over.
    pub(super) fn second(&self, requests: u64) {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let now = (requests, window.repeats);
        window.past.push_back(now);
        if window.past.len() > WINDOW {
            window.past.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(budget: &Budget, requests: u64, tries: usize) -> usize {
        (0..tries).filter(|_| budget.spend(requests)).count()
    }

    #[test]
    fn a_share_of_the_last_seconds_and_a_small_minimum() {
        let budget = Budget::new(20);
        assert_eq!(spent(&budget, 0, 100), 10, "the minimum");
        assert_eq!(spent(&budget, 1_000, 1_000), 200, "and a fifth");
        for _ in 0..9 {
            budget.second(1_000);
        }
        assert_eq!(spent(&budget, 1_000, 100), 0, "what was spent is spent while it is in the window");
        budget.second(1_000);
        budget.second(1_000);
        assert_eq!(spent(&budget, 1_000, 100), 10, "then only the minimum, as nothing was asked meanwhile");
    }

    #[test]
    fn none_is_none() {
        assert_eq!(spent(&Budget::new(0), 1_000_000, 100), 0);
    }
}
