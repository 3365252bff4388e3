//! The writes to an HTTP/2 connection.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;

use crate::support::frames::{self, frame};
use crate::support::{Gateway, ScriptedBackend, tls_records};

/// Requests that a client has in flight at the same time.
const CONCURRENT: usize = 10;

/// An HTTP/2 backend that waits for ten requests, and sends all ten responses in one write.
fn backend_in_tens() -> ScriptedBackend {
    ScriptedBackend::start(|mut wire, _| async move {
        wire.read_bytes(frames::PREFACE.len()).await;
        wire.send(frame(frames::SETTINGS, 0, 0, &[])).await;
        loop {
            let mut responses = Vec::new();
            for _ in 0..CONCURRENT {
                let request = frames::next(&mut wire, &[frames::HEADERS]).await.stream;
                responses.push(frame(frames::HEADERS, frames::END_HEADERS, request, &[frames::OK]));
                responses.push(frame(frames::DATA, frames::END_STREAM, request, &[b'b'; 1024]));
            }
            wire.send(responses.concat()).await;
        }
    })
}

/// Without this, each response has a TLS record and a system call of its own.
#[tokio::test]
async fn responses_that_are_ready_at_once_share_tls_records() {
    const ROUNDS: usize = 20;
    let backend = backend_in_tens();
    let gateway = Gateway::public_single_worker(backend.address, "protocol = \"h2\"");
    let (stream, records) = tls_records::connect(&gateway, "h2").await;
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
    records.lock().expect("no panic").clear();
    for _ in 0..ROUNDS {
        round().await;
    }
    let received = records.lock().expect("no panic").len();
    assert!(received < ROUNDS * CONCURRENT / 3, "{received} records for {} responses", ROUNDS * CONCURRENT);
    drop(sender);
    connection.await.expect("no panic").expect("a clean end");
}
