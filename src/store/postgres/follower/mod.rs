//! Follows the log of revocations that all gateways write, on a connection of its own.
//!
//! `state` decides, without I/O; `poll` has the statements; `recent` is the memory for a database that lost entries,
//! `lost` what it lacks, and `write_back` writes that. `memory` is what they know.
//! Polling is what makes sure that nothing is missed. A notification only makes the next poll come sooner: a pooler may
//! swallow it, and so may a lost connection.

mod lost;
mod memory;
mod poll;
mod recent;
mod state;
mod write_back;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use crate::store::api::{LogOrder, RevocationHook};
use crate::store::clock_offset::ClockOffset;
use crate::store::error::StoreError;
use crate::store::freshness::Freshness;
use crate::store::pool::OperationKind;
use crate::store::postgres::clock::Reading;
use crate::store::postgres::connections::Connections;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::lane::Lane;
use crate::store::postgres::operation::Shared;
use crate::store::postgres::session::Session;
use crate::tokens::family::revocation::Revocation;
use crate::types::boot_time::BootTime;
use crate::types::clock::UnixTime;
use crate::types::secret;
use memory::Known;
use poll::{Polled, listen, poll, prepare};
use state::{Alarm, INTERVAL, PAGE, Step, spread};
use write_back::WriteBack;

/// Microseconds between the clock of the database and that of this machine from which on the operator is warned.
const FAR: u64 = 1_000_000;

/// What the follower remembers of the revocations of this gateway.
#[derive(Clone)]
pub(super) struct Memory(Known);

impl Memory {
    /// `retention`: how long each entry stays in the log at least.
    pub(super) fn new(retention: Duration) -> Self {
        Memory(Known::new(retention))
    }

    /// A hook for the revocations of this gateway: the follower remembers each, in case the database loses it.
    pub(super) fn remembering(&self, enforce: RevocationHook) -> RevocationHook {
        let known = self.0.clone();
        Arc::new(move |revocation: &Revocation, order| {
            known.state.lock().on_own(revocation, BootTime::now());
            enforce(revocation, order);
        })
    }
}

/// A page that was asked for before the one before it was enforced.
struct Ahead {
    from: u64,
    polled: JoinHandle<Result<Polled, StoreError>>,
}

/// The task that follows the log. Runs on the thread of the store.
pub(super) struct Follower {
    connections: Connections,
    shared: Arc<Shared>,
    known: Known,
    freshness: Arc<Freshness>,
    enforce: RevocationHook,
    schema: String,
    clock: ClockOffset,
    far_clock: FarClock,
    /// The connection that listens.
    listening: Option<u64>,
    /// At the start, entries that have ended before are not read.
    needed_at: UnixTime,
    ahead: Option<Ahead>,
    last_error: String,
}

impl Follower {
    pub(super) fn new(
        connections: Connections,
        shared: Arc<Shared>,
        memory: Memory,
        freshness: Arc<Freshness>,
        enforce: RevocationHook,
        schema: String,
    ) -> Self {
        Follower {
            connections,
            shared,
            known: memory.0,
            freshness,
            enforce,
            schema,
            clock: ClockOffset::default(),
            far_clock: FarClock::default(),
            listening: None,
            needed_at: UnixTime::default(),
            ahead: None,
            last_error: String::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let connections = self.connections.clone();
        let shared = self.shared.clone();
        tokio::spawn(WriteBack::new(connections, shared, self.known.clone(), self.freshness.clone()).run());
        loop {
            match self.follow().await {
                Ok(()) => {
                    if !std::mem::take(&mut self.last_error).is_empty() {
                        tracing::info!("the log of revocations can be read again");
                    }
                }
                Err(error) => {
                    self.known.state.lock().on_error(BootTime::now());
                    self.freshness.failed(error.kind);
                    if error.message != self.last_error {
                        tracing::error!(%error, "cannot read the log of revocations");
                        self.last_error = error.message;
                    }
                    sleep(INTERVAL).await;
                }
            }
        }
    }

    /// Waits for the time of the next poll, and does it.
    async fn follow(&mut self) -> Result<(), StoreError> {
        let session = self.connections.session(Lane::Follower).await?;
        if self.listening == Some(session.number()) {
            self.wait(&session).await;
        } else {
            // Before the poll: an entry in between would be noticed only by the next poll.
            let begun = async {
                listen(&session, &self.schema).await?;
                prepare(&session).await
            };
            self.needed_at = begun.await.map_err(|error: QueryError| {
                session.close();
                error.into_store_error()
            })?;
            self.listening = Some(session.number());
            self.ahead = None;
        }
        let from = self.known.state.lock().read_from();
        let polled = self.poll(from).await?;
        self.freshness.answered();
        self.measure_clock(&polled);
        self.poll_ahead(&polled).await;
        let reading = polled.reading;
        self.apply(polled)?;
        self.compare_clock(reading).await;
        Ok(())
    }

    async fn poll(&mut self, from: u64) -> Result<Polled, StoreError> {
        match self.ahead.take() {
            Some(ahead) if ahead.from == from => {
                let panicked = |_| StoreError::new("reading the log of revocations panicked");
                ahead.polled.await.map_err(panicked)?
            }
            _ => self.read(from).await,
        }
    }

    /// After a full page, asks for the next one, so that the database works while the gateway enforces this one.
    async fn poll_ahead(&mut self, polled: &Polled) {
        let entries = &polled.page.entries;
        if entries.len() < PAGE {
            return;
        }
        let Some(last) = entries.last() else { return };
        let from = last.revocation.sequence;
        self.ahead = Some(Ahead { from, polled: tokio::spawn(self.read(from)) });
        // The task sends it, before enforcing keeps the thread busy.
        yield_now().await;
    }

    fn read(&self, from: u64) -> impl Future<Output = Result<Polled, StoreError>> + use<> {
        let connections = self.connections.clone();
        let is_beginning = self.known.state.lock().is_beginning();
        let needed_at = if is_beginning { self.needed_at } else { UnixTime::default() };
        let run = move |session: Session| async move { poll(&session, from, PAGE, needed_at).await };
        async move { connections.run(Lane::Follower, OperationKind::Poll, run).await }
    }

    async fn wait(&self, session: &Session) {
        let wait = self.known.state.lock().wait(BootTime::now());
        if wait.is_zero() {
            return;
        }
        let wait = spread(wait, secret::random::<1>()[0]);
        let notified = session.notified();
        tokio::select! {
            () = sleep(wait) => {}
            () = notified.notified() => {
                let wait = {
                    let mut state = self.known.state.lock();
                    state.on_wake(BootTime::now());
                    state.wait(BootTime::now())
                };
                sleep(wait).await;
            }
        }
    }

    fn measure_clock(&mut self, polled: &Polled) {
        // The first poll of a connection has prepared its statement.
        if self.listening != Some(polled.on) {
            return;
        }
        let Reading { sent, answered, .. } = polled.reading;
        let (at_start, error) = self.clock.add(sent, polled.micros, answered.since(sent));
        self.freshness.store_time.set(at_start, error);
        let offset = self.freshness.store_time.offset();
        if self.far_clock.begins(offset) {
            tracing::warn!(
                seconds = offset as f64 / 1e6,
                "the clock of the database is that far ahead of the clock of this machine; correct one of them"
            );
        }
    }

    /// So that a clock that was set back is found before the next refresh.
    async fn compare_clock(&self, reading: Reading) {
        let Some(set_back) = self.shared.clock.compare(&reading) else { return };
        let shared = self.shared.clone();
        let write = move |session: Session| {
            let shared = shared.clone();
            async move { shared.clock.write(&session, set_back).await }
        };
        if let Err(error) = self.connections.run(Lane::Follower, OperationKind::Upkeep, write).await {
            tracing::error!(%error, "cannot write that the clock of the database was set back; trying again");
        }
    }

    fn apply(&mut self, polled: Polled) -> Result<(), StoreError> {
        let time = polled.time();
        let sent = polled.reading.sent;
        let keys = polled.keys;
        let newest = polled.page.newest.sequence;
        // A gateway that starts knows nothing of what the log lacks.
        let waits = polled.is_written_back && !self.freshness.is_loaded();
        let (step, applied, is_complete) = {
            let mut state = self.known.state.lock();
            let step = state.on_poll(polled.page, sent, time);
            (step, state.applied(), state.complete_at() == Some(sent))
        };
        let order = |each: &Revocation| if each.sequence <= applied { LogOrder::InOrder } else { LogOrder::Ahead };
        let enforced = catch_unwind(AssertUnwindSafe(|| {
            step.apply.iter().for_each(|each| (self.enforce)(each, order(each)));
        }));
        enforced.map_err(|_| {
            self.known.state.lock().restart();
            StoreError::new("revocations were read, but enforcing them panicked")
        })?;
        self.report(&step, applied, newest);
        let has_moved = !step.apply.is_empty();
        self.find_lost(step);
        self.freshness.found_keys(keys);
        // A poll that was repeated on another connection has measured no time.
        if is_complete && !waits && self.freshness.store_time.now().is_some() {
            self.freshness.completed(sent, has_moved);
        }
        Ok(())
    }

    fn report(&self, step: &Step, applied: u64, newest: u64) {
        let counts = &self.freshness.counts;
        counts.applied.store(applied, Ordering::Relaxed);
        counts.newest.store(newest, Ordering::Relaxed);
        let add = |count: &AtomicU64, number: u64| count.fetch_add(number, Ordering::Relaxed);
        add(&counts.reloads, u64::from(step.reloaded));
        for alarm in &step.alarms {
            match alarm {
                Alarm::Fork { at, newest } => {
                    add(&counts.forks, 1);
                    tracing::error!(
                        at,
                        newest,
                        "the database was rolled back: its log of revocations is another one; was a standby promoted \
                         that lagged, or a backup restored?"
                    );
                }
                Alarm::Gap { missing } => {
                    add(&counts.gaps, 1);
                    tracing::error!(missing, "an entry of the log of revocations is missing: were rows deleted?");
                }
                Alarm::Lost(count) => {
                    tracing::error!(count, "the database has lost revocations; writing them again");
                }
            }
        }
    }

    /// Another gateway may have written what this one has found to be lost.
    fn find_lost(&self, step: Step) {
        let mut lost = self.known.lost.lock();
        lost.on_poll(&step.apply);
        lost.add(step.write_back);
        self.freshness.counts.lost.store(lost.len() as u64, Ordering::Relaxed);
        if step.reloaded || lost.len() > 0 {
            self.known.suspects.notify_one();
        }
    }
}

/// If the clocks differ by more than [`FAR`].
#[derive(Default)]
struct FarClock(bool);

impl FarClock {
    /// Returns true when they begin to differ, so that the log tells of it once.
    fn begins(&mut self, offset: i64) -> bool {
        let was_far = std::mem::replace(&mut self.0, offset.unsigned_abs() > FAR);
        self.0 && !was_far
    }
}
