//! What a worker has to itself, and the requests that it has under way, as far as they are recorded.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, header};

use crate::auth::signature_queue::SignatureQueue;
use crate::gateway::client::{InFlight, Peer};
use crate::gateway::streams::{Streams, TokenBound};
use crate::limits::concurrency::{ConcurrencyLimit, ReservedPermit};
use crate::limits::limiter::Limiter;
use crate::protocols::http::body::{BodyEnd, BodyError, Watch};
use crate::telemetry::access_log::{Buffer, Record};
use crate::telemetry::metrics::WorkerMetrics;
use crate::types::clock::UnixTime;
use crate::types::close_reason::CloseReason;
use crate::types::ids::RequestIds;
use crate::types::reject::Reason;
use crate::upstream::Lease;

/// What a worker has to itself.
pub struct Worker {
    pub number: usize,
    pub request_ids: RequestIds,
    pub metrics: Arc<WorkerMetrics>,
    /// What ends with its token.
    pub streams: Arc<Streams>,
    /// Bad signatures of each address. All workers have the one: it is asked only about tokens that are not known, and an
    /// address must not have as many chances as there are workers.
    pub failures: Arc<Limiter>,
    pub signature_queue: SignatureQueue,
    pub log: Option<Arc<Buffer>>,
    pub concurrency: ConcurrencyLimit,
}

impl Worker {
    /// Counts a request that is over, and leaves its line for the log.
    pub fn over(&self, record: &Record) {
        self.metrics.request_over(record.status, record.duration);
        if let Some(refusal) = &record.refused {
            self.metrics.refused(refusal.reason);
        }
        if let Some(observed) = &record.observed {
            self.metrics.observed(observed.reason);
        }
        if let Some(ended) = record.ended {
            self.metrics.stream_ended(ended);
        }
        if let Some(log) = &self.log {
            log.push(record);
        }
    }
}

/// A request's record, kept by the body of its answer. Whenever that is dropped, complete or not, the line is written: a
/// client that leaves is logged too, with the status 0 if it left before an answer.
pub struct Delivery {
    pub record: Record,
    pub started: Instant,
    pub lease: Option<Lease>,
    /// Whose end is also this answer's.
    pub held: Option<TokenBound>,
    /// Its place, where few are left.
    pub reserved: Option<ReservedPermit>,
    /// There was no place left, so it counts no longer as under way.
    pub rejected_early: bool,
    worker: Arc<Worker>,
    _in_flight: InFlight,
}

impl Delivery {
    pub fn open<B>(request: &Request<B>, peer: &Arc<Peer>, worker: &Arc<Worker>, now: UnixTime) -> Self {
        peer.requests.one();
        worker.metrics.begun.one();
        let record = Record {
            request_id: worker.request_ids.next(),
            time: now,
            client: Some(peer.address.ip()),
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            user_agent: request.headers().get(header::USER_AGENT).cloned(),
            ..Record::default()
        };
        Delivery {
            record,
            started: Instant::now(),
            lease: None,
            held: None,
            reserved: None,
            rejected_early: false,
            worker: worker.clone(),
            _in_flight: peer.begin_request(),
        }
    }
}

impl Watch for Delivery {
    fn data(&mut self, data: &mut Bytes) {
        if let Some(held) = &mut self.held {
            held.follow(data);
        }
        self.record.sent += data.len() as u64;
    }

    fn lasts(&mut self) -> bool {
        self.held.as_mut().map(TokenBound::lasts).is_some()
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<BodyEnd> {
        self.held.as_mut().map_or(Poll::Pending, |held| held.poll_end(context))
    }

    fn end_of_broken(&mut self) -> Option<BodyEnd> {
        self.held.as_mut()?.end_of_broken()
    }

    fn failed(&mut self, error: &BodyError) {
        if matches!(error, BodyError::Ended(Reason::RequestTimeout)) {
            self.record.ended = Some(CloseReason::OutOfTime);
        }
        let is_the_servers_fault = match error {
            BodyError::Silent(_) => !self.held.as_ref().is_some_and(TokenBound::may_be_idle),
            BodyError::Http(_) | BodyError::CutShort => true,
            BodyError::TooLarge | BodyError::Slow | BodyError::Ended(_) => false,
        };
        if let Some(lease) = self.lease.as_ref().filter(|_| is_the_servers_fault) {
            lease.broke_off(&error.to_string());
        }
    }

    fn end(&mut self) {
        self.record.complete = true;
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if !self.rejected_early {
            self.worker.metrics.ended.one();
        }
        self.record.duration = self.started.elapsed();
        if let Some(ended) = self.held.as_ref().and_then(TokenBound::ended) {
            self.record.ended = Some(ended);
        }
        self.worker.over(&self.record);
    }
}
