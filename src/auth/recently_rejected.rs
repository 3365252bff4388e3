//! Tokens that were rejected a moment ago, so that a client that repeats one does not cost a question each time.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::types::clock::Uptime;

/// How long a token stays rejected. It is short, because a server can answer about a token that its other replicas do
/// not know yet.
const REMEMBERED: Duration = Duration::from_secs(5);

/// Maximum number of tokens of the last five seconds, and as many of the five before. What does not fit costs a
/// question, which counts against its address.
const CAPACITY: usize = 16_384;

/// `W`: why a token was rejected.
pub(super) struct RejectedTokens<W> {
    halves: Mutex<Halves<W>>,
}

type ByToken<W> = HashMap<u128, (Uptime, W), RandomState>;

struct Halves<W> {
    current: ByToken<W>,
    previous: ByToken<W>,
    since: Uptime,
}

impl<W: Clone> RejectedTokens<W> {
    pub(super) fn find(&self, token: u128, now: Uptime) -> Option<W> {
        let halves = self.halves.lock();
        let found = halves.current.get(&token).or_else(|| halves.previous.get(&token));
        found.filter(|(at, _)| now.since(*at) < REMEMBERED).map(|(_, why)| why.clone())
    }

    pub(super) fn insert(&self, token: u128, why: W, now: Uptime) {
        let mut halves = self.halves.lock();
        if now.since(halves.since) >= REMEMBERED {
            halves.previous = std::mem::take(&mut halves.current);
            halves.since = now;
        }
        if halves.current.len() < CAPACITY {
            halves.current.insert(token, (now, why));
        }
    }
}

impl<W> Default for RejectedTokens<W> {
    fn default() -> Self {
        let halves = Halves { current: HashMap::default(), previous: HashMap::default(), since: Uptime::default() };
        RejectedTokens { halves: Mutex::new(halves) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::reject::Reason;

    const START: Uptime = Uptime::from_secs(100);
    const MICROSECOND: Duration = Duration::from_micros(1);

    #[test]
    fn a_rejected_token_is_remembered_for_five_seconds() {
        let rejected = RejectedTokens::default();
        rejected.insert(1, Reason::TokenInactive, START);
        let late = START + (REMEMBERED - MICROSECOND);
        rejected.insert(2, Reason::WrongAudience, late);
        assert_eq!(rejected.find(1, late), Some(Reason::TokenInactive));
        assert_eq!(rejected.find(3, late), None);
        rejected.insert(3, Reason::Expired, START + REMEMBERED);
        let found = [1, 2, 3].map(|token| rejected.find(token, START + REMEMBERED));
        assert_eq!(found, [None, Some(Reason::WrongAudience), Some(Reason::Expired)]);
    }

    #[test]
    fn rejected_tokens_are_remembered_up_to_a_limit() {
        let rejected = RejectedTokens::default();
        (0..=CAPACITY as u128).for_each(|token| rejected.insert(token, Reason::TokenInactive, START));
        let [first, last] = [0, CAPACITY as u128].map(|token| rejected.find(token, START).is_some());
        assert_eq!((first, last, rejected.halves.lock().current.len()), (true, false, CAPACITY));
    }
}
