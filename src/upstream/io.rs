//! A wrapper between a backend's socket and TLS or hyper.
//!
//! A backend may respond before it has read the whole request, with 413 for example, and close the connection. Further
//! writes then fail while its response waits to be read. hyper would stop at the failed write, and the client would get
//! 502. This wrapper discards what is still to be written instead, so that the response is read first.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::protocols::coalescing_stream::CoalescingStream;

pub(super) struct BackendStream {
    stream: CoalescingStream,
    /// The backend has closed its reading side. It has closed the connection, so reading ends too.
    discards_writes: bool,
}

impl BackendStream {
    pub(super) fn new(stream: TcpStream) -> Self {
        BackendStream { stream: CoalescingStream::new(stream), discards_writes: false }
    }

    /// Turns an error of a closed connection into success. `discarded`: what the write reports then.
    fn ignore_closed<T>(&mut self, polled: Poll<io::Result<T>>, discarded: T) -> Poll<io::Result<T>> {
        match polled {
            Poll::Ready(Err(error)) if is_closed(&error) => {
                self.discards_writes = true;
                Poll::Ready(Ok(discarded))
            }
            polled => polled,
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl AsyncRead for BackendStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for BackendStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = slices.iter().map(|slice| slice.len()).sum();
        if self.discards_writes {
            return Poll::Ready(Ok(len));
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.ignore_closed(polled, len)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.ignore_closed(polled, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
