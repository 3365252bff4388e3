//! The buffers that workers write lines into, and the thread that writes them out.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::line::LineWriter;
use super::record::Record;
use super::rejections::RejectionLimit;
use super::settings::{AccessLogSettings, AccessLogTarget};
use super::sink::Sink;
use crate::telemetry::metrics::WorkerMetrics;

/// Maximum bytes of lines in one buffer: those of half a second at 100,000 requests a second.
const MAX_PAGE: usize = 16 << 20;

/// A page that grew larger returns its memory after it is written, because such a burst is rare.
const KEPT_PAGE: usize = 1 << 20;

/// How long lines gather before they are written. A line reaches the disk at most this late.
const WRITE_INTERVAL: Duration = Duration::from_millis(20);

/// How long the end of the gateway waits for the last lines. A pipe that no program reads takes none.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How often to say that lines are left out.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// The lines of one worker that are not written yet. On cache lines of its own: each of its requests writes to it.
#[repr(align(128))]
pub struct Buffer {
    page: Mutex<Page>,
    wake: Arc<Wake>,
    rejections: Arc<RejectionLimit>,
    metrics: Arc<WorkerMetrics>,
}

struct Page {
    lines: LineWriter,
    text: Vec<u8>,
}

impl Buffer {
    pub fn push(&self, record: &Record) {
        if record.is_free() && !self.rejections.take(record.client, Instant::now()) {
            self.metrics.access_log_left_out.inc();
            return;
        }
        let mut page = self.page.lock();
        let Page { lines, text } = &mut *page;
        if text.len() >= MAX_PAGE {
            self.metrics.access_log_dropped.add_shared(1);
            return;
        }
        let is_first = text.is_empty();
        lines.write(record, text);
        drop(page);
        // Only the first line of a page wakes the thread.
        if is_first {
            self.wake.notify();
        }
    }
}

#[derive(Default)]
struct Wake {
    notified: Mutex<bool>,
    condition: Condvar,
    closing: AtomicBool,
}

impl Wake {
    fn notify(&self) {
        *self.notified.lock() = true;
        self.condition.notify_one();
    }

    fn wait(&self) {
        let mut notified = self.notified.lock();
        self.condition.wait_while(&mut notified, |notified| !*notified);
        *notified = false;
    }
}

/// The writer thread and the workers' buffers. Dropping it writes the remaining lines.
pub struct AccessLog {
    buffers: Vec<Arc<Buffer>>,
    rejections: Arc<RejectionLimit>,
    wake: Arc<Wake>,
    /// Disconnected when the thread has ended.
    closed: Mutex<Receiver<Infallible>>,
}

impl AccessLog {
    /// Fails if the target cannot be opened. Writes nothing.
    pub fn check(target: &AccessLogTarget) -> io::Result<()> {
        Sink::open(target).map(drop)
    }

    /// Opens the target and starts the thread. `None` if the log is off.
    pub fn open(settings: &AccessLogSettings, workers: &[Arc<WorkerMetrics>]) -> io::Result<Option<AccessLog>> {
        let Some(sink) = Sink::open(&settings.target)? else { return Ok(None) };
        let wake = Arc::new(Wake::default());
        let rejections = Arc::new(RejectionLimit::new(settings.rejections_per_second));
        let new_buffer = |metrics: &Arc<WorkerMetrics>| {
            let lines = LineWriter::new(settings.format, settings.max_field_size);
            let page = Mutex::new(Page { lines, text: Vec::new() });
            let wake = wake.clone();
            let rejections = rejections.clone();
            Arc::new(Buffer { page, wake, rejections, metrics: metrics.clone() })
        };
        let buffers: Vec<_> = workers.iter().map(new_buffer).collect();
        let (closing, closed) = sync_channel(0);
        let writer = Writer {
            buffers: buffers.clone(),
            wake: wake.clone(),
            sink,
            is_failing: false,
            left_out: 0,
            reported: None,
        };
        std::thread::Builder::new().name("access-log".into()).spawn(move || {
            writer.run();
            drop::<SyncSender<Infallible>>(closing);
        })?;
        Ok(Some(AccessLog { buffers, rejections, wake, closed: Mutex::new(closed) }))
    }

    /// Puts all settings in force except the target.
    pub fn reload(&self, settings: &AccessLogSettings) {
        for buffer in &self.buffers {
            let lines = LineWriter::new(settings.format, settings.max_field_size);
            buffer.page.lock().lines = lines;
        }
        self.rejections.reload(settings.rejections_per_second);
    }

    pub fn buffer(&self, worker: usize) -> Arc<Buffer> {
        self.buffers[worker].clone()
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.wake.closing.store(true, Ordering::Release);
        self.wake.notify();
        let closed = self.closed.lock();
        // If the thread panicked, there is nothing to write any more.
        if matches!(closed.recv_timeout(CLOSE_TIMEOUT), Err(RecvTimeoutError::Timeout)) {
            tracing::warn!("the last lines of the access log were not written within {CLOSE_TIMEOUT:?}");
        }
    }
}

/// The thread that writes lines. Nothing else waits for a disk or a pipe.
struct Writer {
    buffers: Vec<Arc<Buffer>>,
    wake: Arc<Wake>,
    sink: Sink,
    is_failing: bool,
    /// How many lines had been left out at the last report, and when that was.
    left_out: u64,
    reported: Option<Instant>,
}

impl Writer {
    fn run(mut self) {
        let mut page = Vec::new();
        loop {
            self.wake.wait();
            let closing = self.wake.closing.load(Ordering::Acquire);
            if !closing {
                std::thread::sleep(WRITE_INTERVAL);
            }
            for number in 0..self.buffers.len() {
                self.write_buffer(number, &mut page);
            }
            self.report_left_out(Instant::now());
            if closing {
                return;
            }
        }
    }

    fn write_buffer(&mut self, number: usize, page: &mut Vec<u8>) {
        let buffer = &self.buffers[number];
        // The two pages are swapped, so that both keep their memory.
        std::mem::swap(&mut buffer.page.lock().text, page);
        if page.is_empty() {
            return;
        }
        match self.sink.write(page) {
            Ok(()) => self.is_failing = false,
            Err(failure) => {
                buffer.metrics.access_log_dropped.add_shared(failure.lost);
                // Only the first failure in a row is reported.
                if !std::mem::replace(&mut self.is_failing, true) {
                    let error = failure.error;
                    tracing::error!(%error, "cannot write the access log; lines are lost until it works again");
                }
            }
        }
        page.clear();
        page.shrink_to(KEPT_PAGE);
    }

    fn report_left_out(&mut self, now: Instant) {
        let left_out = self.buffers.iter().map(|buffer| buffer.metrics.access_log_left_out.get()).sum();
        let is_due = self.reported.is_none_or(|last| now.saturating_duration_since(last) >= REPORT_INTERVAL);
        if left_out == self.left_out || !is_due {
            return;
        }
        tracing::warn!(
            lines = left_out - self.left_out,
            "the access log left out lines of rejected requests or public documents, because there were more than \
             access_log.rejections_per_second allows; the metric bearward_rejections_total counts all rejections"
        );
        (self.left_out, self.reported) = (left_out, Some(now));
    }
}
