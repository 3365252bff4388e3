//! `upstream.retry_budget_percent`: how many requests may be retried. Unlimited retries would double the load on
//! servers that are already failing.
//!
//! Only requests that were sent count. A request that found no connection has caused no work on a server.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// How many seconds the budget looks back.
const WINDOW: usize = 10;
/// Retries that are allowed in each window whatever the traffic: a percentage of few requests would be zero.
const MIN_RETRIES: u64 = 10;

pub(super) struct RetryBudget {
    percent: u64,
    window: Mutex<Window>,
}

struct Window {
    /// The number of requests and of retries so far, at the end of each of the last seconds, oldest first. Never empty.
    past: VecDeque<(u64, u64)>,
    retries: u64,
}

impl RetryBudget {
    pub(super) fn new(percent: usize) -> Self {
        let window = Window { past: VecDeque::from([(0, 0)]), retries: 0 };
        RetryBudget { percent: percent as u64, window: Mutex::new(window) }
    }

    /// Takes one retry from the budget. Returns false if none is left. `requests`: the number of requests so far. A
    /// budget of 0 percent allows no retry at all.
    pub(super) fn try_spend(&self, requests: u64) -> bool {
        let mut window = self.window.lock();
        let (requests_before, retries_before) = window.past.front().copied().unwrap_or_default();
        let recent = requests.saturating_sub(requests_before);
        let allowed = if self.percent == 0 { 0 } else { MIN_RETRIES + recent * self.percent / 100 };
        let is_allowed = window.retries - retries_before < allowed;
        window.retries += u64::from(is_allowed);
        is_allowed
    }

    /// Moves the window. To be called once a second.
    pub(super) fn advance(&self, requests: u64) {
        let mut window = self.window.lock();
        let now = (requests, window.retries);
        window.past.push_back(now);
        if window.past.len() > WINDOW {
            window.past.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spend(budget: &RetryBudget, requests: u64, tries: usize) -> usize {
        (0..tries).filter(|_| budget.try_spend(requests)).count()
    }

    #[test]
    fn the_budget_is_a_share_of_the_last_seconds_and_a_minimum() {
        let budget = RetryBudget::new(20);
        assert_eq!(spend(&budget, 0, 100), 10, "the minimum");
        assert_eq!(spend(&budget, 1_000, 1_000), 200, "and a fifth");
        for _ in 0..9 {
            budget.advance(1_000);
        }
        assert_eq!(spend(&budget, 1_000, 100), 0, "retries count as long as they are in the window");
        budget.advance(1_000);
        budget.advance(1_000);
        assert_eq!(spend(&budget, 1_000, 100), 10, "only the minimum, because there were no new requests");
    }

    #[test]
    fn zero_percent_allows_no_retry() {
        assert_eq!(spend(&RetryBudget::new(0), 1_000_000, 100), 0);
    }
}
