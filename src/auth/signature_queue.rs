//! Signatures take turns: one, then everything else that is ready, then the next.
//!
//! A signature takes some hundred times what everything else about a request does. A worker polls whatever is ready, one task
//! after the other; if two hundred clients bring a token each that nobody has seen, two hundred signatures would pass before
//! the worker looks at its sockets again, and all that time requests with known tokens wait. In turns, those wait for one.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Of one worker.
pub struct SignatureQueue(Semaphore);

/// Whoever holds it may check a signature.
pub struct SignaturePermit<'t> {
    _permit: Option<SemaphorePermit<'t>>,
    /// Others had theirs meanwhile, maybe with the same token.
    pub has_waited: bool,
}

impl SignatureQueue {
    pub fn new() -> Self {
        SignatureQueue(Semaphore::new(1))
    }

    /// First come, first served. Whoever leaves before does not hold up those behind.
    pub async fn next(&self) -> SignaturePermit<'_> {
        if let Ok(permit) = self.0.try_acquire() {
            return SignaturePermit { _permit: Some(permit), has_waited: false };
        }
        // Nobody closes it; if somebody did, work would only be less evenly spread.
        SignaturePermit { _permit: self.0.acquire().await.ok(), has_waited: true }
    }
}

impl Default for SignatureQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl SignaturePermit<'_> {
    /// After a signature: the next comes when everything else that is ready was seen to.
    pub async fn end(self) {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn whoever_needs_no_signature_waits_for_one_alone() {
        let (signature_queue, done) = (Arc::new(SignatureQueue::new()), Arc::new(Mutex::new(Vec::new())));
        let note = |what| {
            let done = done.clone();
            move || done.lock().expect("no panic").push(what)
        };
        // All are ready at once, on one thread: first those who need a signature.
        let mut tasks = Vec::new();
        for _ in 0..3 {
            let (signature_queue, note) = (signature_queue.clone(), note("signature"));
            tasks.push(tokio::spawn(async move {
                let turn = signature_queue.next().await;
                note();
                turn.end().await;
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
        assert_eq!(*done.lock().expect("no panic"), expected);
    }

    #[tokio::test]
    async fn whoever_leaves_gives_the_turn_on() {
        let signature_queue = SignatureQueue::new();
        let first = signature_queue.next().await;
        drop(tokio::time::timeout(std::time::Duration::ZERO, signature_queue.next()).await);
        drop(first);
        assert!(!signature_queue.next().await.has_waited);
    }
}
