//! Snapshots of the last 300 seconds, and the hits of limits in the last hour.
//!
//! Once a second the control thread reads the counters, and keeps what they have grown by. Requests do nothing for it.
//! Intervals are measured with a clock that cannot be set; the time of day is a label only.

mod hour;
mod others;
mod snapshot;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::metrics::{Metrics, Reading};
use crate::types::clock::{Clock, every};

use hour::Hour;

pub use others::{Others, Servers};
pub use snapshot::Snapshot;

/// How many snapshots are kept.
pub const KEPT: usize = 300;
const INTERVAL: Duration = Duration::from_secs(1);

/// All of them have their memory from the start: at most 256 KiB.
const _: () = assert!(KEPT * size_of::<Snapshot>() <= 256 * 1024);

pub type ReadOthers = Box<dyn Fn() -> Others + Send + Sync>;

pub struct Snapshots {
    metrics: Arc<Metrics>,
    others: ReadOthers,
    started: Instant,
    state: Mutex<KeptSnapshots>,
    /// The number of snapshots so far.
    taken: watch::Sender<u64>,
}

struct KeptSnapshots {
    last: Reading,
    /// When the last snapshot was taken, since the start.
    last_at: Duration,
    /// The newest is the last.
    kept: VecDeque<Snapshot>,
    hour: Hour,
}

impl Snapshots {
    pub fn new(metrics: Arc<Metrics>, others: ReadOthers) -> Self {
        let state = KeptSnapshots {
            last: metrics.read(),
            last_at: Duration::ZERO,
            kept: VecDeque::with_capacity(KEPT),
            hour: Hour::default(),
        };
        let started = Instant::now();
        let taken = watch::Sender::new(0);
        Snapshots { metrics, others, started, state: Mutex::new(state), taken }
    }

    /// Takes one each second, until the task is dropped.
    pub async fn take_regularly(&self, clock: Arc<dyn Clock>) {
        let mut due = every(INTERVAL);
        // The first tick is immediate.
        due.tick().await;
        loop {
            due.tick().await;
            self.take(&*clock, self.started.elapsed());
        }
    }

    /// `at`: since the start.
    fn take(&self, clock: &dyn Clock, at: Duration) {
        let now = self.metrics.read();
        let others = (self.others)();
        let mut state = self.state.lock();
        let counted = now.since(&state.last);
        state.hour.add(at, &counted.limits);
        let interval = at.saturating_sub(state.last_at);
        while state.kept.len() >= KEPT {
            state.kept.pop_front();
        }
        state.kept.push_back(Snapshot::of(&counted, others, clock.now(), interval));
        (state.last, state.last_at) = (now, at);
        drop(state);
        self.taken.send_modify(|taken| *taken += 1);
    }

    /// Takes one now.
    #[cfg(test)]
    pub(crate) fn take_now(&self) {
        self.take(&crate::types::clock::SystemClock, self.started.elapsed());
    }

    /// The newest first, at most `limit`.
    pub fn newest(&self, limit: usize) -> Vec<Snapshot> {
        self.state.lock().kept.iter().rev().take(limit).cloned().collect()
    }

    /// The limits that were hit in the last hour, and how often.
    pub fn limits_hit(&self) -> Vec<(&'static str, u64)> {
        self.state.lock().hour.hits(self.started.elapsed())
    }

    /// Changes with each snapshot.
    pub fn taken(&self) -> watch::Receiver<u64> {
        self.taken.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::clock::{SystemClock, UnixTime};
    use crate::types::reject::Reason;

    fn taking() -> (Arc<Metrics>, Snapshots) {
        let metrics = Arc::new(Metrics::new(2));
        let servers = Servers { serving: 2, ejected: 1, ..Servers::default() };
        let others = Box::new(move || Others { tokens_known: 7, servers });
        (metrics.clone(), Snapshots::new(metrics, others))
    }

    #[test]
    fn each_snapshot_has_what_came_since_the_last_one() {
        let (metrics, snapshots) = taking();
        let worker = metrics.worker(0);
        for second in 1..=3 {
            (0..second).for_each(|_| worker.request_finished(200, Duration::from_micros(600)));
            worker.access_log_dropped.inc();
            snapshots.take(&SystemClock, Duration::from_secs(second));
        }
        let kept = snapshots.newest(2);
        assert_eq!(kept.iter().map(|kept| kept.requests[2]).collect::<Vec<_>>(), [3, 2], "the newest first");
        assert_eq!((kept[0].interval, kept[0].log_lines_dropped), (Duration::from_secs(1), 1));
        assert_eq!((kept[0].tokens_known, kept[0].servers.serving, kept[0].servers.ejected), (7, 2, 1));
        assert_eq!(kept[0].p50, Some(Duration::from_micros(750)));
        snapshots.take(&SystemClock, Duration::from_secs(4));
        assert_eq!(snapshots.newest(1)[0].p99, None, "nothing came");
    }

    #[test]
    fn the_oldest_gives_way_and_the_memory_stays() {
        let (metrics, snapshots) = taking();
        let worker = metrics.worker(0);
        let capacity = snapshots.state.lock().kept.capacity();
        for second in 1..=1_000 {
            worker.request_finished(200, Duration::ZERO);
            snapshots.take(&SystemClock, Duration::from_secs(second));
        }
        assert_eq!(snapshots.newest(usize::MAX).len(), KEPT);
        assert_eq!(snapshots.state.lock().kept.capacity(), capacity);
        assert_eq!(snapshots.newest(usize::MAX).iter().map(|kept| kept.requests[2]).sum::<u32>(), 300);
    }

    /// A clock that shows the next of these times at each reading.
    struct Shows(Mutex<VecDeque<u64>>);

    impl Clock for Shows {
        fn now(&self) -> UnixTime {
            let next = self.0.lock().pop_front();
            UnixTime::from_secs(next.unwrap_or_default())
        }
    }

    #[test]
    fn a_clock_that_is_set_changes_only_the_label() {
        let (metrics, snapshots) = taking();
        let clock = Shows(Mutex::new([5_000, 1_400, 9_000].into()));
        for second in 1..=3 {
            metrics.worker(0).rejected(Reason::Overloaded);
            snapshots.take(&clock, Duration::from_secs(second));
        }
        let kept = snapshots.newest(3);
        assert_eq!(kept.iter().map(|kept| kept.time.as_secs()).collect::<Vec<_>>(), [9_000, 1_400, 5_000]);
        assert!(kept.iter().all(|kept| kept.interval == Duration::from_secs(1)), "{kept:?}");
        assert_eq!(snapshots.limits_hit(), [("limits.concurrent_requests", 3)]);
    }

    #[test]
    fn a_new_gateway_begins_with_its_first_second() {
        let metrics = Arc::new(Metrics::new(1));
        metrics.worker(0).request_finished(200, Duration::ZERO);
        let snapshots = Snapshots::new(metrics, Box::new(Others::default));
        assert!(snapshots.newest(KEPT).is_empty() && snapshots.limits_hit().is_empty());
        snapshots.take(&SystemClock, Duration::from_secs(1));
        assert_eq!(snapshots.newest(KEPT)[0].requests, [0; 6], "what was counted before it is not in it");
    }
}
