//! Runs the requests of HTTP/2 connections, and ends those that the client makes no room for.
//!
//! A client can hold back many responses at once on a connection that it still reads, by never widening their windows.
//! Each response would keep a connection to a backend.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::limits::pace::{IdleTimer, MinRate, RateMeter};
use crate::protocols::http::poll_activity;
use crate::telemetry::metrics::WorkerMetrics;
use crate::types::limit::Limit;

#[derive(Clone)]
pub(super) struct Executor {
    /// `timeouts.write`
    pub(super) write: Duration,
    /// `limits.min_download_rate`
    pub(super) least: MinRate,
    pub(super) metrics: Arc<WorkerMetrics>,
}

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
{
    fn execute(&self, request: F) {
        // Boxed: a task that takes it by value holds it twice, before and after pinning.
        let mut request = Box::pin(request);
        // hyper spawns a second task within a request only to write the bytes of its WebSocket. That task has nothing
        // to write most of the time, and the tunnel has a limit of its own.
        if poll_activity::is_in_scope() {
            tokio::spawn(async move { drop(request.await) });
            return;
        }
        let mut stall = IdleTimer::new(self.write);
        let mut meter = RateMeter::new(self.least);
        let metrics = self.metrics.clone();
        tokio::spawn(async move {
            std::future::poll_fn(|context| {
                let (polled, report) = poll_activity::scope(|| request.as_mut().poll(context));
                if polled.is_ready() {
                    return Poll::Ready(());
                }
                if report.is_gateway_pending {
                    stall.reset();
                    return Poll::Pending;
                }
                let is_too_slow = report.bytes > 0 && !meter.record(report.bytes as u64, &mut stall);
                if is_too_slow {
                    metrics.limit_hit(Limit::MinDownloadRate);
                }
                if is_too_slow || stall.poll(context).is_ready() {
                    metrics.slow_clients_disconnected.inc();
                    return Poll::Ready(());
                }
                Poll::Pending
            })
            .await;
        });
    }
}
