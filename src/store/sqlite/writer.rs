//! The thread that owns the connection, and group commit.
//!
//! A commit flushes the disk, which takes some milliseconds for one operation as for five hundred. The thread therefore
//! runs all queued operations in one transaction, commits once, enforces the written revocations, and then completes
//! all calls. The next batch forms while the disk is busy; a call never waits for others to join it.
//!
//! A failed operation must not affect the others in its batch. If it failed before it wrote anything (a damaged row, a
//! missing family), its caller gets the error and the batch continues. After any other failure the transaction is
//! rolled back, and each operation runs again in its own transaction. That is slow but rare; a savepoint around each
//! operation would be a cost for every call.

use std::cell::RefCell;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::store::api::{LogOrder, Outbox, RevocationHook, StoreFuture};
use crate::store::disk_failures::DiskFailures;
use crate::store::error::StoreError;
use crate::store::events::count_lost;
use crate::store::late::{LOOK_INTERVAL, Pauses, doubt_after_pause};
use crate::store::sqlite::batch::{Batch, RecordedEvents, TokenLimits};
use crate::store::sqlite::file::Opened;
use crate::store::sqlite::steady_time::{SteadyNow, SteadyTime};
use crate::tokens::family::revocation::Revocation;
use crate::types::clock::{Clock, SystemClock};

/// Maximum size of a batch. It bounds how long the first call of a batch waits for the last.
const MAX_BATCH: usize = 512;
/// Maximum number of queued operations. With more, the disk is too slow, and an immediate error is better than waiting.
const MAX_QUEUED: usize = 8_192;

/// How long closing the store waits for the disk. Operations that are not finished by then were not acknowledged.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The handle of the thread. Dropping it closes the store.
pub(super) struct Writer {
    /// `None` after the store was closed.
    queue: Mutex<Option<SyncSender<Box<dyn Operation>>>>,
    disk_failures: Arc<DiskFailures>,
    /// Disconnected when the file is closed.
    closed: Mutex<Receiver<Infallible>>,
}

impl Writer {
    pub(super) fn start(
        opened: Opened,
        limits: TokenLimits,
        enforce: RevocationHook,
        outbox: Arc<Outbox>,
    ) -> Result<Self, StoreError> {
        let (queue, queued) = sync_channel(MAX_QUEUED);
        let disk_failures = Arc::new(DiskFailures::default());
        let pauses = RefCell::default();
        let steady_time = RefCell::new(SteadyTime::begin());
        let disk_failures_of_worker = disk_failures.clone();
        let worker =
            Worker { opened, limits, enforce, outbox, pauses, steady_time, disk_failures: disk_failures_of_worker };
        let (closing, closed) = sync_channel(0);
        let run = move || {
            worker.run(&queued);
            drop::<SyncSender<Infallible>>(closing);
        };
        thread::Builder::new()
            .name("store".into())
            .spawn(run)
            .map_err(|error| StoreError::new(format!("cannot start the thread of the store: {error}")))?;
        Ok(Writer { queue: Mutex::new(Some(queue)), disk_failures, closed: Mutex::new(closed) })
    }

    pub(super) fn disk_failures(&self) -> Arc<DiskFailures> {
        self.disk_failures.clone()
    }

    /// Queues an operation. `run` may be called more than once; its earlier changes are then rolled back.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Batch<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<T> {
        let (caller, result) = oneshot::channel();
        let rejected = self.enqueue(Box::new(Pending { run, result: None, caller })).err();
        Box::pin(async move {
            match rejected {
                Some(error) => Err(error),
                None => result.await.unwrap_or_else(|_| Err(StoreError::closed())),
            }
        })
    }

    /// Finishes the queued operations and waits at most [`CLOSE_TIMEOUT`] until the file is closed.
    pub(super) fn close(&self) {
        *self.queue.lock() = None;
        let closed = self.closed.lock();
        // If the thread panicked, the file is closed too.
        if matches!(closed.recv_timeout(CLOSE_TIMEOUT), Err(RecvTimeoutError::Timeout)) {
            tracing::error!("the database was not closed within {CLOSE_TIMEOUT:?}; check its disk");
        }
    }

    fn enqueue(&self, operation: Box<dyn Operation>) -> Result<(), StoreError> {
        let queue = self.queue.lock();
        queue.as_ref().ok_or_else(StoreError::closed)?.try_send(operation).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::new(format!(
                "{MAX_QUEUED} operations are queued: the disk of the database is too slow or does not respond"
            )),
            TrySendError::Disconnected(_) => StoreError::closed(),
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

/// A queued operation with any result type.
trait Operation: Send {
    /// Runs the operation and keeps its result. Never panics.
    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), StoreError>;
    /// Sends the result to the caller.
    fn complete(self: Box<Self>);
    /// Sends this error to the caller instead of the result.
    fn fail(self: Box<Self>, error: StoreError);
}

struct Pending<T, F> {
    run: F,
    result: Option<Result<T, StoreError>>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Operation for Pending<T, F>
where
    T: Send,
    F: Fn(&mut Batch<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        // Unwind safe: after a panic the transaction is only rolled back.
        let result = catch_unwind(AssertUnwindSafe(|| (self.run)(batch)))
            .unwrap_or_else(|_| Err(StoreError::new("a store operation panicked and was rolled back")));
        let outcome = result.as_ref().map(|_| ()).map_err(StoreError::clone);
        self.result = Some(result);
        outcome
    }

    fn complete(self: Box<Self>) {
        // The caller may have stopped waiting.
        let _ = self.caller.send(self.result.unwrap_or_else(|| Err(StoreError::closed())));
    }

    fn fail(self: Box<Self>, error: StoreError) {
        let _ = self.caller.send(Err(error));
    }
}

/// Why a batch was rolled back.
enum BatchError {
    /// One operation failed after it wrote something. The others can run without it.
    Operation(StoreError),
    /// The transaction could not begin or commit.
    Transaction(StoreError),
}

struct Worker {
    opened: Opened,
    limits: TokenLimits,
    enforce: RevocationHook,
    outbox: Arc<Outbox>,
    /// Of this thread. An operation may have waited in the queue during one.
    pauses: RefCell<Pauses>,
    steady_time: RefCell<SteadyTime>,
    disk_failures: Arc<DiskFailures>,
}

impl Worker {
    fn run(self, queued: &Receiver<Box<dyn Operation>>) {
        loop {
            let first = match queued.recv_timeout(LOOK_INTERVAL) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => {
                    self.look();
                    // It tells the log.
                    let _ = self.opened.files.check();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut operations = vec![first];
            operations.extend(queued.try_iter().take(MAX_BATCH - 1));
            self.process(operations);
        }
    }

    /// Returns true if this thread was paused a moment ago, and the time.
    fn look(&self) -> (bool, SteadyNow) {
        let doubt = doubt_after_pause(self.limits.timeout);
        let mut steady_time = self.steady_time.borrow_mut();
        let steady_now = steady_time.read();
        let was_paused = self.pauses.borrow_mut().ended_within(doubt, Some(SystemClock.now()));
        (was_paused || steady_time.jumped_within(doubt), steady_now)
    }

    /// Runs these operations and completes every one of them.
    fn process(&self, mut operations: Vec<Box<dyn Operation>>) {
        let outcome = match self.commit(&mut operations) {
            Ok(revocations) => self.enforce_all(&revocations),
            Err(BatchError::Operation(_)) if operations.len() > 1 => {
                return operations.into_iter().for_each(|operation| self.process(vec![operation]));
            }
            Err(BatchError::Operation(error) | BatchError::Transaction(error)) => Err(error),
        };
        if let Err(error) = &outcome {
            self.disk_failures.note(error);
        }
        for operation in operations {
            match &outcome {
                Ok(()) => operation.complete(),
                Err(error) => operation.fail(error.clone()),
            }
        }
    }

    /// Runs all operations in one transaction and commits it durably.
    fn commit(&self, operations: &mut [Box<dyn Operation>]) -> Result<Vec<Revocation>, BatchError> {
        let connection = &self.opened.connection;
        begin(connection).map_err(BatchError::Transaction)?;
        let waiting = self.outbox.waiting.load(Ordering::Relaxed);
        let (was_paused, steady_now) = self.look();
        let mut batch = Batch::new(connection, &self.limits, was_paused, steady_now, waiting);
        for operation in operations {
            let changes_before = connection.total_changes();
            let outcome = operation.run(&mut batch);
            // SQLite itself ends the transaction after some errors, such as a full disk.
            let is_lost = connection.is_autocommit();
            let has_written = connection.total_changes() != changes_before;
            if is_lost || outcome.is_err() && has_written {
                roll_back(connection);
                return Err(BatchError::Operation(
                    outcome.err().unwrap_or_else(|| StoreError::new("SQLite ended the transaction")),
                ));
            }
        }
        if let Err(error) = self.opened.files.check() {
            roll_back(connection);
            return Err(BatchError::Transaction(error));
        }
        end(connection).map_err(BatchError::Transaction)?;
        // Only this thread changes the number.
        self.outbox.waiting.store(batch.waiting(), Ordering::Relaxed);
        self.report_events(batch.events);
        Ok(batch.into_revocations())
    }

    fn report_events(&self, events: RecordedEvents) {
        count_lost(&self.outbox, events.lost);
        if events.recorded > 0 {
            self.outbox.written.notify_one();
        }
    }

    fn enforce_all(&self, revocations: &[Revocation]) -> Result<(), StoreError> {
        let enforced = catch_unwind(AssertUnwindSafe(|| {
            revocations.iter().for_each(|each| (self.enforce)(each, LogOrder::InOrder))
        }));
        enforced.map_err(|_| StoreError::new("the revocations were written, but enforcing them panicked"))
    }
}

/// `immediate`, so that the lock of another program is an error here and not in the middle of an operation.
fn begin(connection: &Connection) -> Result<(), StoreError> {
    roll_back(connection);
    connection.prepare_cached("begin immediate")?.execute([])?;
    Ok(())
}

fn end(connection: &Connection) -> Result<(), StoreError> {
    let committed = connection.prepare_cached("commit").and_then(|mut commit| commit.execute([]));
    // After most errors the transaction is still open.
    roll_back(connection);
    committed?;
    Ok(())
}

/// Rolls back the open transaction, if there is one. If that fails, the next [`begin`] tries again.
fn roll_back(connection: &Connection) {
    if !connection.is_autocommit() {
        let _ = connection.execute_batch("rollback");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::file;

    /// Otherwise, the next process would find the lock of the file taken.
    #[test]
    fn a_dropped_store_has_closed_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let opened = file::open(&folder.path().join("bearward.db"), Duration::ZERO).expect("opens");
        let limits = TokenLimits {
            issuer: "https://gateway.example".into(),
            longest_life: Duration::ZERO,
            longest_family: Duration::ZERO,
            audit: 0,
            timeout: Duration::from_secs(5),
        };
        let enforce: RevocationHook = Arc::new(|_, _| {});
        let writer = Writer::start(opened, limits, enforce.clone(), Arc::default()).expect("starts");
        drop(writer.submit(|_| -> Result<(), StoreError> {
            thread::sleep(Duration::from_millis(100));
            Ok(())
        }));
        drop(writer);
        assert_eq!(Arc::strong_count(&enforce), 1, "the thread of the store has ended");
    }
}
