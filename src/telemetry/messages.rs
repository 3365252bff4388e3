//! The gateway's own messages, on standard error. No request and no task waits for them.
//!
//! A thread writes them, because standard error may be a pipe that no program reads. If messages come faster than they
//! can be written, or faster than [`RATE`], they are left out and counted, so that a fault that repeats with each
//! request does not fill the disk of the journal.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::limits::limiter::{Limiter, Rate};
use crate::types::clock::{Clock, SystemClock, Uptime};

/// 100 messages a second, and 1,000 at once. Messages below the level `info` have no limit: an operator asked for them.
const RATE: Rate = Rate { burst: 1_000, interval: Duration::from_millis(10) };
/// The key of the limit that all messages share.
const ALL: u128 = 0;
/// Maximum messages that wait to be written.
const MAX_QUEUED: usize = 1_000;
/// Maximum bytes of one message. The report of an invalid configuration is the longest.
const MAX_LENGTH: usize = 16 * 1024;
/// How often to say how many messages were left out.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// How long [`Messages::flush`] waits.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The way to the thread. It is a writer for `tracing_subscriber`.
#[derive(Clone)]
pub struct Messages {
    queue: SyncSender<Entry>,
    shared: Arc<Shared>,
}

struct Shared {
    limiter: Limiter,
    /// The limit counts from here. A clock that is set back does not matter.
    started: Instant,
    left_out: AtomicU64,
}

enum Entry {
    Message(Vec<u8>),
    /// Signals that all messages before it are written.
    Flush(SyncSender<()>),
}

impl Messages {
    /// Starts the thread, which ends with the process.
    pub fn start() -> io::Result<Self> {
        Self::write_to(io::stderr())
    }

    fn write_to(output: impl Write + Send + 'static) -> io::Result<Self> {
        let (queue, queued) = sync_channel(MAX_QUEUED);
        let limiter = Limiter::with_capacity(RATE, 1);
        let shared = Arc::new(Shared { limiter, started: Instant::now(), left_out: AtomicU64::new(0) });
        let writer = shared.clone();
        std::thread::Builder::new().name("messages".into()).spawn(move || writer.run(&queued, output))?;
        Ok(Messages { queue, shared })
    }

    /// Waits at most [`FLUSH_TIMEOUT`] until all messages are written.
    pub fn flush(&self) {
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        let (done, is_done) = sync_channel(1);
        let mut entry = Entry::Flush(done);
        while let Err(TrySendError::Full(returned)) = self.queue.try_send(entry) {
            if Instant::now() >= deadline {
                return;
            }
            entry = returned;
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = is_done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }

    fn push(&self, message: &[u8], is_limited: bool) {
        let shared = &self.shared;
        let now = Uptime::default() + shared.started.elapsed();
        let is_allowed = !is_limited || shared.limiter.try_take(ALL, now).is_ok();
        if !is_allowed || self.queue.try_send(Entry::Message(shortened(message))).is_err() {
            shared.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn shortened(message: &[u8]) -> Vec<u8> {
    if message.len() <= MAX_LENGTH {
        return message.to_vec();
    }
    let mut kept = String::from_utf8_lossy(&message[..MAX_LENGTH]).into_owned();
    kept.push_str("…\n");
    kept.into_bytes()
}

impl Shared {
    fn run(&self, queued: &Receiver<Entry>, mut output: impl Write) {
        let mut reported = None;
        loop {
            // A failed write is not reported: there is no other place for messages.
            match queued.recv_timeout(REPORT_INTERVAL) {
                Ok(Entry::Message(message)) => drop(output.write_all(&message)),
                Ok(Entry::Flush(done)) => {
                    self.report_left_out(&mut output);
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if reported.is_none_or(|last: Instant| last.elapsed() >= REPORT_INTERVAL)
                && self.report_left_out(&mut output)
            {
                reported = Some(Instant::now());
            }
        }
    }

    /// Returns true if messages were left out since the last call.
    fn report_left_out(&self, output: &mut impl Write) -> bool {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let now = SystemClock.now();
            let _ =
                writeln!(output, "{now}  WARN {}: left out {left_out} messages: there were too many", module_path!());
        }
        left_out > 0
    }
}

impl<'m> MakeWriter<'m> for Messages {
    type Writer = MessageWriter<'m>;

    fn make_writer(&'m self) -> MessageWriter<'m> {
        MessageWriter { messages: self, is_limited: true }
    }

    fn make_writer_for(&'m self, metadata: &Metadata<'_>) -> MessageWriter<'m> {
        MessageWriter { messages: self, is_limited: *metadata.level() <= Level::INFO }
    }
}

/// Takes one message. `tracing_subscriber` passes it in one call.
pub struct MessageWriter<'m> {
    messages: &'m Messages,
    is_limited: bool,
}

impl Write for MessageWriter<'_> {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        self.messages.push(message, self.is_limited);
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("unpoisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(push: impl FnOnce(&Messages)) -> String {
        let output = Output::default();
        let messages = Messages::write_to(output.clone()).expect("a thread");
        push(&messages);
        messages.flush();
        let written = output.0.lock().expect("unpoisoned").clone();
        String::from_utf8(written).expect("text")
    }

    #[test]
    fn a_flood_of_messages_is_limited_and_counted() {
        let text = written(|messages| {
            for _ in 0..20 {
                (0..500).for_each(|_| messages.push(b"failed\n", true));
                messages.flush();
            }
        });
        let count = text.lines().filter(|line| *line == "failed").count();
        // 1,000, and 100 for each second that this took.
        assert!((1_000..5_000).contains(&count), "{count}");
        let left_out = |line: &str| line.split("left out ").nth(1)?.split(' ').next()?.parse::<usize>().ok();
        assert_eq!(text.lines().filter_map(left_out).sum::<usize>(), 10_000 - count);
    }

    #[test]
    fn messages_that_an_operator_asked_for_have_no_limit() {
        let text = written(|messages| {
            for _ in 0..20 {
                (0..500).for_each(|_| messages.push(b"detail\n", false));
                messages.flush();
            }
        });
        assert_eq!(text.lines().filter(|line| *line == "detail").count(), 10_000);
    }

    #[test]
    fn a_long_message_is_cut() {
        let text = written(|messages| messages.push("é".repeat(MAX_LENGTH).as_bytes(), true));
        assert!(text.ends_with("…\n") && text.len() < MAX_LENGTH + 8, "{}", text.len());
    }

    /// Standard error is a pipe that no program reads.
    #[test]
    fn a_stuck_output_blocks_no_caller() {
        struct Stuck;
        impl Write for Stuck {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                loop {
                    std::thread::park();
                }
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let messages = Messages::write_to(Stuck).expect("a thread");
        (0..2 * MAX_QUEUED).for_each(|_| messages.push(b"lost\n", false));
        messages.flush();
        assert!(messages.shared.left_out.load(Ordering::Relaxed) >= MAX_QUEUED as u64 - 1);
    }
}
