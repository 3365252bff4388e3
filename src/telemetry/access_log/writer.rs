//! The buffers that workers write lines into, and the thread that writes them out.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::line::LineWriter;
use super::record::Record;
use super::settings::{Settings, Target};
use crate::telemetry::metrics::WorkerMetrics;

/// Maximum bytes of lines in one buffer: those of half a second at 100,000 requests a second.
const MAX_PAGE: usize = 16 << 20;

/// A page that grew larger returns its memory after it is written, because such a burst is rare.
const KEPT_PAGE: usize = 1 << 20;

/// How long lines gather before they are written. A line reaches the disk at most this late.
const WRITE_INTERVAL: Duration = Duration::from_millis(20);

/// The lines of one worker that are not written yet.
pub struct Buffer {
    page: Mutex<Page>,
    wake: Arc<Wake>,
    metrics: Arc<WorkerMetrics>,
}

struct Page {
    lines: LineWriter,
    text: Vec<u8>,
}

impl Buffer {
    pub fn push(&self, record: &Record) {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let Page { lines, text } = &mut *page;
        if text.len() >= MAX_PAGE {
            self.metrics.access_log_dropped.inc();
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
        *self.notified.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.condition.notify_one();
    }

    fn wait(&self) {
        let notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        let notified = self.condition.wait_while(notified, |notified| !*notified);
        *notified.unwrap_or_else(PoisonError::into_inner) = false;
    }
}

/// The writer thread and the workers' buffers. Dropping it writes the remaining lines.
pub struct AccessLog {
    buffers: Vec<Arc<Buffer>>,
    wake: Arc<Wake>,
    thread: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Opens the target and starts the thread. `None` if the log is off.
    pub fn open(settings: &Settings, workers: &[Arc<WorkerMetrics>]) -> io::Result<Option<AccessLog>> {
        let mut sink = match &settings.target {
            Target::Off => return Ok(None),
            Target::Stdout => Sink::Stdout(io::stdout()),
            Target::File(path) => Sink::File { file: open_file(path)?, path: path.clone() },
        };
        let wake = Arc::new(Wake::default());
        let new_buffer = |metrics: &Arc<WorkerMetrics>| {
            let page = Mutex::new(Page { lines: LineWriter::new(settings.format), text: Vec::new() });
            Arc::new(Buffer { page, wake: wake.clone(), metrics: metrics.clone() })
        };
        let buffers: Vec<_> = workers.iter().map(new_buffer).collect();
        let (all, woken) = (buffers.clone(), wake.clone());
        let thread = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_until_closed(&all, &woken, &mut sink))?;
        Ok(Some(AccessLog { buffers, wake, thread: Some(thread) }))
    }

    pub fn buffer(&self, worker: usize) -> Arc<Buffer> {
        self.buffers[worker].clone()
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.wake.closing.store(true, Ordering::Release);
        self.wake.notify();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, there is nothing to write any more.
            let _ = thread.join();
        }
    }
}

enum Sink {
    Stdout(io::Stdout),
    File { file: File, path: PathBuf },
}

impl Sink {
    /// Reopens the file if another one has its path now, so that log rotation needs no signal.
    fn write(&mut self, page: &[u8]) -> io::Result<()> {
        match self {
            Sink::Stdout(stdout) => stdout.write_all(page).and_then(|()| stdout.flush()),
            Sink::File { file, path } => {
                if !is_at(file, path)? {
                    *file = open_file(path)?;
                }
                file.write_all(page)
            }
        }
    }
}

/// Returns true if the open file is the one at this path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    Ok(std::fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino())))
}

/// Log files have subjects and addresses in them, so only the owner and the group can read them.
fn open_file(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

fn write_until_closed(buffers: &[Arc<Buffer>], wake: &Wake, sink: &mut Sink) {
    let mut page = Vec::new();
    let mut is_failing = false;
    loop {
        wake.wait();
        let closing = wake.closing.load(Ordering::Acquire);
        if !closing {
            std::thread::sleep(WRITE_INTERVAL);
        }
        for buffer in buffers {
            // The two pages are swapped, so that both keep their memory.
            std::mem::swap(&mut buffer.page.lock().unwrap_or_else(PoisonError::into_inner).text, &mut page);
            if page.is_empty() {
                continue;
            }
            match sink.write(&page) {
                Ok(()) => is_failing = false,
                // Only the first failure in a row is reported.
                Err(error) if !is_failing => {
                    tracing::error!(%error, "cannot write the access log; lines are lost until it works again");
                    is_failing = true;
                }
                Err(_) => {}
            }
            page.clear();
            page.shrink_to(KEPT_PAGE);
        }
        if closing {
            return;
        }
    }
}
