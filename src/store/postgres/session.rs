//! One connection: runs statements, and ends when the server is silent for too long.
//!
//! Statements of several operations are in flight at once; the server works them off in the order in which they were
//! sent. A statement is never cancelled: the server could report success for a change that no standby has.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use crate::store::error::{FailureKind, StoreError};
use crate::store::postgres::error::QueryError;
use crate::store::postgres::gather::Gather;
use crate::store::postgres::timeline::Timeline;

/// Maximum time without any response while statements are in flight. The server ends a statement earlier by itself, see
/// `statement_timeout` in `connect`.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The same for a batch, such as a migration.
const BATCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of operations that use one connection at the same time. More of them wait in the gateway, where they
/// do not count as silence of the server. Fewer than the rows of one statement (`MAX_BATCH` of `gather`): one that
/// appends to the log serves the operations of all connections, and one operation may append many rows.
const IN_FLIGHT: usize = 256;

const BARRIER: &str = "select pg_logical_emit_message(true, 'bearward', '')::text";

/// A value of a statement, with its type in PostgreSQL: a pooler may forget the types that the server has found.
pub(super) trait Param: ToSql + Sync {
    fn sql_type(&self) -> Type;
    fn value(&self) -> &(dyn ToSql + Sync);
}

macro_rules! params {
    ($($rust:ty => $sql:ident),+ $(,)?) => {
        $(impl Param for $rust {
            fn sql_type(&self) -> Type {
                Type::$sql
            }
            fn value(&self) -> &(dyn ToSql + Sync) {
                self
            }
        })+
    };
}

params! {
    bool => BOOL, i32 => INT4, i64 => INT8, &str => TEXT, String => TEXT, &[u8] => BYTEA, Vec<u8> => BYTEA,
    Option<bool> => BOOL, Option<i32> => INT4, Option<i64> => INT8, Option<&str> => TEXT, Option<String> => TEXT,
    Option<&[u8]> => BYTEA, Option<Vec<u8>> => BYTEA,
    Vec<bool> => BOOL_ARRAY, Vec<i32> => INT4_ARRAY, Vec<i64> => INT8_ARRAY, Vec<&str> => TEXT_ARRAY,
    Vec<String> => TEXT_ARRAY, Vec<&[u8]> => BYTEA_ARRAY, Vec<Vec<u8>> => BYTEA_ARRAY,
    Vec<Option<i32>> => INT4_ARRAY, Vec<Option<i64>> => INT8_ARRAY, Vec<Option<&str>> => TEXT_ARRAY,
    Vec<Option<String>> => TEXT_ARRAY, Vec<Option<Vec<u8>>> => BYTEA_ARRAY,
}

/// A connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Session(Arc<Inner>);

struct Inner {
    client: Client,
    /// Unlike that of any other connection of this process.
    number: u64,
    /// What the server writes, if it was asked.
    timeline: OnceLock<Timeline>,
    prepared: bool,
    statements: Mutex<HashMap<&'static str, Arc<OnceCell<Statement>>>>,
    places: Semaphore,
    /// The operations that wait until what they have read is durable.
    barriers: Gather<(), ()>,
    opened_at: Instant,
    /// Of the newest response, in milliseconds after `opened_at`.
    responded_at: AtomicU64,
    is_closed: AtomicBool,
    closing: Notify,
    notified: Arc<Notify>,
}

impl Session {
    pub(super) fn new(client: Client, number: u64, prepared: bool) -> Self {
        Session(Arc::new(Inner {
            client,
            number,
            timeline: OnceLock::new(),
            prepared,
            statements: Mutex::default(),
            places: Semaphore::new(IN_FLIGHT),
            barriers: Gather::default(),
            opened_at: Instant::now(),
            responded_at: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            closing: Notify::new(),
            notified: Arc::new(Notify::new()),
        }))
    }

    /// Tells connections apart, for what must be done once on each of them.
    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    /// What the server wrote when the connection was opened. `None` if it was not asked.
    pub(super) fn timeline(&self) -> Option<Timeline> {
        self.0.timeline.get().copied()
    }

    pub(super) fn set_timeline(&self, timeline: Timeline) {
        // Each connection is asked once.
        let _ = self.0.timeline.set(timeline);
    }

    /// Notified when the server sends a notification over this connection.
    pub(super) fn notified(&self) -> Arc<Notify> {
        self.0.notified.clone()
    }

    /// A place among the operations in flight. Waits for one.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.0.places.acquire().await.ok()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::Acquire) || self.0.client.is_closed()
    }

    /// Closes the connection. What is in flight on it has an unknown outcome.
    pub(super) fn close(&self) {
        self.0.is_closed.store(true, Ordering::Release);
        self.0.closing.notify_one();
    }

    /// Returns when [`Session::close`] was called. Only for the task that drives the connection.
    pub(super) async fn closing(&self) {
        self.0.closing.notified().await;
    }

    pub(super) async fn query(&self, sql: &'static str, params: &[&dyn Param]) -> Result<Vec<Row>, QueryError> {
        let ran = if self.0.prepared {
            let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param.value()).collect();
            let run = async { self.0.client.query(&self.statement(sql, params).await?, &values).await };
            self.within(RESPONSE_TIMEOUT, run).await
        } else {
            let values: Vec<_> = params.iter().map(|param| (param.value(), param.sql_type())).collect();
            self.within(RESPONSE_TIMEOUT, self.0.client.query_typed(sql, &values)).await
        };
        if matches!(ran, Err(QueryError::Conflict(_))) {
            // It may no longer fit the tables, or be unknown to the server behind a pooler.
            self.0.statements.lock().remove(sql);
        }
        ran
    }

    pub(super) async fn query_opt(&self, sql: &'static str, params: &[&dyn Param]) -> Result<Option<Row>, QueryError> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// The answer to a question: one row with one boolean.
    pub(super) async fn is(&self, sql: &'static str) -> Result<bool, QueryError> {
        let row = self.query_opt(sql, &[]).await?;
        let row = row.ok_or_else(|| StoreError::new("the database did not respond with a row"))?;
        Ok(row.try_get(0).map_err(StoreError::from)?)
    }

    /// Returns how many rows the outermost statement has changed.
    pub(super) async fn execute(&self, sql: &'static str, params: &[&dyn Param]) -> Result<u64, QueryError> {
        if self.0.prepared {
            let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|param| param.value()).collect();
            let run = async { self.0.client.execute(&self.statement(sql, params).await?, &values).await };
            return self.within(RESPONSE_TIMEOUT, run).await;
        }
        let values: Vec<_> = params.iter().map(|param| (param.value(), param.sql_type())).collect();
        self.within(RESPONSE_TIMEOUT, self.0.client.execute_typed(sql, &values)).await
    }

    /// Waits until everything that is visible now survives a crash and a failover, as far as the server promises it for
    /// a commit: writes a message to its log, which all earlier changes precede. One message serves all that wait.
    ///
    /// To be called before a success is reported that rests on a change of an earlier call and not on a commit of this
    /// one. After a crash of the server, and after a cancelled wait for a standby, a change is visible that the standby
    /// lacks.
    pub(super) async fn wait_until_durable(&self) -> Result<(), QueryError> {
        let write = |waiting: Vec<()>| async move { self.query(BARRIER, &[]).await.map(|_| waiting) };
        self.0.barriers.join((), 1, write).await
    }

    /// Sends several statements at once, without parameters. They are one transaction: all of them are committed, or
    /// none. The text must not begin or end a transaction itself, because an error would then leave it open.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), QueryError> {
        self.within(BATCH_TIMEOUT, self.0.client.batch_execute(sql)).await
    }

    /// Runs one statement that may take hours. Only for a connection that nothing else uses.
    pub(super) async fn run_for_long(&self, sql: &str) -> Result<(), QueryError> {
        Ok(self.0.client.batch_execute(sql).await?)
    }

    /// Prepared once for each connection, also if several operations ask for it at the same time.
    async fn statement(&self, sql: &'static str, params: &[&dyn Param]) -> Result<Statement, tokio_postgres::Error> {
        let cell = self.0.statements.lock().entry(sql).or_default().clone();
        let prepare = || async {
            let types: Vec<Type> = params.iter().map(|param| param.sql_type()).collect();
            self.0.client.prepare_typed(sql, &types).await
        };
        cell.get_or_try_init(prepare).await.cloned()
    }

    /// Waits for `run` as long as the server responds to this or to other statements. A connection that is
    /// lost or read-only is closed here, and not by the operations: one statement can serve those of several
    /// connections.
    async fn within<T>(
        &self,
        silence: Duration,
        run: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, QueryError> {
        let sent = Instant::now();
        let mut run = pin!(run);
        loop {
            let responded = self.0.opened_at + Duration::from_millis(self.0.responded_at.load(Ordering::Relaxed));
            let deadline = sent.max(responded) + silence;
            if let Ok(result) = timeout_at(deadline, &mut run).await {
                let now = u64::try_from(self.0.opened_at.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.0.responded_at.store(now, Ordering::Relaxed);
                let result = result.map_err(QueryError::from);
                if matches!(result, Err(QueryError::Lost(_) | QueryError::NotPrimary(_))) {
                    self.close();
                }
                return result;
            }
            let newest = self.0.opened_at + Duration::from_millis(self.0.responded_at.load(Ordering::Relaxed));
            if newest + silence <= Instant::now() {
                self.close();
                let late =
                    format!("the database did not respond within {silence:?}; check the server and the network to it");
                return Err(QueryError::Lost(StoreError::new(late).of_kind(FailureKind::Silent)));
            }
        }
    }

    /// For the first statement of a connection, before other operations use it.
    pub(super) async fn first_query(&self, sql: &'static str, limit: Duration) -> Result<Vec<Row>, QueryError> {
        let Ok(rows) = timeout(limit, self.0.client.query_typed(sql, &[])).await else {
            let late = format!("the database did not respond within {limit:?}");
            return Err(QueryError::Lost(StoreError::new(late).of_kind(FailureKind::Silent)));
        };
        rows.map_err(QueryError::from)
    }

    pub(super) fn notify(&self) {
        self.0.notified.notify_one();
    }
}
