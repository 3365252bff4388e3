//! All counters at one moment, and what was counted between two moments.

use super::count::Count;
use super::durations::Durations;
use super::limits;
use super::registry::Metrics;
use super::worker::WorkerMetrics;
use crate::types::reject::Reason;

/// One count for each reason, in the order of [`Reason::ALL`].
pub type ByReason = [u64; Reason::ALL.len()];
/// One count for each limit, in the order of [`limit_names`].
pub type ByLimit = [u64; limits::COUNT];
/// No hits of any limit.
pub const NO_HITS: ByLimit = [0; limits::COUNT];

/// The names of limits, as in `gateway.toml`.
pub fn limit_names() -> impl Iterator<Item = &'static str> {
    limits::names()
}

/// Totals since the start; the open ones at this moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// By status class: 1xx to 5xx, and 0 for a client that disconnected before the response.
    pub requests: [u64; 6],
    pub rejections: ByReason,
    pub durations: Durations,
    pub limits: ByLimit,
    pub log_lines_dropped: u64,
    pub requests_in_flight: u64,
    pub open_streams: u64,
    pub open_connections: u64,
}

impl Metrics {
    /// Reads the counters. No request notices.
    pub fn read(&self) -> Reading {
        let sum = |count: fn(&WorkerMetrics) -> &Count| self.sum(count);
        let (workers, admin) = self.workers_and_admin();
        Reading {
            requests: std::array::from_fn(|class| self.sum(|worker| &worker.requests[class])),
            rejections: std::array::from_fn(|reason| self.sum(|worker| &worker.rejections[reason])),
            durations: std::array::from_fn(|bucket| self.sum_of(|worker| worker.duration.count(bucket))),
            limits: limits::hits(workers, admin),
            log_lines_dropped: sum(|worker| &worker.access_log_dropped),
            requests_in_flight: self.in_flight(),
            // The closed ones are read first, so that there are never more of them than opened ones.
            open_streams: difference(sum(|worker| &worker.streams_closed), sum(|worker| &worker.streams_opened)),
            open_connections: difference(
                sum(|worker| &worker.connections_closed),
                sum(|worker| &worker.connections_opened),
            ),
        }
    }
}

/// How much a counter has grown; 0 if it is smaller than before.
fn difference(before: u64, now: u64) -> u64 {
    now.saturating_sub(before)
}

impl Reading {
    /// What was counted since `before`. The open ones are those of this reading.
    pub fn since(&self, before: &Reading) -> Reading {
        Reading {
            requests: each(&before.requests, &self.requests),
            rejections: each(&before.rejections, &self.rejections),
            durations: each(&before.durations, &self.durations),
            limits: each(&before.limits, &self.limits),
            log_lines_dropped: difference(before.log_lines_dropped, self.log_lines_dropped),
            ..self.clone()
        }
    }
}

fn each<const N: usize>(before: &[u64; N], now: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|at| difference(before[at], now[at]))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reading_counts_what_came_since_the_last_one() {
        let metrics = Metrics::new(2);
        let worker = metrics.worker(0);
        let admin = metrics.worker(1);
        worker.request_finished(200, Duration::from_millis(3));
        worker.connections_opened.add(5);
        worker.connections_closed.add(2);
        let first = metrics.read();
        worker.request_finished(404, Duration::from_millis(3));
        worker.request_finished(0, Duration::from_millis(300));
        worker.rejected(Reason::Expired);
        worker.requests_started.add(3);
        admin.rejected(Reason::AdminTokenWrong);
        let since = metrics.read().since(&first);
        assert_eq!(since.requests, [1, 0, 0, 0, 1, 0]);
        assert_eq!(since.durations.iter().sum::<u64>(), 2);
        assert_eq!((since.open_connections, since.requests_in_flight), (3, 3), "what is open is no difference");
        for reason in [Reason::Expired, Reason::AdminTokenWrong] {
            assert_eq!(since.rejections[reason.index()], 1);
        }
        assert_eq!(since.rejections.iter().sum::<u64>(), 2);
    }

    #[test]
    fn a_counter_that_is_smaller_than_before_counts_nothing() {
        let metrics = Metrics::new(1);
        let empty = metrics.read();
        metrics.worker(0).request_finished(200, Duration::ZERO);
        assert_eq!(empty.since(&metrics.read()).requests, [0; 6]);
    }
}
