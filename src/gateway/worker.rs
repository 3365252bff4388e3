//! The state of one worker.

use std::sync::Arc;

use crate::auth::bad_signatures::BadSignatures;
use crate::auth::signature_queue::SignatureQueue;
use crate::gateway::streams::Streams;
use crate::limits::concurrency::ConcurrencyLimit;
use crate::telemetry::access_log::{Buffer, Record};
use crate::telemetry::metrics::WorkerMetrics;
use crate::telemetry::recent_rejections::WorkerRejections;
use crate::telemetry::spans::WorkerTracer;
use crate::types::ids::RequestIds;

/// One worker thread. Its requests share this and nothing else that is written to.
pub struct Worker {
    pub number: usize,
    pub request_ids: RequestIds,
    pub metrics: Arc<WorkerMetrics>,
    /// The streams that end with their token.
    pub streams: Arc<Streams>,
    /// Shared by all workers.
    pub bad_signatures: Arc<BadSignatures>,
    pub signature_queue: SignatureQueue,
    pub log: Option<Arc<Buffer>>,
    /// `None` if `[trace]` is off.
    pub tracer: Option<WorkerTracer>,
    /// For the admin API.
    pub rejections: Option<Arc<WorkerRejections>>,
    pub concurrency: ConcurrencyLimit,
}

impl Worker {
    /// Counts a request that has ended, and writes its line to the access log.
    pub fn finish(&self, record: &Record) {
        self.metrics.request_finished(record.status, record.duration);
        if let Some(reject) = &record.rejected {
            self.metrics.rejected(reject.reason);
            if let Some(limit) = reject.limit {
                self.metrics.limit_hit(limit);
            }
        }
        if let Some(observed) = &record.observed {
            self.metrics.observed(observed.reason);
        }
        if let Some(reason) = record.ended {
            self.metrics.stream_ended(reason);
        }
        if let Some(log) = &self.log {
            log.push(record);
        }
        if let Some(rejections) = &self.rejections {
            rejections.push(record);
        }
    }
}
