//! The bytes of a tunnel, both ways, to the goodbye.
//!
//! Who ends it in the middle (the token that it stood on is good no longer, or the process goes) lets the frame pass that
//! is under way from the upstream, and then says so to both sides in a close frame of its own.

use std::pin::pin;
use std::time::Duration;

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::Tunnel;
use super::frames::{self, Frames};
use crate::protocols::boundaries::Boundaries;
use crate::types::close_reason::CloseReason;
use crate::types::secret;

/// After one side has closed.
const GOODBYE: Duration = Duration::from_secs(5);

/// For the rest of a frame, and for the close frame after it: what is ended has ended within a second.
const LAST_FRAME: Duration = Duration::from_millis(400);
const LAST_WORD: Duration = Duration::from_millis(200);

type UpgradedIo = TokioIo<Upgraded>;

/// Who ended a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelEnd {
    /// One of its sides.
    Closed,
    Ended(CloseReason),
}

impl TunnelEnd {
    pub fn ended(self) -> Option<CloseReason> {
        match self {
            TunnelEnd::Closed => None,
            TunnelEnd::Ended(ended) => Some(ended),
        }
    }
}

impl Tunnel {
    /// Carries bytes both ways until either side closes and the other had time to say goodbye, or until `end` says that it is
    /// over. Counts what went to the client. `None` if the tunnel did not open.
    pub async fn carry(self, to_client: &mut u64, end: impl Future<Output = CloseReason>) -> Option<TunnelEnd> {
        let (Ok(client), Ok(upstream)) = tokio::join!(self.client, self.upstream) else { return None };
        let (from_client, client) = tokio::io::split(TokioIo::new(client));
        let (from_upstream, upstream) = tokio::io::split(TokioIo::new(upstream));
        let mut to_upstream = 0;
        let mut up = Direction::new(from_client, upstream, &mut to_upstream, None);
        let mut down = Direction::new(from_upstream, client, to_client, self.client_stall);
        let Some(ended) = carry_until(&mut up, &mut down, end).await else { return Some(TunnelEnd::Closed) };
        part(&mut up, &mut down, ended).await;
        Some(TunnelEnd::Ended(ended))
    }
}

async fn carry_until(
    up: &mut Direction<'_>,
    down: &mut Direction<'_>,
    end: impl Future<Output = CloseReason>,
) -> Option<CloseReason> {
    let (mut up, mut down, mut end) = (pin!(up.carry()), pin!(down.carry()), pin!(end));
    // Who has not said goodbye in time is cut off, which is as it should be.
    tokio::select! {
        biased;
        ended = end.as_mut() => return Some(ended),
        () = up.as_mut() => tokio::select! {
            ended = end => return Some(ended),
            _ = timeout(GOODBYE, down) => {}
        },
        () = down.as_mut() => tokio::select! {
            ended = end => return Some(ended),
            _ = timeout(GOODBYE, up) => {}
        },
    }
    None
}

/// Says to both sides that it is over. Whoever does not take it is cut off all the same.
async fn part(up: &mut Direction<'_>, down: &mut Direction<'_>, ended: CloseReason) {
    let finished = timeout(LAST_FRAME, down.finish_frame()).await.is_ok_and(|whole| whole);
    let _ = timeout(LAST_WORD, async {
        let (code, reason) = (ended.close_code(), ended.message());
        let to_client = async {
            if finished && !down.frames.is_closed() {
                let _ = down.to.write_all(&frames::close(code, reason, None)).await;
            }
            down.to.flush().await
        };
        let to_upstream = async {
            // A frame of the client's that is under way stays half.
            if up.frames.is_between() && !up.frames.is_closed() {
                // RFC 6455 section 5.3: whoever speaks for a client masks.
                let _ = up.to.write_all(&frames::close(code, reason, Some(secret::random()))).await;
            }
            up.to.shutdown().await
        };
        let _ = tokio::join!(to_client, to_upstream);
    })
    .await;
    // Hears the client out, so that no reset takes the close frame from it.
    let _ = timeout(GOODBYE, down.to.shutdown()).await;
}

/// One direction of a tunnel. Its future may be dropped at any time: what it has read and not written is kept.
struct Direction<'c> {
    from: ReadHalf<UpgradedIo>,
    to: WriteHalf<UpgradedIo>,
    read: Vec<u8>,
    /// So many bytes of `read` are written.
    written: usize,
    /// Of what is written.
    frames: Frames,
    carried: &'c mut u64,
    stall: Option<Duration>,
}

impl<'c> Direction<'c> {
    fn new(
        from: ReadHalf<UpgradedIo>,
        to: WriteHalf<UpgradedIo>,
        carried: &'c mut u64,
        stall: Option<Duration>,
    ) -> Self {
        let read = Vec::with_capacity(8 * 1024);
        Direction { from, to, read, written: 0, frames: Frames::default(), carried, stall }
    }

    /// Until `from` closes, or `to` takes no more. A reset is an end, too.
    async fn carry(&mut self) {
        while self.read().await && self.write_to(self.read.len()).await && self.to.flush().await.is_ok() {}
        let _ = self.to.shutdown().await;
    }

    /// Carries what is left of the frame under way. `false` if it never comes.
    async fn finish_frame(&mut self) -> bool {
        while !self.frames.is_between() {
            if !self.read().await {
                return false;
            }
            let rest = self.frames.clone().rest_of_unit(&self.read[self.written..]);
            if !self.write_to(self.written + rest).await {
                return false;
            }
        }
        true
    }

    /// There is something to write. `false` at the end.
    async fn read(&mut self) -> bool {
        if self.written < self.read.len() {
            return true;
        }
        self.read.clear();
        self.written = 0;
        matches!(self.from.read_buf(&mut self.read).await, Ok(1..))
    }

    /// What was read, up to there.
    async fn write_to(&mut self, end: usize) -> bool {
        while self.written < end {
            let writing = self.to.write(&self.read[self.written..end]);
            let written = match self.stall {
                Some(limit) => timeout(limit, writing).await.unwrap_or(Ok(0)),
                None => writing.await,
            };
            let Ok(count @ 1..) = written else { return false };
            self.frames.follow(&self.read[self.written..self.written + count]);
            self.written += count;
            *self.carried += count as u64;
        }
        true
    }
}
