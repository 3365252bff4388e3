//! The TLS records that a client receives.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{self as tokio_io, AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

use crate::support::{Gateway, client};

/// The lengths of the records with application data, in bytes without their headers.
pub type Lengths = Arc<Mutex<Vec<usize>>>;

/// Connects to the gateway over TLS, and notes the lengths of the records that the connection receives.
pub async fn connect(gateway: &Gateway, alpn: &str) -> (impl AsyncRead + AsyncWrite + use<>, Lengths) {
    let stream = TcpStream::connect(gateway.tls_address()).await.expect("the gateway listens");
    let (stream, writer) = stream.into_split();
    let lengths = Lengths::default();
    let reader = RecordReader { stream, lengths: lengths.clone(), header: Vec::new(), left: 0 };
    let certificate = CertificateDer::from_pem_file(gateway.certificate()).expect("the certificate of the test");
    let stream = tokio_io::join(reader, writer);
    (client::tls_connect(stream, certificate, alpn).await.expect("a TLS handshake"), lengths)
}

/// The half of a socket that reads, and notes the lengths of the records.
struct RecordReader {
    stream: OwnedReadHalf,
    lengths: Lengths,
    /// The header of the current record, as far as it was received.
    header: Vec<u8>,
    /// Bytes left of the current record.
    left: usize,
}

impl RecordReader {
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
