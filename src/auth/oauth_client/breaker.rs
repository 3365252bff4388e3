//! A circuit breaker for an endpoint that hangs. Without it, each request with a new token would wait until its own
//! call times out.
//!
//! After some timeouts in succession the circuit is open: one call at a time tries the endpoint, and all others fail at
//! once. Any response closes it, also an error: only silence costs time.

use parking_lot::Mutex;

#[derive(Debug)]
pub struct CircuitBreaker {
    /// `consecutive_timeouts`. 0: the circuit never opens.
    limit: usize,
    state: Mutex<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    /// Calls in succession that timed out.
    timeouts: usize,
    /// A call tries the endpoint while the circuit is open.
    is_trying: bool,
    /// How often the endpoint has responded.
    responses: u64,
}

/// One call. If it is dropped without an outcome, because the client has disconnected, the next one tries.
pub struct Call<'b> {
    breaker: &'b CircuitBreaker,
    is_trial: bool,
    /// The responses before this call.
    responses: u64,
}

impl CircuitBreaker {
    pub fn new(limit: usize) -> Self {
        CircuitBreaker { limit, state: Mutex::default() }
    }

    /// A call begins. `None`: the circuit is open, and another call tries.
    pub fn begin(&self) -> Option<Call<'_>> {
        let mut state = self.state.lock();
        let is_trial = self.is_open_in(&state);
        if is_trial && std::mem::replace(&mut state.is_trying, true) {
            return None;
        }
        Some(Call { breaker: self, is_trial, responses: state.responses })
    }

    /// Returns true after too many timeouts: a call tries the endpoint, or fails at once.
    pub fn is_open(&self) -> bool {
        self.is_open_in(&self.state.lock())
    }

    fn is_open_in(&self, state: &BreakerState) -> bool {
        self.limit > 0 && state.timeouts >= self.limit
    }
}

impl Call<'_> {
    /// Call it as soon as the outcome is known. A call that began before the last response says nothing of now.
    pub fn end(self, timed_out: bool) {
        let mut state = self.breaker.state.lock();
        match timed_out {
            true if state.responses == self.responses => state.timeouts = state.timeouts.saturating_add(1),
            true => {}
            false => (state.timeouts, state.responses) = (0, state.responses.wrapping_add(1)),
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.is_trial {
            self.breaker.state.lock().is_trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_out(breaker: &CircuitBreaker) {
        breaker.begin().expect("it may try").end(true);
    }

    #[test]
    fn after_some_timeouts_one_call_at_a_time_tries() {
        let breaker = CircuitBreaker::new(3);
        (0..3).for_each(|_| time_out(&breaker));
        assert!(breaker.is_open());
        let trial = breaker.begin().expect("one tries");
        assert!(breaker.begin().is_none() && breaker.begin().is_none());
        trial.end(true);
        let trial = breaker.begin().expect("then the next one");
        assert!(breaker.begin().is_none());
        trial.end(false);
        assert!(!breaker.is_open());
        let calls: Vec<_> = (0..10).map(|_| breaker.begin()).collect();
        assert!(calls.iter().all(Option::is_some), "a response closes the circuit");
    }

    #[test]
    fn a_call_that_is_given_up_leaves_the_trial_to_the_next() {
        let breaker = CircuitBreaker::new(1);
        time_out(&breaker);
        drop(breaker.begin().expect("one tries"));
        assert!(breaker.begin().is_some());
    }

    #[test]
    fn only_timeouts_in_succession_count() {
        let breaker = CircuitBreaker::new(2);
        for _ in 0..10 {
            time_out(&breaker);
            breaker.begin().expect("closed").end(false);
        }
        // These two began before a response, and their timeouts come after it.
        let late = [breaker.begin(), breaker.begin()];
        breaker.begin().expect("closed").end(false);
        late.into_iter().flatten().for_each(|call| call.end(true));
        let both = [breaker.begin(), breaker.begin()];
        assert!(both.iter().all(Option::is_some));
    }

    #[test]
    fn without_a_limit_the_circuit_never_opens() {
        let breaker = CircuitBreaker::new(0);
        (0..100).for_each(|_| time_out(&breaker));
        let both = [breaker.begin(), breaker.begin()];
        assert!(both.iter().all(Option::is_some));
    }
}
