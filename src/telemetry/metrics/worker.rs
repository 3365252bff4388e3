//! The counters of one worker.

use std::time::Duration;

use super::count::Count;
use super::durations::{OF_GATEWAY, OF_REQUESTS};
use super::histogram::Histogram;
use crate::types::close_reason::CloseReason;
use crate::types::limit::Limit;
use crate::types::reject::Reason;

/// The labels of [`status_class`].
pub(super) const STATUS_CLASSES: [&str; 6] = ["client_closed", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// 0 for a client that disconnected before the response, and else the first digit of the status.
pub(super) fn status_class(status: u16) -> usize {
    usize::from(status / 100).min(STATUS_CLASSES.len() - 1)
}

/// One counter for each reason.
pub(super) type ByReason = [Count; Reason::ALL.len()];

pub struct WorkerMetrics {
    /// By status class: 1xx to 5xx, and 0 for a client that disconnected before the response.
    pub requests: [Count; STATUS_CLASSES.len()],
    pub rejections: ByReason,
    pub observations: ByReason,
    pub requests_started: Count,
    pub requests_finished: Count,
    pub(super) duration: Histogram,
    /// How long forwarded requests were with the gateway itself, until the head of their response.
    pub overhead: Histogram,
    limits: [Count; Limit::ALL.len()],
    pub connections_opened: Count,
    pub connections_closed: Count,
    pub connections_rejected: Count,
    pub address_connections_rejected: Count,
    pub penalized_connections_rejected: Count,
    pub idle_connections_closed: Count,
    pub handshakes_failed: Count,
    pub proxy_protocol_failed: Count,
    pub slow_clients_disconnected: Count,
    pub token_cache_hits: Count,
    pub token_cache_misses: Count,
    /// Tokens that are bound to a key, on routes with `proof = "off"`.
    pub unproven_tokens: Count,
    pub upstream_connects: Count,
    pub upstream_retries: Count,
    /// Increased by the worker and by the thread that writes the log.
    pub access_log_dropped: Count,
    /// Lines of requests without a token beyond `access_log.rejections_per_second`.
    pub access_log_left_out: Count,
    pub streams_opened: Count,
    pub streams_closed: Count,
    pub(super) streams_ended: ByReason,
    pub(super) streams_drained: Count,
}

/// All counters at zero. [`Metrics`](super::Metrics) shows only those that it created itself.
impl Default for WorkerMetrics {
    fn default() -> Self {
        let by_reason = || std::array::from_fn(|_| Count::default());
        WorkerMetrics {
            requests: Default::default(),
            rejections: by_reason(),
            observations: by_reason(),
            requests_started: Count::default(),
            requests_finished: Count::default(),
            duration: Histogram::new(&OF_REQUESTS),
            overhead: Histogram::new(&OF_GATEWAY),
            limits: [const { Count::new() }; Limit::ALL.len()],
            connections_opened: Count::default(),
            connections_closed: Count::default(),
            connections_rejected: Count::default(),
            address_connections_rejected: Count::default(),
            penalized_connections_rejected: Count::default(),
            idle_connections_closed: Count::default(),
            handshakes_failed: Count::default(),
            proxy_protocol_failed: Count::default(),
            slow_clients_disconnected: Count::default(),
            token_cache_hits: Count::default(),
            token_cache_misses: Count::default(),
            unproven_tokens: Count::default(),
            upstream_connects: Count::default(),
            upstream_retries: Count::default(),
            access_log_dropped: Count::default(),
            access_log_left_out: Count::default(),
            streams_opened: Count::default(),
            streams_closed: Count::default(),
            streams_ended: by_reason(),
            streams_drained: Count::default(),
        }
    }
}

impl WorkerMetrics {
    /// Counts a finished request. `status` is 0 if the client disconnected before the response.
    pub fn request_finished(&self, status: u16, duration: Duration) {
        self.requests[status_class(status)].inc();
        self.duration.observe(duration);
    }

    /// The number of requests without a finished response, and of open tunnels.
    pub fn in_flight(&self) -> u64 {
        self.requests_started.get().saturating_sub(self.requests_finished.get())
    }

    pub fn rejected(&self, reason: Reason) {
        self.rejections[reason.index()].inc();
    }

    pub(super) fn rejections_for(&self, reason: Reason) -> u64 {
        self.rejections[reason.index()].get()
    }

    /// Counts a request or a connection that reached a limit. Also for several threads.
    pub fn limit_hit(&self, limit: Limit) {
        self.limits[limit as usize].add_shared(1);
    }

    pub(super) fn hits_of(&self, limit: Limit) -> u64 {
        self.limits[limit as usize].get()
    }

    pub fn observed(&self, reason: Reason) {
        self.observations[reason.index()].inc();
    }

    pub fn stream_ended(&self, reason: CloseReason) {
        match reason {
            CloseReason::Token(reason) => self.streams_ended[reason.index()].inc(),
            CloseReason::RequestTimeout => self.streams_ended[Reason::RequestTimeout.index()].inc(),
            CloseReason::Draining => self.streams_drained.inc(),
        }
    }
}
