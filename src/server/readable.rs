//! Waiting for data without reading it.

use std::io;
use std::task::{Context, Poll};

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A stream that says when there is data to read.
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
