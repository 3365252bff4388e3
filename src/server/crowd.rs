//! New connections of addresses that have many of them begin one after the other.
//!
//! To begin a connection takes some hundred times as long as to look at it: a TLS handshake, buffers, the first
//! request. A worker polls its ready tasks in order, so after ten addresses had sent a first request on thousands of
//! connections at once, the requests of all other clients would wait for all of these. With the queue they wait for
//! one.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// An address with no more connections than this never waits. Browsers open six for each host.
const FREE: usize = 16;

/// The queue of one worker.
pub(super) struct CrowdQueue(Arc<Semaphore>);

impl CrowdQueue {
    pub(super) fn new() -> Self {
        CrowdQueue(Arc::new(Semaphore::new(1)))
    }

    /// Waits until a connection may begin, which it must do at once. The next one of the queue begins after all other
    /// ready tasks have run. `number`: how many connections its address has; 0 for a proxy of many clients.
    pub(super) async fn begin(&self, number: usize) {
        if number <= FREE {
            return;
        }
        // The semaphore is never closed. If it were, connections would only begin less evenly.
        if let Ok(turn) = self.0.clone().acquire_owned().await {
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                drop(turn);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn other_tasks_run_between_two_connections_of_a_crowd() {
        let queue = Arc::new(CrowdQueue::new());
        let done = Arc::new(Mutex::new(Vec::new()));
        // All are ready at once, on one thread.
        let tasks = [FREE + 1, FREE + 2, FREE + 3, 1, FREE, 0].map(|number| {
            let queue = queue.clone();
            let done = done.clone();
            tokio::spawn(async move {
                queue.begin(number).await;
                done.lock().push(number);
            })
        });
        for task in tasks {
            task.await.expect("no panic");
        }
        let expected = [FREE + 1, 1, FREE, 0, FREE + 2, FREE + 3];
        assert_eq!(*done.lock(), expected);
    }
}
