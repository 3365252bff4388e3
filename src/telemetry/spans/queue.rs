//! Encoded spans that wait for the collector. A full queue drops the newest, so a collector that is down costs no
//! memory beyond `trace.queue_size`, and no request waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What the queue needs for the spans of one request besides their bytes.
const OVERHEAD: usize = 64;

/// Requests with spans that were lost, by the reason.
#[derive(Default)]
pub struct Drops {
    /// Beyond `trace.per_second`.
    pub rate: AtomicU64,
    /// Beyond `trace.queue_size`.
    pub queue: AtomicU64,
    /// The collector rejected them.
    pub collector: AtomicU64,
}

pub struct Queue {
    waiting: Mutex<Waiting>,
    max_bytes: usize,
    pub(super) added: Notify,
    pub drops: Drops,
    /// Requests with spans that the collector has accepted.
    pub sent: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    /// The spans of one request each.
    requests: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Queue {
    pub fn new(max_bytes: usize) -> Self {
        Queue {
            waiting: Mutex::default(),
            max_bytes,
            added: Notify::new(),
            drops: Drops::default(),
            sent: AtomicU64::new(0),
        }
    }

    pub(super) fn push(&self, spans: Vec<u8>) {
        let mut waiting = self.waiting.lock();
        let size = spans.capacity() + OVERHEAD;
        if waiting.bytes + size > self.max_bytes {
            self.drops.queue.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += size;
        waiting.requests.push_back(spans);
        let is_first = waiting.requests.len() == 1;
        drop(waiting);
        if is_first {
            self.added.notify_one();
        }
    }

    /// Takes the oldest, up to this many bytes, or one.
    pub(super) fn take(&self, max_bytes: usize) -> Vec<Vec<u8>> {
        let mut waiting = self.waiting.lock();
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some(next) = waiting.requests.front() {
            bytes += next.len();
            if bytes > max_bytes && !taken.is_empty() {
                break;
            }
            let size = next.capacity() + OVERHEAD;
            waiting.bytes -= size;
            taken.extend(waiting.requests.pop_front());
        }
        taken
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.waiting.lock().bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_and_keeps_its_order() {
        let queue = Queue::new(10 * (100 + OVERHEAD));
        (0..50).for_each(|number| queue.push(vec![number; 100]));
        assert_eq!((queue.drops.queue.load(Ordering::Relaxed), queue.bytes()), (40, 1640));
        let firsts = |taken: Vec<Vec<u8>>| taken.iter().map(|spans| spans[0]).collect::<Vec<_>>();
        assert_eq!(firsts(queue.take(250)), [0, 1]);
        assert_eq!(firsts(queue.take(10)), [2], "one is always taken");
        queue.push(vec![77; 100]);
        assert_eq!(firsts(queue.take(usize::MAX)), [3, 4, 5, 6, 7, 8, 9, 77]);
        assert_eq!((queue.bytes(), queue.take(1).len()), (0, 0));
    }
}
