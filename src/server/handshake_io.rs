//! Saves a write in each TLS handshake: a thin wrapper between the socket and TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::transport::Transport;
use super::unwritten::Unwritten;
use crate::protocols::tls::plain_http;

/// Buffers small writes until the next write, or until there is nothing to read.
///
/// At the end of a TLS 1.3 handshake the gateway sends session tickets. Clients send their first request along with
/// their last handshake message, so the response follows soon. Both leave in one write, which saves a tenth of a
/// handshake. If no request has arrived, the next read finds nothing and the tickets are written alone.
///
/// Only handshake messages are copied. A response is written behind them from the memory of its sender, so that the
/// socket alone decides how much of it is accepted: a client that reads slowly holds back its own backend.
pub(super) struct HandshakeBuffer<S> {
    stream: S,
    /// At most [`MAX_BUFFERED`] bytes and one message.
    buffered: Unwritten,
    stage: Stage,
    /// Bytes that the socket has accepted.
    sent: u64,
    /// The first byte of the client.
    first: Option<u8>,
}

/// Handshake messages above this are written before more are buffered. A usual certificate chain has 2 to 6 KiB.
const MAX_BUFFERED: usize = 64 * 1024;

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

impl<S> HandshakeBuffer<S> {
    pub(super) fn new(stream: S) -> Self {
        HandshakeBuffer { stream, buffered: Unwritten::default(), stage: Stage::Handshake, sent: 0, first: None }
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
}

impl<S: AsyncRead + AsyncWrite + Unpin> HandshakeBuffer<S> {
    /// Ends a handshake that failed: sends the alert that TLS has buffered, or an HTTP response to a client that does
    /// not use TLS.
    pub(super) async fn end_failed(mut self) -> io::Result<()> {
        self.stage = Stage::Unbuffered;
        if self.first.is_some_and(plain_http::begins_request) {
            self.buffered.discard();
            return plain_http::reject(&mut self.stream).await;
        }
        self.flush().await?;
        plain_http::close(&mut self.stream).await
    }
}

impl<S: AsyncWrite + Unpin> HandshakeBuffer<S> {
    fn poll_write_buffered(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.buffered.is_empty() {
            ready!(self.poll_write_with(context, &[]))?;
        }
        if self.stage == Stage::Tickets {
            self.stage = Stage::Unbuffered;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the buffered bytes, and the beginning of `slices` behind them. Returns how many bytes of `slices` the
    /// socket accepted.
    fn poll_write_with(&mut self, context: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = ready!(self.buffered.poll_write_with(&mut self.stream, context, slices))?;
        self.sent += written.bytes as u64;
        Poll::Ready(Ok(written.of_slices))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for HandshakeBuffer<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(context, buffer);
        if this.stage == Stage::Handshake && this.first.is_none() {
            this.first = buffer.filled().get(before).copied();
        }
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

impl<S: AsyncWrite + Unpin> AsyncWrite for HandshakeBuffer<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.stage == Stage::Handshake {
            if this.buffered.len() >= MAX_BUFFERED {
                ready!(this.poll_write_buffered(context))?;
            }
            let len = slices.iter().map(|slice| slice.len()).sum();
            this.buffered.append(slices, 0);
            return Poll::Ready(Ok(len));
        }
        this.stage = Stage::Unbuffered;
        while !this.buffered.is_empty() {
            let accepted = ready!(this.poll_write_with(context, slices))?;
            if accepted > 0 {
                return Poll::Ready(Ok(accepted));
            }
        }
        let polled = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        if let Poll::Ready(Ok(written)) = &polled {
            this.sent += *written as u64;
        }
        polled
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
        ready!(this.poll_write_buffered(context))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_write_buffered(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

impl<S: Transport> Transport for HandshakeBuffer<S> {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_readable(context)
    }

    fn bytes_sent(&self) -> Option<u64> {
        Some(self.sent)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;

    const ROOM: usize = 1024;
    const TICKETS: [u8; 200] = [b't'; 200];

    /// After a handshake of TLS 1.3. The client has sent its request along.
    async fn with_tickets() -> (HandshakeBuffer<DuplexStream>, DuplexStream) {
        let (near, far) = duplex(ROOM);
        let mut stream = HandshakeBuffer::new(near);
        stream.write_all(&TICKETS).await.expect("buffered");
        stream.end_handshake(true, true);
        (stream, far)
    }

    /// Writes until the stream accepts no more. Returns how much it accepted.
    fn fill(stream: &mut HandshakeBuffer<DuplexStream>) -> usize {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let response = [b'r'; 64 * 1024];
        let (first, second) = response.split_at(700);
        let slices = [io::IoSlice::new(first), io::IoSlice::new(second)];
        let mut accepted = 0;
        while let Poll::Ready(written) = Pin::new(&mut *stream).poll_write_vectored(&mut context, &slices) {
            accepted += written.expect("the client is there");
        }
        accepted
    }

    #[tokio::test]
    async fn a_response_behind_tickets_waits_for_the_socket() {
        let (mut stream, mut client) = with_tickets().await;
        let mut accepted = fill(&mut stream);
        assert_eq!((accepted, stream.buffered.len()), (ROOM - TICKETS.len(), 0), "no more than there is room for");
        let mut received = Vec::new();
        for _ in 0..3 {
            let before = received.len();
            while received.len() < before + ROOM {
                client.read_buf(&mut received).await.expect("readable");
            }
            accepted += fill(&mut stream);
            assert_eq!((accepted, stream.buffered.len()), (received.len() + ROOM - TICKETS.len(), 0));
        }
        assert!(received.starts_with(&TICKETS) && received[TICKETS.len()..].iter().all(|byte| *byte == b'r'));
        assert_eq!(stream.sent, (received.len() + ROOM) as u64);
    }

    /// The client has read nothing of the handshake yet.
    #[tokio::test]
    async fn a_response_does_not_overtake_handshake_messages() {
        let (near, mut client) = duplex(ROOM);
        let mut stream = HandshakeBuffer::new(near);
        stream.write_all(&[b'h'; 3 * ROOM]).await.expect("buffered");
        stream.end_handshake(false, true);
        assert_eq!((fill(&mut stream), stream.buffered.len()), (0, 2 * ROOM));
        let mut received = vec![0; 2 * ROOM];
        for end in [ROOM, 2 * ROOM] {
            client.read_exact(&mut received[end - ROOM..end]).await.expect("readable");
            assert_eq!((fill(&mut stream), stream.buffered.len()), (0, 2 * ROOM - end));
        }
        client.read_exact(&mut received[..ROOM]).await.expect("readable");
        assert!(received.iter().all(|byte| *byte == b'h'));
        assert_eq!(fill(&mut stream), ROOM);
    }

    #[tokio::test]
    async fn handshake_messages_are_buffered_up_to_a_maximum() {
        let (near, _client) = duplex(ROOM);
        let mut stream = HandshakeBuffer::new(near);
        let accepted = fill(&mut stream);
        assert!((MAX_BUFFERED..2 * MAX_BUFFERED).contains(&accepted), "{accepted}");
    }
}
