//! The counters of one second. A snapshot has a fixed size, so that keeping many needs no more memory than at first.

use std::time::Duration;

use super::others::{Others, Servers};
use crate::telemetry::metrics::{Reading, quantile};
use crate::types::clock::UnixTime;
use crate::types::reject::Reason;

#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was taken.
    pub time: UnixTime,
    /// The time since the snapshot before: a second, or more on a busy machine.
    pub interval: Duration,
    /// Finished ones by status class: 1xx to 5xx, and 0 for a client that disconnected before the response.
    pub requests: [u32; 6],
    /// In the order of [`Reason::ALL`].
    rejections: [u32; Reason::ALL.len()],
    /// Half of the requests took at most this long. `None` without requests.
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    pub log_lines_dropped: u32,
    pub requests_in_flight: u64,
    pub open_streams: u64,
    pub open_connections: u64,
    pub tokens_known: u64,
    pub servers: Servers,
}

impl Snapshot {
    /// `counted`: since the snapshot before.
    pub(super) fn of(counted: &Reading, others: Others, time: UnixTime, interval: Duration) -> Self {
        Snapshot {
            time,
            interval,
            requests: counted.requests.map(saturate),
            rejections: counted.rejections.map(saturate),
            p50: quantile(&counted.durations, 0.5),
            p99: quantile(&counted.durations, 0.99),
            log_lines_dropped: saturate(counted.log_lines_dropped),
            requests_in_flight: counted.requests_in_flight,
            open_streams: counted.open_streams,
            open_connections: counted.open_connections,
            tokens_known: others.tokens_known,
            servers: others.servers,
        }
    }

    /// The reasons for which requests were rejected, and how many.
    pub fn rejections(&self) -> impl Iterator<Item = (Reason, u32)> {
        Reason::ALL.iter().copied().zip(self.rejections).filter(|(_, count)| *count > 0)
    }
}

fn saturate(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
