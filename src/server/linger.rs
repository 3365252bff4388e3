//! Reads and discards what a client still sends after its response.
//!
//! Many clients read nothing before they have sent their whole body. If the gateway stopped reading, such a client
//! would wait for room to send, and then see a reset instead of the response to its upload.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body as _;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use super::settings::LingerSettings;
use crate::limits::pace::IdleTimer;
use crate::protocols::http::body::{Body, OnRest};

/// The connections of one worker that may discard more than [`PIECE`] at the same time.
///
/// A client that reconnects again and again leaves many such connections behind. Together they must not take the time
/// of the clients that are served.
#[derive(Clone)]
pub(super) struct LingerSlots {
    free: Arc<Semaphore>,
    settings: LingerSettings,
}

type LingerSlot = OwnedSemaphorePermit;

impl LingerSlots {
    const PER_WORKER: usize = 16;
    /// How long each of `n` connections pauses after [`PIECE`]: `n` times this, so that all of them together discard
    /// at most 64 MiB a second. Without pauses, four clients that never stop take a whole core.
    const PAUSE: Duration = Duration::from_millis(1);

    pub(super) fn new(settings: LingerSettings) -> Self {
        LingerSlots { free: Arc::new(Semaphore::new(Self::PER_WORKER)), settings }
    }

    fn acquire(&self) -> Option<LingerSlot> {
        self.free.clone().try_acquire_owned().ok()
    }

    fn pause(&self) -> Duration {
        let in_use = Self::PER_WORKER.saturating_sub(self.free.available_permits()).max(1);
        Self::PAUSE * u32::try_from(in_use).unwrap_or(u32::MAX)
    }
}

/// Bytes discarded before a pause.
const PIECE: usize = 64 * 1024;

/// Discards the rest of each HTTP/2 request that nothing reads: the gateway has rejected it, or its backend has
/// responded early. Without this, the gateway would reset the stream right behind the response (RFC 9113 section 8.1),
/// and a client that is busy sending sees the reset first.
pub(super) fn discard_rests(slots: LingerSlots) -> OnRest {
    Arc::new(move |rest| {
        // When the process ends, there is no runtime any more.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(discard(rest, slots.clone()));
        }
    })
}

async fn discard(body: Body, slots: LingerSlots) {
    /// How long a client may send nothing.
    const IDLE: Duration = Duration::from_secs(2);
    let Some(_slot) = slots.acquire() else { return };
    let LingerSettings { max_bytes, max_time } = slots.settings;
    let (mut body, mut left, mut piece) = (body.with_idle_timeout(IDLE), max_bytes, PIECE);
    let discarding = async {
        while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let len = frame.data_ref().map_or(0, Bytes::len);
            (left, piece) = (left.saturating_sub(len), piece.saturating_sub(len));
            if left == 0 {
                return;
            }
            if piece == 0 {
                piece = PIECE;
                tokio::time::sleep(slots.pause()).await;
            }
        }
    };
    // When this returns before the end of the body, the stream is reset with NO_ERROR.
    let _ = tokio::time::timeout(max_time, discarding).await;
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
    needs_slot: bool,
    slot_deadline: Instant,
}

impl LingeringClose {
    /// How long a client sends nothing before the connection is closed. A client that reads has the last response by
    /// then.
    const IDLE: Duration = Duration::from_millis(500);
    /// How long a connection waits for a slot, and how often it looks for one.
    const SLOT_TIME: Duration = Duration::from_secs(5);
    const SLOT_INTERVAL: Duration = Duration::from_millis(20);
    /// Maximum bytes discarded over HTTP/2: twice what the windows let a client send before it learns of the close.
    const HTTP2_BYTES: usize = 2 * 1024 * 1024;
    /// Maximum bytes discarded after a malformed head: what follows is hardly an upload.
    const MALFORMED_BYTES: usize = 16 * 1024 * 1024;

    /// For an HTTP/1 connection after its last response.
    pub(super) fn after_response(was_malformed: bool, slots: LingerSlots) -> Self {
        Self::with_maximum(if was_malformed { Self::MALFORMED_BYTES } else { usize::MAX }, slots)
    }

    /// For an HTTP/2 connection.
    pub(super) fn after_goaway(slots: LingerSlots) -> Self {
        Self::with_maximum(Self::HTTP2_BYTES, slots)
    }

    fn with_maximum(bytes: usize, slots: LingerSlots) -> Self {
        let LingerSettings { max_bytes, max_time } = slots.settings;
        let left = bytes.min(max_bytes);
        LingeringClose {
            idle: IdleTimer::new(Self::IDLE),
            deadline: Instant::now() + max_time,
            left,
            piece: PIECE,
            pause: None,
            slots,
            slot: None,
            needs_slot: false,
            slot_deadline: Instant::now() + Self::SLOT_TIME,
        }
    }

    /// After a flood, nothing more is read: reading is what the flood is meant to cost.
    pub(super) fn after_flood(slots: LingerSlots) -> Self {
        Self::with_maximum(0, slots)
    }

    /// Returns ready when the connection can be closed.
    pub(super) fn poll(&mut self, stream: &mut (impl AsyncRead + Unpin), context: &mut Context<'_>) -> Poll<()> {
        if self.left > 0 {
            ready!(self.poll_slot(context));
        }
        if self.left == 0 {
            return self.idle.poll(context).map(drop);
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
        (self.piece, self.needs_slot) = (PIECE, true);
        self.pause = Some(Box::pin(tokio::time::sleep(self.slots.pause())));
    }

    /// Before the second piece: ready when there is a slot, or none became free in time.
    fn poll_slot(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            if self.slot.is_some() || !self.needs_slot {
                return Poll::Ready(());
            }
            self.slot = self.slots.acquire();
            if self.slot.is_none() {
                if Instant::now() >= self.slot_deadline {
                    self.left = 0;
                    return Poll::Ready(());
                }
                self.pause = Some(Box::pin(tokio::time::sleep(Self::SLOT_INTERVAL)));
            }
        }
    }
}

/// Returns pending until the runtime has run every ready task and has checked for I/O. With an immediate wake-up, the
/// runtime would poll this task again and again before it checks.
pub(super) fn yield_to_others<T>(context: &mut Context<'_>) -> Poll<T> {
    let _ = pin!(tokio::task::yield_now()).poll(context);
    Poll::Pending
}
