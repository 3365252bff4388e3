//! One refresh of a family at a time at the token endpoint, in the order in which the calls came.
//!
//! Two processes of one client can refresh at once, one with the current refresh token and one with its parent. If the
//! first call rotates, the second one would be two generations behind, and its user would have to log in again. It
//! waits instead, and gets what it would have got if it had been first.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::tokens::family::Family;
use crate::types::ids::TokenId;

/// The families with calls that run or wait.
#[derive(Default)]
pub struct RefreshTurns(Mutex<HashMap<TokenId, Calls, RandomState>>);

/// The calls of one family.
#[derive(Default)]
struct Calls {
    turn: Arc<AsyncMutex<Option<Before>>>,
    count: usize,
    /// How many have come.
    arrived: u64,
}

/// The family before its last rotation.
struct Before {
    family: Family,
    /// How many calls had come when the rotation ended.
    arrived: u64,
}

/// One call. Dropping it lets the next one run.
pub(super) struct RefreshTurn<'t> {
    turns: &'t RefreshTurns,
    id: TokenId,
    number: u64,
    /// `None` if it has waited for too long. It runs all the same.
    held: Option<OwnedMutexGuard<Option<Before>>>,
}

impl RefreshTurns {
    /// Waits for the calls of this family that came before, for at most `limit`.
    pub(super) async fn take(&self, id: TokenId, limit: Duration) -> RefreshTurn<'_> {
        let mut call = RefreshTurn { turns: self, id, number: 0, held: None };
        let turn = {
            let mut families = self.0.lock();
            let calls = families.entry(id).or_default();
            calls.count += 1;
            calls.arrived += 1;
            call.number = calls.arrived;
            calls.turn.clone()
        };
        call.held = tokio::time::timeout(limit, turn.lock_owned()).await.ok();
        call
    }
}

impl RefreshTurn<'_> {
    /// The family before its last rotation, if this call came before the rotation had ended.
    pub(super) fn before(&self) -> Option<Family> {
        let before = self.held.as_ref()?.as_ref().filter(|before| self.number <= before.arrived)?;
        Some(before.family.clone())
    }

    /// This call has rotated the family, which was `before`.
    pub(super) fn rotated(&mut self, family: Family) {
        let arrived = self.turns.0.lock().get(&self.id).map_or(self.number, |calls| calls.arrived);
        if let Some(held) = &mut self.held {
            **held = Some(Before { family, arrived });
        }
    }
}

impl Drop for RefreshTurn<'_> {
    fn drop(&mut self) {
        let mut families = self.turns.0.lock();
        if let Some(calls) = families.get_mut(&self.id) {
            calls.count -= 1;
            if calls.count == 0 {
                families.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::types::clock::UnixTime;

    const FAMILY: TokenId = TokenId::from_bytes([7; 16]);
    const OTHER: TokenId = TokenId::from_bytes([8; 16]);
    const MINUTE: Duration = Duration::from_mins(1);

    fn family(generation: u64) -> Family {
        Family { generation, ..Family::sample(UnixTime::default()) }
    }

    #[tokio::test]
    async fn a_call_that_waited_knows_the_family_before_the_rotation() {
        let turns = RefreshTurns::default();
        let mut first = turns.take(FAMILY, MINUTE).await;
        assert_eq!(first.before(), None);
        let mut second = pin!(turns.take(FAMILY, MINUTE));
        assert_eq!(poll_once(second.as_mut()), None, "the first one has the turn");
        drop(turns.take(OTHER, MINUTE).await);
        assert_eq!(turns.take(FAMILY, Duration::ZERO).await.before(), None, "it has waited for too long");
        first.rotated(family(3));
        drop(first);
        let second = second.await;
        assert_eq!(second.before(), Some(family(3)));
        let mut later = pin!(turns.take(FAMILY, MINUTE));
        assert_eq!(poll_once(later.as_mut()), None);
        drop(second);
        assert_eq!(later.await.before(), None, "it came after the rotation");
        assert!(turns.0.lock().is_empty());
    }

    fn poll_once<'t>(turn: Pin<&mut impl Future<Output = RefreshTurn<'t>>>) -> Option<Option<Family>> {
        match turn.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn.before()),
            Poll::Pending => None,
        }
    }
}
