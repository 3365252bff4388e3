//! What lies between a backend's socket and TLS or hyper: a thin wrapper.
//!
//! A backend may answer before it has read the whole request, 413 for one, and close. What is still being written to it then
//! fails, while its answer waits to be read; hyper would give up at the failure, and the client be told 502. Here a
//! connection that takes no more swallows the rest instead, and its end is told by reading: behind the answer, if there is one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

pub(super) struct BackendStream {
    stream: TcpStream,
    /// The backend takes no more. It has closed, so that reading comes to an end as well.
    deaf: bool,
}

impl BackendStream {
    pub(super) fn new(stream: TcpStream) -> Self {
        BackendStream { stream, deaf: false }
    }

    /// `swallowed`: what a write answers that went nowhere.
    fn heard<T>(&mut self, polled: Poll<io::Result<T>>, swallowed: T) -> Poll<io::Result<T>> {
        match polled {
            Poll::Ready(Err(error)) if is_closed(&error) => {
                self.deaf = true;
                Poll::Ready(Ok(swallowed))
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
        let all = slices.iter().map(|slice| slice.len()).sum();
        if self.deaf {
            return Poll::Ready(Ok(all));
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.heard(polled, all)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.heard(polled, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
