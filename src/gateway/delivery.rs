//! A request's record and resources, kept until the last byte of its response.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body::Body as _;

use crate::gateway::client::{InFlight, Peer};
use crate::gateway::context::RequestContext;
use crate::gateway::route::Route;
use crate::gateway::source::Source;
use crate::gateway::streams::TokenBound;
use crate::gateway::upload::Progress;
use crate::gateway::worker::Worker;
use crate::limits::concurrency::ReservedPermit;
use crate::limits::rate_limit::RateLimitHeaders;
use crate::protocols::http::body::{Body, BodyEnd, BodyError, BodyObserver};
use crate::telemetry::access_log::{Broken, Record};
use crate::types::clock::{Clock, UnixTime};
use crate::types::close_reason::CloseReason;
use crate::types::limit::Limit;
use crate::types::reject::{Reason, Reject, with_causes};
use crate::types::step::StepReporter;
use crate::upstream::PooledConnection;

/// Kept by the body of the response. When it is dropped, the line of the access log is written, so a client that leaves
/// is logged too. Its status is 0 if the client left before the response.
pub struct Delivery {
    pub record: Record,
    pub started: Instant,
    /// When the last byte of the response went to the connection. `None` before.
    completed: Option<Instant>,
    /// The client has used TLS, also if a trusted proxy says so.
    pub is_https: bool,
    /// The route that was found.
    pub route: Option<Arc<Route>>,
    /// For the head of the response.
    pub rate_limit_headers: Option<Box<RateLimitHeaders>>,
    /// The upstream connection, until the body of the response ends.
    pub upstream_connection: Option<PooledConnection>,
    /// Ends the response with the token that allowed it.
    pub token_bound: Option<TokenBound>,
    /// How far the body of a forwarded request has come.
    upload: Option<Arc<Progress>>,
    /// The permit from the reserve, if the worker is nearly full.
    reserved: Option<ReservedPermit>,
    /// Rejected as overload: no longer counted as in flight.
    rejected_early: bool,
    worker: Arc<Worker>,
    _in_flight: InFlight,
}

impl Delivery {
    pub fn open<B>(request: &Request<B>, peer: &Arc<Peer>, worker: &Arc<Worker>, now: UnixTime) -> Box<Self> {
        peer.requests.inc();
        worker.metrics.requests_started.inc();
        if peer.requests.get() == peer.last_request {
            worker.metrics.limit_hit(Limit::RequestsPerConnection);
        }
        let mut delivery = Box::new(Delivery {
            record: Record::default(),
            started: Instant::now(),
            completed: None,
            is_https: false,
            route: None,
            rate_limit_headers: None,
            upstream_connection: None,
            token_bound: None,
            upload: None,
            reserved: None,
            rejected_early: false,
            worker: worker.clone(),
            _in_flight: peer.begin_request(),
        });
        // Written where it stays: it is large.
        let record = &mut delivery.record;
        record.request_id = worker.request_ids.next();
        record.time = now;
        record.method = request.method().clone();
        record.uri = request.uri().clone();
        record.version = request.version();
        record.user_agent = request.headers().get(header::USER_AGENT).cloned();
        record.tls = peer.tls;
        delivery
    }

    /// Begins a trace, or continues that of a trusted proxy.
    pub fn begin_trace(&mut self, is_from_proxy: bool, headers: &HeaderMap) {
        self.record.trace = self.worker.tracer.as_ref().map(|tracer| tracer.begin(is_from_proxy, headers));
    }

    /// Takes this request's place among the requests in flight, or rejects it as overload.
    pub fn reserve(&mut self, client: IpAddr, is_token_call: impl FnOnce() -> bool) -> Result<(), Reject> {
        let worker = &self.worker;
        match worker.concurrency.acquire(worker.metrics.in_flight(), client, is_token_call) {
            Ok(reserved) => {
                self.reserved = reserved;
                Ok(())
            }
            Err(reject) => {
                // A client that reads its rejection slowly must not keep a place that is reserved for others.
                self.rejected_early = true;
                worker.metrics.requests_finished.inc();
                Err(reject)
            }
        }
    }

    /// The context of the request, which borrows what is kept here.
    pub fn context<'r>(&'r mut self, source: &'r Source<'r>, clock: &'r dyn Clock) -> RequestContext<'r> {
        let Delivery { record, route, rate_limit_headers, upload, worker, .. } = self;
        RequestContext {
            now: record.time,
            clock,
            source,
            route,
            worker,
            record,
            rate_limit_headers,
            upload,
            steps: StepReporter::OFF,
        }
    }

    /// The head of the response is complete. `is_forwarded`: a backend has sent it.
    pub fn head_complete(&self, is_forwarded: bool) {
        if is_forwarded && let Some(waited) = self.record.attempts.duration() {
            self.worker.metrics.overhead.observe(self.started.elapsed().saturating_sub(waited));
        }
    }

    /// An upload that fails also breaks off the response that has begun, and hyper may drop that without an error.
    fn note_failed_upload(&mut self) {
        let record = &mut self.record;
        let is_known =
            record.complete || record.rejected.is_some() || record.broken.is_some() || record.ended.is_some();
        if record.status == 0 || is_known {
            return;
        }
        let fault = self.upload.as_deref().and_then(Progress::take_fault);
        record.broken = fault.map(|cause| Box::new(Broken { cause, is_of_server: false }));
    }

    /// Returns true if the client has more of its body to send.
    pub fn has_unread_body(&self, request: &Request<Body>) -> bool {
        self.upload.as_ref().map_or(!request.body().is_end_stream(), |upload| !upload.is_complete())
    }
}

impl BodyObserver for Delivery {
    fn on_data(&mut self, data: &mut Bytes) {
        if let Some(token_bound) = &mut self.token_bound {
            token_bound.follow(data);
        }
        self.record.sent += data.len() as u64;
    }

    /// `[route.response_headers]` removes fields from trailers too: some clients merge them into the headers.
    fn on_trailers(&mut self, trailers: &mut HeaderMap) -> Result<(), BodyError> {
        if let Some(rules) = self.route.as_ref().and_then(|route| route.response_headers.as_ref()) {
            rules.remove_from(trailers);
        }
        Ok(())
    }

    fn on_long_running(&mut self) -> bool {
        let Some(token_bound) = &mut self.token_bound else { return false };
        token_bound.lasts(Some(&self.record));
        true
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<BodyEnd> {
        self.token_bound.as_mut().map_or(Poll::Pending, |token_bound| token_bound.poll_end(context))
    }

    fn end_after_error(&mut self) -> Option<BodyEnd> {
        self.token_bound.as_mut()?.end_of_broken()
    }

    fn on_error(&mut self, error: &BodyError) {
        if matches!(error, BodyError::Ended(Reason::RequestTimeout)) {
            self.record.ended = Some(CloseReason::RequestTimeout);
        }
        let may_be_idle = self.token_bound.as_ref().is_some_and(TokenBound::may_be_idle);
        let is_of_server = is_server_fault(error, self.upload.as_deref(), may_be_idle);
        let Some(cause) = cause_of_break(error, self.upload.as_deref()) else { return };
        self.record.broken = Some(Box::new(Broken { cause, is_of_server }));
        if is_of_server && let Some(connection) = &self.upstream_connection {
            connection.record_broken_body(&error.to_string());
        }
    }

    fn on_complete(&mut self) {
        let now = Instant::now();
        (self.record.complete, self.completed) = (true, Some(now));
        if let Some(connection) = self.upstream_connection.take() {
            connection.release(now);
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if !self.rejected_early {
            self.worker.metrics.requests_finished.inc();
        }
        // If the client left, the gateway has waited until now. Before the duration, which includes the attempt.
        self.record.attempts.end();
        let ended = self.completed.unwrap_or_else(Instant::now);
        self.record.duration = ended.saturating_duration_since(self.started);
        if let Some(upload) = &self.upload {
            self.record.received = upload.received();
        }
        if let Some(reason) = self.token_bound.as_ref().and_then(TokenBound::ended) {
            self.record.ended = Some(reason);
        }
        self.note_failed_upload();
        if let Some(route) = &self.route {
            route.requests.count(self.worker.number, self.record.status);
        }
        self.worker.finish(&self.record);
        if let Some(tracer) = &self.worker.tracer {
            tracer.finish(&self.record, self.started, self.route.as_deref().map(|route| route.path.as_str()));
        }
    }
}

/// Returns why a response broke off. `None` if the gateway ended it, as the record says.
fn cause_of_break(error: &BodyError, upload: Option<&Progress>) -> Option<Reject> {
    if matches!(error, BodyError::Ended(_)) {
        return None;
    }
    // The client's body has failed first, and with it the connection to the server.
    if let Some(failed) = upload.filter(|upload| upload.has_failed()) {
        return failed.take_fault();
    }
    let is_silent = matches!(error, BodyError::IdleTimeout(_));
    let reason = if is_silent { Reason::UpstreamTimeout } else { Reason::UpstreamBroken };
    Some(Reject::new(reason, with_causes(error)))
}

/// Returns true if the server is to blame for a response that broke off.
fn is_server_fault(error: &BodyError, upload: Option<&Progress>, may_be_idle: bool) -> bool {
    // The client's body has failed first, and with it the connection to the server.
    if upload.is_some_and(Progress::has_failed) {
        return false;
    }
    match error {
        BodyError::IdleTimeout(_) => !may_be_idle && !upload.is_some_and(Progress::waits_for_client),
        BodyError::Http(_) | BodyError::Truncated => true,
        BodyError::TooLarge | BodyError::TrailersTooLarge | BodyError::TooSlow | BodyError::Ended(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_response_breaks_off_for_the_first_failure() {
        let failed = Progress::begin();
        failed.fail(&BodyError::TooSlow);
        let left = Progress::begin();
        left.fail(&BodyError::Truncated);
        let idle = BodyError::IdleTimeout(Duration::from_secs(30));
        for (error, upload, expected) in [
            (&BodyError::Truncated, None, Some(Reason::UpstreamBroken)),
            (&idle, None, Some(Reason::UpstreamTimeout)),
            (&BodyError::Ended(Reason::Expired), Some(&failed), None),
            (&BodyError::Truncated, Some(&left), None),
            (&BodyError::Truncated, Some(&failed), Some(Reason::BodyTooSlow)),
        ] {
            assert_eq!(cause_of_break(error, upload).map(|cause| cause.reason), expected, "{error}");
        }
    }

    #[test]
    fn a_server_is_blamed_for_silence_unless_it_waits() {
        let idle = BodyError::IdleTimeout(Duration::from_secs(30));
        let taken = Progress::begin();
        let waiting = Progress::begin();
        let failed = Progress::begin();
        waiting.wait_for_client();
        failed.fail(&BodyError::TooSlow);
        for (error, upload, may_be_idle, expected) in [
            (&idle, None, false, true),
            (&idle, None, true, false),
            (&idle, Some(&taken), false, true),
            (&idle, Some(&waiting), false, false),
            (&idle, Some(&failed), false, false),
            (&BodyError::Truncated, Some(&waiting), true, true),
            (&BodyError::Truncated, Some(&failed), false, false),
            (&BodyError::TooLarge, None, false, false),
            (&BodyError::TooSlow, None, false, false),
            (&BodyError::Ended(Reason::Expired), None, false, false),
        ] {
            assert_eq!(is_server_fault(error, upload, may_be_idle), expected, "{error} {may_be_idle}");
        }
    }
}
