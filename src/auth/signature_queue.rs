//! A worker checks one signature at a time, and runs every other ready task before the next one.
//!
//! A signature check takes some hundred times as long as the rest of a request. A worker polls its ready tasks one
//! after the other: if two hundred clients each sent a new token, two hundred checks would run before the worker looked
//! at its sockets again, and requests with known tokens would wait for all of them. With this queue they wait for one
//! check at most.

use tokio::sync::{Semaphore, SemaphorePermit};

/// The queue of one worker.
pub struct SignatureQueue(Semaphore);

/// The holder may check one signature.
pub struct SignaturePermit<'q> {
    _permit: Option<SemaphorePermit<'q>>,
    /// Other checks ran in the meantime, maybe for the same token.
    pub has_waited: bool,
}

impl SignatureQueue {
    pub fn new() -> Self {
        SignatureQueue(Semaphore::new(1))
    }

    /// Waits for the next permit, in order of arrival. A waiter that is dropped does not block those behind it.
    pub async fn next(&self) -> SignaturePermit<'_> {
        if let Ok(permit) = self.0.try_acquire() {
            return SignaturePermit { _permit: Some(permit), has_waited: false };
        }
        // The semaphore is never closed. If it were, checks would only be less evenly spread.
        SignaturePermit { _permit: self.0.acquire().await.ok(), has_waited: true }
    }
}

impl Default for SignatureQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl SignaturePermit<'_> {
    /// Call it after a check: the next check starts after all other ready tasks have run.
    pub async fn end(self) {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn a_known_token_waits_for_one_signature_only() {
        let queue = Arc::new(SignatureQueue::new());
        let done = Arc::new(Mutex::new(Vec::new()));
        let note = |what| {
            let done = done.clone();
            move || done.lock().push(what)
        };
        // All tasks are ready at once, on one thread: first those that need a signature check.
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let queue = queue.clone();
            let note = note("signature");
            tasks.push(tokio::spawn(async move {
                let permit = queue.next().await;
                note();
                permit.end().await;
            }));
        }
        for _ in 0..3 {
            let note = note("known");
            tasks.push(tokio::spawn(async move { note() }));
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        let expected = ["signature", "known", "known", "known", "signature", "signature"];
        assert_eq!(*done.lock(), expected);
    }

    #[tokio::test]
    async fn a_dropped_waiter_does_not_block_the_queue() {
        let queue = SignatureQueue::new();
        let first = queue.next().await;
        drop(tokio::time::timeout(std::time::Duration::ZERO, queue.next()).await);
        drop(first);
        assert!(!queue.next().await.has_waited);
    }
}
