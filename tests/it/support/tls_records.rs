//! The TLS records that a client receives.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The lengths of the records with application data, in bytes without their headers.
pub type Lengths = Arc<Mutex<Vec<usize>>>;

/// A socket that notes the lengths of the records that it receives.
pub struct RecordReader {
    stream: TcpStream,
    lengths: Lengths,
    /// The header of the current record, as far as it was received.
    header: Vec<u8>,
    /// Bytes left of the current record.
    left: usize,
}

impl RecordReader {
    pub fn new(stream: TcpStream) -> (RecordReader, Lengths) {
        let lengths = Lengths::default();
        (RecordReader { stream, lengths: lengths.clone(), header: Vec::new(), left: 0 }, lengths)
    }

    fn note(&mut self, mut received: &[u8]) {
        const APPLICATION_DATA: u8 = 23;
        while !received.is_empty() {
            if self.left > 0 {
                let skipped = self.left.min(received.len());
                (self.left, received) = (self.left - skipped, &received[skipped..]);
                continue;
            }
            self.header.push(received[0]);
            received = &received[1..];
            if let [kind, _, _, high, low] = self.header[..] {
                self.left = usize::from(high) << 8 | usize::from(low);
                if kind == APPLICATION_DATA {
                    self.lengths.lock().expect("no panic").push(self.left);
                }
                self.header.clear();
            }
        }
    }
}

impl AsyncRead for RecordReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.note(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordReader {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
