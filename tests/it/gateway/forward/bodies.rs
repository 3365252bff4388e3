//! Bodies are streamed: each chunk is forwarded at once, with bounded memory and backpressure.

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

/// Each chunk is sent after the previous one has come back, so a gateway that waits for more would block.
#[tokio::test]
async fn each_chunk_is_forwarded_at_once_in_both_directions() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::public(upstream.address, &format!("protocol = \"{protocol}\""));
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut connection = HttpConnection::of(version, gateway.address()).await;
            let (upload, body) = connection::streamed();
            let request = Request::post("/mirror").body(body).expect("a request");
            upload.send("the first chunk").await;
            let mut response = connection.send(request).await.into_body();
            connection::next_chunk(&mut response).await.expect("the first chunk");
            for chunk in ["one", "two", "three"] {
                upload.send(chunk).await;
                assert_eq!(
                    connection::next_chunk(&mut response).await.expect("a chunk"),
                    chunk,
                    "{version:?} to {protocol}"
                );
            }
            drop(upload);
            assert_eq!(connection::next_chunk(&mut response).await, None);
        }
    }
}

/// Size of the large body in bytes: three times what the gateway may keep of it. `BEARWARD_BODY_MIB` sets it in MiB.
fn large() -> usize {
    std::env::var("BEARWARD_BODY_MIB").map_or(32, |text| text.parse().expect("a number of MiB")) * MIB
}

/// The memory must not grow with the size of the body. The limit leaves room for some windows and buffers.
#[tokio::test]
async fn a_large_body_needs_no_more_memory_than_a_small_one() {
    const MAX_GROWTH: usize = 10 * MIB;
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
            // The kernel's peak is approximate. It can be a little lower when read again.
            let growth = gateway.program.peak_memory().saturating_sub(before);
            eprintln!("{version:?} to {protocol}: {growth} bytes more for {} MiB each way", large() / MIB);
            assert!(growth < MAX_GROWTH, "{version:?} to {protocol}: {growth} bytes more");
        }
    }
}

async fn upload(connection: &mut HttpConnection, size: usize) -> usize {
    let (upload, body) = connection::streamed();
    tokio::spawn(async move {
        for _ in 0..size / MIB {
            upload.send(Bytes::from_static(&[b'x'; MIB])).await;
        }
    });
    let response = connection.send_without_timeout(Request::post("/swallow").body(body).expect("a request")).await;
    connection::text(response.into_body()).await.parse().expect("a number of bytes")
}

/// The client waits before it reads. A gateway that reads the whole body ahead has done so by then.
async fn download(connection: &mut HttpConnection, size: usize) -> usize {
    let request = Request::get(format!("/large/{size}")).body(connection::empty()).expect("a request");
    let mut body = connection.send(request).await.into_body();
    // The time that a gateway without backpressure would use to read ahead.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut read = 0;
    while let Some(chunk) = connection::next_chunk(&mut body).await {
        read += chunk.len();
    }
    read
}

/// TLS records, frames and buffers end at different offsets. The test finds a byte that is lost, duplicated or moved.
#[tokio::test]
async fn every_byte_is_intact_with_tls_on_both_sides() {
    // A counter, so that all four-byte words differ. The odd length is no multiple of a record, frame or buffer.
    let body: Bytes = (0..(5 * MIB / 4) as u32).flat_map(u32::to_be_bytes).chain(*b"end").collect();
    let upstream = Upstream::start();
    // The backend is a second gateway, because it supports TLS.
    let backend = Gateway::public(upstream.address, "");
    for protocol in ["http1", "h2"] {
        let options = format!("protocol = \"{protocol}\"\nca_file = \"{}\"", backend.certificate().display());
        let text =
            Gateway::public_config(backend.tls_address(), &options).replace("http://127.0.0.1", "https://localhost");
        let gateway = Gateway::from_text(text);
        let [.., http1, http2] = gateway.clients();
        for client in [http1, http2] {
            let versions = format!("{:?} to {protocol}", client.version());
            let response = client.send(Method::POST, "/", body.clone()).await;
            assert_eq!(response.status, 200, "{versions}");
            let seen = upstream.seen().pop().expect("it arrived");
            assert_eq!(first_difference(&seen.body, &body), None, "{versions}: request");
            assert_eq!(first_difference(&response.body, &body), None, "{versions}: response");
        }
    }
    assert_eq!(upstream.seen().len(), 4);
}

/// The offset of the first difference.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let common = one.iter().zip(other).position(|(one, other)| one != other);
    common.or_else(|| (one.len() != other.len()).then(|| one.len().min(other.len())))
}

/// More bytes than all socket buffers, windows and queues of both connections can hold.
const MAX_BUFFERED: usize = 64 * MIB;

/// An endless body that counts the bytes that were read of it.
fn endless(read_bytes: &Arc<AtomicUsize>) -> connection::Body {
    const CHUNK: Bytes = Bytes::from_static(&[b'x'; 64 << 10]);
    let read_bytes = read_bytes.clone();
    let frames = futures_util::stream::poll_fn(move |_| {
        read_bytes.fetch_add(CHUNK.len(), Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(CHUNK))))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Waits until no more bytes are read. Returns their number.
async fn settled(read_bytes: &AtomicUsize) -> usize {
    let mut before = 0;
    loop {
        // Nothing signals the end of the reads, so this compares two samples.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = read_bytes.load(Ordering::SeqCst);
        if now == before && now > 0 || now > MAX_BUFFERED {
            return now;
        }
        before = now;
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_slows_the_backend_down() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let read_bytes = Arc::new(AtomicUsize::new(0));
        let counts = read_bytes.clone();
        let backend = Backend::start(version, move |_| {
            let body = endless(&counts);
            async move { Response::new(body) }
        })
        .await;
        let gateway = Gateway::public(backend.address, backend.protocol());
        for client_version in [Version::HTTP_11, Version::HTTP_2] {
            read_bytes.store(0, Ordering::SeqCst);
            let mut connection = HttpConnection::of(client_version, gateway.address()).await;
            let mut body =
                connection.send(Request::get("/").body(connection::empty()).expect("a request")).await.into_body();
            let buffered = settled(&read_bytes).await;
            assert!(buffered <= MAX_BUFFERED, "{client_version:?} to {version:?}: {buffered} bytes were buffered");
            // When the client reads again, the backend sends more.
            let mut read = 0;
            while read < 2 * buffered {
                read += connection::next_chunk(&mut body).await.expect("more of the body").len();
            }
            connection.abort();
        }
    }
}

#[tokio::test]
async fn a_backend_that_does_not_read_slows_the_client_down() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let resume = Arc::new(Notify::new());
        let resumed = resume.clone();
        let backend = Backend::start(version, move |request| {
            let resumed = resumed.clone();
            async move {
                resumed.notified().await;
                let mut body = request.into_body();
                let mut read = 0;
                while read < 2 * MAX_BUFFERED {
                    read += connection::next_chunk(&mut body).await.expect("more of the body").len();
                }
                Response::new(connection::full("enough"))
            }
        })
        .await;
        let gateway = Gateway::public(backend.address, backend.protocol());
        for client_version in [Version::HTTP_11, Version::HTTP_2] {
            let read_bytes = Arc::new(AtomicUsize::new(0));
            let connection = HttpConnection::of(client_version, gateway.address()).await;
            let request = Request::post("/").body(endless(&read_bytes)).expect("a request");
            let sent = tokio::spawn(connection.sender().send(request));
            let buffered = settled(&read_bytes).await;
            assert!(buffered <= MAX_BUFFERED, "{client_version:?} to {version:?}: {buffered} bytes were buffered");
            resume.notify_one();
            let response = sent.await.expect("no panic").expect("a response");
            assert_eq!(connection::next_chunk(&mut response.into_body()).await.expect("its body"), "enough");
            connection.abort();
        }
    }
}

/// The backend sends each event after the client has received the previous one.
#[tokio::test]
async fn each_server_sent_event_is_forwarded_at_once() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let (streams, mut received) = tokio::sync::mpsc::channel(1);
        let backend = Backend::start(version, move |_| {
            let streams = streams.clone();
            async move {
                let (events, body) = connection::streamed();
                streams.send(events).await.expect("the test waits for it");
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
            let (events, mut body) = (received.recv().await.expect("a request"), response.into_body());
            for number in 0..5 {
                let event = format!("id: {number}\ndata: a bear\n\n");
                events.send(event.clone()).await;
                assert_eq!(connection::next_chunk(&mut body).await.expect("more of the body"), event);
            }
            drop(events);
            assert_eq!(connection::next_chunk(&mut body).await, None);
        }
    }
}
