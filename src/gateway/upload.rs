//! The body of a request on its way to the upstream, and the wait for the head of the response.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;

use crate::gateway::streams::TokenBound;
use crate::protocols::http::body::{BodyEnd, BodyError, BodyObserver, LONG_RUNNING_AFTER};
use crate::protocols::http::header_list;
use crate::protocols::http::header_rules::HeaderRules;
use crate::protocols::http::headers::Hygiene;
use crate::telemetry::metrics::Count;
use crate::types::reject::{Reason, Reject};
use crate::upstream::{Failure, UpstreamResponse};

/// How far the body of a request has come. Shared by the body and the wait for the response.
pub struct Progress {
    start: Instant,
    /// When data last moved, in milliseconds after `start`.
    last: AtomicU64,
    /// The upstream has taken everything, and the next data must come from the client.
    waits_for_client: AtomicBool,
    /// Bytes of the body.
    received: Count,
    complete: AtomicBool,
    /// Why the body failed.
    failure: Mutex<Option<Reject>>,
    /// It failed because the client left.
    is_left: AtomicBool,
}

impl Progress {
    pub(super) fn begin() -> Self {
        let last = AtomicU64::new(0);
        let failure = Mutex::new(None);
        let waits_for_client = AtomicBool::new(false);
        let complete = AtomicBool::new(false);
        let is_left = AtomicBool::new(false);
        Progress { start: Instant::now(), last, waits_for_client, received: Count::new(), complete, failure, is_left }
    }

    /// Bytes of the body so far.
    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }

    pub(super) fn take_failure(&self) -> Option<Reject> {
        self.failure.lock().take()
    }

    /// Returns true if the client's body failed: the server cannot be blamed for what follows.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.lock().is_some()
    }

    /// As [`Progress::take_failure`], but `None` if the client left: that is no fault of its body.
    pub(super) fn take_fault(&self) -> Option<Reject> {
        let failure = self.take_failure();
        if self.is_left.load(Ordering::Relaxed) { None } else { failure }
    }

    /// Returns true if the server has taken everything that the client has sent so far, and there is more to come.
    pub(super) fn waits_for_client(&self) -> bool {
        !self.is_complete() && self.waits_for_client.load(Ordering::Relaxed)
    }

    pub(super) fn wait_for_client(&self) {
        self.waits_for_client.store(true, Ordering::Relaxed);
    }

    pub(super) fn fail(&self, error: &BodyError) {
        self.is_left.store(error.is_by_leaving(), Ordering::Relaxed);
        *self.failure.lock() = Some(error.reject());
    }

    fn moved(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
        self.waits_for_client.store(false, Ordering::Relaxed);
    }

    /// How long the upstream may still take.
    fn time_left(&self, timeout: Duration) -> Duration {
        if self.waits_for_client.load(Ordering::Relaxed) {
            // `timeouts.body_idle` decides how long the client may be silent.
            return timeout;
        }
        let moved = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed));
        (moved + timeout).saturating_duration_since(Instant::now())
    }
}

/// Watches the body of a request on its way to the upstream.
pub(super) struct Upload {
    pub(super) progress: Arc<Progress>,
    pub(super) hygiene: Arc<Hygiene>,
    /// `[route.request_headers]`
    pub(super) rules: Option<Arc<HeaderRules>>,
    /// The size of the trailers is less than this.
    pub(super) max_trailers: usize,
    pub(super) token_bound: TokenBound,
}

impl BodyObserver for Upload {
    fn on_data(&mut self, data: &mut Bytes) {
        self.progress.received.add(data.len() as u64);
        self.progress.moved();
    }

    fn on_pending(&mut self) {
        self.progress.wait_for_client();
    }

    fn on_trailers(&mut self, trailers: &mut HeaderMap) -> Result<(), BodyError> {
        if header_list::size_of_fields(trailers) >= self.max_trailers {
            return Err(BodyError::TrailersTooLarge);
        }
        self.hygiene.clean_trailers(trailers);
        if let Some(rules) = &self.rules {
            rules.remove_from(trailers);
        }
        Ok(())
    }

    fn on_error(&mut self, error: &BodyError) {
        self.progress.fail(error);
    }

    fn on_long_running(&mut self) -> bool {
        self.token_bound.lasts(None);
        true
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<BodyEnd> {
        self.token_bound.poll_end(context)
    }

    fn on_complete(&mut self) {
        self.progress.moved();
        self.progress.complete.store(true, Ordering::Relaxed);
    }
}

/// Waits for the head of the response. The timeout counts from the last movement of the request's body: a long upload
/// or a slow client does not make the upstream slow.
pub(super) async fn response_within(
    began: Instant,
    timeout: Duration,
    progress: Option<&Progress>,
    token_bound: &mut TokenBound,
    // Pinned by the caller: by value it would lie in this future twice, before and after pinning.
    mut sending: Pin<&mut impl Future<Output = Result<UpstreamResponse, Failure>>>,
) -> Result<UpstreamResponse, Reject> {
    let moment = timeout.min(LONG_RUNNING_AFTER);
    // From a time that is known: a clock read costs 25 ns.
    if let Ok(response) = tokio::time::timeout_at((began + moment).into(), sending.as_mut()).await {
        return Ok(response?);
    }
    // Boxed because it is rare: the future of every request is as large as its largest step.
    Box::pin(async move {
        let mut wait = progress.map_or(timeout - moment, |progress| progress.time_left(timeout));
        let mut end = pin!(token_end(token_bound));
        while !wait.is_zero() {
            tokio::select! {
                biased;
                response = sending.as_mut() => return Ok(response?),
                reason = end.as_mut() => return Err(Reject::new(reason, "while waiting for the response")),
                () = tokio::time::sleep(wait) => {}
            }
            wait = progress.map_or(Duration::ZERO, |progress| progress.time_left(timeout));
        }
        Err(Reject::new(Reason::UpstreamTimeout, format!("no response within {}ms", timeout.as_millis())))
    })
    .await
}

/// Returns why the token of the request has ended, once it has.
async fn token_end(token_bound: &mut TokenBound) -> Reason {
    token_bound.lasts(None);
    token_bound.end().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::streams::{Held, Streams, TokenChecks};

    #[test]
    fn a_server_has_its_timeout_since_data_last_moved() {
        const TIMEOUT: Duration = Duration::from_secs(60);
        let mut progress = Progress::begin();
        let left = progress.time_left(TIMEOUT);
        assert!(left <= TIMEOUT && left > TIMEOUT / 2, "{left:?}");
        progress.start -= 2 * TIMEOUT;
        assert_eq!(progress.time_left(TIMEOUT), Duration::ZERO);
        progress.moved();
        let left = progress.time_left(TIMEOUT);
        assert!(left <= TIMEOUT && left > TIMEOUT / 2, "{left:?}");
        progress.start -= 2 * TIMEOUT;
        progress.waits_for_client.store(true, Ordering::Relaxed);
        assert_eq!(progress.time_left(TIMEOUT), TIMEOUT);
    }

    #[test]
    fn an_upload_tells_whether_it_is_complete_or_has_failed() {
        let progress = Progress::begin();
        assert!(!progress.is_complete() && !progress.has_failed());
        progress.complete.store(true, Ordering::Relaxed);
        assert!(progress.is_complete() && !progress.has_failed());
        *progress.failure.lock() = Some(BodyError::TooLarge.reject());
        assert!(progress.has_failed());
        assert_eq!(progress.take_failure().map(|reject| reject.reason), Some(Reason::BodyTooLarge));
        assert!(!progress.has_failed());
    }

    #[test]
    fn an_upload_waits_for_its_client_until_data_comes() {
        let progress = Progress::begin();
        let pending = || progress.waits_for_client.store(true, Ordering::Relaxed);
        assert!(!progress.waits_for_client(), "the server has not taken the data yet");
        pending();
        assert!(progress.waits_for_client());
        progress.moved();
        assert!(!progress.waits_for_client());
        pending();
        progress.complete.store(true, Ordering::Relaxed);
        assert!(!progress.waits_for_client(), "the client has sent everything");
    }

    #[tokio::test]
    async fn a_request_without_a_body_waits_once_for_its_response() {
        const TIMEOUT: Duration = LONG_RUNNING_AFTER.saturating_add(Duration::from_millis(100));
        let mut token_bound = TokenBound::by(Held::default(), &Streams::new(TokenChecks::alone(), Arc::default()));
        let started = Instant::now();
        let never = pin!(std::future::pending());
        let reject = response_within(started, TIMEOUT, None, &mut token_bound, never).await.err();
        assert_eq!(reject.map(|reject| reject.reason), Some(Reason::UpstreamTimeout));
        assert!((TIMEOUT..2 * TIMEOUT).contains(&started.elapsed()));
    }
}
