//! How often a story is told that differs each time: a few times in the suite, hundreds of times by hand.

use std::env;

/// Names the number of rounds.
const ROUNDS: &str = "BEARWARD_ROUNDS";

/// `BEARWARD_ROUNDS`, or as many as the suite has time for.
pub fn rounds(in_the_suite: usize) -> usize {
    match env::var(ROUNDS) {
        Ok(wanted) => wanted.parse().unwrap_or_else(|error| panic!("{ROUNDS}={wanted}: {error}")),
        Err(_) => in_the_suite,
    }
}
