//! The thread of the store: queues operations, and drives all connections.
//!
//! A caller only holds the receiver of its result, so that a caller that goes away cancels nothing.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{self, Handle};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use crate::store::api::StoreFuture;
use crate::store::error::StoreError;
use crate::store::pool::OperationKind;
use crate::store::postgres::connect::Connector;
use crate::store::postgres::connections::Connections;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::lane::Lane;
use crate::store::postgres::repeatable::{Repeatable, repeatable, take};
use crate::store::postgres::session::Session;
use crate::store::postgres::watch::Watch;

/// Maximum number of operations that wait for their result. With more, the database is too slow, and an immediate error
/// is better than waiting.
const MAX_QUEUED: u32 = 8_192;
/// How long closing the store waits for operations. Those that are not finished by then were not acknowledged.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The handle of the thread. Dropping it closes the store.
pub(super) struct Driver {
    connections: Connections,
    /// A place for each operation that waits for its result.
    queue: Arc<Semaphore>,
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
        let connections = Connections::new(connector);
        let (stop, stopped) = oneshot::channel();
        let (starting, started) = sync_channel(1);
        let (ending, ended) = sync_channel(0);
        let of_thread = connections.clone();
        let run = move || {
            runtime.block_on(async {
                let connected = of_thread.connect_first(patience).await;
                let works = connected.is_ok();
                // The other side waits for it.
                let _ = starting.send(connected);
                if works {
                    tokio::spawn(of_thread.clone().keep_connected());
                    for watch in Watch::of_hosts(&of_thread) {
                        tokio::spawn(watch.run());
                    }
                    // Sent by `close`, or the handle was dropped.
                    let _ = stopped.await;
                }
            });
            runtime.shutdown_background();
            drop::<SyncSender<Infallible>>(ending);
        };
        thread::Builder::new().name("store".into()).spawn(run).map_err(failed)?;
        started.recv().unwrap_or_else(|_| Err(StoreError::new("the thread of the store panicked")))?;
        let queue = Arc::new(Semaphore::new(MAX_QUEUED as usize));
        Ok(Driver { connections, queue, runtime: handle, stop: Mutex::new(Some(stop)), ended: Mutex::new(ended) })
    }

    /// Queues an operation. `run` may be called again: after a lost connection, or after a conflict with another
    /// transaction. Its changes may then have been committed already.
    pub(super) fn submit<T, F, Fut>(&self, lane: Lane, kind: OperationKind, run: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: Fn(Session) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, QueryError>> + Send + 'static,
    {
        let Ok(queued) = self.queue.clone().try_acquire_owned() else {
            let error = self.rejection();
            return Box::pin(async { Err(error) });
        };
        let result = Arc::default();
        let outcome = self.begin(lane, kind, repeatable(run, &result), queued);
        Box::pin(async move {
            outcome
                .await
                .unwrap_or_else(|_| Err(StoreError::new("the store was closed, or an operation of it panicked")))?;
            take(&result)
        })
    }

    /// Apart from [`Driver::submit`], of which the program has a copy for each operation.
    fn begin(
        &self,
        lane: Lane,
        kind: OperationKind,
        operation: Repeatable<'static>,
        queued: OwnedSemaphorePermit,
    ) -> oneshot::Receiver<Result<(), StoreError>> {
        let (caller, outcome) = oneshot::channel();
        let connections = self.connections.clone();
        self.runtime.spawn(async move {
            let outcome = connections.repeat(lane, kind, operation).await;
            // Before the response, so that a caller that was answered can be followed by another one.
            drop(queued);
            let _ = caller.send(outcome);
        });
        outcome
    }

    /// Runs a task of the store on its thread until the store is closed.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Access to connections, for tasks that run on the thread of the store.
    pub(super) fn connections(&self) -> Connections {
        self.connections.clone()
    }

    /// Waits for a result. Not for a thread that drives a runtime, except at the start.
    pub(super) fn wait<T: Send + 'static>(&self, future: StoreFuture<T>) -> Result<T, StoreError> {
        let (sender, result) = sync_channel(1);
        self.runtime.spawn(async move {
            // The receiver waits.
            let _ = sender.send(future.await);
        });
        result.recv().unwrap_or_else(|_| Err(StoreError::closed()))
    }

    fn rejection(&self) -> StoreError {
        if self.queue.is_closed() {
            return StoreError::closed();
        }
        StoreError::new(format!("{MAX_QUEUED} operations are queued: the database is too slow or does not respond"))
    }

    /// Finishes the queued operations, and closes all connections. Waits at most [`CLOSE_TIMEOUT`] for each.
    pub(super) fn close(&self) {
        let Some(stop) = self.stop.lock().take() else { return };
        let queue = self.queue.clone();
        let (finishing, finished) = sync_channel::<()>(1);
        self.runtime.spawn(async move {
            let all = timeout(CLOSE_TIMEOUT, queue.acquire_many(MAX_QUEUED)).await;
            if all.is_err() {
                tracing::error!("operations were not finished within {CLOSE_TIMEOUT:?}; check the database");
            }
            queue.close();
            drop(finishing);
        });
        // Disconnected when the task has ended.
        let _ = finished.recv();
        let _ = stop.send(());
        let ended = self.ended.lock();
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
