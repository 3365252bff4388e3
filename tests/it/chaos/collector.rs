//! A receiver of audit events that holds a response for as long as a case wants.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::load::{Background, lock};
use super::survive::PATIENCE;
use crate::support::{ScriptedBackend, Wire};

/// What happens to the next events.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    Confirm,
    /// They are stored, but there is no response.
    StoreOnly,
    /// They are lost, and there is no response.
    Lose,
}

struct State {
    next: Next,
    /// The replica that waits for a response.
    waiting: Option<usize>,
    /// What was stored: the replica that sent it, and the lines.
    stored: Vec<(usize, String)>,
}

pub(super) struct Collector {
    backend: ScriptedBackend,
    state: Arc<Mutex<State>>,
    _background: Background,
}

impl Collector {
    pub(super) fn start() -> Collector {
        let state = Arc::new(Mutex::new(State { next: Next::Confirm, waiting: None, stored: Vec::new() }));
        let (background, shared) = (Background::start(), state.clone());
        let backend =
            background.run(async move { ScriptedBackend::start(move |wire, _| receive(wire, shared.clone())) });
        Collector { backend, state, _background: background }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.backend.address
    }

    /// Gives no response to the next refreshes. Returns the replica that waits for it.
    pub(super) fn hold(&self, stores: bool) -> usize {
        lock(&self.state).next = if stores { Next::StoreOnly } else { Next::Lose };
        wait_for("no replica delivers a refresh", || lock(&self.state).waiting)
    }

    /// Confirms what comes from now on. Returns the replica that sends it.
    pub(super) fn go_on(&self) -> usize {
        let before = {
            let mut state = lock(&self.state);
            (state.next, state.waiting) = (Next::Confirm, None);
            state.stored.len()
        };
        wait_for("no replica delivers events", || lock(&self.state).stored.get(before).map(|(replica, _)| *replica))
    }

    /// The lines of all replicas, in the order in which they came.
    pub(super) fn lines(&self) -> String {
        lock(&self.state).stored.iter().map(|(_, lines)| lines.as_str()).collect()
    }
}

fn wait_for<T>(otherwise: &str, condition: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "{otherwise}");
        sleep(Duration::from_millis(20));
    }
}

/// One request. Its path is the number of the replica.
async fn receive(mut wire: Wire, state: Arc<Mutex<State>>) {
    let Some(head) = wire.try_read_until("\r\n\r\n").await else { return };
    let head = head.to_ascii_lowercase();
    let replica = head.strip_prefix("post /").and_then(|rest| rest.split_once(' ')).expect("a request").0;
    let replica = replica.parse().expect("a number");
    let length = head.split_once("content-length: ").and_then(|(_, rest)| rest.split_once("\r\n")).expect("a length").0;
    let lines = String::from_utf8(wire.read_bytes(length.parse().expect("a length")).await).expect("text");
    let is_confirmed = {
        let mut state = lock(&state);
        // Only one delivery is held. Its events must be some that the case knows.
        let is_held = state.next != Next::Confirm && state.waiting.is_none() && lines.contains("\"token.refreshed\"");
        let is_stored = !is_held || state.next == Next::StoreOnly;
        if is_held {
            state.waiting = Some(replica);
        }
        if is_stored {
            state.stored.push((replica, lines));
        }
        !is_held
    };
    if is_confirmed {
        // The sender may have been killed.
        let _ = wire.try_send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await;
    } else {
        // Until the sender closes the connection.
        let _ = wire.try_read_until("\0").await;
    }
}
