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
use tokio::time::Sleep;

use super::linger_slots::{PIECE, SLOT_INTERVAL, SLOT_TIME, Share, Slot};
use super::settings::LingerSettings;
use crate::limits::pace::IdleTimer;
use crate::protocols::http::body::{Body, OnRest};

/// How long a client that has not sent all of its upload may send nothing. The default of nginx: a client that makes
/// its body while it sends it may pause.
const PAUSE_OF_CLIENT: Duration = Duration::from_secs(5);

/// Discards the rest of each HTTP/2 request that nothing reads: the gateway has rejected it, or its backend has
/// responded early. Without this, the gateway would reset the stream right behind the response (RFC 9113 section 8.1),
/// and a client that is busy sending sees the reset first.
pub(super) fn discard_rests(share: Arc<Share>) -> OnRest {
    Arc::new(move |rest| {
        // When the process ends, there is no runtime any more.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(discard(rest, share.clone()));
        }
    })
}

async fn discard(body: Body, share: Arc<Share>) {
    let LingerSettings { max_bytes, max_time } = share.settings();
    let mut body = body.with_idle_timeout(PAUSE_OF_CLIENT);
    let mut discarded = 0_usize;
    let mut slot = None::<Arc<Slot>>;
    let discarding = async {
        while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let len = frame.data_ref().map_or(0, Bytes::len);
            discarded = discarded.saturating_add(len);
            if discarded >= max_bytes {
                return share.count_full();
            }
            if slot.as_ref().is_some_and(|slot| !slot.record(len)) {
                return;
            }
            if let Some(pause) = share.count(len) {
                tokio::time::sleep(pause).await;
            }
            if discarded > PIECE && slot.is_none() {
                slot = wait_for_slot(&share).await;
                if slot.is_none() {
                    return;
                }
            }
        }
    };
    // When this returns before the end of the body, the stream is reset with NO_ERROR.
    let _ = tokio::time::timeout(max_time, discarding).await;
}

async fn wait_for_slot(share: &Share) -> Option<Arc<Slot>> {
    let deadline = Instant::now() + SLOT_TIME;
    loop {
        let slot = share.slot();
        if slot.is_some() || Instant::now() >= deadline {
            return slot;
        }
        tokio::time::sleep(SLOT_INTERVAL).await;
    }
}

pub(super) struct LingeringClose {
    idle: IdleTimer,
    deadline: Instant,
    /// Bytes that are still discarded. Afterwards nothing is read until the close is over, and what the client sends
    /// fills its own memory.
    left: usize,
    /// If true, `left` began with `limits.discarded_body_size`.
    is_limit: bool,
    pause: Option<Pin<Box<Sleep>>>,
    share: Arc<Share>,
    /// Held after the first piece.
    slot: Option<Arc<Slot>>,
    needs_slot: bool,
    slot_deadline: Instant,
}

/// What the last response on a connection came after.
pub(super) enum After {
    /// A complete request.
    Complete,
    /// A part of a request.
    Upload,
    MalformedHead,
    Goaway,
    /// Nothing more is read, because the purpose of the flood is that the gateway reads it.
    Flood,
}

impl LingeringClose {
    /// How long a client with nothing left to send may keep the connection open. A client that reads has the last
    /// response by then.
    const IDLE: Duration = Duration::from_millis(500);
    /// Maximum bytes discarded over HTTP/2: twice what the windows let a client send before it learns of the close.
    const HTTP2_BYTES: usize = 2 * 1024 * 1024;
    /// Maximum bytes discarded after a malformed head. An upload seldom follows one.
    const MALFORMED_BYTES: usize = 16 * 1024 * 1024;

    pub(super) fn new(after: After, share: Arc<Share>) -> Self {
        let (bytes, idle) = match after {
            After::Complete => (usize::MAX, Self::IDLE),
            After::Upload => (usize::MAX, PAUSE_OF_CLIENT),
            After::MalformedHead => (Self::MALFORMED_BYTES, Self::IDLE),
            After::Goaway => (Self::HTTP2_BYTES, Self::IDLE),
            After::Flood => (0, Self::IDLE),
        };
        let LingerSettings { max_bytes, max_time } = share.settings();
        let left = bytes.min(max_bytes);
        LingeringClose {
            idle: IdleTimer::new(if left > 0 { idle } else { Self::IDLE }),
            deadline: Instant::now() + max_time,
            left,
            is_limit: bytes >= max_bytes,
            pause: None,
            share,
            slot: None,
            needs_slot: false,
            slot_deadline: Instant::now() + SLOT_TIME,
        }
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
        self.idle.reset();
        if self.left == 0 && self.is_limit {
            self.share.count_full();
        }
        if self.slot.as_ref().is_some_and(|slot| !slot.record(bytes)) {
            self.left = 0;
        }
        if self.left == 0 {
            return self.stop();
        }
        if let Some(pause) = self.share.count(bytes) {
            self.needs_slot = true;
            self.pause = Some(Box::pin(tokio::time::sleep(pause)));
        }
    }

    /// From now on, nothing is read.
    fn stop(&mut self) {
        (self.left, self.slot, self.idle) = (0, None, IdleTimer::new(Self::IDLE));
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
            self.slot = self.share.slot();
            if self.slot.is_none() {
                if Instant::now() >= self.slot_deadline {
                    self.stop();
                    return Poll::Ready(());
                }
                self.pause = Some(Box::pin(tokio::time::sleep(SLOT_INTERVAL)));
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
