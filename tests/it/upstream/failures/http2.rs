//! Failures of HTTP/2 backends.

use std::time::Duration;

use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::connection::{self, HttpConnection};
use crate::support::wait::eventually;
use crate::support::{Gateway, ScriptedBackend, Upstream, frames};

#[tokio::test]
async fn a_restarted_backend_gets_every_later_request() {
    let upstream = Upstream::start_http2();
    let address = upstream.address;
    let gateway = Gateway::public(address, "protocol = \"h2\"");
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    drop(upstream);
    // The connections of the backend end with it. Until then it may still serve requests.
    while gateway.client().get("/").await.status != 502 {}
    let upstream = Upstream::http2_at(address);
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    assert_eq!(upstream.seen().len(), 4);
}

/// GOAWAY names the first request that the backend does not accept. The gateway retries those requests on a new
/// connection.
#[tokio::test]
async fn a_backend_that_keeps_sending_goaway_loses_no_request() {
    let upstream = Upstream::start_http2();
    let gateway = Gateway::public(upstream.address, "protocol = \"h2\"");
    for _ in 0..20 {
        let answer = gateway.client().get("/goaway").await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert!(upstream.connections() > 1);
}

/// A worker's requests share one connection, so clients that do not read must not use up its window.
#[tokio::test]
async fn clients_that_do_not_read_do_not_block_others() {
    let upstream = Upstream::start_http2();
    let gateway = Gateway::public(upstream.address, "protocol = \"h2\"\n[limits]\nhttp2_concurrent_streams = 200");
    let mut lazy = Vec::new();
    for _ in 0..20 {
        let mut connection = HttpConnection::http1(gateway.address()).await;
        let request = Request::get("/large/100000000").body(connection::empty()).expect("a request");
        let body = connection.send(request).await.into_body();
        lazy.push((connection, body));
    }
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/large/100000").await.body.len(), 100_000);
    }
}

/// Unread frames must not look like an attack by the backend, because the gateway would then close the shared
/// connection.
#[tokio::test]
async fn clients_that_do_not_read_small_frames_do_not_block_others() {
    const LAZY: usize = 2;
    const FRAMES: usize = 20_000;
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.send(frames::frame(frames::SETTINGS, 0, 0, &[])).await;
        wire.read_bytes(frames::PREFACE.len()).await;
        for number in 0.. {
            let request = frames::next(&mut wire, &[frames::HEADERS, frames::GOAWAY]).await;
            if request.kind == frames::GOAWAY {
                return;
            }
            let (flags, pieces) = if number < LAZY { (0, FRAMES) } else { (frames::END_STREAM, 0) };
            wire.send(frames::frame(frames::HEADERS, frames::END_HEADERS | flags, request.stream, &[frames::OK])).await;
            wire.send(frames::frame(frames::DATA, 0, request.stream, b"x").repeat(pieces)).await;
        }
    });
    let text = Gateway::public_config(backend.address, "protocol = \"h2\"\nmax_concurrent_requests = 4");
    let gateway = Gateway::from_text(text.replace("workers = 2", "workers = 1"));
    // With a window of 0 bytes.
    let settings = frames::frame(frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let mut lazy = Vec::new();
    for _ in 0..LAZY {
        let frames_to_send = [frames::PREFACE.as_bytes().to_vec(), settings.clone(), frames::get(1, "/")];
        let mut client = frames::connect(gateway.address(), &frames_to_send).await;
        frames::next(&mut client, &[frames::HEADERS]).await;
        lazy.push(client);
    }
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    assert_eq!(backend.connections(), 1);
}

/// A stream beyond the backend's limit would wait inside the connection, and look like a backend that does not respond.
#[tokio::test]
async fn the_default_limit_is_100_streams_per_backend_connection() {
    const ALLOWED: usize = 100;
    let upstream = Upstream::start_http2();
    let more =
        "protocol = \"h2\"\nreserve_percent = 0\nconnect_timeout = \"300ms\"\n[limits]\nhttp2_concurrent_streams = 200";
    let gateway =
        Gateway::from_text(Gateway::public_config(upstream.address, more).replace("workers = 2", "workers = 1"));
    let connection = HttpConnection::http2(gateway.address()).await;
    let hang = || Request::get("/hang").body(connection::empty()).expect("a request");
    let waiting: Vec<_> = (0..ALLOWED).map(|_| tokio::spawn(connection.sender().send(hang()))).collect();
    eventually("all requests are in flight", || upstream.in_flight() == ALLOWED).await;
    gateway.client().get("/hang").await.assert_rejected(503, "temporarily_unavailable");
    assert_eq!(gateway.log_line(|line| line["status"] == 503).await["reason"], "upstream_busy");
    assert_eq!(upstream.in_flight(), ALLOWED);
    waiting.into_iter().for_each(|request| request.abort());
}

/// gRPC servers close a connection with all its calls if it gets more than two PINGs in five minutes without data. The
/// gateway used to send one every ten seconds.
#[tokio::test]
async fn a_silent_backend_gets_no_pings() {
    const SILENCE: Duration = Duration::from_secs(11);
    let backend = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let gateway = Gateway::public(backend.local_addr().expect("an address"), "protocol = \"h2\"");
    let mut connection = HttpConnection::http1(gateway.address()).await;
    let asking = connection.send(Request::get("/").body(connection::empty()).expect("a request"));
    let answering = async {
        let mut stream = backend.accept().await.expect("the gateway connects").0;
        let mut received = Vec::new();
        while !kinds(&received).contains(&frames::HEADERS) {
            stream.read_buf(&mut received).await.expect("read");
        }
        let settings = frames::frame(frames::SETTINGS, 0, 0, &[]);
        let head = frames::frame(frames::HEADERS, frames::END_HEADERS, 1, &[frames::OK]);
        stream.write_all(&[settings, head].concat()).await.expect("written");
        (stream, received)
    };
    let (answer, (mut stream, mut received)) = tokio::join!(asking, answering);
    assert_eq!(answer.status(), 200);
    let ended = tokio::time::timeout(SILENCE, stream.read_to_end(&mut received)).await;
    assert!(ended.is_err(), "the connection was closed");
    assert!(!kinds(&received).contains(&frames::PING), "{:?}", kinds(&received));
}

/// Returns the types of the frames in these bytes.
fn kinds(received: &[u8]) -> Vec<u8> {
    let mut rest = received.get(frames::PREFACE.len()..).unwrap_or_default();
    let mut kinds = Vec::new();
    while let [high, middle, low, kind, ..] = *rest {
        let length = 9 + u32::from_be_bytes([0, high, middle, low]) as usize;
        let Some(after) = rest.get(length..) else { break };
        kinds.push(kind);
        rest = after;
    }
    kinds
}

/// The backend sends GOAWAY while a request is on its way, so it has not processed the request (RFC 9113 section 6.8).
#[tokio::test]
async fn a_request_that_crosses_a_goaway_is_retried() {
    let backend = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let gateway = Gateway::public(backend.local_addr().expect("an address"), "protocol = \"h2\"");
    let mut connection = HttpConnection::http1(gateway.address()).await;
    let asking = connection.send(Request::get("/").body(connection::empty()).expect("a request"));
    let settings = frames::frame(frames::SETTINGS, 0, 0, &[]);
    let answering = async {
        // The last processed stream is 0, with NO_ERROR.
        let goaway = frames::frame(frames::GOAWAY, 0, 0, &[0; 8]);
        let head = frames::frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, 1, &[frames::OK]);
        for last in [goaway, head] {
            let mut stream = backend.accept().await.expect("the gateway connects").0;
            let mut received = Vec::new();
            while !kinds(&received).contains(&frames::HEADERS) {
                stream.read_buf(&mut received).await.expect("read");
            }
            stream.write_all(&[settings.clone(), last].concat()).await.expect("written");
            // Until the gateway closes the connection.
            tokio::spawn(async move { stream.read_to_end(&mut received).await });
        }
    };
    let answer = tokio::select! {
        answer = asking => answer,
        () = async { answering.await; std::future::pending().await } => unreachable!(),
    };
    assert_eq!(answer.status(), 200);
}

/// REFUSED_STREAM means that the backend did not process the request (RFC 9113 section 8.7). Other resets do not.
#[tokio::test]
async fn a_request_reset_with_refused_stream_is_retried() {
    const REFUSED_STREAM: u8 = 7;
    const INTERNAL_ERROR: u8 = 2;
    for (code, status) in [(REFUSED_STREAM, 200), (INTERNAL_ERROR, 502)] {
        let backend = ScriptedBackend::start(move |mut wire, _| async move {
            wire.read_bytes(frames::PREFACE.len()).await;
            wire.send(frames::frame(frames::SETTINGS, 0, 0, &[])).await;
            frames::next(&mut wire, &[frames::HEADERS]).await;
            wire.send(frames::frame(frames::RST_STREAM, 0, 1, &[0, 0, 0, code])).await;
            frames::next(&mut wire, &[frames::HEADERS]).await;
            let flags = frames::END_HEADERS | frames::END_STREAM;
            wire.send(frames::frame(frames::HEADERS, flags, 3, &[frames::OK])).await;
            wire.read_to_end().await;
        });
        let gateway = Gateway::public(backend.address, "protocol = \"h2\"");
        let mut connection = HttpConnection::http1(gateway.address()).await;
        let answer = connection.send(Request::get("/").body(connection::empty()).expect("a request")).await;
        assert_eq!(answer.status(), status, "{code}");
    }
}
