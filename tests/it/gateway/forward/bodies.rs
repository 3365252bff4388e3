//! Bodies flow: piece by piece as they come, and in no more memory than a few pieces need.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::support::connection::{self, HttpConnection};
use crate::support::program::GatewayProcess;
use crate::support::{Backend, Gateway, Upstream};

const MIB: usize = 1 << 20;

/// Each piece is sent only when the one before has come back: nobody on the way can be waiting for more.
#[tokio::test]
async fn each_chunk_is_forwarded_at_once_in_both_directions() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::public(upstream.address, &format!("protocol = \"{protocol}\""));
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut connection = HttpConnection::of(version, gateway.address()).await;
            let (pieces, body) = connection::streamed();
            let request = Request::post("/mirror").body(body).expect("a request");
            pieces.send("the head goes with this").await;
            let mut response = connection.send(request).await.into_body();
            connection::next_chunk(&mut response).await.expect("the first piece");
            for piece in ["one", "two", "three"] {
                pieces.send(piece).await;
                assert_eq!(
                    connection::next_chunk(&mut response).await.expect("a piece"),
                    piece,
                    "{version:?} to {protocol}"
                );
            }
            drop(pieces);
            assert_eq!(connection::next_chunk(&mut response).await, None);
        }
    }
}

/// So much passes through in each direction: by hand, `BEARWARD_BODY_MIB=1024`.
fn large() -> usize {
    std::env::var("BEARWARD_BODY_MIB").map_or(128, |text| text.parse().expect("a number of MiB")) * MIB
}

/// Whoever keeps a body, or a part of it that grows with it, fails; a few windows and buffers do not.
#[tokio::test]
async fn a_large_body_needs_no_more_memory_than_a_small_one() {
    const SPARE: usize = 10 * MIB;
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let folder = TempDir::new().expect("a temporary folder");
        let text = Gateway::public_config(upstream.address, &format!("protocol = \"{protocol}\""));
        std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
        let gateway = GatewayProcess::start(folder.path());
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut connection = HttpConnection::of(version, gateway.addresses[0]).await;
            assert_eq!(upload(&mut connection, MIB).await, MIB);
            assert_eq!(download(&mut connection, MIB).await, MIB);
            let before = gateway.program.peak_memory();
            assert_eq!(upload(&mut connection, large()).await, large());
            assert_eq!(download(&mut connection, large()).await, large());
            let grown = gateway.program.peak_memory() - before;
            eprintln!("{version:?} to {protocol}: {grown} bytes more for {} MiB each way", large() / MIB);
            assert!(grown < SPARE, "{version:?} to {protocol}: {grown} bytes more");
        }
    }
}

async fn upload(connection: &mut HttpConnection, size: usize) -> usize {
    let (pieces, body) = connection::streamed();
    tokio::spawn(async move {
        for _ in 0..size / MIB {
            pieces.send(Bytes::from_static(&[b'x'; MIB])).await;
        }
    });
    let response = connection.send_without_timeout(Request::post("/swallow").body(body).expect("a request")).await;
    connection::text(response.into_body()).await.parse().expect("how many bytes it was")
}

/// The client takes its time before it reads: a gateway that reads ahead has all of it by then.
async fn download(connection: &mut HttpConnection, size: usize) -> usize {
    let request = Request::get(format!("/large/{size}")).body(connection::empty()).expect("a request");
    let mut body = connection.send(request).await.into_body();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut read = 0;
    while let Some(piece) = connection::next_chunk(&mut body).await {
        read += piece.len();
    }
    read
}

/// Records of TLS, frames and buffers all end somewhere else: a byte that is lost, doubled or moved between them is found.
#[tokio::test]
async fn every_byte_is_intact_with_tls_on_both_sides() {
    // Each four bytes are there once. No record, frame or buffer ends where this does.
    let body: Bytes = (0..(5 * MIB / 4) as u32).flat_map(u32::to_be_bytes).chain(*b"end").collect();
    let upstream = Upstream::start();
    // A second gateway plays the backend: it speaks TLS.
    let backend = Gateway::public(upstream.address, "");
    for protocol in ["http1", "h2"] {
        let options = format!("protocol = \"{protocol}\"\nca_file = \"{}\"", backend.certificate().display());
        let text =
            Gateway::public_config(backend.tls_address(), &options).replace("http://127.0.0.1", "https://localhost");
        let gateway = Gateway::from_text(text);
        let [.., http1, http2] = gateway.clients();
        for client in [http1, http2] {
            let told = format!("{:?} to {protocol}", client.version());
            let response = client.send(Method::POST, "/", body.clone()).await;
            assert_eq!(response.status, 200, "{told}");
            let seen = upstream.seen().pop().expect("it arrived");
            assert_eq!(first_difference(&seen.body, &body), None, "{told}: up");
            assert_eq!(first_difference(&response.body, &body), None, "{told}: down");
        }
    }
    assert_eq!(upstream.seen().len(), 4);
}

/// The place from which on they are not the same.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let common = one.iter().zip(other).position(|(one, other)| one != other);
    common.or_else(|| (one.len() != other.len()).then(|| one.len().min(other.len())))
}

/// More than all socket buffers, windows and queues on the way can hold, two connections of them.
const MORE_THAN_FITS: usize = 64 * MIB;

/// A body that counts what was taken of it.
fn counted(taken: &Arc<AtomicUsize>) -> connection::Body {
    const PIECE: Bytes = Bytes::from_static(&[b'x'; 64 << 10]);
    let taken = taken.clone();
    let frames = futures_util::stream::poll_fn(move |_| {
        taken.fetch_add(PIECE.len(), Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(PIECE))))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// What was taken once nothing more is.
async fn comes_to_rest(taken: &AtomicUsize) -> usize {
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = taken.load(Ordering::SeqCst);
        if now == before && now > 0 || now > MORE_THAN_FITS {
            return now;
        }
        before = now;
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_slows_the_backend_down() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let taken = Arc::new(AtomicUsize::new(0));
        let counts = taken.clone();
        let backend = Backend::start(version, move |_| {
            let body = counted(&counts);
            async move { Response::new(body) }
        })
        .await;
        let gateway = Gateway::public(backend.address, backend.protocol());
        for client_version in [Version::HTTP_11, Version::HTTP_2] {
            taken.store(0, Ordering::SeqCst);
            let mut connection = HttpConnection::of(client_version, gateway.address()).await;
            let mut body =
                connection.send(Request::get("/").body(connection::empty()).expect("a request")).await.into_body();
            let rest = comes_to_rest(&taken).await;
            assert!(rest <= MORE_THAN_FITS, "{client_version:?} to {version:?}: {rest} bytes were taken for nobody");
            // And goes on as it reads.
            let mut read = 0;
            while read < 2 * rest {
                read += connection::next_chunk(&mut body).await.expect("it goes on").len();
            }
            connection.abort();
        }
    }
}

#[tokio::test]
async fn a_backend_that_does_not_read_slows_the_client_down() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let goes_on = Arc::new(Notify::new());
        let waits = goes_on.clone();
        let backend = Backend::start(version, move |request| {
            let waits = waits.clone();
            async move {
                waits.notified().await;
                let mut body = request.into_body();
                let mut read = 0;
                while read < 2 * MORE_THAN_FITS {
                    read += connection::next_chunk(&mut body).await.expect("it goes on").len();
                }
                Response::new(connection::full("enough"))
            }
        })
        .await;
        let gateway = Gateway::public(backend.address, backend.protocol());
        for client_version in [Version::HTTP_11, Version::HTTP_2] {
            let taken = Arc::new(AtomicUsize::new(0));
            let connection = HttpConnection::of(client_version, gateway.address()).await;
            let request = Request::post("/").body(counted(&taken)).expect("a request");
            let asking = tokio::spawn(connection.sender().send(request));
            let rest = comes_to_rest(&taken).await;
            assert!(rest <= MORE_THAN_FITS, "{client_version:?} to {version:?}: {rest} bytes were taken for nobody");
            goes_on.notify_one();
            let response = asking.await.expect("no panic").expect("a response");
            assert_eq!(connection::next_chunk(&mut response.into_body()).await.expect("its body"), "enough");
            connection.abort();
        }
    }
}

/// Server-sent events: the next is sent only when the one before was seen.
#[tokio::test]
async fn each_server_sent_event_is_forwarded_at_once() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let (bodies, mut offered) = tokio::sync::mpsc::channel(1);
        let backend = Backend::start(version, move |_| {
            let bodies = bodies.clone();
            async move {
                let (events, body) = connection::streamed();
                bodies.send(events).await.expect("the story goes on");
                let mut response = Response::new(body);
                response.headers_mut().insert("content-type", HeaderValue::from_static("text/event-stream"));
                response
            }
        })
        .await;
        let gateway = Gateway::public(backend.address, backend.protocol());
        for client_version in [Version::HTTP_11, Version::HTTP_2] {
            let mut connection = HttpConnection::of(client_version, gateway.address()).await;
            let response = connection.send(Request::get("/").body(connection::empty()).expect("a request")).await;
            assert_eq!(response.headers()["content-type"], "text/event-stream");
            let (events, mut body) = (offered.recv().await.expect("a request"), response.into_body());
            for number in 0..5 {
                let event = format!("id: {number}\ndata: a bear\n\n");
                events.send(event.clone()).await;
                assert_eq!(connection::next_chunk(&mut body).await.expect("it goes on"), event);
            }
            drop(events);
            assert_eq!(connection::next_chunk(&mut body).await, None);
        }
    }
}
