//! The pages that workers write lines on, and the thread that empties them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::line::Lines;
use super::record::Record;
use super::settings::{Settings, Target};
use crate::telemetry::metrics::WorkerMetrics;

/// Bytes of lines that one worker may leave lying around: at 100,000 requests a second, half a second's worth.
const MOST: usize = 16 << 20;

/// A page that is larger gives its memory back once it is written: there will not be another like it soon.
const USUAL: usize = 1 << 20;

/// Where a worker leaves its lines.
pub struct Buffer {
    page: Mutex<LogPage>,
    wake: Arc<Wake>,
    metrics: Arc<WorkerMetrics>,
}

struct LogPage {
    lines: Lines,
    text: Vec<u8>,
}

impl Buffer {
    pub fn push(&self, record: &Record) {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let LogPage { lines, text } = &mut *page;
        if text.len() >= MOST {
            self.metrics.access_log_dropped.one();
            return;
        }
        let first = text.is_empty();
        lines.write(record, text);
        drop(page);
        // One wake-up for a batch: whoever comes next finds the writer on its way.
        if first {
            self.wake.ring();
        }
    }
}

#[derive(Default)]
struct Wake {
    rung: Mutex<bool>,
    bell: Condvar,
    closing: AtomicBool,
}

impl Wake {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_one();
    }

    fn wait(&self) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rung = self.bell.wait_while(rung, |rung| !*rung).unwrap_or_else(PoisonError::into_inner);
        *rung = false;
    }
}

/// The log: its writer thread and the workers' buffers. Dropping it writes what is left.
pub struct AccessLog {
    buffers: Vec<Arc<Buffer>>,
    wake: Arc<Wake>,
    writer: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Opens the target and starts the writer. `None` if the log is off.
    pub fn open(settings: &Settings, workers: &[Arc<WorkerMetrics>]) -> io::Result<Option<AccessLog>> {
        let mut out = match &settings.target {
            Target::Off => return Ok(None),
            Target::Stdout => Sink::Stdout(io::stdout()),
            Target::File(path) => Sink::File { file: open_file(path)?, path: path.clone() },
        };
        let wake = Arc::new(Wake::default());
        let buffers: Vec<_> = workers
            .iter()
            .map(|metrics| {
                let page = Mutex::new(LogPage { lines: Lines::new(settings.format), text: Vec::new() });
                Arc::new(Buffer { page, wake: wake.clone(), metrics: metrics.clone() })
            })
            .collect();
        let (collected, bell) = (buffers.clone(), wake.clone());
        let writer = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_until_closed(&collected, &bell, &mut out))?;
        Ok(Some(AccessLog { buffers, wake, writer: Some(writer) }))
    }

    pub fn buffer(&self, worker: usize) -> Arc<Buffer> {
        self.buffers[worker].clone()
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.wake.closing.store(true, Ordering::Release);
        self.wake.ring();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has nothing left to write.
            let _ = writer.join();
        }
    }
}

enum Sink {
    Stdout(io::Stdout),
    File { file: File, path: PathBuf },
}

impl Sink {
    /// To the file that has the name now: who rotates logs takes the old one away, and need not say so.
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

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    Ok(std::fs::metadata(path).is_ok_and(|named| (named.dev(), named.ino()) == (open.dev(), open.ino())))
}

/// Log files hold subjects and addresses: readable by the group at most.
fn open_file(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

fn write_until_closed(buffers: &[Arc<Buffer>], wake: &Wake, out: &mut Sink) {
    let mut page = Vec::new();
    let mut complained = false;
    loop {
        wake.wait();
        let closing = wake.closing.load(Ordering::Acquire);
        if !closing {
            // Let a batch gather. A line is at most this late.
            std::thread::sleep(Duration::from_millis(20));
        }
        for buffer in buffers {
            // The two pages change places: both keep their memory.
            std::mem::swap(&mut buffer.page.lock().unwrap_or_else(PoisonError::into_inner).text, &mut page);
            if page.is_empty() {
                continue;
            }
            match out.write(&page) {
                Ok(()) => complained = false,
                Err(error) if !complained => {
                    tracing::error!(%error, "the access log cannot be written; lines are lost until it can");
                    complained = true;
                }
                Err(_) => {}
            }
            page.clear();
            page.shrink_to(USUAL);
        }
        if closing {
            return;
        }
    }
}
