//! Whom a task waits for: the gateway, or its client.
//!
//! hyper drives one task for each HTTP/2 request: it polls the gateway's future, then the answer's body, and in between waits
//! for the client to make room. What the gateway waits for has limits of its own. A client that makes no room has none, and
//! meanwhile nobody of ours is polled who could notice. So whoever of ours is polled and has to wait leaves a note.

use std::cell::Cell;
use std::task::Poll;

thread_local! {
    /// A worker is one thread, and polls one task at a time.
    static FOR_US: Cell<bool> = const { Cell::new(false) };
    static PASSED: Cell<usize> = const { Cell::new(0) };
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// What a poll of our own came to; leaves a note if it has to wait.
pub fn record_pending<T>(polled: Poll<T>) -> Poll<T> {
    if polled.is_pending() {
        FOR_US.set(true);
    }
    polled
}

/// So many bytes of a body were handed over: its client made room for what was handed over before.
pub fn record_passed(bytes: usize) {
    PASSED.set(PASSED.get() + bytes);
}

/// What was noted during one poll.
pub struct PollOutcome {
    /// One of ours has to wait.
    pub for_us: bool,
    /// Bytes that were handed over.
    pub passed: usize,
}

/// Polls, and tells what was noted.
pub fn poll_tracked<T>(poll: impl FnOnce() -> Poll<T>) -> (Poll<T>, PollOutcome) {
    FOR_US.set(false);
    PASSED.set(0);
    WATCHED.set(true);
    let polled = poll();
    WATCHED.set(false);
    (polled, PollOutcome { for_us: FOR_US.get(), passed: PASSED.get() })
}

/// Is this within such a poll?
pub fn is_watched() -> bool {
    WATCHED.get()
}
