//! The open connections, and the rules of repetition.
//!
//! An operation may run again after a lost connection, because each of them is written so that a repetition changes
//! nothing further. Connections are opened by one task, one at a time, apart from the operations: these fail fast while
//! the database is away.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use crate::store::disk_failures::DiskFailures;
use crate::store::error::{FailureKind, StoreError};
use crate::store::pool::{OpenConnections, OperationKind, PoolStatus};
use crate::store::postgres::backoff::Backoff;
use crate::store::postgres::connect::Connector;
use crate::store::postgres::error::{ConnectError, QueryError};
use crate::store::postgres::lane::{Lane, MORE, family_lane};
use crate::store::postgres::repeatable::{Attempt, Repeatable, repeatable, take};
use crate::store::postgres::session::Session;
use crate::store::postgres::timeline::Timeline;
use crate::types::secret;

/// How long operations wait for a connection after the last one was lost. A failover takes longer, a restart of one
/// server process does not.
const OUTAGE: Duration = Duration::from_secs(1);
/// How often an operation runs again that lost against another transaction.
const CONFLICTS: u32 = 3;
/// How often an operation runs again that lost its connection, within its time. When a server stops, all connections
/// end, one after the other.
const LOSSES: u32 = 5;

/// All connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connections(Arc<Shared>);

struct Shared {
    connector: Connector,
    state: Mutex<ConnectionsState>,
    /// Notified when a connection was opened or lost.
    changed: Notify,
    disk_failures: DiskFailures,
    status: Arc<PoolStatus>,
}

struct ConnectionsState {
    /// `pool` connections for changes, and one each for the log, for upkeep and for the follower.
    slots: Vec<Option<Session>>,
    /// Since when there is none for changes.
    down_since: Option<Instant>,
    last_error: Option<StoreError>,
}

impl ConnectionsState {
    /// The number of connections for changes. Those for the log, for upkeep and for the follower come after them.
    fn writers(&self) -> usize {
        self.slots.len() - MORE
    }

    fn open(&self) -> OpenConnections {
        let (changes, others) = self.slots.split_at(self.writers());
        let is_open = |place: usize| usize::from(others.get(place).is_some_and(Option::is_some));
        let changes = changes.iter().flatten().count();
        OpenConnections { changes, log: is_open(0), upkeep: is_open(1), follower: is_open(2) }
    }
}

impl Connections {
    pub(super) fn new(connector: Connector) -> Self {
        let slots = vec![None; connector.settings().pool.max(1) + MORE];
        let state = ConnectionsState { slots, down_since: Some(Instant::now()), last_error: None };
        Connections(Arc::new(Shared {
            connector,
            state: Mutex::new(state),
            changed: Notify::new(),
            disk_failures: DiskFailures::default(),
            status: Arc::default(),
        }))
    }

    /// For metrics.
    pub(super) fn status(&self) -> Arc<PoolStatus> {
        self.0.status.clone()
    }

    /// The number of connections for changes.
    pub(super) fn writers(&self) -> usize {
        self.0.state.lock().writers()
    }

    pub(super) fn connector(&self) -> &Connector {
        &self.0.connector
    }

    /// The server at this host accepts changes. Leaves those that were the primary before it.
    pub(super) fn found(&self, host: usize, timeline: Timeline) {
        self.0.connector.found(host, timeline);
        let state = self.0.state.lock();
        state.slots.iter().flatten().filter(|each| self.0.connector.is_superseded(each)).for_each(Session::close);
    }

    /// Runs an operation until its outcome is known. `run` may be called again.
    pub(super) async fn run<'f, T, F, Fut>(&self, lane: Lane, kind: OperationKind, run: F) -> Result<T, StoreError>
    where
        T: Send + 'f,
        F: Fn(Session) -> Fut + Send + 'f,
        Fut: Future<Output = Result<T, QueryError>> + Send + 'f,
    {
        let result = Arc::default();
        self.repeat(lane, kind, repeatable(run, &result)).await?;
        take(&result)
    }

    /// As [`Connections::run`], of which the program has a copy for each operation.
    pub(super) async fn repeat(
        &self,
        lane: Lane,
        kind: OperationKind,
        mut attempt: Repeatable<'_>,
    ) -> Result<(), StoreError> {
        let began = Instant::now();
        let mut losses = 0;
        let mut conflicts = 0;
        loop {
            let waiting = self.0.status.wait();
            let session = self.session(lane).await?;
            let _place = session.place().await;
            drop(waiting);
            if session.is_closed() {
                continue;
            }
            let error = match self.measure(kind, attempt(session.clone())).await {
                Ok(()) if losses == 0 || matches!(lane, Lane::Follower) => return Ok(()),
                // What the lost attempt wrote may be visible, and not yet on the standby.
                Ok(()) => match session.wait_until_durable().await {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                },
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
            if !repeat || began.elapsed() >= self.0.connector.settings().timeout {
                let error = error.into_store_error();
                self.0.disk_failures.note(&error);
                return Err(error);
            }
        }
    }

    async fn measure(&self, kind: OperationKind, attempt: Attempt<'_>) -> Result<(), QueryError> {
        let _running = self.0.status.run();
        let began = Instant::now();
        let outcome = attempt.await;
        self.0.status.took(kind, began.elapsed());
        outcome
    }

    pub(super) fn disk_failures(&self) -> &DiskFailures {
        &self.0.disk_failures
    }

    /// A connection of this lane. Fails if there was none for [`OUTAGE`].
    pub(super) async fn session(&self, lane: Lane) -> Result<Session, StoreError> {
        loop {
            let mut changed = pin!(self.0.changed.notified());
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
        let state = self.0.state.lock();
        let writers = state.writers();
        let preferred = match lane {
            Lane::Family(id) => family_lane(id, writers),
            Lane::Log => writers,
            Lane::Any => usize::from(secret::random::<1>()[0]) % writers,
            Lane::Upkeep => writers + 1,
            Lane::Follower => writers + 2,
        };
        let open = |index: usize| state.slots.get(index)?.as_ref().filter(|session| !session.is_closed());
        // Not the connection of the follower: a long statement of another lane would make it stale.
        let others = if matches!(lane, Lane::Follower) { 0..0 } else { 0..writers + 2 };
        let found = std::iter::once(preferred).chain(others).find_map(open);
        // The follower waits for its own connection as long as for a new one after a loss.
        found.cloned().ok_or_else(|| state.down_since.unwrap_or_else(Instant::now))
    }

    fn unreachable(&self) -> StoreError {
        let target = &self.0.connector.settings().target;
        match &self.0.state.lock().last_error {
            Some(error) => StoreError::new(format!("{target} is not reachable: {error}")).of_kind(error.kind),
            None => StoreError::new(format!("{target} is not reachable")).of_kind(FailureKind::Unreachable),
        }
    }

    /// Tries at most for `patience`.
    pub(super) async fn connect_first(&self, patience: Duration) -> Result<(), StoreError> {
        let deadline = Instant::now() + patience;
        let mut backoff = Backoff::default();
        loop {
            let Err(failed) = self.connect(0).await else { return Ok(()) };
            if failed.is_permanent || Instant::now() >= deadline {
                return Err(failed.error);
            }
            sleep(backoff.next()).await;
        }
    }

    /// Opens what is missing, one connection at a time.
    pub(super) async fn keep_connected(self) {
        let mut backoff = Backoff::default();
        loop {
            let mut changed = pin!(self.0.changed.notified());
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
        let state = self.0.state.lock();
        let is_vacant = |index: &usize| state.slots.get(*index).is_some_and(Option::is_none);
        let log = state.writers();
        let follower = state.slots.len() - 1;
        [0, follower, log].into_iter().chain(1..follower).find(is_vacant)
    }

    async fn connect(&self, slot: usize) -> Result<(), ConnectError> {
        let (session, driven) = match self.0.connector.connect().await {
            Ok(connected) => connected,
            Err(failed) => {
                let first = self.0.state.lock().last_error.replace(failed.error.clone()).is_none();
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
        let mut state = self.0.state.lock();
        let is_open = session.is_some();
        if let Some(place) = state.slots.get_mut(slot) {
            *place = session;
        }
        self.0.status.set_open(state.open());
        let writers = state.writers();
        let was_down = state.down_since.is_some();
        if state.slots.iter().take(writers).any(Option::is_some) {
            state.down_since = None;
            if is_open && state.last_error.take().is_some() {
                tracing::info!("connected to the database again");
            }
        } else if !was_down {
            state.down_since = Some(Instant::now());
        }
        drop(state);
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::postgres::settings::PostgresSettings;
    use crate::store::postgres::tests::given::{PostgresServer, settings};
    use crate::types::ids::TokenId;

    /// One that connects to nothing yet, with `pool` connections for changes.
    fn none(pool: usize) -> Connections {
        let settings = PostgresSettings { pool, ..settings(PostgresServer::shared()) };
        Connections::new(Connector::new(settings, None, "a"))
    }

    async fn opened(connections: &Connections) -> Session {
        let (session, driven) = connections.0.connector.connect().await.expect("the server runs");
        tokio::spawn(driven);
        session
    }

    #[tokio::test]
    async fn only_a_connection_for_changes_ends_an_outage() {
        const POOL: usize = 3;
        let connections = none(POOL);
        let session = opened(&connections).await;
        for slot in 0..POOL + MORE {
            connections.fill(slot, Some(session.clone()));
            assert_eq!(connections.0.state.lock().down_since.is_none(), slot < POOL, "{slot}");
            connections.fill(slot, None);
            assert!(connections.0.state.lock().down_since.is_some(), "{slot}");
        }
    }

    #[tokio::test]
    async fn the_connections_that_requests_need_are_opened_first() {
        let connections = none(2);
        let session = opened(&connections).await;
        let mut opened = Vec::new();
        while let Some(slot) = connections.vacant_slot() {
            opened.push(slot);
            connections.fill(slot, Some(session.clone()));
        }
        // For changes, for the follower, for the log, for more changes, for upkeep.
        assert_eq!(opened, [0, 4, 2, 1, 3]);
    }

    #[tokio::test]
    async fn an_outage_begins_with_the_first_loss() {
        let connections = none(1);
        let began = connections.0.state.lock().down_since;
        connections.fill(1, None);
        assert_eq!(connections.0.state.lock().down_since, began);
    }

    #[tokio::test]
    async fn the_last_error_is_kept_until_a_connection_is_open() {
        let connections = none(2);
        let session = opened(&connections).await;
        connections.fill(0, Some(session.clone()));
        connections.0.state.lock().last_error = Some(StoreError::new("unplugged"));
        connections.fill(1, None);
        assert!(connections.0.state.lock().last_error.is_some());
        connections.fill(1, Some(session));
        assert!(connections.0.state.lock().last_error.is_none());
    }

    #[tokio::test]
    async fn any_connection_does_for_a_change_but_not_for_the_follower() {
        let connections = none(2);
        let session = opened(&connections).await;
        connections.fill(1, Some(session.clone()));
        for lane in [Lane::Log, Lane::Any, Lane::Upkeep, Lane::Family(TokenId::from_bytes([0; 16]))] {
            assert_eq!(connections.pick(lane).map(|picked| picked.number()).ok(), Some(session.number()), "{lane:?}");
        }
        assert!(connections.pick(Lane::Follower).is_err());
    }
}
