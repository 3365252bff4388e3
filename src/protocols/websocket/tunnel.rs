//! Copies the bytes of a WebSocket in both directions, until it closes or the gateway ends it.
//!
//! The gateway ends a tunnel when its token is not valid any more, and all tunnels when it shuts down. It first lets
//! the backend's current frame pass, then sends a close frame of its own to both sides.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::frames::{self, Frames};
use crate::protocols::boundaries::Boundaries;
use crate::types::close_reason::CloseReason;
use crate::types::secret;

/// Maximum bytes of one read.
const READ_SIZE: usize = 8 * 1024;

/// How long one side may stay open after the other has closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the rest of the current frame may take. With [`CLOSE_FRAME_TIMEOUT`] less than a second, because a tunnel
/// has to end within a second after its token.
const LAST_FRAME_TIMEOUT: Duration = Duration::from_millis(400);
const CLOSE_FRAME_TIMEOUT: Duration = Duration::from_millis(200);

/// How long a client sends nothing before its connection is closed. A client that reads has the close frame by then.
const IDLE_CLIENT: Duration = Duration::from_millis(500);
/// Maximum bytes that are read and discarded after the last frame, and how long that takes at most.
const MAX_DISCARDED: usize = 256 * 1024;
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

type UpgradedIo = TokioIo<Upgraded>;

/// Both ends of a WebSocket, as soon as each has switched protocols.
pub struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) backend: OnUpgrade,
    /// How long the client may leave no room for data. `None` over HTTP/1.1, where the connection has this limit
    /// itself.
    pub(super) client_write_timeout: Option<Duration>,
}

/// Why a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelEnd {
    /// The client or the backend closed it.
    Closed,
    /// The backend ended it first, and neither side had sent a close frame (RFC 6455 section 7.1.5, code 1006).
    Broken,
    ByGateway(CloseReason),
}

impl TunnelEnd {
    pub fn close_reason(self) -> Option<CloseReason> {
        match self {
            TunnelEnd::Closed | TunnelEnd::Broken => None,
            TunnelEnd::ByGateway(reason) => Some(reason),
        }
    }
}

impl Tunnel {
    /// Copies bytes in both directions until both sides have closed or `end` is ready. Counts the bytes in each
    /// direction. `None` if the client left before the tunnel was open.
    pub async fn run(
        self,
        to_client: &mut u64,
        to_backend: &mut u64,
        end: impl Future<Output = CloseReason>,
    ) -> Option<TunnelEnd> {
        let (client, backend) = tokio::join!(self.client, self.backend);
        let Ok(client) = client else { return None };
        let Ok(backend) = backend else { return Some(TunnelEnd::Broken) };
        let (from_client, client) = tokio::io::split(TokioIo::new(client));
        let (from_backend, backend) = tokio::io::split(TokioIo::new(backend));
        let mut up = Direction::new(from_client, backend, to_backend, None);
        let mut down = Direction::new(from_backend, client, to_client, self.client_write_timeout);
        let CopyEnd { first, in_time } = match copy_until(&mut up, &mut down, end).await {
            Ok(ended) => ended,
            Err(reason) => {
                close(&mut up, &mut down, reason).await;
                return Some(TunnelEnd::ByGateway(reason));
            }
        };
        if in_time && down.is_http1() {
            linger(&mut up.from).await;
        }
        let is_closed = up.frames.is_closed() || down.frames.is_closed();
        Some(if first == Side::Backend && !is_closed { TunnelEnd::Broken } else { TunnelEnd::Closed })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Backend,
}

/// Why nothing more is copied: one side has closed, or accepts no more.
struct CopyEnd {
    first: Side,
    /// If false, the other side did not close in time.
    in_time: bool,
}

/// Fails if `end` is ready first.
async fn copy_until(
    up: &mut Direction<'_>,
    down: &mut Direction<'_>,
    end: impl Future<Output = CloseReason>,
) -> Result<CopyEnd, CloseReason> {
    let mut up = pin!(up.copy(Side::Client, Side::Backend));
    let mut down = pin!(down.copy(Side::Backend, Side::Client));
    let mut end = pin!(end);
    tokio::select! {
        biased;
        reason = end.as_mut() => Err(reason),
        first = up.as_mut() => tokio::select! {
            reason = end => Err(reason),
            other = timeout(CLOSE_TIMEOUT, down) => Ok(CopyEnd { first, in_time: other.is_ok() }),
        },
        first = down.as_mut() => tokio::select! {
            reason = end => Err(reason),
            other = timeout(CLOSE_TIMEOUT, up) => Ok(CopyEnd { first, in_time: other.is_ok() }),
        },
    }
}

/// Sends a close frame to both sides. A side that does not read it in time is disconnected all the same.
async fn close(up: &mut Direction<'_>, down: &mut Direction<'_>, reason: CloseReason) {
    let is_between_frames = timeout(LAST_FRAME_TIMEOUT, down.finish_frame()).await.is_ok_and(|finished| finished);
    let _ = timeout(CLOSE_FRAME_TIMEOUT, async {
        let code = reason.close_code();
        let text = reason.message();
        let to_client = async {
            if is_between_frames && !down.frames.is_closed() {
                let _ = down.to.write_all(&frames::close(code, text, None)).await;
            }
            down.to.flush().await
        };
        let to_backend = async {
            // The client's current frame is not finished, so there may be no place for a close frame.
            if up.frames.is_between() && !up.frames.is_closed() {
                // The gateway is the client here, and a client masks its frames (RFC 6455 section 5.3).
                let _ = up.to.write_all(&frames::close(code, text, Some(secret::random()))).await;
            }
            up.to.shutdown().await
        };
        let _ = tokio::join!(to_client, to_backend);
    })
    .await;
    let _ = timeout(CLOSE_TIMEOUT, down.to.shutdown()).await;
    if down.is_http1() {
        linger(&mut up.from).await;
    }
}

/// Waits for an HTTP/1.1 client to close, and discards what it still sends. Otherwise a reset could take the last
/// frames from a client that has not read them yet.
async fn linger(from: &mut ReadHalf<UpgradedIo>) {
    let discarding = async {
        let mut space = [0; 4096];
        let mut left = MAX_DISCARDED;
        while left > 0
            && let Ok(Ok(read @ 1..)) = timeout(IDLE_CLIENT, from.read(&mut space)).await
        {
            left = left.saturating_sub(read);
        }
    };
    let _ = timeout(LINGER_TIMEOUT, Box::pin(discarding)).await;
}

/// One direction of a tunnel. Its futures may be dropped at any time: what it has read and not written is kept.
struct Direction<'c> {
    from: ReadHalf<UpgradedIo>,
    to: WriteHalf<UpgradedIo>,
    /// What was read. Most WebSockets are silent for most of their time, so this has no memory while there is nothing.
    buffer: Vec<u8>,
    /// How many bytes of `buffer` are written.
    written: usize,
    /// The frames of what is written.
    frames: Frames,
    /// All bytes that are written.
    total: &'c mut u64,
    write_timeout: Option<Duration>,
}

impl<'c> Direction<'c> {
    fn new(
        from: ReadHalf<UpgradedIo>,
        to: WriteHalf<UpgradedIo>,
        total: &'c mut u64,
        write_timeout: Option<Duration>,
    ) -> Self {
        Direction { from, to, buffer: Vec::new(), written: 0, frames: Frames::default(), total, write_timeout }
    }

    /// Returns true if `to` is a client over HTTP/1.1.
    fn is_http1(&self) -> bool {
        self.write_timeout.is_none()
    }

    /// Copies until `from` closes or is reset, or `to` accepts no more. Returns which of the two it was.
    async fn copy(&mut self, from: Side, to: Side) -> Side {
        while self.fill().await {
            if !self.write_to(self.buffer.len()).await || within(self.write_timeout, self.to.flush()).await.is_none() {
                return to;
            }
        }
        // Over HTTP/2 this waits until the client has made room for all that was written.
        let _ = within(self.write_timeout, self.to.shutdown()).await;
        from
    }

    /// Copies the rest of the current frame. Returns false if the rest does not arrive.
    async fn finish_frame(&mut self) -> bool {
        while !self.frames.is_between() {
            if !self.fill().await {
                return false;
            }
            let rest = self.frames.clone().rest_of_unit(&self.buffer[self.written..]);
            if !self.write_to(self.written + rest).await {
                return false;
            }
        }
        true
    }

    /// Reads if everything is written. Returns false at the end of `from`.
    async fn fill(&mut self) -> bool {
        if self.written < self.buffer.len() {
            return true;
        }
        self.buffer.clear();
        self.written = 0;
        poll_fn(|context| self.poll_fill(context)).await
    }

    /// Reads into memory that all tunnels share, the stack of the worker, and keeps a copy of what came.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let mut space = [const { MaybeUninit::uninit() }; READ_SIZE];
        let mut read = ReadBuf::uninit(&mut space);
        match Pin::new(&mut self.from).poll_read(context, &mut read) {
            Poll::Pending => {
                self.buffer = Vec::new();
                return Poll::Pending;
            }
            Poll::Ready(Err(_)) => return Poll::Ready(false),
            Poll::Ready(Ok(())) => self.buffer.extend_from_slice(read.filled()),
        }
        Poll::Ready(!self.buffer.is_empty())
    }

    /// Writes the buffer up to `end`. Returns false if `to` does not accept it.
    async fn write_to(&mut self, end: usize) -> bool {
        while self.written < end {
            let writing = self.to.write(&self.buffer[self.written..end]);
            let Some(count @ 1..) = within(self.write_timeout, writing).await else { return false };
            self.frames.follow(&self.buffer[self.written..self.written + count]);
            self.written += count;
            *self.total += count as u64;
        }
        true
    }
}

/// Returns `None` if the write fails or takes longer than the limit.
async fn within<T>(limit: Option<Duration>, writing: impl Future<Output = io::Result<T>>) -> Option<T> {
    match limit {
        Some(limit) => timeout(limit, writing).await.ok()?.ok(),
        None => writing.await.ok(),
    }
}
