//! Streams end with the token that they stand on: within a second of its expiry, of its revocation, or of its key's.
//!
//! A stream is a WebSocket, or whatever of a request is still under way after a moment ([`crate::protocols::http::body::MOMENT`]): an answer, an
//! upload, the wait for an answer. Only then it is entered here, so that the ordinary request pays nothing. Each worker
//! keeps those of its own connections, and one task of it looks after them: four times a second it compares three numbers
//! (the time with the earliest deadline, the epoch of revocations, the generation of keys), and looks at the streams
//! themselves only if one of these has moved. With none open, it sleeps.
//!
//! How a stream ends in its own protocol is up to whoever holds its [`Live`]: [`Held`] for bodies, `tunnel` for WebSockets.
//! When the process drains, streams that have no end of their own are told so ([`Parting`]).

mod basis;
mod grpc;
mod held;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::auth::token_cache::Known;
use crate::telemetry::metrics::WorkerMetrics;
use crate::types::clock::UnixTime;
use crate::types::close_reason::Ended;
use crate::types::reject::Reason;

pub use basis::Grounds;
pub use held::{Held, Manner};

use basis::Standing;

/// A stream ends within a second: a quarter is for noticing, the rest for what is under way.
const TICK: Duration = Duration::from_millis(250);

/// So many streams are looked at before others have their turn: 50 µs or so.
const BATCH: usize = 256;

/// Where an issuer's terms have changed, each stream's token has its signature checked again: one, and others have their turn.
const COSTLY_BATCH: usize = 1;

/// What the end of the process means to a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parting {
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
    grounds: Grounds,
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
    standing: Option<Standing>,
    parting: Parting,
    end: oneshot::Sender<Ended>,
}

/// What the epoch and the generation were when all streams were looked at last.
#[derive(PartialEq)]
struct Seen {
    epoch: u64,
    generation: u64,
}

impl Streams {
    pub fn new(grounds: Grounds, metrics: Arc<WorkerMetrics>) -> Arc<Self> {
        Arc::new(Streams { grounds, metrics, open: Mutex::default(), begun: Notify::new() })
    }

    /// Enters a tunnel.
    pub fn open_tunnel(self: &Arc<Self>, known: Option<&Arc<Known>>) -> Live {
        self.open(known, Parting::AtOnce)
    }

    /// Enters something that stands on this token. What has ended it meanwhile is noticed here.
    fn open(self: &Arc<Self>, known: Option<&Arc<Known>>, parting: Parting) -> Live {
        let (end, ended) = oneshot::channel();
        let mut standing = known.map(|known| Standing::on(known, &self.grounds));
        let checked = standing.as_mut().map(|standing| standing.check(&self.grounds, self.grounds.clock.now()));
        let mut open = self.lock();
        open.newest += 1;
        let live = Live { number: open.newest, streams: self.clone(), ended: Some(ended) };
        self.metrics.streams_opened.one();
        let entry = Entry { standing, parting, end };
        match checked {
            Some(Err(reason)) => entry.end(Ended::Token(reason)),
            _ if open.tells(parting) => entry.end(Ended::Draining),
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
    fn verdict(&self, known: &Arc<Known>) -> Result<(), Reason> {
        Standing::on(known, &self.grounds).check(&self.grounds, self.grounds.clock.now())
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

    fn now_seen(&self) -> Seen {
        Seen { epoch: self.grounds.revocations.epoch(), generation: self.grounds.keyring.generation() }
    }

    async fn look(&self, seen: &mut Seen) {
        // Before the look: what moves meanwhile is looked at the next time.
        let moved = self.now_seen();
        let now = self.grounds.clock.now();
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
            match entry.standing.as_mut().map_or(Ok(()), |standing| standing.check(&self.grounds, now)) {
                Ok(()) => earliest = earliest.min(entry.deadline()),
                Err(reason) => over.push((*number, reason)),
            }
        }
        open.earliest = earliest;
        for (number, reason) in over {
            if let Some(entry) = open.streams.remove(&number) {
                entry.end(Ended::Token(reason));
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
    fn tells(&self, parting: Parting) -> bool {
        match parting {
            Parting::AtOnce => self.draining,
            Parting::AtLast => self.drained,
            Parting::Unsaid => false,
        }
    }

    fn end_for_drain(&mut self, number: u64) {
        if let Some(entry) = self.streams.remove(&number) {
            entry.end(Ended::Draining);
        }
    }
}

impl Entry {
    fn deadline(&self) -> UnixTime {
        self.standing.as_ref().map_or(UnixTime::MAX, Standing::deadline)
    }

    fn end(self, ended: Ended) {
        // Whoever held it may just have gone.
        let _ = self.end.send(ended);
    }
}

/// A stream that is entered. Dropping it takes it out.
pub struct Live {
    number: u64,
    streams: Arc<Streams>,
    ended: Option<oneshot::Receiver<Ended>>,
}

impl Live {
    /// Ready, once, when the stream has to end.
    pub fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<Ended> {
        let Some(receiver) = &mut self.ended else { return Poll::Pending };
        let ended = ready!(std::pin::Pin::new(receiver).poll(context));
        self.ended = None;
        // Nobody drops the other end unsaid but the process, at its own end.
        ended.map_or(Poll::Pending, Poll::Ready)
    }

    /// What it is has shown only now.
    fn parts(&self, parting: Parting) {
        let mut open = self.streams.lock();
        if open.tells(parting) {
            return open.end_for_drain(self.number);
        }
        if let Some(entry) = open.streams.get_mut(&self.number) {
            entry.parting = parting;
        }
    }

    /// Returns when the stream has to end.
    pub async fn ended(&mut self) -> Ended {
        std::future::poll_fn(|context| self.poll_ended(context)).await
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.streams.metrics.streams_closed.one();
        self.streams.lock().streams.remove(&self.number);
    }
}
