//! How the gateway writes to an HTTP/2 connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::support::{Backend, Gateway, client};

/// Requests that a client has in flight at the same time.
const CONCURRENT: usize = 10;

/// A socket that counts the TLS records with application data that it receives.
struct RecordCounter {
    stream: TcpStream,
    records: Arc<AtomicUsize>,
    /// The header of the current record, as far as it was received.
    header: Vec<u8>,
    /// Bytes left of the current record.
    left: usize,
}

impl RecordCounter {
    fn count(&mut self, mut received: &[u8]) {
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
                self.records.fetch_add(usize::from(kind == APPLICATION_DATA), Ordering::Relaxed);
                self.header.clear();
            }
        }
    }
}

impl AsyncRead for RecordCounter {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.count(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordCounter {
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

/// A backend that responds to ten requests at a time.
async fn backend_in_tens() -> Backend {
    let all_there = Arc::new(Barrier::new(CONCURRENT));
    Backend::start(Version::HTTP_11, move |_| {
        let all_there = all_there.clone();
        async move {
            all_there.wait().await;
            Response::new(Full::from(vec![b'b'; 1024]).boxed_unsync())
        }
    })
    .await
}

/// Without this, each response has a TLS record and a system call of its own.
#[tokio::test]
async fn responses_that_are_ready_at_once_share_tls_records() {
    const ROUNDS: usize = 20;
    let backend = backend_in_tens().await;
    let gateway = Gateway::public_single_worker(backend.address, "");
    let stream = TcpStream::connect(gateway.tls_address()).await.expect("the gateway listens");
    let records = Arc::new(AtomicUsize::new(0));
    let counter = RecordCounter { stream, records: records.clone(), header: Vec::new(), left: 0 };
    let certificate = CertificateDer::from_pem_file(gateway.certificate()).expect("the certificate of the test");
    let stream = client::tls_connect(counter, certificate, "h2").await.expect("a TLS handshake");
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a connection");
    let connection = tokio::spawn(connection);
    let round = || async {
        let responses = (0..CONCURRENT).map(|_| {
            let request = Request::get("https://gateway.test/").body(Empty::<Bytes>::new()).expect("a request");
            let response = sender.clone().send_request(request);
            async { response.await.expect("a response").into_body().collect().await.expect("all of it").to_bytes() }
        });
        let bodies = responses.collect::<JoinSet<_>>().join_all().await;
        assert!(bodies.iter().all(|body| body.len() == 1024));
    };
    round().await;
    let before = records.load(Ordering::Relaxed);
    for _ in 0..ROUNDS {
        round().await;
    }
    let received = records.load(Ordering::Relaxed) - before;
    assert!(received < ROUNDS * CONCURRENT / 2, "{received} records for {} responses", ROUNDS * CONCURRENT);
    drop(sender);
    connection.await.expect("no panic").expect("a clean end");
}
