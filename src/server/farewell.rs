//! How we part from a client that may still be sending.

use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, ReadBuf};

use crate::silence::Silence;

/// Reads what a client still sends, and throws it away.
pub(super) struct Farewell {
    quiet: Silence,
    end: Instant,
    /// So many bytes are read. Then the client is left alone until it is over: what it sends fills its own memory.
    left: usize,
}

impl Farewell {
    /// A client that sends nothing for so long has stopped. Whoever reads has heard why by then.
    const QUIET: Duration = Duration::from_millis(500);
    /// Nobody is listened to for longer.
    const LONGEST: Duration = Duration::from_secs(10);
    /// As much as an HTTP/2 client may have sent before it heard that it is over, twice: it has windows.
    const HTTP2: usize = 2 * 1024 * 1024;
    /// Over HTTP/1 some listen only when they have said all. Whoever has more to say than this has to listen meanwhile: to read on
    /// and on would cost a whole processor.
    const HTTP1: usize = 16 * 1024 * 1024;

    pub(super) fn to_a_client(http2: bool) -> Self {
        let left = if http2 { Self::HTTP2 } else { Self::HTTP1 };
        Farewell { quiet: Silence::of_at_most(Self::QUIET), end: Instant::now() + Self::LONGEST, left }
    }

    /// To read a flood is to suffer it.
    pub(super) fn to_a_flood() -> Self {
        Farewell { left: 0, ..Self::to_a_client(true) }
    }

    pub(super) fn poll(&mut self, stream: &mut (impl AsyncRead + Unpin), context: &mut Context<'_>) -> Poll<()> {
        if self.left == 0 {
            return self.quiet.poll(context).map(drop);
        }
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut buffer = ReadBuf::uninit(&mut space);
        match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() && Instant::now() < self.end => {
                // One piece at a time: whoever goes on and on takes no more than a turn from others.
                self.left = self.left.saturating_sub(buffer.filled().len());
                self.quiet.broken();
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
