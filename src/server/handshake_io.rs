//! Saves a write in each TLS handshake: a thin wrapper between the socket and TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::readable::Readable;

/// Buffers small writes until the next write, or until there is nothing to read.
///
/// At the end of a TLS 1.3 handshake the gateway sends session tickets. Clients send their first request along with
/// their last handshake message, so the response follows soon. Both leave in one write, which saves a tenth of a
/// handshake. If no request has arrived, the next read finds nothing and the tickets are written alone.
pub(super) struct HandshakeBuffer {
    stream: TcpStream,
    buffered: Vec<u8>,
    stage: Stage,
}

/// What is buffered, and when it is written.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Handshake messages: written with the next message, or when there is nothing to read.
    Handshake,
    /// Session tickets of TLS 1.3, which the client can do without: written when a request came, or there is none to
    /// read.
    Tickets,
    /// Session tickets after a request was read: written with the response.
    AwaitingResponse,
    /// Nothing, or messages that the client may need: written at once.
    Unbuffered,
}

impl HandshakeBuffer {
    pub(super) fn new(stream: TcpStream) -> Self {
        HandshakeBuffer { stream, buffered: Vec::new(), stage: Stage::Handshake }
    }

    /// Ends the handshake: what is buffered leaves with the next write. `is_tls13` says that only session tickets are
    /// buffered, so they can wait for the response to a request; `has_request` says that the request is already there.
    pub(super) fn end_handshake(&mut self, is_tls13: bool, has_request: bool) {
        self.stage = match (is_tls13, has_request) {
            (true, true) => Stage::AwaitingResponse,
            (true, false) => Stage::Tickets,
            (false, _) => Stage::Unbuffered,
        };
    }

    fn poll_write_buffered(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.buffered.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.buffered))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.buffered.drain(..written);
        }
        // The connection no longer needs the memory.
        self.buffered = Vec::new();
        if self.stage == Stage::Tickets {
            self.stage = Stage::Unbuffered;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for HandshakeBuffer {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        if this.stage == Stage::Tickets && polled.is_ready() {
            this.stage = Stage::AwaitingResponse;
        }
        if polled.is_pending() && !this.buffered.is_empty() && this.stage != Stage::AwaitingResponse {
            // The client may be waiting for exactly these bytes. The socket wakes this task in either case.
            if let Poll::Ready(Err(error)) = this.poll_write_buffered(context) {
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
        if this.buffered.is_empty() && this.stage != Stage::Handshake {
            return Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        }
        // Handshake messages have a few KiB at most.
        let len = slices.iter().map(|slice| slice.len()).sum();
        slices.iter().for_each(|slice| this.buffered.extend_from_slice(slice));
        if this.stage != Stage::Handshake {
            this.stage = Stage::Unbuffered;
            // Reported as written in full. The next poll writes what the socket does not accept now.
            let _ = this.poll_write_buffered(context)?;
        }
        Poll::Ready(Ok(len))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // hyper flushes after each read, with or without a response.
        if matches!(this.stage, Stage::Handshake | Stage::AwaitingResponse) {
            return Poll::Ready(Ok(()));
        }
        this.poll_write_buffered(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_buffered(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

impl Readable for HandshakeBuffer {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_readable(context)
    }
}
