//! One line a request, also when the client leaves, written off the hot path.
//!
//! A worker fills in a [`Record`] and leaves it in a buffer of its own; a thread of its own collects the buffers, formats
//! and writes. A request pays for moving the record and an uncontended lock, never for formatting or a system call. If
//! the writer cannot keep up (a full disk, a stalled terminal) lines are dropped and counted, not waited for.
//!
//! The query is not logged: it is where other people's secrets are. Nor is any header but User-Agent.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use http::{HeaderValue, Method, Uri, Version};
use serde::Serialize;

use crate::clock::UnixTime;
use crate::ids::{RequestId, TokenId};
use crate::metrics::WorkerMetrics;
use crate::reject::Reject;
use crate::route::Route;
use crate::token::VerifiedToken;

/// `[access_log]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub target: Target,
    pub format: Format,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    Off,
    Stdout,
    File(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Text,
}

/// What is known of one request, filled in on its way.
#[derive(Default)]
pub struct Record {
    pub request_id: RequestId,
    pub time: UnixTime,
    pub client: Option<IpAddr>,
    pub method: Method,
    pub uri: Uri,
    pub version: Version,
    pub host: Option<HeaderValue>,
    pub user_agent: Option<HeaderValue>,
    /// 0: the client left before there was an answer.
    pub status: u16,
    pub sent: u64,
    /// The whole answer was handed to the connection.
    pub complete: bool,
    pub route: Option<Arc<Route>>,
    pub caller: Option<Arc<VerifiedToken>>,
    /// The family a call on tokens was about.
    pub token_id: Option<TokenId>,
    pub upstream: Option<Arc<str>>,
    pub refused: Option<Reject>,
    pub duration: Duration,
}

/// A line as it is written. Names are part of the interface to operators.
#[derive(Serialize)]
struct Line<'r> {
    time: String,
    request_id: RequestId,
    client: Option<IpAddr>,
    method: &'r str,
    host: Option<&'r str>,
    path: Cow<'r, str>,
    protocol: &'static str,
    status: u16,
    reason: Option<&'static str>,
    detail: Option<&'r str>,
    route: Option<&'r str>,
    upstream: Option<&'r str>,
    issuer: Option<&'r str>,
    subject: Option<&'r str>,
    token_id: Option<TokenId>,
    duration_us: u64,
    sent: u64,
    complete: bool,
    user_agent: Option<String>,
}

impl<'r> Line<'r> {
    fn of(record: &'r Record) -> Self {
        let caller = record.caller.as_deref();
        Line {
            time: record.time.to_string(),
            request_id: record.request_id,
            client: record.client.map(|address| address.to_canonical()),
            method: record.method.as_str(),
            host: record.host.as_ref().and_then(|host| host.to_str().ok()),
            path: without_tokens(record.uri.path()),
            protocol: match record.version {
                Version::HTTP_2 => "HTTP/2",
                Version::HTTP_10 => "HTTP/1.0",
                _ => "HTTP/1.1",
            },
            status: record.status,
            reason: record.refused.as_ref().map(|reject| reject.reason.code()),
            detail: record.refused.as_ref().map(|reject| &*reject.detail).filter(|detail| !detail.is_empty()),
            route: record.route.as_ref().map(|route| &*route.name),
            upstream: record.upstream.as_deref(),
            issuer: caller.map(|caller| &*caller.issuer),
            subject: caller.map(|caller| &*caller.subject).filter(|subject| !subject.is_empty()),
            token_id: record.token_id.or(caller.and_then(|caller| caller.family)),
            duration_us: u64::try_from(record.duration.as_micros()).unwrap_or(u64::MAX),
            sent: record.sent,
            complete: record.complete,
            user_agent: record.user_agent.as_ref().map(|agent| String::from_utf8_lossy(agent.as_bytes()).into_owned()),
        }
    }

    fn write(&self, format: Format, out: &mut impl Write) -> io::Result<()> {
        match format {
            Format::Json => serde_json::to_writer(&mut *out, self)?,
            // Quoted with escapes: nothing that a client sent can begin a line of its own.
            Format::Text => write!(
                out,
                "{} {} {} {:?} {:?} {} {} {}us {:?} {} {} {:?}",
                self.time,
                self.client.map_or_else(|| "-".into(), |address| address.to_string()),
                self.method,
                self.host.unwrap_or("-"),
                self.path,
                self.protocol,
                self.status,
                self.duration_us,
                self.subject.unwrap_or("-"),
                self.reason.unwrap_or("-"),
                self.request_id,
                self.detail.unwrap_or("-"),
            )?,
        }
        out.write_all(b"\n")
    }
}

/// The path, with every segment cut that begins like a token: clients put them there, by right (`DELETE /token/…` takes a
/// refresh token) or by mistake.
fn without_tokens(path: &str) -> Cow<'_, str> {
    const BEGINNINGS: [&str; 2] = ["bwr1_", "eyJ"];
    if !BEGINNINGS.iter().any(|beginning| path.contains(beginning)) {
        return Cow::Borrowed(path);
    }
    let cut = |segment| match BEGINNINGS.iter().find_map(|beginning| str::split_once(segment, beginning)) {
        Some((before, _)) => format!("{before}[token]"),
        None => segment.to_owned(),
    };
    Cow::Owned(path.split('/').map(cut).collect::<Vec<_>>().join("/"))
}

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
            .spawn(move || write_until_closed(&collected, &bell, format, &mut out))?;
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

fn write_until_closed(buffers: &[Arc<Buffer>], wake: &Wake, format: Format, out: &mut impl Write) {
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
                // Writing to memory does not fail.
                let _ = Line::of(record).write(format, &mut page);
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
