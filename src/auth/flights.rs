//! Coalesces concurrent questions about one token: all requests that wait share the outcome, also a failure.
//!
//! If the client of the request that asks disconnects, the next one asks.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use crate::auth::token_cache::CachedToken;
use crate::types::reject::Reason;
use crate::types::secret;

/// The outcome, once a request has it. If the request that asks is dropped, the next one asks.
type Flight<T> = Arc<AsyncMutex<Option<T>>>;

/// The outcome of the look-up of a credential, for all requests that wait for it.
pub(super) type LookupOutcome = Result<Arc<CachedToken>, (Reason, String)>;

/// The questions of one kind that are asked now, each by its [`flight_key`].
pub struct Flights<T> {
    by_key: Mutex<HashMap<u128, OpenFlight<T>, RandomState>>,
}

struct OpenFlight<T> {
    flight: Flight<T>,
    /// The requests that take part.
    seats: usize,
}

/// One request's part in a flight.
pub(super) struct Seat<'f, T> {
    flights: &'f Flights<T>,
    key: u128,
    pub(super) flight: Flight<T>,
    /// No other request took part when this one joined.
    pub(super) is_first: bool,
}

/// Returns the key of a question about `text`. `part`: what else the answer depends on. The key is a digest, so that no
/// client can find a text that shares the answer about another one.
pub(super) fn flight_key(part: &str, text: &str) -> u128 {
    let digest = secret::digest(&[&(part.len() as u64).to_be_bytes(), part.as_bytes(), text.as_bytes()]);
    u128::from_be_bytes(std::array::from_fn(|index| digest[index]))
}

impl<T> Flights<T> {
    pub(super) fn join(&self, key: u128) -> Seat<'_, T> {
        let mut flights = self.by_key.lock();
        let entry = flights.entry(key).or_insert_with(|| OpenFlight { flight: Flight::default(), seats: 0 });
        entry.seats += 1;
        Seat { flights: self, key, flight: entry.flight.clone(), is_first: entry.seats == 1 }
    }

    /// Asks, or waits for the request that asks already.
    pub(super) async fn once(&self, key: u128, ask: impl Future<Output = T>) -> T
    where
        T: Clone,
    {
        let seat = self.join(key);
        let mut outcome = seat.flight.lock().await;
        if let Some(known) = &*outcome {
            return known.clone();
        }
        let asked = ask.await;
        *outcome = Some(asked.clone());
        seat.close();
        asked
    }
}

impl<T> Seat<'_, T> {
    /// Lets later requests ask again. Call it when the outcome is known.
    pub(super) fn close(&self) {
        let mut flights = self.flights.by_key.lock();
        if flights.get(&self.key).is_some_and(|entry| Arc::ptr_eq(&entry.flight, &self.flight)) {
            flights.remove(&self.key);
        }
    }
}

impl<T> Drop for Seat<'_, T> {
    fn drop(&mut self) {
        let mut flights = self.flights.by_key.lock();
        // After the close, the key may be that of a new flight.
        let Some(entry) = flights.get_mut(&self.key).filter(|entry| Arc::ptr_eq(&entry.flight, &self.flight)) else {
            return;
        };
        entry.seats -= 1;
        if entry.seats == 0 {
            flights.remove(&self.key);
        }
    }
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Flights { by_key: Mutex::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_who_join_get_the_outcome_and_later_ones_do_not() {
        let flights = Flights::<&str>::default();
        let [first, second] = [flights.join(1), flights.join(1)];
        assert_eq!([first.is_first, second.is_first, flights.join(2).is_first], [true, false, true]);
        let mut asking = first.flight.lock().await;
        assert!(second.flight.try_lock().is_err() && flights.join(2).flight.try_lock().is_ok());
        *asking = Some("known");
        first.close();
        drop(asking);
        assert_eq!(*second.flight.lock().await, Some("known"));
        assert_eq!(*flights.join(1).flight.lock().await, None);
    }

    #[test]
    fn a_text_has_another_key_with_another_part() {
        let keys = [flight_key("", "abc"), flight_key("a", "bc"), flight_key("ab", "c"), flight_key("a", "bd")];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key));
        }
        assert_eq!(flight_key("a", "bc"), keys[1]);
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_leaves_the_question_to_the_next() {
        let flights = Flights::<&str>::default();
        let [first, second] = [flights.join(1), flights.join(1)];
        let asking = first.flight.lock().await;
        drop(asking);
        drop(first);
        assert_eq!((*second.flight.lock().await, flights.by_key.lock().len()), (None, 1));
        drop(second);
        assert!(flights.by_key.lock().is_empty(), "nothing is left behind");
        let [closed, other] = [flights.join(1), flights.join(1)];
        closed.close();
        let next = flights.join(1);
        drop((closed, other));
        assert!(next.is_first && !flights.join(1).is_first, "a closed flight ends no other one");
    }
}
