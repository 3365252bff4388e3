//! Runs the requests of HTTP/2 connections, and cancels those whose client does not read the response.
//!
//! A client can hold back many responses on one connection without ever ceasing to read from the socket: it never
//! widens its windows. Each response would keep a connection to a backend.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::limits::pace::{IdleTimer, MinRate, RateMeter};
use crate::protocols::http::poll_notes;
use crate::telemetry::metrics::WorkerMetrics;

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
        // Boxed: by value, the task would hold it twice, before and after it is pinned.
        let mut request = Box::pin(request);
        // Spawned by a request: the sending side of its WebSocket. It is silent most of the time, and has its own
        // limit.
        if poll_notes::is_watched() {
            tokio::spawn(async move { drop(request.await) });
            return;
        }
        let (mut stall, mut meter) = (IdleTimer::of_at_most(self.write), RateMeter::of(self.least));
        let metrics = self.metrics.clone();
        tokio::spawn(async move {
            std::future::poll_fn(|context| {
                let (polled, noted) = poll_notes::poll_tracked(|| request.as_mut().poll(context));
                if polled.is_ready() {
                    return Poll::Ready(());
                }
                if noted.for_us {
                    stall.broken();
                    return Poll::Pending;
                }
                let too_slow = noted.passed > 0 && !meter.passed(noted.passed, &mut stall);
                if too_slow || stall.poll(context).is_ready() {
                    metrics.slow_clients_disconnected.inc();
                    return Poll::Ready(());
                }
                Poll::Pending
            })
            .await;
        });
    }
}
