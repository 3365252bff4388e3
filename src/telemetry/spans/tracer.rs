//! Begins the trace of each request, and makes its spans at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use http::HeaderMap;

use super::ids::RandomIds;
use super::queue::Queue;
use super::request_spans;
use super::sampler::{ExportLimit, Ratio};
use super::settings::Settings;
use crate::protocols::http::trace_context::{Parent, TraceContext};
use crate::telemetry::access_log::Record;

/// Shared by all workers.
pub struct Tracer {
    sample: Ratio,
    errors: bool,
    limit: ExportLimit,
    /// `access_log.max_field_size`
    max_field: AtomicUsize,
    pub queue: Arc<Queue>,
}

impl Tracer {
    /// `max_field`: Maximum bytes of one text in a span.
    pub fn new(settings: &Settings, max_field: usize) -> Self {
        Tracer {
            sample: settings.sample,
            errors: settings.errors,
            limit: ExportLimit::new(settings.per_second),
            max_field: max_field.into(),
            queue: Arc::new(Queue::new(settings.queue_size)),
        }
    }

    /// After a reload.
    pub fn set_max_field(&self, max_field: usize) {
        self.max_field.store(max_field, Ordering::Relaxed);
    }

    /// For one worker.
    pub fn worker(self: &Arc<Self>) -> WorkerTracer {
        WorkerTracer { shared: self.clone(), ids: RandomIds::new() }
    }

    /// Takes from `trace.per_second`.
    fn may_export(&self) -> bool {
        let may = self.limit.take(Instant::now());
        if !may {
            self.queue.drops.rate.fetch_add(1, Ordering::Relaxed);
        }
        may
    }
}

pub struct WorkerTracer {
    shared: Arc<Tracer>,
    ids: RandomIds,
}

impl WorkerTracer {
    /// Continues the trace of a trusted proxy as sampled as the proxy says, or begins one.
    pub fn begin(&self, is_from_proxy: bool, headers: &HeaderMap) -> TraceContext {
        let parent = is_from_proxy.then(|| Parent::of(headers)).flatten();
        let trace_id = parent.map_or_else(|| self.ids.trace_id(), |parent| parent.trace_id);
        let samples = parent.map_or_else(|| self.shared.sample.samples(trace_id), |parent| parent.is_sampled);
        TraceContext {
            trace_id,
            parent: parent.map(|parent| parent.span_id),
            span_id: self.ids.span_id(),
            first_attempt: self.ids.span_id(),
            // Decided now, because the backend learns of it.
            is_sampled: samples && self.shared.may_export(),
        }
    }

    /// `started`: when `record.time` was read.
    pub fn finish(&self, record: &Record, started: Instant) {
        let Some(trace) = &record.trace else { return };
        let has_failed = self.shared.errors && record.status >= 500;
        if trace.is_sampled || has_failed && self.shared.may_export() {
            let max_field = self.shared.max_field.load(Ordering::Relaxed);
            self.shared.queue.push(request_spans::encode(record, trace, started, max_field));
        }
    }
}
