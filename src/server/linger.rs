//! How we part from a client that may still be sending.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Sleep;

use crate::limits::pace::IdleTimer;

/// Reads what a client still sends, and throws it away.
pub(super) struct LingeringClose {
    quiet: IdleTimer,
    end: Instant,
    /// So many bytes are read. Then the client is left alone until it is over: what it sends fills its own memory.
    left: usize,
    /// So many of them before the next breath.
    piece: usize,
    breath: Option<Pin<Box<Sleep>>>,
    /// Once it has said more than a piece.
    ear: Option<DrainSlot>,
}

/// To so many clients that have much to say a worker listens at once. Whoever comes again and again leaves as many connections
/// behind, and all of them together must not take the time of those who are served.
const EARS: usize = 16;

thread_local! {
    /// A worker is a thread.
    static LISTENING: Cell<usize> = const { Cell::new(0) };
}

struct DrainSlot;

impl DrainSlot {
    fn free() -> Option<DrainSlot> {
        let listening = LISTENING.get();
        (listening < EARS).then(|| {
            LISTENING.set(listening + 1);
            DrainSlot
        })
    }
}

impl Drop for DrainSlot {
    fn drop(&mut self) {
        LISTENING.set(LISTENING.get().saturating_sub(1));
    }
}

impl LingeringClose {
    /// A client that sends nothing for so long has stopped. Whoever reads has heard why by then.
    const QUIET: Duration = Duration::from_millis(500);
    /// Nobody is listened to for longer.
    const LONGEST: Duration = Duration::from_secs(10);
    /// As much as an HTTP/2 client may have sent before it heard that it is over, twice: it has windows.
    const HTTP2: usize = 2 * 1024 * 1024;
    /// Over HTTP/1 some listen only when they have said all. Whoever has more to say than this has to listen meanwhile.
    const HTTP1: usize = 16 * 1024 * 1024;
    /// So much, and then a breath, is 3 MiB a second. As fast as it comes, four clients that go on and on take a whole processor.
    const PIECE: usize = 64 * 1024;
    const BREATH: Duration = Duration::from_millis(20);

    pub(super) fn to_a_client(http2: bool) -> Self {
        let left = if http2 { Self::HTTP2 } else { Self::HTTP1 };
        LingeringClose {
            quiet: IdleTimer::new(Self::QUIET),
            end: Instant::now() + Self::LONGEST,
            left,
            piece: Self::PIECE,
            breath: None,
            ear: None,
        }
    }

    /// To read a flood is to suffer it.
    pub(super) fn to_a_flood() -> Self {
        LingeringClose { left: 0, ..Self::to_a_client(true) }
    }

    pub(super) fn poll(&mut self, stream: &mut (impl AsyncRead + Unpin), context: &mut Context<'_>) -> Poll<()> {
        if self.left == 0 {
            return self.quiet.poll(context).map(drop);
        }
        if let Some(breath) = &mut self.breath {
            ready!(breath.as_mut().poll(context));
            self.breath = None;
        }
        let mut space = [MaybeUninit::uninit(); 16 * 1024];
        let mut buffer = ReadBuf::uninit(&mut space);
        match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() && Instant::now() < self.end => {
                let read = buffer.filled().len();
                self.left = self.left.saturating_sub(read);
                self.piece = self.piece.saturating_sub(read);
                self.quiet.reset();
                if self.piece == 0 {
                    self.piece = Self::PIECE;
                    self.ear = self.ear.take().or_else(DrainSlot::free);
                    self.left = if self.ear.is_some() { self.left } else { 0 };
                    self.breath = Some(Box::pin(tokio::time::sleep(Self::BREATH)));
                }
                // In any case: whoever goes on and on takes no more than a turn from others.
                after_others(context)
            }
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => self.quiet.poll(context).map(drop),
        }
    }
}

/// Pending until the runtime has run whatever is ready, and has looked for I/O. To be woken at once would be to be polled again
/// and again before it looks.
pub(super) fn after_others<T>(context: &mut Context<'_>) -> Poll<T> {
    let _ = pin!(tokio::task::yield_now()).poll(context);
    Poll::Pending
}
