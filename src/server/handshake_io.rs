//! What lies between a socket and TLS: a thin wrapper that saves a write in each handshake.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::client_io::Readable;

/// Holds small writes back until there is nothing to read, or until the next write.
///
/// At the end of a TLS 1.3 handshake the server sends session tickets. Clients send their first request along with their
/// last handshake message, so its answer is about to follow: both leave in one write, which saves a tenth of a handshake.
/// If no request is there yet, reading finds nothing and the tickets leave by themselves.
pub(super) struct HandshakeBuffer {
    stream: TcpStream,
    held: Vec<u8>,
    stage: Stage,
}

/// What is held, and so what it waits for.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Messages of a handshake: for the next of them, or for silence.
    Handshake,
    /// Tickets of TLS 1.3, which nobody needs to go on: for a request, or for silence.
    Tickets,
    /// The same, when something was asked: for the answer.
    AnswerFollows,
    /// What the client may need, or nothing: for nothing but room to write.
    Open,
}

impl HandshakeBuffer {
    pub(super) fn new(stream: TcpStream) -> Self {
        HandshakeBuffer { stream, held: Vec::new(), stage: Stage::Handshake }
    }

    /// The handshake is over: what is held leaves with the next write. If it can wait, being tickets of TLS 1.3 alone, it
    /// waits for that from when something is asked, as `has_asked` says that it was already.
    pub(super) fn uncork(&mut self, can_wait: bool, has_asked: bool) {
        self.stage = match (can_wait, has_asked) {
            (true, true) => Stage::AnswerFollows,
            (true, false) => Stage::Tickets,
            (false, _) => Stage::Open,
        };
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
        if self.stage == Stage::Tickets {
            self.stage = Stage::Open;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for HandshakeBuffer {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        if this.stage == Stage::Tickets && polled.is_ready() {
            this.stage = Stage::AnswerFollows;
        }
        if polled.is_pending() && !this.held.is_empty() && this.stage != Stage::AnswerFollows {
            // The other side may be waiting for just what is held. The socket wakes us in either case.
            if let Poll::Ready(Err(error)) = this.poll_release(context) {
                return Poll::Ready(Err(error));
            }
        }
        polled
    }
}

impl AsyncWrite for HandshakeBuffer {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.held.is_empty() && this.stage != Stage::Handshake {
            return Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        }
        // A handshake's messages are a few KiB at most.
        let len = slices.iter().map(|slice| slice.len()).sum();
        slices.iter().for_each(|slice| this.held.extend_from_slice(slice));
        if this.stage != Stage::Handshake {
            this.stage = Stage::Open;
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
        // hyper flushes whenever it has read, be there an answer or not.
        if matches!(this.stage, Stage::Handshake | Stage::AnswerFollows) {
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

impl Readable for HandshakeBuffer {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_readable(context)
    }
}
