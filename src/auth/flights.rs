//! One question at a time about a token: the requests that come meanwhile get the same answer, also a failure.
//!
//! If the client of the request that asks disconnects, the next one asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use tokio::sync::Mutex as AsyncMutex;

/// The outcome, once a request has it. If the request that asks is dropped, the next one asks.
pub(super) type Flight<T> = Arc<AsyncMutex<Option<T>>>;

pub(super) struct Flights<T> {
    by_token: Mutex<HashMap<u128, Flight<T>, RandomState>>,
}

/// One request's part in a flight.
pub(super) struct Seat<'f, T> {
    flights: &'f Flights<T>,
    token: u128,
    pub(super) flight: Flight<T>,
}

impl<T> Flights<T> {
    pub(super) fn join(&self, token: u128) -> Seat<'_, T> {
        let flight = self.lock().entry(token).or_default().clone();
        Seat { flights: self, token, flight }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u128, Flight<T>, RandomState>> {
        self.by_token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Seat<'_, T> {
    /// Later requests ask again. Call it when the outcome is known.
    pub(super) fn close(&self) {
        let mut flights = self.flights.lock();
        if flights.get(&self.token).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            flights.remove(&self.token);
        }
    }
}

impl<T> Drop for Seat<'_, T> {
    fn drop(&mut self) {
        let mut flights = self.flights.lock();
        // The map and this seat.
        let is_last = Arc::strong_count(&self.flight) == 2;
        if is_last && flights.get(&self.token).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            flights.remove(&self.token);
        }
    }
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Flights { by_token: Mutex::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_join_get_the_outcome_and_later_ones_do_not() {
        let flights = Flights::<&str>::default();
        let [first, second] = [flights.join(1), flights.join(1)];
        let mut asking = first.flight.lock().await;
        assert!(second.flight.try_lock().is_err() && flights.join(2).flight.try_lock().is_ok());
        *asking = Some("known");
        first.close();
        drop(asking);
        assert_eq!(*second.flight.lock().await, Some("known"));
        assert_eq!(*flights.join(1).flight.lock().await, None);
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_leaves_the_question_to_the_next() {
        let flights = Flights::<&str>::default();
        let [first, second] = [flights.join(1), flights.join(1)];
        let asking = first.flight.lock().await;
        drop(asking);
        drop(first);
        assert_eq!((*second.flight.lock().await, flights.lock().len()), (None, 1));
        drop(second);
        assert!(flights.lock().is_empty(), "nothing is left behind");
    }
}
