//! The number of rounds of a randomized test: a few times in the whole suite, hundreds of times by hand.

use std::env;

/// Environment variable that sets the number of repetitions.
const VARIABLE: &str = "BEARWARD_ROUNDS";

/// Returns the value of `BEARWARD_ROUNDS`, or `default` if it is not set.
pub fn repetitions(default: usize) -> usize {
    match env::var(VARIABLE) {
        Ok(value) => value.parse().unwrap_or_else(|error| panic!("{VARIABLE}={value}: {error}")),
        Err(_) => default,
    }
}
