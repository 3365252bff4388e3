//! What lies between a client's stream and hyper: a thin wrapper.
//!
//! [`ClientStream`] (above TLS) lets a connection be taken back from hyper while it is idle, so that an idle connection holds no
//! buffers; it gives hyper only heads that have one reading ([`RequestHeads`]), does not wait for ever for a client that does not read,
//! and parts from one that is still sending in a way that it hears the answer.

use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::FloodSettings;
use super::disconnect::DisconnectReason;
use super::flood::{FloodGuard, TURN};
use super::linger::{LingeringClose, after_others};
use super::request_heads::{Exchange, Next, RequestHeads};
use crate::limits::pace::{IdleTimer, MinRate, RateMeter};
use crate::protocols::http::framing::Limits;

/// Tells when there is something to read, without reading.
pub(super) trait Readable {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl Readable for TcpStream {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(context)
    }
}

impl<S: Readable> Readable for Box<S> {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        (**self).poll_readable(context)
    }
}

impl<S: Readable> Readable for TlsStream<S> {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_ref().0.poll_readable(context)
    }
}

/// Told of a flood.
pub(super) type Flooded = Box<dyn FnOnce() + Send + Sync>;

/// A client's stream as hyper sees it.
pub(super) struct ClientStream<S> {
    stream: S,
    /// Bytes that go on before anything is read. Of HTTP/1, they were looked at: an earlier hyper connection had read them
    /// already, or they were held until a head was whole. Of HTTP/2, they wait for the next turn.
    unread: Bytes,
    /// What is left of the client's turn. A new one begins whenever it is waited for.
    turn: usize,
    /// HTTP/1 only, until it is a tunnel.
    heads: Option<Box<RequestHeads>>,
    exchange: Arc<Exchange>,
    /// Runs while the client takes nothing of what is written.
    stall: IdleTimer,
    /// How much it takes of what it is waited for.
    meter: Box<RateMeter>,
    farewell: Option<Box<LingeringClose>>,
    cut: Arc<OnceLock<DisconnectReason>>,
    /// Of an HTTP/2 connection.
    guard: Option<Box<FloodGuard>>,
    /// Who is to know of a flood before its sender does.
    flooded: Option<Flooded>,
    /// Was everything written of what was to be written the last time? Then a frame may follow.
    between_frames: bool,
}

impl<S> ClientStream<S> {
    /// A client that takes nothing for as long as `write`, or less than `least`, is cut off. With limits for its heads, it
    /// speaks HTTP/1.
    pub(super) fn new(stream: S, write: Duration, least: MinRate, heads: Option<Limits>) -> Self {
        let (stall, meter) = (IdleTimer::new(write), Box::new(RateMeter::new(least)));
        ClientStream {
            stream,
            unread: Bytes::new(),
            turn: TURN,
            heads: heads.map(|limits| Box::new(RequestHeads::new(limits))),
            exchange: Arc::default(),
            stall,
            meter,
            farewell: None,
            cut: Arc::default(),
            guard: None,
            flooded: None,
            between_frames: true,
        }
    }

    /// An HTTP/2 client: its frames are counted.
    pub(super) fn guard(&mut self, settings: FloodSettings, flooded: Flooded) {
        self.guard = Some(Box::new(FloodGuard::new(settings)));
        self.flooded = Some(flooded);
    }

    /// Why we ended the connection, once we have. What becomes of our errors further up does not keep their type.
    pub(super) fn verdict(&self) -> Arc<OnceLock<DisconnectReason>> {
        self.cut.clone()
    }

    fn cut(&self, cut: DisconnectReason) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, *self.cut.get_or_init(|| cut))
    }

    fn in_time<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stall.reset();
            return polled;
        }
        self.stall.poll(context).map(|_| Err(self.cut(DisconnectReason::Silent)))
    }

    fn written(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
        wanted: usize,
    ) -> Poll<io::Result<usize>> {
        if let (Some(guard), Poll::Ready(Ok(written))) = (&mut self.guard, &polled) {
            guard.said(*written);
            self.between_frames = *written == wanted;
        }
        match polled {
            Poll::Ready(Ok(written)) if !self.meter.record(written, &mut self.stall) => {
                Poll::Ready(Err(self.cut(DisconnectReason::Slow)))
            }
            polled => self.in_time(context, polled),
        }
    }

    pub(super) fn exchange(&self) -> Arc<Exchange> {
        self.exchange.clone()
    }

    /// Taken back from hyper, with what it had read and not used.
    pub(super) fn taken_back(mut self, unread: Bytes) -> Self {
        // What hyper had read comes before what it had not. Copied, also if it is nothing: an empty piece of hyper's buffer
        // would keep all of it.
        self.unread = [&unread[..], &self.unread[..]].concat().into();
        self.exchange.kept_open.store(false, Ordering::Relaxed);
        self
    }
}

impl<S: Readable> ClientStream<S> {
    /// Returns when there is something to read, or the other side has gone.
    pub(super) async fn readable(&self) -> io::Result<()> {
        if !self.unread.is_empty() || self.heads.as_ref().is_some_and(|heads| heads.has_begun()) {
            return Ok(());
        }
        std::future::poll_fn(|context| self.stream.poll_readable(context)).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream<S> {
    /// Reads, and counts the frames that were read. A flood is answered with GOAWAY, and the end.
    fn poll_guarded(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(farewell) = &mut self.farewell {
            return farewell.poll(&mut self.stream, context).map(|()| Err(self.cut(DisconnectReason::Flood)));
        }
        let before = buffer.filled().len();
        if self.unread.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        } else {
            buffer.put_slice(&self.unread.split_to(self.unread.len().min(buffer.remaining())));
        }
        let read = &buffer.filled()[before..];
        let Some(guard) = &mut self.guard else {
            self.turn = self.turn.saturating_sub(read.len());
            return Poll::Ready(Ok(()));
        };
        if let Ok(passed) = guard.heard(read, &mut self.turn) {
            if passed < read.len() {
                self.unread = [&read[passed..], &self.unread].concat().into();
                buffer.set_filled(before + passed);
            }
            return Poll::Ready(Ok(()));
        }
        // Now, and not at the end of the connection: until then, it would have come back a thousand times.
        if let Some(flooded) = self.flooded.take() {
            flooded();
        }
        // Whoever has left no room for it does not hear it, and the connection ends all the same.
        if self.between_frames {
            let goodbye = guard.goodbye();
            let _ = Pin::new(&mut self.stream).poll_write(context, &goodbye);
        }
        let _ = Pin::new(&mut self.stream).poll_shutdown(context);
        buffer.set_filled(before);
        let farewell = self.farewell.insert(Box::new(LingeringClose::to_a_flood()));
        farewell.poll(&mut self.stream, context).map(|()| Err(self.cut(DisconnectReason::Flood)))
    }

    /// Reads, and gives whole heads on.
    fn poll_heads(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let Some(heads) = &mut self.heads else { return self.poll_guarded(context, buffer) };
            if !self.unread.is_empty() {
                buffer.put_slice(&self.unread.split_to(self.unread.len().min(buffer.remaining())));
                return Poll::Ready(Ok(()));
            }
            match heads.next(&self.exchange)? {
                Next::Read => {}
                // Whoever asks will have an answer to write before it can go on, and asks again then.
                Next::Wait => return Poll::Pending,
                Next::Give(bytes) => {
                    self.unread = bytes;
                    continue;
                }
                Next::Open(bytes) => {
                    (self.unread, self.heads) = (bytes, None);
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
            self.unread = heads.inspect(buffer, before, &self.exchange);
            if buffer.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Of a connection that has said goodbye, nothing leaves any more.
    fn is_over(&self) -> bool {
        self.guard.is_some() && self.farewell.is_some()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.turn == 0 {
            this.turn = TURN;
            return after_others(context);
        }
        let polled = this.poll_heads(context, buffer);
        if polled.is_pending() {
            this.turn = TURN;
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_over() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, polled, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = slices.iter().map(|slice| slice.len()).sum();
        if self.is_over() {
            return Poll::Ready(Ok(wanted));
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, polled, wanted)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_over() {
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.in_time(context, polled)
    }

    /// Says that nothing more comes, and hears the client out. Closing while it is still sending would reset the
    /// connection, and take the last answer from a client that has not read it yet (RFC 9112 section 9.6).
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.exchange.kept_open.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let farewell = match &mut this.farewell {
            Some(farewell) => farewell,
            None => {
                let polled = Pin::new(&mut this.stream).poll_shutdown(context);
                ready!(this.in_time(context, polled))?;
                this.farewell.insert(Box::new(LingeringClose::to_a_client(this.guard.is_some())))
            }
        };
        farewell.poll(&mut this.stream, context).map(Ok)
    }
}
