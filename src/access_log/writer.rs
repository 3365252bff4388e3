//! The buffers that workers leave records in, and the thread that empties them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::line::Lines;
use super::{Record, Settings, Target};
use crate::metrics::WorkerMetrics;

/// Records that one worker may leave lying around: at 100,000 requests a second, half a second's worth.
const BUFFERED: usize = 50_000;

/// Where a worker leaves its records.
pub struct Buffer {
    records: Mutex<Vec<Record>>,
    wake: Arc<Wake>,
    metrics: Arc<WorkerMetrics>,
}

impl Buffer {
    pub fn push(&self, record: Record) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if records.len() >= BUFFERED {
            self.metrics.access_log_dropped.one();
            return;
        }
        let first = records.is_empty();
        records.push(record);
        drop(records);
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
        let mut out: Box<dyn Write + Send> = match &settings.target {
            Target::Off => return Ok(None),
            Target::Stdout => Box::new(io::stdout()),
            Target::File(path) => Box::new(open_file(path)?),
        };
        let wake = Arc::new(Wake::default());
        let buffers: Vec<_> = workers
            .iter()
            .map(|metrics| Arc::new(Buffer { records: Mutex::default(), wake: wake.clone(), metrics: metrics.clone() }))
            .collect();
        let (collected, bell, format) = (buffers.clone(), wake.clone(), settings.format);
        let writer = std::thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_until_closed(&collected, &bell, Lines::new(format), &mut out))?;
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

/// Log files hold subjects and addresses: readable by the group at most.
fn open_file(path: &PathBuf) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

fn write_until_closed(buffers: &[Arc<Buffer>], wake: &Wake, mut lines: Lines, out: &mut impl Write) {
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
            let records = std::mem::take(&mut *buffer.records.lock().unwrap_or_else(PoisonError::into_inner));
            for record in &records {
                lines.write(record, &mut page);
            }
        }
        let written = out.write_all(&page).and_then(|()| out.flush());
        page.clear();
        match written {
            Ok(()) => complained = false,
            Err(error) if !complained => {
                tracing::error!(%error, "the access log cannot be written; lines are lost until it can");
                complained = true;
            }
            Err(_) => {}
        }
        if closing {
            return;
        }
    }
}
