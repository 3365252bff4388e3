//! The lingering close: reads and discards what a client still sends after the last response.

use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use crate::limits::pace::IdleTimer;

/// The connections of one worker that may discard more than [`LingeringClose::PIECE`] at the same time.
///
/// A client that reconnects again and again leaves many such connections behind. Together they must not take the time
/// of the clients that are served.
#[derive(Clone)]
pub(super) struct LingerSlots(Arc<Semaphore>);

type LingerSlot = OwnedSemaphorePermit;

impl LingerSlots {
    const PER_WORKER: usize = 16;

    pub(super) fn new() -> Self {
        LingerSlots(Arc::new(Semaphore::new(Self::PER_WORKER)))
    }

    fn acquire(&self) -> Option<LingerSlot> {
        self.0.clone().try_acquire_owned().ok()
    }
}

pub(super) struct LingeringClose {
    idle: IdleTimer,
    deadline: Instant,
    /// Bytes that are still discarded. Afterwards nothing is read until the close is over, and what the client sends
    /// fills its own memory.
    left: usize,
    /// Bytes until the next pause.
    piece: usize,
    pause: Option<Pin<Box<Sleep>>>,
    slots: LingerSlots,
    /// Held after the first piece.
    slot: Option<LingerSlot>,
}

impl LingeringClose {
    /// How long a client sends nothing before the connection is closed. A client that reads has the last response by
    /// then.
    const IDLE: Duration = Duration::from_millis(500);
    /// How long the close takes at most.
    const MAX_TIME: Duration = Duration::from_secs(10);
    /// Maximum bytes discarded over HTTP/2: twice what the windows let a client send before it learns of the close.
    const HTTP2_BYTES: usize = 2 * 1024 * 1024;
    /// Maximum bytes discarded over HTTP/1. Some clients read the response only after they sent their whole body. A
    /// client with a larger body has to read while it sends.
    const HTTP1_BYTES: usize = 16 * 1024 * 1024;
    /// Bytes discarded before a pause: 3 MiB a second. Without pauses, four clients that never stop take a whole core.
    const PIECE: usize = 64 * 1024;
    const PAUSE: Duration = Duration::from_millis(20);

    /// For a connection after its last response.
    pub(super) fn after_response(is_http2: bool, slots: LingerSlots) -> Self {
        let left = if is_http2 { Self::HTTP2_BYTES } else { Self::HTTP1_BYTES };
        LingeringClose {
            idle: IdleTimer::new(Self::IDLE),
            deadline: Instant::now() + Self::MAX_TIME,
            left,
            piece: Self::PIECE,
            pause: None,
            slots,
            slot: None,
        }
    }

    /// After a flood, nothing more is read: reading is what the flood is meant to cost.
    pub(super) fn after_flood(slots: LingerSlots) -> Self {
        LingeringClose { left: 0, ..Self::after_response(true, slots) }
    }

    /// Returns ready when the connection can be closed.
    pub(super) fn poll(&mut self, stream: &mut (impl AsyncRead + Unpin), context: &mut Context<'_>) -> Poll<()> {
        if self.left == 0 {
            return self.idle.poll(context).map(drop);
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        let mut space = [MaybeUninit::uninit(); 16 * 1024];
        let mut buffer = ReadBuf::uninit(&mut space);
        match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() && Instant::now() < self.deadline => {
                self.discard(buffer.filled().len());
                // Also without a pause: a client that sends without end must not take more than a turn from others.
                yield_to_others(context)
            }
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => self.idle.poll(context).map(drop),
        }
    }

    fn discard(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        self.piece = self.piece.saturating_sub(bytes);
        self.idle.reset();
        if self.piece > 0 {
            return;
        }
        self.piece = Self::PIECE;
        self.slot = self.slot.take().or_else(|| self.slots.acquire());
        if self.slot.is_none() {
            self.left = 0;
        }
        self.pause = Some(Box::pin(tokio::time::sleep(Self::PAUSE)));
    }
}

/// Returns pending until the runtime has run every ready task and has checked for I/O. With an immediate wake-up, the
/// runtime would poll this task again and again before it checks.
pub(super) fn yield_to_others<T>(context: &mut Context<'_>) -> Poll<T> {
    let _ = pin!(tokio::task::yield_now()).poll(context);
    Poll::Pending
}
