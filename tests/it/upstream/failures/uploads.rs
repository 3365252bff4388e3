//! Backends that fail during an upload. The client gets an error, whether or not it has sent its whole body.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use super::points::{End, OK, STATUS_200, with_one_place};
use super::{log_entry, logged};
use crate::support::connection::{self, HttpConnection};
use crate::support::frames::{self, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS};
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, ScriptedBackend, Upstream, Wire};

/// The first body fits into any buffer. The second fits into none, so its client is still sending.
const SIZES: [usize; 2] = [1 << 10, 64 << 20];

/// How much of a body the backend reads: half of it, or half of its first window (RFC 9113 section 6.9.2).
fn taken_of(size: usize) -> usize {
    (size / 2).min(32 << 10)
}

/// Returns a body of this size, and the counter of its sent bytes.
fn upload(size: usize) -> (Arc<AtomicUsize>, connection::Body) {
    const PIECE: Bytes = Bytes::from_static(&[b'x'; 16 << 10]);
    let sent = Arc::<AtomicUsize>::default();
    let counts = sent.clone();
    let pieces = futures_util::stream::poll_fn(move |_| {
        let left = size - counts.load(Ordering::SeqCst);
        let piece = PIECE.slice(..left.min(PIECE.len()));
        counts.fetch_add(piece.len(), Ordering::SeqCst);
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))))
    });
    (sent, StreamBody::new(pieces).boxed_unsync())
}

/// Much longer than the response timeout of 300 ms, and much shorter than all other timeouts.
const IN_TIME: Duration = Duration::from_secs(5);

/// Asserts how an upload of this size ends, and that the gateway serves another request afterwards.
async fn assert_upload_fails(gateway: &Gateway, version: Version, size: usize, expected: (u64, &str), context: &str) {
    let mut connection = HttpConnection::of(version, gateway.address()).await;
    let began = Instant::now();
    let (sent, body) = upload(size);
    let answer = connection.send(Request::post("/").body(body).expect("a request")).await;
    assert_eq!(u64::from(answer.status().as_u16()), expected.0, "{context}");
    if expected.0 == 504 {
        assert_eq!(sent.load(Ordering::SeqCst) == size, size == SIZES[0], "{context}: still sending, or not");
    }
    connection::text(answer.into_body()).await;
    assert!(began.elapsed() < IN_TIME, "{context}: {:?}", began.elapsed());
    assert_eq!(logged(gateway).await, log_entry(expected.0, expected.1, true), "{context}");
    // On a busy machine, the backend may need longer than the response timeout.
    eventually_ok(context, async || {
        let text = gateway.client().get("/").await.text();
        if text == "ok" { Ok(()) } else { Err(text) }
    })
    .await;
}

#[tokio::test]
async fn in_the_middle_of_a_body_over_http1() {
    for (bytes, end, expected) in [
        ("", End::Reset, (502, "upstream_broken")),
        ("", End::Close, (502, "upstream_broken")),
        ("", End::HalfClose, (502, "upstream_broken")),
        ("", End::Stall, (504, "upstream_timeout")),
        ("SSH-2.0-OpenSSH_9.2\r\n", End::Stall, (502, "upstream_broken")),
        // Sends 100 Continue, but does not read the rest.
        ("HTTP/1.1 100 Continue\r\n\r\n", End::Stall, (504, "upstream_timeout")),
    ] {
        for (version, size) in [Version::HTTP_11, Version::HTTP_2].into_iter().flat_map(|v| SIZES.map(|s| (v, s))) {
            let backend = ScriptedBackend::start(move |mut wire, number| async move {
                wire.read_until("\r\n\r\n").await;
                if number > 0 {
                    return wire.send(OK).await;
                }
                wire.read_bytes(taken_of(size)).await;
                wire.send(bytes).await;
                match end {
                    End::Stall => stop_reading(wire).await,
                    end => end.of(wire).await,
                }
            });
            let context = format!("{version:?}, {size} bytes, {end:?} after {bytes:?}");
            assert_upload_fails(&with_one_place(&backend, "http1"), version, size, expected, &context).await;
        }
    }
}

/// Stops reading until the gateway closes the connection.
async fn stop_reading(wire: Wire) {
    std::future::pending::<()>().await;
    drop(wire);
}

#[tokio::test]
async fn in_the_middle_of_a_body_over_http2() {
    let internal_error = frames::frame(RST_STREAM, 0, 1, &[0, 0, 0, 2]);
    for (bytes, end, expected) in [
        (vec![], End::Reset, (502, "upstream_broken")),
        (vec![], End::Close, (502, "upstream_broken")),
        (vec![], End::Stall, (504, "upstream_timeout")),
        (internal_error, End::Stall, (502, "upstream_broken")),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), End::Stall, (502, "upstream_broken")),
        (frames::frame(DATA, 0, 1, b"no head"), End::Stall, (502, "upstream_broken")),
    ] {
        for (version, size) in [Version::HTTP_11, Version::HTTP_2].into_iter().flat_map(|v| SIZES.map(|s| (v, s))) {
            let bytes_to_send = bytes.clone();
            let backend = ScriptedBackend::start(move |mut wire, number| {
                let bytes = bytes_to_send.clone();
                async move {
                    wire.read_bytes(frames::PREFACE.len()).await;
                    wire.send(frames::frame(SETTINGS, 0, 0, &[])).await;
                    if number == 0 {
                        let mut heard = 0;
                        while heard < taken_of(size) {
                            heard += frames::next(&mut wire, &[DATA]).await.payload.len();
                        }
                        wire.send(bytes).await;
                        if !matches!(end, End::Stall) {
                            return end.of(wire).await;
                        }
                    }
                    respond_to_next_streams(wire).await;
                }
            });
            let context = format!("{version:?}, {size} bytes, {end:?} after {:?}", bytes.escape_ascii().to_string());
            assert_upload_fails(&with_one_place(&backend, "h2"), version, size, expected, &context).await;
        }
    }
}

/// Responds to the streams that begin from now on.
async fn respond_to_next_streams(mut wire: Wire) {
    let stream = frames::next(&mut wire, &[HEADERS]).await.stream;
    let head = frames::frame(HEADERS, END_HEADERS, stream, STATUS_200);
    wire.send([head, frames::frame(DATA, END_STREAM, stream, b"ok")].concat()).await;
    wire.read_to_end().await;
}

/// The rest of the body must not be read as a request. A client that has sent everything keeps its connection.
#[tokio::test]
async fn only_an_unread_body_closes_the_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[timeouts]\nrequest = \"300ms\"");
    let head = "POST /hang HTTP/1.1\r\nHost: a\r\n";
    for (rest, closes) in [
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n", true),
        ("Content-Length: 10\r\n\r\nfirst", true),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n\r\n", false),
        ("Content-Length: 5\r\n\r\nfirst", false),
        ("\r\n", false),
    ] {
        let mut client = Wire::connect(gateway.address()).await;
        client.send(format!("{head}{rest}")).await;
        let response = client.read_response().await;
        assert_eq!((response.status, response.header("connection")), (504, closes.then_some("close")), "{rest}");
        if closes {
            client.assert_closed().await;
        } else {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert_eq!(client.read_response().await.status, 200, "{rest}");
        }
    }
}

/// The gateway reads the bodies of its own calls itself.
#[tokio::test]
async fn an_unread_body_of_an_own_call_closes_the_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let head = "POST /user/refresh HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
    let long = format!("Transfer-Encoding: chunked\r\n\r\n4000\r\n{}\r\n", "x".repeat(0x4000));
    for (rest, status, closes) in [
        (long.as_str(), 413, true),
        ("Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400, false),
        ("Content-Length: 2\r\n\r\n{}", 400, false),
    ] {
        let mut client = Wire::connect(gateway.address()).await;
        client.send(format!("{head}{rest}")).await;
        let response = client.read_response().await;
        assert_eq!((response.status, response.header("connection")), (status, closes.then_some("close")));
        if !closes {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert_eq!(client.read_response().await.status, 401);
        }
    }
}
