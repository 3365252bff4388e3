//! The client's stream as hyper sees it: a thin wrapper above TLS.
//!
//! [`ClientStream`] does four things. It can be taken back from hyper, so that an idle connection holds no buffers. It
//! gives hyper only heads that can be read in one way ([`RequestHeads`]). It disconnects clients that read too slowly
//! or flood. And it closes in such a way that a client that is still sending gets the last response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::disconnect::DisconnectReason;
use super::exchange::Exchange;
use super::flood::{Flood, FloodGuard, TURN, Violation};
use super::linger::{After, LingeringClose, yield_to_others};
use super::linger_slots::Share;
use super::request_heads::{Next, RequestHeads};
use super::settings::FloodSettings;
use super::transport::Transport;
use crate::limits::pace::{IdleTimer, MinRate, RateMeter};
use crate::protocols::http::framing::Limits;

/// Called once when a flood is detected.
pub(super) type OnFlood = Box<dyn FnOnce() + Send + Sync>;

pub(super) struct ClientStream<S> {
    stream: S,
    /// Bytes that hyper reads before anything is read from the stream. Over HTTP/1 they were checked: an earlier hyper
    /// connection had read them already, or they waited until a head was complete. Over HTTP/2 they wait for the next
    /// turn.
    unread: Bytes,
    /// Bytes left of the client's turn. A new turn begins whenever the gateway waits for the client.
    turn: usize,
    heads: Heads,
    exchange: Arc<Exchange>,
    /// Runs while the client accepts no bytes.
    write_timer: IdleTimer,
    /// Measures how fast the client accepts bytes while the gateway waits for it.
    meter: RateMeter,
    /// Bytes that the socket below TLS had accepted at the last check.
    sent: u64,
    linger: Arc<Share>,
    lingering: Option<Box<LingeringClose>>,
    /// Set for HTTP/2.
    flood_guard: Option<Box<FloodGuard>>,
    on_flood: Option<OnFlood>,
    /// If true, the last write was complete, so another frame may follow.
    is_between_frames: bool,
    /// The client closed the connection without saying so in TLS. It hardly reads any more.
    is_gone: bool,
}

/// What hyper reads is checked over HTTP/1, until the connection becomes a tunnel.
enum Heads {
    Unchecked,
    Checked(Box<RequestHeads>),
    /// Checked from the next byte on. An idle connection remembers no more than the number of its requests.
    Idle {
        heads: u64,
        limits: Limits,
    },
}

impl<S> ClientStream<S> {
    /// Disconnects a client that reads nothing for `write`, or less than `min_rate`. With limits for heads, the
    /// connection is HTTP/1.
    pub(super) fn new(
        stream: S,
        write: Duration,
        min_rate: MinRate,
        heads: Option<Limits>,
        linger: Arc<Share>,
    ) -> Self {
        ClientStream {
            stream,
            unread: Bytes::new(),
            turn: TURN,
            heads: heads.map_or(Heads::Unchecked, |limits| Heads::Idle { heads: 0, limits }),
            exchange: Arc::default(),
            write_timer: IdleTimer::new(write),
            meter: RateMeter::new(min_rate),
            sent: 0,
            linger,
            lingering: None,
            flood_guard: None,
            on_flood: None,
            is_between_frames: true,
            is_gone: false,
        }
    }

    /// Counts the client's frames from now on. For HTTP/2.
    pub(super) fn guard_against_floods(&mut self, settings: FloodSettings, on_flood: OnFlood) {
        self.flood_guard = Some(Box::new(FloodGuard::new(settings)));
        self.on_flood = Some(on_flood);
    }

    pub(super) fn exchange(&self) -> Arc<Exchange> {
        self.exchange.clone()
    }

    /// Takes the stream back from hyper, with the bytes that hyper has read and not used. `limits`: those for heads.
    pub(super) fn take_back(&mut self, unread: Bytes, limits: Limits) {
        if let Heads::Checked(checked) = &self.heads
            && let Some(heads) = checked.between_requests()
        {
            self.heads = Heads::Idle { heads, limits };
        }
        // hyper's bytes come first. They are copied, even if there are none: an empty slice of hyper's buffer keeps all
        // of it in memory.
        self.unread = [&unread[..], &self.unread[..]].concat().into();
        self.exchange.set_keep_open(false);
    }

    fn disconnect(&self, reason: DisconnectReason) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, self.exchange.disconnect(reason))
    }

    /// Returns true if the HTTP/2 connection is closing. What hyper still writes is discarded.
    fn discards_writes(&self) -> bool {
        self.flood_guard.is_some() && self.lingering.is_some()
    }

    fn read_unread(&mut self, buffer: &mut ReadBuf<'_>) {
        buffer.put_slice(&self.unread.split_to(self.unread.len().min(buffer.remaining())));
    }
}

impl<S: Transport> ClientStream<S> {
    /// Disconnects the client if it has read nothing for too long, or too little. `accepted`: how many bytes this
    /// write has passed on.
    ///
    /// What counts is what the socket accepts. TLS has a buffer of 63.5 KiB above it: while that empties, nothing is
    /// accepted and the client may well be reading.
    fn check_progress<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
        accepted: usize,
    ) -> Poll<io::Result<T>> {
        let progress = match self.stream.bytes_sent() {
            None => accepted as u64,
            Some(sent) => sent - std::mem::replace(&mut self.sent, sent),
        };
        let has_progress = polled.is_ready() || progress > 0;
        if has_progress && !self.meter.record(progress, &mut self.write_timer) && !matches!(polled, Poll::Ready(Err(_)))
        {
            return Poll::Ready(Err(self.disconnect(DisconnectReason::Slow)));
        }
        match polled {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => self.write_timer.poll(context).map(|_| Err(self.disconnect(DisconnectReason::Silent))),
        }
    }

    fn check_write(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
        wanted: usize,
    ) -> Poll<io::Result<usize>> {
        let accepted = if let Poll::Ready(Ok(written)) = &polled { *written } else { 0 };
        if let (Some(guard), Poll::Ready(Ok(written))) = (&mut self.flood_guard, &polled) {
            guard.count_sent(*written);
            self.is_between_frames = *written == wanted;
        }
        self.check_progress(context, polled, accepted)
    }

    /// Returns when there is something to read, or the client closed the connection.
    pub(super) async fn readable(&self) -> io::Result<()> {
        if !self.unread.is_empty() || matches!(&self.heads, Heads::Checked(heads) if heads.has_pending()) {
            return Ok(());
        }
        std::future::poll_fn(|context| self.stream.poll_readable(context)).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream<S> {
    /// Reads, and passes only checked heads on.
    fn poll_read_heads(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Heads::Idle { heads, limits } = self.heads {
            self.heads = Heads::Checked(Box::new(RequestHeads::after(heads, limits)));
        }
        loop {
            let Heads::Checked(heads) = &mut self.heads else { return self.poll_read_guarded(context, buffer) };
            if !self.unread.is_empty() {
                self.read_unread(buffer);
                return Poll::Ready(Ok(()));
            }
            if heads.waits_for_response(&self.exchange) {
                self.exchange.wait_for_response(context.waker());
            }
            match heads.next(&self.exchange)? {
                Next::Read => {}
                Next::Wait => return Poll::Pending,
                Next::Pass(bytes) => {
                    self.unread = bytes;
                    continue;
                }
                Next::Tunnel(bytes) => {
                    (self.unread, self.heads) = (bytes, Heads::Unchecked);
                    continue;
                }
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            let read = buffer.filled().len() - before;
            if read == 0 {
                return Poll::Ready(Ok(()));
            }
            self.turn = self.turn.saturating_sub(read);
            self.unread = heads.check(buffer, before, &self.exchange);
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads, and counts the frames that were read. The gateway replies to a flood with GOAWAY and closes the
    /// connection.
    fn poll_read_guarded(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_some() {
            return self.poll_flood_close(context);
        }
        let before = buffer.filled().len();
        if self.unread.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        } else {
            self.read_unread(buffer);
        }
        let read = &mut buffer.filled_mut()[before..];
        let Some(guard) = &mut self.flood_guard else {
            self.turn = self.turn.saturating_sub(read.len());
            return Poll::Ready(Ok(()));
        };
        match guard.count_received(read, &mut self.turn) {
            Ok(passed) => {
                if passed < read.len() {
                    self.unread = [&read[passed..], &self.unread].concat().into();
                    buffer.set_filled(before + passed);
                }
                Poll::Ready(Ok(()))
            }
            Err(violation) => {
                buffer.set_filled(before);
                self.disconnect(DisconnectReason::Violation(violation));
                self.begin_flood_close(violation, context);
                self.poll_flood_close(context)
            }
        }
    }

    fn begin_flood_close(&mut self, violation: Violation, context: &mut Context<'_>) {
        // Called now, not at the end of the connection: until then, the client could have reconnected a thousand times.
        if let Some(on_flood) = self.on_flood.take_if(|_| matches!(violation, Violation::Flood(_))) {
            on_flood();
        }
        // Without room in the socket, or inside a frame, the client gets no GOAWAY. The connection still closes.
        // Responses that wait for the end of this poll are lost.
        if self.is_between_frames
            && let Some(guard) = &self.flood_guard
        {
            let _ = Pin::new(&mut self.stream).poll_write(context, &guard.goaway(violation));
        }
        let _ = Pin::new(&mut self.stream).poll_shutdown(context);
        self.lingering = Some(Box::new(LingeringClose::new(After::Flood, self.linger.clone())));
    }

    fn poll_flood_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(lingering) = &mut self.lingering {
            ready!(lingering.poll(&mut self.stream, context));
        }
        // The reason is recorded already.
        Poll::Ready(Err(self.disconnect(DisconnectReason::Violation(Flood::Frames.into()))))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.turn == 0 {
            this.turn = TURN;
            return yield_to_others(context);
        }
        let polled = this.poll_read_heads(context, buffer);
        match &polled {
            Poll::Pending => this.turn = TURN,
            Poll::Ready(Err(error)) => this.is_gone = error.kind() == io::ErrorKind::UnexpectedEof,
            Poll::Ready(Ok(())) => {}
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Transport + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.discards_writes() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_write(context, polled, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = slices.iter().map(|slice| slice.len()).sum();
        if self.discards_writes() {
            return Poll::Ready(Ok(wanted));
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check_write(context, polled, wanted)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.discards_writes() {
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.check_progress(context, polled, 0)
    }

    /// Closes the sending side, then discards what the client still sends. To close both sides at once would reset the
    /// connection, and a client that is still sending would lose the last response (RFC 9112 section 9.6).
    ///
    /// A client that closed the connection without the alert that ends TLS gets none either, as with nginx: its kernel
    /// would reply with a reset.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.exchange.keeps_open() {
            return Poll::Ready(Ok(()));
        }
        if this.exchange.is_tunnel() {
            // The client may have closed only its own direction, or the backend may still read: the tunnel decides.
            let polled = Pin::new(&mut this.stream).poll_shutdown(context);
            return this.check_progress(context, polled, 0);
        }
        if this.is_gone && !this.exchange.has_incomplete() {
            return Poll::Ready(Ok(()));
        }
        let lingering = match &mut this.lingering {
            Some(lingering) => lingering,
            None => {
                let polled = Pin::new(&mut this.stream).poll_shutdown(context);
                ready!(this.check_progress(context, polled, 0))?;
                let after = match this.flood_guard {
                    Some(_) => After::Goaway,
                    None if this.exchange.is_malformed() => After::MalformedHead,
                    None if this.exchange.has_incomplete() => After::Upload,
                    None => After::Complete,
                };
                let close = LingeringClose::new(after, this.linger.clone());
                this.lingering.insert(Box::new(close))
            }
        };
        lingering.poll(&mut this.stream, context).map(Ok)
    }
}
