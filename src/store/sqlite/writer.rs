//! The thread that owns the connection, and group commit.
//!
//! A commit costs a flush of the disk, some milliseconds, whether it holds one operation or five hundred. So the thread
//! takes whatever is waiting, does it in one transaction, commits once, enforces the revocations that were written, and
//! only then answers all callers. While the disk is busy the next batch gathers by itself; nobody waits for company.
//!
//! An operation that fails must not harm the others in its batch. One that failed before it wrote anything (a damaged
//! row, a family that is not there) leaves nothing to undo: its caller gets the error and the batch goes on. After any
//! other failure the transaction is rolled back and each operation is done again in a transaction of its own. That is
//! slow and rare, which is better than a savepoint around each operation, which is cheap and always.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::store::sqlite::batch::{Batch, RecordedEvents, TokenTerms};
use crate::store::sqlite::file::Opened;
use crate::store::{Outbox, RevocationHook, StoreError, StoreFuture};
use crate::tokens::family::revocation::Revocation;

/// Bounds how long the first caller of a batch waits for the last.
const MOST_IN_A_BATCH: usize = 512;
/// Beyond so many waiting operations the disk is not keeping up: a quick error serves a caller better than more waiting.
const MOST_WAITING: usize = 8_192;

/// Whoever closes the store waits so long for the disk. What it has not done by then, nobody was told of.
const FAREWELL: Duration = Duration::from_secs(5);

/// The way to the thread. Dropping it closes it.
pub(super) struct Writer {
    /// `None`: closed.
    queue: Mutex<Option<SyncSender<Box<dyn Operation>>>>,
    /// Its other end is dropped when the file is closed.
    closed: Mutex<Receiver<Infallible>>,
}

impl Writer {
    pub(super) fn start(
        opened: Opened,
        terms: TokenTerms,
        enforce: RevocationHook,
        outbox: Arc<Outbox>,
    ) -> Result<Self, StoreError> {
        let (queue, waiting) = sync_channel(MOST_WAITING);
        let worker = Worker { opened, terms, enforce, outbox };
        let (closing, closed) = sync_channel(0);
        let run = move || {
            worker.run(&waiting);
            drop::<SyncSender<Infallible>>(closing);
        };
        thread::Builder::new()
            .name("store".into())
            .spawn(run)
            .map_err(|error| StoreError::new(format!("cannot start the store's thread: {error}")))?;
        Ok(Writer { queue: Mutex::new(Some(queue)), closed: Mutex::new(closed) })
    }

    /// Queues an operation. `run` may be called more than once, each time after everything it did was undone.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        run: impl Fn(&mut Batch<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<T> {
        let (caller, answer) = oneshot::channel();
        let refused = self.enqueue(Box::new(Pending { run, found: None, caller })).err();
        Box::pin(async move {
            match refused {
                Some(error) => Err(error),
                None => answer.await.unwrap_or_else(|_| Err(stopped())),
            }
        })
    }

    /// Lets the thread finish what is queued, and waits until the file is closed, unless the disk is stuck.
    pub(super) fn close(&self) {
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that panicked has closed it, too.
        if matches!(closed.recv_timeout(FAREWELL), Err(RecvTimeoutError::Timeout)) {
            tracing::error!("the database was not closed within {FAREWELL:?}: is its disk stuck?");
        }
    }

    fn enqueue(&self, operation: Box<dyn Operation>) -> Result<(), StoreError> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.as_ref().ok_or_else(stopped)?.try_send(operation).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::new(format!(
                "{MOST_WAITING} operations are waiting already: the disk of the database is too slow or stuck"
            )),
            TrySendError::Disconnected(_) => stopped(),
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

fn stopped() -> StoreError {
    StoreError::new("the store has been closed")
}

/// What a caller wants done, without its type.
trait Operation: Send {
    /// Does it, and keeps what came out. Never panics.
    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), StoreError>;
    /// Tells the caller what came out.
    fn answer(self: Box<Self>);
    /// Tells the caller that it failed, whatever came out.
    fn fail(self: Box<Self>, error: StoreError);
}

struct Pending<T, F> {
    run: F,
    found: Option<Result<T, StoreError>>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Operation for Pending<T, F>
where
    T: Send,
    F: Fn(&mut Batch<'_>) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        // Unwind safe: after a panic the batch only serves to undo what was written.
        let found = catch_unwind(AssertUnwindSafe(|| (self.run)(batch)))
            .unwrap_or_else(|_| Err(StoreError::new("a store operation panicked; what it had done was undone")));
        let outcome = found.as_ref().map(|_| ()).map_err(StoreError::clone);
        self.found = Some(found);
        outcome
    }

    fn answer(self: Box<Self>) {
        // A caller that has gone is no reason to stop.
        let _ = self.caller.send(self.found.unwrap_or_else(|| Err(stopped())));
    }

    fn fail(self: Box<Self>, error: StoreError) {
        let _ = self.caller.send(Err(error));
    }
}

/// Why nothing of a batch was kept.
enum BatchError {
    /// One operation failed halfway, with this error; the others may do without it.
    ByOne(StoreError),
    /// The transaction could not begin or commit.
    Wholly(StoreError),
}

struct Worker {
    opened: Opened,
    terms: TokenTerms,
    enforce: RevocationHook,
    outbox: Arc<Outbox>,
}

impl Worker {
    fn run(self, waiting: &Receiver<Box<dyn Operation>>) {
        while let Ok(first) = waiting.recv() {
            let mut operations = vec![first];
            operations.extend(waiting.try_iter().take(MOST_IN_A_BATCH - 1));
            self.work_off(operations);
        }
    }

    /// Leaves every one of the operations answered.
    fn work_off(&self, mut operations: Vec<Box<dyn Operation>>) {
        let outcome = match self.commit(&mut operations) {
            Ok(revocations) => self.enforce_all(&revocations),
            Err(BatchError::ByOne(_)) if operations.len() > 1 => {
                return operations.into_iter().for_each(|operation| self.work_off(vec![operation]));
            }
            Err(BatchError::ByOne(error) | BatchError::Wholly(error)) => Err(error),
        };
        for operation in operations {
            match &outcome {
                Ok(()) => operation.answer(),
                Err(error) => operation.fail(error.clone()),
            }
        }
    }

    /// Does all operations in one transaction and makes it durable.
    fn commit(&self, operations: &mut [Box<dyn Operation>]) -> Result<Vec<Revocation>, BatchError> {
        let connection = &self.opened.connection;
        begin(connection).map_err(BatchError::Wholly)?;
        let mut batch = Batch::new(connection, &self.terms);
        for operation in operations {
            let written = connection.total_changes();
            let outcome = operation.run(&mut batch);
            // SQLite itself ends the transaction after some errors, such as a full disk.
            let lost = connection.is_autocommit();
            let failed_halfway = outcome.is_err() && connection.total_changes() != written;
            if lost || failed_halfway {
                roll_back(connection);
                return Err(BatchError::ByOne(
                    outcome.err().unwrap_or_else(|| StoreError::new("the transaction was lost")),
                ));
            }
        }
        end(connection).map_err(BatchError::Wholly)?;
        self.tell_of_events(batch.audited);
        Ok(batch.into_revocations())
    }

    fn tell_of_events(&self, audited: RecordedEvents) {
        if audited.lost > 0 {
            let before = self.outbox.lost.fetch_add(audited.lost, Ordering::Relaxed);
            let lost = before + audited.lost;
            // At 1, 2, 4, 8, …: a flood of events must not become one of messages.
            if before.leading_zeros() != lost.leading_zeros() {
                tracing::error!(lost, "audit events are not recorded: too many wait for their delivery");
            }
        }
        if audited.recorded > 0 {
            self.outbox.waiting.fetch_add(audited.recorded, Ordering::Relaxed);
            self.outbox.written.notify_one();
        }
    }

    fn enforce_all(&self, revocations: &[Revocation]) -> Result<(), StoreError> {
        let enforced = catch_unwind(AssertUnwindSafe(|| revocations.iter().for_each(|each| (self.enforce)(each))));
        enforced.map_err(|_| StoreError::new("revocations were written, but enforcing them panicked"))
    }
}

/// `immediate`, so that a lock held by another program is met here and not in the middle of an operation.
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

/// Undoes the open transaction, if there is one. Should even that fail, the next [`begin`] tries again.
fn roll_back(connection: &Connection) {
    if !connection.is_autocommit() {
        let _ = connection.execute_batch("rollback");
    }
}
