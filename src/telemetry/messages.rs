//! The gateway's own messages, on standard error. No request and no task waits for them.
//!
//! A thread writes them, because standard error may be a pipe that no program reads. If messages come faster than they
//! can be written, or faster than [`RATE`], they are left out and counted, so that a fault that repeats with each
//! request does not fill the disk of the journal.
//!
//! What a client sends can make a library write: h2 warns of each acknowledgement of a PING that it has not sent. So
//! libraries have an allowance of their own ([`LIBRARY_RATE`]), and errors of the gateway have a reserve.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::limits::limiter::{Limiter, Rate};
use crate::types::clock::{Clock, SystemClock, Uptime};

/// 100 messages of the gateway a second, and 1,000 at once. Messages below the level `info` have no limit: an operator
/// asked for them.
const RATE: Rate = Rate { burst: 1_000, interval: Duration::from_millis(10) };
/// 10 messages of all libraries a second, and 100 at once.
const LIBRARY_RATE: Rate = Rate { burst: 100, interval: Duration::from_millis(100) };
/// 10 errors of the gateway a second, and 100 at once, when [`RATE`] is used up.
const ERROR_RESERVE: Rate = Rate { burst: 100, interval: Duration::from_millis(100) };
/// The key of a limit that all messages share.
const ALL: u128 = 0;
/// Maximum messages that wait to be written.
const MAX_QUEUED: usize = 1_000;
/// How many of these only errors of the gateway can be.
const QUEUED_ERRORS: usize = 100;
/// The target of the gateway's own messages begins with it.
const OWN_TARGET: &str = "bearward";
/// Maximum bytes of one message. The report of an invalid configuration is the longest.
const MAX_LENGTH: usize = 16 * 1024;
/// How often to say how many messages were left out.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// How long [`Messages::flush`] waits.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The way to the thread. It is a writer for `tracing_subscriber`.
#[derive(Clone)]
pub struct Messages {
    queue: SyncSender<QueuedMessage>,
    shared: Arc<Shared>,
}

struct Shared {
    own: Limiter,
    libraries: Limiter,
    errors: Limiter,
    /// The limits count from here. A clock that is set back does not matter.
    started: Instant,
    queued: AtomicUsize,
    left_out: AtomicU64,
    of_libraries_left_out: AtomicU64,
}

/// Which allowance a message counts for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// An error of the gateway.
    Error,
    /// Another message of the gateway, at the levels `warn` and `info`.
    Own,
    /// A message of a library, at the levels `error`, `warn` and `info`.
    Library,
    /// A message below the level `info`.
    Detail,
}

impl Class {
    fn of(metadata: &Metadata<'_>) -> Self {
        let rest = metadata.target().strip_prefix(OWN_TARGET);
        let is_own = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        match *metadata.level() {
            level if level > Level::INFO => Class::Detail,
            _ if !is_own => Class::Library,
            Level::ERROR => Class::Error,
            _ => Class::Own,
        }
    }
}

enum QueuedMessage {
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
        let [own, libraries, errors] = [RATE, LIBRARY_RATE, ERROR_RESERVE].map(|rate| Limiter::with_capacity(rate, 1));
        let shared = Arc::new(Shared {
            own,
            libraries,
            errors,
            started: Instant::now(),
            queued: AtomicUsize::new(0),
            left_out: AtomicU64::new(0),
            of_libraries_left_out: AtomicU64::new(0),
        });
        let writer = shared.clone();
        std::thread::Builder::new().name("messages".into()).spawn(move || writer.run(&queued, output))?;
        Ok(Messages { queue, shared })
    }

    /// Waits at most [`FLUSH_TIMEOUT`] until all messages are written.
    pub fn flush(&self) {
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        let (done, is_done) = sync_channel(1);
        let mut entry = QueuedMessage::Flush(done);
        while let Err(TrySendError::Full(returned)) = self.queue.try_send(entry) {
            if Instant::now() >= deadline {
                return;
            }
            entry = returned;
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = is_done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }

    fn push(&self, message: &[u8], class: Class) {
        if !self.shared.allows(class) || !self.queue(message, class) {
            let left_out = match class {
                Class::Library => &self.shared.of_libraries_left_out,
                Class::Error | Class::Own | Class::Detail => &self.shared.left_out,
            };
            left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns false if there is no room.
    fn queue(&self, message: &[u8], class: Class) -> bool {
        let queued = &self.shared.queued;
        let room = if class == Class::Error { MAX_QUEUED } else { MAX_QUEUED - QUEUED_ERRORS };
        if queued.fetch_add(1, Ordering::Relaxed) < room
            && self.queue.try_send(QueuedMessage::Message(shortened(message))).is_ok()
        {
            return true;
        }
        queued.fetch_sub(1, Ordering::Relaxed);
        false
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
    /// Takes a message from the allowance of its class.
    fn allows(&self, class: Class) -> bool {
        let now = Uptime::default() + self.started.elapsed();
        let takes = |limiter: &Limiter| limiter.try_take(ALL, now).is_ok();
        match class {
            Class::Detail => true,
            Class::Library => takes(&self.libraries),
            Class::Own => takes(&self.own),
            Class::Error => takes(&self.own) || takes(&self.errors),
        }
    }

    fn run(&self, queued: &Receiver<QueuedMessage>, mut output: impl Write) {
        let mut reported = None;
        loop {
            // A failed write is not reported: there is no other place for messages.
            match queued.recv_timeout(REPORT_INTERVAL) {
                Ok(QueuedMessage::Message(message)) => {
                    drop(output.write_all(&message));
                    self.queued.fetch_sub(1, Ordering::Relaxed);
                }
                Ok(QueuedMessage::Flush(done)) => {
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
        let mut is_any = false;
        for (left_out, of) in [(&self.left_out, ""), (&self.of_libraries_left_out, " of libraries")] {
            let left_out = left_out.swap(0, Ordering::Relaxed);
            if left_out > 0 {
                let now = SystemClock.now();
                let target = module_path!();
                let _ = writeln!(output, "{now}  WARN {target}: left out {left_out} messages{of}: there were too many");
                is_any = true;
            }
        }
        is_any
    }
}

impl<'m> MakeWriter<'m> for Messages {
    type Writer = MessageWriter<'m>;

    fn make_writer(&'m self) -> MessageWriter<'m> {
        MessageWriter { messages: self, class: Class::Own }
    }

    fn make_writer_for(&'m self, metadata: &Metadata<'_>) -> MessageWriter<'m> {
        MessageWriter { messages: self, class: Class::of(metadata) }
    }
}

/// Takes one message. `tracing_subscriber` passes it in one call.
pub struct MessageWriter<'m> {
    messages: &'m Messages,
    class: Class,
}

impl Write for MessageWriter<'_> {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        self.messages.push(message, self.class);
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
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
        let written = output.0.lock().clone();
        String::from_utf8(written).expect("text")
    }

    #[test]
    fn a_flood_of_messages_is_limited_and_counted() {
        let text = written(|messages| {
            for _ in 0..20 {
                (0..500).for_each(|_| messages.push(b"failed\n", Class::Own));
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
                (0..500).for_each(|_| messages.push(b"detail\n", Class::Detail));
                messages.flush();
            }
        });
        assert_eq!(text.lines().filter(|line| *line == "detail").count(), 10_000);
    }

    #[test]
    fn libraries_and_other_messages_leave_room_for_errors() {
        let text = written(|messages| {
            for _ in 0..20 {
                for _ in 0..200 {
                    messages.push(b"library\n", Class::Library);
                    messages.push(b"warning\n", Class::Own);
                }
                (0..4).for_each(|_| messages.push(b"error\n", Class::Error));
                messages.flush();
            }
        });
        let count = |wanted: &str| text.lines().filter(|line| *line == wanted).count();
        assert_eq!(count("error"), 80, "{text}");
        // 100, and 10 for each second that this took.
        assert!((100..500).contains(&count("library")), "{}", count("library"));
        assert!((900..5_000).contains(&count("warning")), "{}", count("warning"));
        assert!(text.contains(" messages of libraries: there were too many"), "{text}");
    }

    #[test]
    fn a_full_queue_has_room_for_errors() {
        let (release, released) = sync_channel::<()>(0);
        struct Waiting(Receiver<()>, Output);
        impl Write for Waiting {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = self.0.recv();
                self.1.write(bytes)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let output = Output::default();
        let messages = Messages::write_to(Waiting(released, output.clone())).expect("a thread");
        (0..2 * MAX_QUEUED).for_each(|_| messages.push(b"detail\n", Class::Detail));
        (0..QUEUED_ERRORS).for_each(|_| messages.push(b"error\n", Class::Error));
        drop(release);
        messages.flush();
        let text = String::from_utf8(output.0.lock().clone()).expect("text");
        assert_eq!(text.lines().filter(|line| *line == "error").count(), QUEUED_ERRORS);
    }

    #[test]
    fn a_long_message_is_cut() {
        let text = written(|messages| messages.push("é".repeat(MAX_LENGTH).as_bytes(), Class::Own));
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
        (0..2 * MAX_QUEUED).for_each(|_| messages.push(b"lost\n", Class::Detail));
        messages.flush();
        assert!(messages.shared.left_out.load(Ordering::Relaxed) >= MAX_QUEUED as u64 - 1);
    }
}
