//! The thread that sends spans to the collector, and its metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::error::StartError;
use super::thread;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::post::Receiver;
use crate::telemetry::spans::{Exporter, Queue, SpanSettings, Tracer};

/// Sends until it is dropped. Dropping it sends what is left.
pub(super) struct TraceThread {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Registers the metrics, also if `[trace]` is off: a board would otherwise show an error.
pub(super) fn prepare(settings: Option<&SpanSettings>, max_field: usize, metrics: &mut Metrics) -> Option<Arc<Tracer>> {
    let tracer = settings.map(|settings| Arc::new(Tracer::new(settings, max_field)));
    let queue = tracer.as_ref().map_or_else(|| Arc::new(Queue::new(0)), |tracer| tracer.queue.clone());
    let sent = queue.clone();
    metrics.counter("trace_sent", "Requests with spans that the collector has accepted", move || read(&sent.sent));
    let waiting = queue.clone();
    metrics.gauge("trace_waiting_bytes", "Memory of the spans that wait for the collector", move || {
        waiting.bytes() as f64
    });
    let help = "Requests with spans that were lost, by the reason";
    metrics.counters("trace_dropped", help, move || {
        let drops = &queue.drops;
        let reasons = [("rate", &drops.rate), ("queue", &drops.queue), ("collector", &drops.collector)];
        reasons.map(|(reason, count)| (vec![("reason", reason.to_owned())], read(count))).into()
    });
    tracer
}

fn read(count: &AtomicU64) -> f64 {
    count.load(Ordering::Relaxed) as f64
}

pub(super) fn start(tracer: &Tracer, receiver: Receiver) -> Result<TraceThread, StartError> {
    let (stop, stopped) = watch::channel(false);
    let exporter = Exporter::new(tracer.queue.clone(), receiver);
    let thread = thread::start("trace", thread::runtime()?, || exporter.run(stopped))?;
    Ok(TraceThread { stop, thread: Some(thread) })
}

impl Drop for TraceThread {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked, which also ends it.
            let _ = thread.join();
        }
    }
}
