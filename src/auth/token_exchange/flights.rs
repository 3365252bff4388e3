//! Exchanges in flight: requests with the same token wait for one of them, which asks the server.
//!
//! If the client of that one disconnects, the next one asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use crate::auth::exchanged_tokens::ExchangedToken;
use crate::types::reject::{Reason, Reject};

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server cannot be reached, or has a failure of its own: the same request may succeed later.
    Unavailable(String),
    /// The server rejects the exchange, or its response is not one.
    Failed(String),
}

impl Failure {
    pub(super) fn reject(&self, exchange: &str) -> Reject {
        let (reason, why) = match self {
            Failure::Unavailable(why) => (Reason::TokenExchangeUnavailable, why),
            Failure::Failed(why) => (Reason::TokenExchangeFailed, why),
        };
        Reject::new(reason, format!("token_exchange {exchange}: {why}"))
    }
}

type Outcome = Option<Result<ExchangedToken, Failure>>;
/// By the hash of the caller's token.
type Map = Arc<Mutex<HashMap<[u8; 32], Arc<AsyncMutex<Outcome>>>>>;

#[derive(Default)]
pub(super) struct Flights(Map);

/// One request in a flight. The last one that leaves removes the flight.
pub(super) struct Joined {
    map: Map,
    key: [u8; 32],
    flight: Arc<AsyncMutex<Outcome>>,
}

impl Flights {
    pub(super) fn join(&self, key: [u8; 32]) -> Joined {
        let flight = lock(&self.0).entry(key).or_default().clone();
        Joined { map: self.0.clone(), key, flight }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        lock(&self.0).len()
    }
}

impl Joined {
    /// Waits for the turn of this request. `None`: it has to ask the server.
    pub(super) async fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.flight.lock().await
    }

    /// The flight has its outcome: requests from now on begin another one.
    pub(super) fn end(&self) {
        let mut map = lock(&self.map);
        if map.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            map.remove(&self.key);
        }
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let mut map = lock(&self.map);
        let is_same = map.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight));
        // The map and this one. New ones join only under this lock.
        if is_same && Arc::strong_count(&self.flight) == 2 {
            map.remove(&self.key);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_of_one_token_share_an_outcome() {
        let flights = Flights::default();
        let (first, second, other) = (flights.join([1; 32]), flights.join([1; 32]), flights.join([2; 32]));
        assert_eq!(flights.count(), 2);
        let mut outcome = first.outcome().await;
        assert!(outcome.is_none() && other.outcome().await.is_none());
        *outcome = Some(Err(Failure::Failed("x".into())));
        first.end();
        drop(outcome);
        assert!(second.outcome().await.is_some(), "it shares the outcome");
        let later = flights.join([1; 32]);
        assert!(later.outcome().await.is_none(), "a later one asks again");
        drop((first, second, other, later));
        assert_eq!(flights.count(), 0);
    }

    #[tokio::test]
    async fn if_the_first_request_is_gone_the_next_one_asks() {
        let flights = Flights::default();
        let (first, second) = (flights.join([1; 32]), flights.join([1; 32]));
        let asking = first.outcome().await;
        drop(asking);
        drop(first);
        assert_eq!(flights.count(), 1);
        assert!(second.outcome().await.is_none());
        drop(second);
        assert_eq!(flights.count(), 0);
    }
}
