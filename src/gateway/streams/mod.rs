//! Streams end with the token that they stand on: within a second of its expiry, of its revocation, or of its key's.
//!
//! A stream is a WebSocket, or whatever of a request is still under way after a moment ([`crate::protocols::http::body::LONG_RUNNING_AFTER`]): an answer, an
//! upload, the wait for an answer. Only then it is entered here, so that the ordinary request pays nothing. Each worker
//! keeps those of its own connections, and one task of it looks after them: four times a second it compares three numbers
//! (the time with the earliest deadline, the epoch of revocations, the generation of keys), and looks at the streams
//! themselves only if one of these has moved. With none open, it sleeps.
//!
//! How a stream ends in its own protocol is up to whoever holds its [`OpenStream`]: [`TokenBound`] for bodies, `tunnel` for WebSockets.
//! When the process drains, streams that have no end of their own are told so ([`DrainBehavior`]).

mod basis;
mod grpc;
mod token_bound;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::auth::token_cache::CachedToken;
use crate::telemetry::metrics::WorkerMetrics;
use crate::types::clock::UnixTime;
use crate::types::close_reason::CloseReason;
use crate::types::reject::Reason;

pub use basis::TokenChecks;
pub use token_bound::{Termination, TokenBound};

use basis::TokenBasis;

/// A stream ends within a second: a quarter is for noticing, the rest for what is under way.
const TICK: Duration = Duration::from_millis(250);

/// So many streams are looked at before others have their turn: 50 µs or so.
const BATCH: usize = 256;

/// Where an issuer's terms have changed, each stream's token has its signature checked again: one, and others have their turn.
const COSTLY_BATCH: usize = 1;

/// What the end of the process means to a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainBehavior {
    /// It is told at once: its client connects again by itself, and would hold up the end.
    AtOnce,
    /// It has the time of the drain, in which it may come to its own end; then it is told.
    AtLast,
    /// It has the time of the drain, and is cut off then: nothing could be said that is no part of it.
    #[default]
    Unsaid,
}

/// The open streams of one worker.
pub struct Streams {
    checks: TokenChecks,
    metrics: Arc<WorkerMetrics>,
    open: Mutex<Open>,
    /// The first one was opened.
    begun: Notify,
}

#[derive(Default)]
struct Open {
    streams: BTreeMap<u64, Entry>,
    /// The number of the newest.
    newest: u64,
    /// No token here expires before. Too early does no harm.
    earliest: UnixTime,
    draining: bool,
    /// The time of the drain is up.
    drained: bool,
}

struct Entry {
    /// `None`: nobody's token, as on a public route.
    standing: Option<TokenBasis>,
    parting: DrainBehavior,
    end: oneshot::Sender<CloseReason>,
}

/// What the epoch and the generation were when all streams were looked at last.
#[derive(PartialEq)]
struct LastChecked {
    epoch: u64,
    generation: u64,
}

impl Streams {
    pub fn new(checks: TokenChecks, metrics: Arc<WorkerMetrics>) -> Arc<Self> {
        Arc::new(Streams { checks, metrics, open: Mutex::default(), begun: Notify::new() })
    }

    /// Enters a tunnel.
    pub fn open_tunnel(self: &Arc<Self>, known: Option<&Arc<CachedToken>>) -> OpenStream {
        self.open(known, DrainBehavior::AtOnce)
    }

    /// Enters something that stands on this token. What has ended it meanwhile is noticed here.
    fn open(self: &Arc<Self>, known: Option<&Arc<CachedToken>>, parting: DrainBehavior) -> OpenStream {
        let (end, ended) = oneshot::channel();
        let mut standing = known.map(|known| TokenBasis::on(known, &self.checks));
        let checked = standing.as_mut().map(|standing| standing.check(&self.checks, self.checks.clock.now()));
        let mut open = self.lock();
        open.newest += 1;
        let live = OpenStream { number: open.newest, streams: self.clone(), ended: Some(ended) };
        self.metrics.streams_opened.one();
        let entry = Entry { standing, parting, end };
        match checked {
            Some(Err(reason)) => entry.end(CloseReason::Token(reason)),
            _ if open.tells(parting) => entry.end(CloseReason::Draining),
            _ => {
                if open.streams.is_empty() {
                    open.earliest = UnixTime::MAX;
                    self.begun.notify_one();
                }
                open.earliest = open.earliest.min(entry.deadline());
                open.streams.insert(live.number, entry);
            }
        }
        live
    }

    /// Is a token good at this moment that something not yet entered stands on?
    fn verdict(&self, known: &Arc<CachedToken>) -> Result<(), Reason> {
        TokenBasis::on(known, &self.checks).check(&self.checks, self.checks.clock.now())
    }

    /// Ends what has to end, for as long as it is polled.
    pub async fn look_after(self: Arc<Self>) {
        // Each stream is looked at as it is entered: nothing of before has to be noticed.
        let mut seen = self.now_seen();
        loop {
            while self.lock().streams.is_empty() {
                self.begun.notified().await;
            }
            tokio::time::sleep(TICK).await;
            self.look(&mut seen).await;
        }
    }

    fn now_seen(&self) -> LastChecked {
        LastChecked { epoch: self.checks.revocations.epoch(), generation: self.checks.keyring.generation() }
    }

    async fn look(&self, seen: &mut LastChecked) {
        // Before the look: what moves meanwhile is looked at the next time.
        let moved = self.now_seen();
        let now = self.checks.clock.now();
        {
            let mut open = self.lock();
            if moved == *seen && now < open.earliest {
                return;
            }
            open.earliest = UnixTime::MAX;
        }
        let batch = if moved.generation == seen.generation { BATCH } else { COSTLY_BATCH };
        let mut from = Bound::Unbounded;
        while let Some(last) = self.look_at_some(from, batch, now) {
            from = Bound::Excluded(last);
            // Requests have their turn.
            tokio::task::yield_now().await;
        }
        *seen = moved;
    }

    /// Answers the number of the last stream looked at; `None` if there was none.
    fn look_at_some(&self, from: Bound<u64>, count: usize, now: UnixTime) -> Option<u64> {
        let mut open = self.lock();
        let (mut last, mut earliest, mut over) = (None, open.earliest, Vec::new());
        for (number, entry) in open.streams.range_mut((from, Bound::Unbounded)).take(count) {
            last = Some(*number);
            match entry.standing.as_mut().map_or(Ok(()), |standing| standing.check(&self.checks, now)) {
                Ok(()) => earliest = earliest.min(entry.deadline()),
                Err(reason) => over.push((*number, reason)),
            }
        }
        open.earliest = earliest;
        for (number, reason) in over {
            if let Some(entry) = open.streams.remove(&number) {
                entry.end(CloseReason::Token(reason));
            }
        }
        last
    }

    /// Tells those that are to be told at once, and from now on each that opens.
    pub fn drain(&self) {
        self.tell(|open| open.draining = true);
    }

    /// Tells those that were to have the time of the drain.
    pub fn end_drain(&self) {
        self.tell(|open| open.drained = true);
    }

    fn tell(&self, moves: impl FnOnce(&mut Open)) {
        let mut open = self.lock();
        moves(&mut open);
        let told = open.streams.iter().filter(|(_, entry)| open.tells(entry.parting)).map(|(number, _)| *number);
        for number in told.collect::<Vec<_>>() {
            open.end_for_drain(number);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn tells(&self, parting: DrainBehavior) -> bool {
        match parting {
            DrainBehavior::AtOnce => self.draining,
            DrainBehavior::AtLast => self.drained,
            DrainBehavior::Unsaid => false,
        }
    }

    fn end_for_drain(&mut self, number: u64) {
        if let Some(entry) = self.streams.remove(&number) {
            entry.end(CloseReason::Draining);
        }
    }
}

impl Entry {
    fn deadline(&self) -> UnixTime {
        self.standing.as_ref().map_or(UnixTime::MAX, TokenBasis::deadline)
    }

    fn end(self, ended: CloseReason) {
        // Whoever held it may just have gone.
        let _ = self.end.send(ended);
    }
}

/// A stream that is entered. Dropping it takes it out.
pub struct OpenStream {
    number: u64,
    streams: Arc<Streams>,
    ended: Option<oneshot::Receiver<CloseReason>>,
}

impl OpenStream {
    /// Ready, once, when the stream has to end.
    pub fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<CloseReason> {
        let Some(receiver) = &mut self.ended else { return Poll::Pending };
        let ended = ready!(std::pin::Pin::new(receiver).poll(context));
        self.ended = None;
        // Nobody drops the other end unsaid but the process, at its own end.
        ended.map_or(Poll::Pending, Poll::Ready)
    }

    /// What it is has shown only now.
    fn parts(&self, parting: DrainBehavior) {
        let mut open = self.streams.lock();
        if open.tells(parting) {
            return open.end_for_drain(self.number);
        }
        if let Some(entry) = open.streams.get_mut(&self.number) {
            entry.parting = parting;
        }
    }

    /// Returns when the stream has to end.
    pub async fn ended(&mut self) -> CloseReason {
        std::future::poll_fn(|context| self.poll_ended(context)).await
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.metrics.streams_closed.one();
        self.streams.lock().streams.remove(&self.number);
    }
}
