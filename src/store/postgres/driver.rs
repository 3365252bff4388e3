//! The thread of the store: drives all connections, and runs each operation until its outcome is known.
//!
//! A caller only holds the receiver of its result, so that a caller that goes away cancels nothing. An operation may run
//! again after a lost connection, because each of them is written so that a repetition changes nothing further.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::store::api::StoreFuture;
use crate::store::error::StoreError;
use crate::store::postgres::connect::{ConnectError, Connector};
use crate::store::postgres::error::QueryError;
use crate::store::postgres::session::Session;
use crate::types::ids::TokenId;
use crate::types::secret;

/// Maximum number of operations that wait for their result. With more, the database is too slow, and an immediate error
/// is better than waiting.
const MAX_QUEUED: u32 = 8_192;
/// How long operations wait for a connection after the last one was lost. A failover takes longer, a restart of one
/// server process does not.
const OUTAGE: Duration = Duration::from_secs(1);
/// How often an operation runs again that lost against another transaction.
const CONFLICTS: u32 = 3;
/// How often an operation runs again that lost its connection, within its time. When a server stops, all connections
/// end, one after the other.
const LOSSES: u32 = 5;
/// How long closing the store waits for operations. Those that are not finished by then were not acknowledged.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause between two attempts to connect.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Which connection an operation uses.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lane {
    /// The same one for each operation on this family, so that they do not wait for each other's locks.
    Family(TokenId),
    /// For what appends to the log, which is serial in the database anyway.
    Log,
    Any,
    /// For sweeps, leases and heartbeats, which must not delay requests.
    Upkeep,
    /// For the follower, which listens for notifications. Never shared.
    Follower,
}

/// The handle of the thread. Dropping it closes the store.
pub(super) struct Driver {
    shared: Arc<Shared>,
    runtime: Handle,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// Disconnected when the thread has ended.
    ended: Mutex<Receiver<Infallible>>,
}

impl Driver {
    /// Opens the first connection, for which it tries at most for `patience`, and starts the thread.
    pub(super) fn start(connector: Connector, patience: Duration) -> Result<Driver, StoreError> {
        let failed = |error: std::io::Error| StoreError::new(format!("cannot start the thread of the store: {error}"));
        let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let shared = Arc::new(Shared::new(connector));
        let (stop, stopped) = oneshot::channel();
        let (starting, started) = sync_channel(1);
        let (ending, ended) = sync_channel(0);
        let of_thread = shared.clone();
        let run = move || {
            runtime.block_on(async {
                let connected = of_thread.connect_first(patience).await;
                let works = connected.is_ok();
                // The other side waits for it.
                let _ = starting.send(connected);
                if works {
                    tokio::spawn(of_thread.clone().keep_connected());
                    // Sent by `close`, or the handle was dropped.
                    let _ = stopped.await;
                }
            });
            runtime.shutdown_background();
            drop::<SyncSender<Infallible>>(ending);
        };
        thread::Builder::new().name("store".into()).spawn(run).map_err(failed)?;
        started.recv().unwrap_or_else(|_| Err(StoreError::new("the thread of the store panicked")))?;
        Ok(Driver { shared, runtime: handle, stop: Mutex::new(Some(stop)), ended: Mutex::new(ended) })
    }

    /// Queues an operation. `run` may be called again: after a lost connection, or after a conflict with another
    /// transaction. Its changes may then have been committed already.
    pub(super) fn submit<T, F, Fut>(&self, lane: Lane, run: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: Fn(Session) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, QueryError>> + Send + 'static,
    {
        let Ok(queued) = self.shared.queue.clone().try_acquire_owned() else {
            let error = self.shared.rejection();
            return Box::pin(async { Err(error) });
        };
        let (caller, result) = oneshot::channel();
        let shared = self.shared.clone();
        self.runtime.spawn(async move {
            let outcome = shared.run(lane, run).await;
            // Before the response, so that a caller that was answered can be followed by another one.
            drop(queued);
            let _ = caller.send(outcome);
        });
        Box::pin(async move {
            result
                .await
                .unwrap_or_else(|_| Err(StoreError::new("the store was closed, or an operation of it panicked")))
        })
    }

    /// Runs a task of the store on its thread until the store is closed.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Access to connections, for tasks that run on the thread of the store.
    pub(super) fn connections(&self) -> Connections {
        Connections(self.shared.clone())
    }

    /// Waits for a result. Not for a thread that drives a runtime, except at the start.
    pub(super) fn wait<T: Send + 'static>(&self, future: StoreFuture<T>) -> Result<T, StoreError> {
        let (sender, result) = sync_channel(1);
        self.runtime.spawn(async move {
            // The receiver waits.
            let _ = sender.send(future.await);
        });
        result.recv().unwrap_or_else(|_| Err(StoreError::new("the store has been closed")))
    }

    /// Finishes the queued operations, and closes all connections. Waits at most [`CLOSE_TIMEOUT`] for each.
    pub(super) fn close(&self) {
        let Some(stop) = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let shared = self.shared.clone();
        let (finishing, finished) = sync_channel::<()>(1);
        self.runtime.spawn(async move {
            let all = timeout(CLOSE_TIMEOUT, shared.queue.acquire_many(MAX_QUEUED)).await;
            if all.is_err() {
                tracing::error!("operations were not finished within {CLOSE_TIMEOUT:?}; check the database");
            }
            shared.queue.close();
            drop(finishing);
        });
        // Disconnected when the task has ended.
        let _ = finished.recv();
        let _ = stop.send(());
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(ended.recv_timeout(CLOSE_TIMEOUT), Err(RecvTimeoutError::Timeout)) {
            tracing::error!("the thread of the store did not end within {CLOSE_TIMEOUT:?}");
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.close();
    }
}

/// The connections, for tasks that outlive a call.
#[derive(Clone)]
pub(super) struct Connections(Arc<Shared>);

impl Connections {
    /// A connection of this lane. Fails if there was none for [`OUTAGE`].
    pub(super) async fn session(&self, lane: Lane) -> Result<Session, StoreError> {
        self.0.session(lane).await
    }

    /// Runs an operation as [`Driver::submit`] does, without queueing it.
    pub(super) async fn run<T, F, Fut>(&self, lane: Lane, run: F) -> Result<T, StoreError>
    where
        F: Fn(Session) -> Fut + Send,
        Fut: Future<Output = Result<T, QueryError>> + Send,
    {
        self.0.run(lane, run).await
    }
}

struct Shared {
    connector: Connector,
    state: Mutex<State>,
    /// Notified when a connection was opened or lost.
    changed: Notify,
    queue: Arc<Semaphore>,
}

struct State {
    /// `pool` connections for changes, one for upkeep, one for the follower.
    slots: Vec<Option<Session>>,
    /// Since when there is none for changes.
    down_since: Option<Instant>,
    last_error: Option<StoreError>,
}

impl Shared {
    fn new(connector: Connector) -> Self {
        let slots = vec![None; connector.settings().pool.max(1) + 2];
        let state = State { slots, down_since: Some(Instant::now()), last_error: None };
        let queue = Arc::new(Semaphore::new(MAX_QUEUED as usize));
        Shared { connector, state: Mutex::new(state), changed: Notify::new(), queue }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run<T, F, Fut>(&self, lane: Lane, run: F) -> Result<T, StoreError>
    where
        F: Fn(Session) -> Fut,
        Fut: Future<Output = Result<T, QueryError>>,
    {
        let began = Instant::now();
        let (mut losses, mut conflicts) = (0, 0);
        loop {
            let session = self.session(lane).await?;
            let _place = session.place().await;
            if session.is_closed() {
                continue;
            }
            let attempt = Box::pin(run(session.clone()));
            let error = match attempt.await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let repeat = match &error {
                QueryError::Conflict(_) => {
                    conflicts += 1;
                    conflicts <= CONFLICTS
                }
                QueryError::Lost(_) | QueryError::NotPrimary(_) => {
                    losses += 1;
                    losses <= LOSSES
                }
                QueryError::Rejected(_) => false,
            };
            match &error {
                QueryError::NotPrimary(_) => self.close_all(),
                QueryError::Lost(_) => session.close(),
                QueryError::Conflict(_) | QueryError::Rejected(_) => {}
            }
            if !repeat || began.elapsed() >= self.connector.settings().timeout {
                return Err(error.into_store_error());
            }
        }
    }

    async fn session(&self, lane: Lane) -> Result<Session, StoreError> {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let until = match self.pick(lane) {
                Ok(session) => return Ok(session),
                Err(since) => since + OUTAGE,
            };
            if Instant::now() >= until || timeout_at(until, changed).await.is_err() {
                return Err(self.unreachable());
            }
        }
    }

    /// A connection for this lane, or since when there is none.
    fn pick(&self, lane: Lane) -> Result<Session, Instant> {
        let state = self.state();
        let writers = state.slots.len() - 2;
        let preferred = match lane {
            Lane::Family(id) => usize::try_from(id.as_u128() % writers as u128).unwrap_or_default(),
            Lane::Log => 0,
            Lane::Any => usize::from(secret::random::<1>()[0]) % writers,
            Lane::Upkeep => writers,
            Lane::Follower => writers + 1,
        };
        let open = |index: usize| state.slots.get(index)?.as_ref().filter(|session| !session.is_closed());
        // Not the connection of the follower: a long statement of another lane would make it stale.
        let others = (0..=writers).filter(|_| !matches!(lane, Lane::Follower));
        let found = std::iter::once(preferred).chain(others).find_map(open);
        // The follower waits for its own connection as long as for a new one after a loss.
        found.cloned().ok_or_else(|| state.down_since.unwrap_or_else(Instant::now))
    }

    fn unreachable(&self) -> StoreError {
        let target = &self.connector.settings().target;
        match &self.state().last_error {
            Some(error) => StoreError::new(format!("{target} is not reachable: {error}")),
            None => StoreError::new(format!("{target} is not reachable")),
        }
    }

    fn rejection(&self) -> StoreError {
        if self.queue.is_closed() {
            return StoreError::new("the store has been closed");
        }
        StoreError::new(format!("{MAX_QUEUED} operations are queued: the database is too slow or does not respond"))
    }

    fn close_all(&self) {
        self.state().slots.iter().flatten().for_each(Session::close);
    }

    async fn connect_first(self: &Arc<Self>, patience: Duration) -> Result<(), StoreError> {
        let deadline = Instant::now() + patience;
        let mut backoff = Backoff::default();
        loop {
            let Err(failed) = self.connect(0).await else { return Ok(()) };
            if failed.is_permanent || Instant::now() >= deadline {
                return Err(self.unreachable());
            }
            sleep(backoff.next()).await;
        }
    }

    /// Opens what is missing, one connection at a time.
    async fn keep_connected(self: Arc<Self>) {
        let mut backoff = Backoff::default();
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let Some(slot) = self.vacant_slot() else {
                changed.await;
                continue;
            };
            match self.connect(slot).await {
                Ok(()) => backoff = Backoff::default(),
                Err(_) => sleep(backoff.next()).await,
            }
        }
    }

    /// The connections that requests need come first.
    fn vacant_slot(&self) -> Option<usize> {
        let state = self.state();
        let is_vacant = |index: &usize| state.slots.get(*index).is_some_and(Option::is_none);
        let (follower, writers) = (state.slots.len() - 1, state.slots.len() - 2);
        [0, follower].into_iter().chain(1..=writers).find(is_vacant)
    }

    async fn connect(self: &Arc<Self>, slot: usize) -> Result<(), ConnectError> {
        let (session, driven) = match self.connector.connect().await {
            Ok(connected) => connected,
            Err(failed) => {
                let first = self.state().last_error.replace(failed.error.clone()).is_none();
                if first {
                    tracing::warn!(error = failed.error.message, "cannot connect to the database");
                }
                return Err(failed);
            }
        };
        self.fill(slot, Some(session));
        let shared = self.clone();
        tokio::spawn(async move {
            driven.await;
            shared.fill(slot, None);
        });
        Ok(())
    }

    fn fill(&self, slot: usize, session: Option<Session>) {
        let mut state = self.state();
        let is_open = session.is_some();
        if let Some(place) = state.slots.get_mut(slot) {
            *place = session;
        }
        let writers = state.slots.len() - 2;
        let was_down = state.down_since.is_some();
        match state.slots.iter().take(writers).any(Option::is_some) {
            true => {
                state.down_since = None;
                if is_open && state.last_error.take().is_some() {
                    tracing::info!("connected to the database again");
                }
            }
            false if !was_down => state.down_since = Some(Instant::now()),
            false => {}
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

/// Pauses between attempts: random, so that replicas do not connect at the same moment after a failover.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
    fn next(&mut self) -> Duration {
        let longest = MAX_BACKOFF.min(Duration::from_millis(50) * 2_u32.saturating_pow(self.0));
        self.0 = (self.0 + 1).min(10);
        longest.mul_f64(f64::from(secret::random::<1>()[0]) / 255.0)
    }
}
