//! Begins the trace of each request, and makes its spans at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use http::HeaderMap;

use super::ids::RandomIds;
use super::queue::Queue;
use super::request_spans;
use super::sampler::{ExportLimit, Ratio};
use super::settings::SpanSettings;
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
    pub fn new(settings: &SpanSettings, max_field: usize) -> Self {
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

    /// Takes from `trace.per_second`. `is_free`: the request needed no token and reached no backend.
    fn may_export(&self, is_free: bool) -> bool {
        let may = self.limit.take(is_free, Instant::now());
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
    /// Continues the trace of a trusted proxy as sampled as the proxy says, or begins one. Takes nothing from
    /// `trace.per_second`: the request may be rejected.
    pub fn begin(&self, is_from_proxy: bool, headers: &HeaderMap) -> TraceContext {
        let parent = is_from_proxy.then(|| Parent::of(headers)).flatten();
        let trace_id = parent.map_or_else(|| self.ids.trace_id(), |parent| parent.trace_id);
        TraceContext {
            trace_id,
            parent: parent.map(|parent| parent.span_id),
            span_id: self.ids.span_id(),
            first_attempt: self.ids.span_id(),
            is_sampled: parent.map_or_else(|| self.shared.sample.samples(trace_id), |parent| parent.is_sampled),
            is_random: parent.is_none_or(|parent| parent.is_random),
        }
    }

    /// The request is forwarded. Now it is decided whether it is sampled, because the backend learns of it.
    pub fn forward(&self, record: &mut Record) {
        if let Some(trace) = record.trace.as_mut().filter(|trace| trace.is_sampled) {
            trace.is_sampled = self.shared.may_export(false);
        }
    }

    /// `started`: when `record.time` was read. `route`: the path of its route.
    pub fn finish(&self, record: &Record, started: Instant, route: Option<&str>) {
        let Some(trace) = &record.trace else { return };
        let has_failed = || self.shared.errors && (record.status >= 500 || record.broke_off().is_some());
        let is_exported = match record.upstream {
            Some(_) => trace.is_sampled || has_failed() && self.shared.may_export(false),
            None => (trace.is_sampled || has_failed()) && self.shared.may_export(record.is_free()),
        };
        if is_exported {
            let max_field = self.shared.max_field.load(Ordering::Relaxed);
            let spans = request_spans::encode(record, trace, started, route, max_field);
            self.shared.queue.push(spans);
        }
    }
}
