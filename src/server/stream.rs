//! What lies between a socket and hyper: two thin wrappers.
//!
//! [`Corked`] (below TLS) saves a write in each handshake. [`ClientStream`] (above TLS, below hyper) lets a connection be
//! taken back from hyper while it is idle, so that an idle connection holds no buffers; it does not wait for ever for a
//! client that does not read, and parts from one that is still sending in a way that it hears the answer.

use std::error::Error;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::silence::{Least, Meter, Silence};

/// Tells when there is something to read, without reading.
pub(super) trait Readable {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl Readable for TcpStream {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(context)
    }
}

impl Readable for Corked {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_readable(context)
    }
}

impl<S: Readable> Readable for TlsStream<S> {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_ref().0.poll_readable(context)
    }
}

/// Holds small writes back until there is nothing to read, or until the next write.
///
/// At the end of a TLS 1.3 handshake the server sends session tickets. Clients send their first request along with their
/// last handshake message, so its answer is about to follow: both leave in one write, which saves a tenth of a handshake.
/// If no request is there yet, reading finds nothing and the tickets leave by themselves.
pub(super) struct Corked {
    stream: TcpStream,
    held: Vec<u8>,
    /// From the first byte to the first write after the handshake.
    corked: bool,
}

impl Corked {
    pub(super) fn new(stream: TcpStream) -> Self {
        Corked { stream, held: Vec::new(), corked: true }
    }

    /// The handshake is over: what is held leaves with the next write.
    pub(super) fn uncork(&mut self) {
        self.corked = false;
    }

    fn poll_release(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.held))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held.drain(..written);
        }
        // A connection that lives on needs no empty buffer.
        self.held = Vec::new();
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Corked {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        if polled.is_pending() && !this.held.is_empty() {
            // The other side may be waiting for just what is held. The socket wakes us in either case.
            if let Poll::Ready(Err(error)) = this.poll_release(context) {
                return Poll::Ready(Err(error));
            }
        }
        polled
    }
}

impl AsyncWrite for Corked {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.held.is_empty() && !this.corked {
            return Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        }
        // A handshake's messages are a few KiB at most.
        let len = slices.iter().map(|slice| slice.len()).sum();
        slices.iter().for_each(|slice| this.held.extend_from_slice(slice));
        if !this.corked {
            // Taken in full. What the socket does not take now leaves at the next poll.
            let _ = this.poll_release(context)?;
        }
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.corked {
            return Poll::Ready(Ok(()));
        }
        this.poll_release(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_release(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

/// Why we end a connection that its client would go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Silent,
    Slow,
}

impl Cut {
    /// What an error of hyper comes from.
    pub(super) fn find(error: &(dyn Error + 'static)) -> Option<Cut> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            if let Some(cut) = inner.and_then(|inner| inner.downcast_ref()) {
                return Some(*cut);
            }
            cause = error.source();
        }
        None
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cut::Silent => "the client does not read",
            Cut::Slow => "the client reads more slowly than allowed",
        })
    }
}

impl Error for Cut {}

impl From<Cut> for io::Error {
    fn from(cut: Cut) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, cut)
    }
}

/// A client's stream as hyper sees it.
pub(super) struct ClientStream<S> {
    stream: S,
    /// Bytes that an earlier hyper connection had read already.
    unread: Bytes,
    kept_open: Arc<AtomicBool>,
    /// Runs while the client takes nothing of what is written.
    stall: Silence,
    /// How much it takes of what it is waited for.
    meter: Meter,
    farewell: Option<Farewell>,
}

impl<S> ClientStream<S> {
    /// A client that takes nothing for as long as `write`, or less than `least`, is cut off.
    pub(super) fn new(stream: S, write: Duration, least: Least) -> Self {
        let (stall, meter) = (Silence::of_at_most(write), Meter::of(least));
        ClientStream { stream, unread: Bytes::new(), kept_open: Arc::default(), stall, meter, farewell: None }
    }

    fn in_time<T>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stall.broken();
            return polled;
        }
        self.stall.poll(context).map(|_| Err(Cut::Silent.into()))
    }

    fn written(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(written)) if !self.meter.passed(written, &mut self.stall) => {
                Poll::Ready(Err(Cut::Slow.into()))
            }
            polled => self.in_time(context, polled),
        }
    }

    /// While this is set, closing does not close: hyper can be ended and the stream goes on.
    pub(super) fn keeper(&self) -> Arc<AtomicBool> {
        self.kept_open.clone()
    }

    /// Taken back from hyper, with what it had read and not used.
    pub(super) fn taken_back(mut self, unread: Bytes) -> Self {
        self.unread = unread;
        self.kept_open.store(false, Ordering::Relaxed);
        self
    }
}

impl<S: Readable> ClientStream<S> {
    /// Returns when there is something to read, or the other side has gone.
    pub(super) async fn readable(&self) -> io::Result<()> {
        if !self.unread.is_empty() {
            return Ok(());
        }
        std::future::poll_fn(|context| self.stream.poll_readable(context)).await
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let len = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..len]);
        self.unread.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.in_time(context, polled)
    }

    /// Says that nothing more comes, and hears the client out. Closing while it is still sending would reset the
    /// connection, and take the last answer from a client that has not read it yet (RFC 9112 section 9.6).
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.kept_open.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let farewell = match &mut this.farewell {
            Some(farewell) => farewell,
            None => {
                let polled = Pin::new(&mut this.stream).poll_shutdown(context);
                ready!(this.in_time(context, polled))?;
                this.farewell.insert(Farewell::begin())
            }
        };
        farewell.poll(&mut this.stream, context).map(Ok)
    }
}

/// Reads what a client still sends, and throws it away.
struct Farewell {
    quiet: Silence,
    end: Instant,
}

impl Farewell {
    /// A client that sends nothing for so long has stopped.
    const QUIET: Duration = Duration::from_millis(500);
    /// Nobody is listened to for longer.
    const LONGEST: Duration = Duration::from_secs(10);

    fn begin() -> Self {
        Farewell { quiet: Silence::of_at_most(Self::QUIET), end: Instant::now() + Self::LONGEST }
    }

    fn poll(&mut self, stream: &mut (impl AsyncRead + Unpin), context: &mut Context<'_>) -> Poll<()> {
        let mut space = [MaybeUninit::uninit(); 4096];
        loop {
            let mut buffer = ReadBuf::uninit(&mut space);
            match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() && Instant::now() < self.end => self.quiet.broken(),
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.quiet.poll(context).map(drop),
            }
        }
    }
}
