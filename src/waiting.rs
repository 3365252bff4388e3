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
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// What a poll of our own came to; leaves a note if it has to wait.
pub fn noted<T>(polled: Poll<T>) -> Poll<T> {
    if polled.is_pending() {
        FOR_US.set(true);
    }
    polled
}

/// Polls, and tells whether a note was left.
pub fn watched<T>(poll: impl FnOnce() -> Poll<T>) -> (Poll<T>, bool) {
    FOR_US.set(false);
    WATCHED.set(true);
    let polled = poll();
    WATCHED.set(false);
    (polled, FOR_US.get())
}

/// Is this within such a poll?
pub fn is_watched() -> bool {
    WATCHED.get()
}
