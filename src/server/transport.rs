//! The socket of a client, also below TLS.

use std::io;
use std::task::{Context, Poll};

use tokio_rustls::server::TlsStream;

use crate::protocols::coalescing_stream::CoalescingStream;

/// A client's stream that tells more than what it carries.
pub(super) trait Transport {
    /// Ready when there is data, or the client closed the connection. Reads nothing.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Bytes that the socket has accepted; `None` if that is the same as what was written to this stream.
    fn bytes_sent(&self) -> Option<u64> {
        None
    }
}

impl Transport for CoalescingStream {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_readable(context)
    }
}

impl<S: Transport> Transport for Box<S> {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        (**self).poll_readable(context)
    }

    fn bytes_sent(&self) -> Option<u64> {
        (**self).bytes_sent()
    }
}

impl<S: Transport> Transport for TlsStream<S> {
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_ref().0.poll_readable(context)
    }

    fn bytes_sent(&self) -> Option<u64> {
        self.get_ref().0.bytes_sent()
    }
}
