//! Backends that fail at each point of an exchange, in each way that a connection can. The client gets an error where
//! possible, a broken response never looks complete, and the next request has the same resources.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Version};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

use crate::support::connection::{self, HttpConnection};
use crate::support::frames::{self, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS};
use crate::support::wait::eventually;
use crate::support::{Gateway, ScriptedBackend, Upstream, Wire};

pub(super) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Close,
    Reset,
    /// Shuts down writing, and keeps reading.
    HalfClose,
    /// Sends nothing more, and keeps the connection open.
    Stall,
}

impl End {
    pub(super) async fn of(self, mut wire: Wire) {
        match self {
            End::Close => {}
            End::Reset => {
                let socket = socket2::SockRef::from(&wire.stream);
                socket.set_linger(Some(Duration::ZERO)).expect("closing resets the connection");
            }
            End::HalfClose => {
                wire.stream.shutdown().await.expect("the connection is open");
                wire.read_to_end().await;
            }
            End::Stall => drop(wire.read_to_end().await),
        }
    }
}

/// What the client receives.
#[derive(Debug, PartialEq)]
enum RawResponse {
    Rejected(u16, &'static str),
    Complete(&'static str),
    /// Status 200, and a truncated body.
    Broken,
}

use RawResponse::{Broken, Complete, Rejected};

const AFTER_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
const IN_BODY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
const IN_CHUNK: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello";
const NO_CHUNK: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n";
const UNTIL_CLOSED: &str = "HTTP/1.1 200 OK\r\n\r\nhello";
const TOO_LONG: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more";

const POINTS: [(&str, End, RawResponse); 21] = [
    ("", End::Close, Rejected(502, "upstream_broken")),
    ("", End::Reset, Rejected(502, "upstream_broken")),
    ("", End::HalfClose, Rejected(502, "upstream_broken")),
    ("", End::Stall, Rejected(504, "upstream_timeout")),
    ("HTTP/1.1 200 OK\r\nContent-Le", End::Close, Rejected(502, "upstream_broken")),
    ("HTTP/1.1 200 OK\r\nContent-Le", End::Reset, Rejected(502, "upstream_broken")),
    ("HTTP/1.1 200 OK\r\nContent-Le", End::HalfClose, Rejected(502, "upstream_broken")),
    ("HTTP/1.1 200 OK\r\nContent-Le", End::Stall, Rejected(504, "upstream_timeout")),
    (AFTER_HEAD, End::Close, Broken),
    (AFTER_HEAD, End::Reset, Broken),
    (AFTER_HEAD, End::Stall, Broken),
    (IN_BODY, End::Close, Broken),
    (IN_BODY, End::Reset, Broken),
    (IN_BODY, End::HalfClose, Broken),
    (IN_BODY, End::Stall, Broken),
    (IN_CHUNK, End::Close, Broken),
    (IN_CHUNK, End::Reset, Broken),
    (NO_CHUNK, End::Stall, Broken),
    (UNTIL_CLOSED, End::HalfClose, Complete("hello")),
    // Without a length, the end alone does not show that the body is truncated.
    (UNTIL_CLOSED, End::Reset, Broken),
    (TOO_LONG, End::Close, Complete("hello")),
];

/// One worker with one connection to its backend, so that the next request shows a connection that was not returned.
pub(super) fn with_one_place(backend: &ScriptedBackend, protocol: &str) -> Gateway {
    let more = format!(
        "protocol = \"{protocol}\"\nmax_concurrent_requests = 1\nconnect_timeout = \"2s\"\n\
         [timeouts]\nupstream_response = \"300ms\"\nbody_idle = \"300ms\""
    );
    let text = Gateway::public_config(backend.address, &more);
    Gateway::from_text(text.replace("workers = 2", "workers = 1"))
}

/// Sends a request, and returns what the client receives. Notifies `head_seen` when the response head has arrived.
async fn exchange(gateway: &Gateway, version: Version, head_seen: &Notify) -> RawResponse {
    let mut connection = HttpConnection::of(version, gateway.address()).await;
    let Ok(answer) = connection.try_send(Request::get("/").body(connection::empty()).expect("a request")).await else {
        // Head and failure arrived at once, and HTTP/1.1 cannot report both.
        let line = gateway.log_lines(1).await.remove(0);
        assert_eq!((line["status"].as_u64(), line["complete"].as_bool()), (Some(200), Some(false)), "{line}");
        assert_has_cause(&line);
        return Broken;
    };
    head_seen.notify_one();
    let status = answer.status().as_u16();
    let collected = answer.into_body().collect().await;
    let line = gateway.log_lines(1).await.remove(0);
    assert_eq!(line["complete"] == false, collected.is_err(), "{line}");
    assert_eq!(line["status"], status, "{line}");
    let reason = line["reason"].as_str().unwrap_or_default().to_owned().leak();
    match (status, collected.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned())) {
        (200, Ok(body)) => Complete(body.leak()),
        (200, Err(_)) => {
            assert_has_cause(&line);
            Broken
        }
        (status, _) => Rejected(status, reason),
    }
}

fn assert_has_cause(line: &Value) {
    let reason = line["reason"].as_str().unwrap_or_default();
    assert!(["upstream_broken", "upstream_timeout"].contains(&reason) && line["detail"].is_string(), "{line}");
}

#[tokio::test]
async fn a_backend_can_fail_at_each_point_over_http1() {
    for (bytes, end, expected) in POINTS {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let context = format!("{version:?}, {end:?} after {bytes:?}");
            let head_seen = Arc::new(Notify::new());
            let seen = head_seen.clone();
            let backend = ScriptedBackend::start(move |mut wire, number| {
                let seen = seen.clone();
                async move {
                    if number > 0 {
                        while wire.try_read_until("\r\n\r\n").await.is_some() {
                            wire.send(OK).await;
                        }
                        return;
                    }
                    wire.read_until("\r\n\r\n").await;
                    wire.send(bytes).await;
                    if bytes.contains("\r\n\r\n") {
                        seen.notified().await;
                    }
                    end.of(wire).await;
                }
            });
            let gateway = with_one_place(&backend, "http1");
            assert_eq!(exchange(&gateway, version, &head_seen).await, expected, "{context}");
            for _ in 0..2 {
                assert_eq!(gateway.client().get("/").await.text(), "ok", "{context}");
            }
            assert_eq!(backend.connections(), 2, "{context}: the gateway opens a new connection, and keeps it");
        }
    }
}

/// Acts as an HTTP/2 backend: sends SETTINGS, then these frames in response to the first request.
async fn send_frames(mut wire: Wire, bytes: Vec<u8>, end: End, seen: Arc<Notify>, wait: bool) {
    wire.read_bytes(frames::PREFACE.len()).await;
    wire.send(frames::frame(SETTINGS, 0, 0, &[])).await;
    frames::next(&mut wire, &[HEADERS]).await;
    wire.send(bytes).await;
    if wait {
        seen.notified().await;
    }
    end.of(wire).await;
}

/// `:status: 200` is entry 8 of HPACK's static table.
pub(super) const STATUS_200: &[u8] = &[0x88];

#[tokio::test]
async fn a_backend_can_fail_at_each_point_over_http2() {
    let head = frames::frame(HEADERS, END_HEADERS, 1, STATUS_200);
    let piece = frames::frame(DATA, 0, 1, b"hello");
    let complete_body = frames::frame(DATA, END_STREAM, 1, b"hello");
    // An interim response: entry 8 again, with another value.
    let early_hints = frames::frame(HEADERS, END_HEADERS, 1, b"\x08\x03103");
    let reset = |code: u8| frames::frame(RST_STREAM, 0, 1, &[0, 0, 0, code]);
    let (internal_error, no_error) = (reset(2), reset(0));
    let points = [
        (vec![], End::Close, Rejected(502, "upstream_broken")),
        (vec![], End::Reset, Rejected(502, "upstream_broken")),
        (vec![], End::Stall, Rejected(504, "upstream_timeout")),
        (internal_error.clone(), End::Stall, Rejected(502, "upstream_broken")),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), End::Close, Rejected(502, "upstream_broken")),
        (frames::frame(DATA, 0, 1, b"no head"), End::Stall, Rejected(502, "upstream_broken")),
        (head.clone(), End::Close, Broken),
        (head.clone(), End::Reset, Broken),
        (head.clone(), End::Stall, Broken),
        ([&head[..], &piece].concat(), End::Close, Broken),
        ([&head[..], &piece].concat(), End::Reset, Broken),
        ([&head[..], &piece].concat(), End::Stall, Broken),
        ([&head[..], &piece, &internal_error].concat(), End::Stall, Broken),
        // hyper treats this as an end, and a client would take it for a complete response.
        ([&head[..], &piece, &no_error].concat(), End::Stall, Broken),
        ([&head[..], &complete_body, &no_error].concat(), End::Stall, Complete("hello")),
        ([&head[..], &complete_body].concat(), End::Close, Complete("hello")),
        ([&early_hints[..], &head, &complete_body].concat(), End::Stall, Complete("hello")),
        (early_hints.clone(), End::Stall, Rejected(504, "upstream_timeout")),
        (early_hints.clone(), End::Close, Rejected(502, "upstream_broken")),
    ];
    for (bytes, end, expected) in points {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let context = format!("{version:?}, {end:?} after {:?}", bytes.escape_ascii().to_string());
            let head_seen = Arc::new(Notify::new());
            let (seen, frames_to_send) = (head_seen.clone(), bytes.clone());
            let waits = bytes.starts_with(&head);
            let backend = ScriptedBackend::start(move |wire, number| {
                let (seen, bytes) = (seen.clone(), frames_to_send.clone());
                let (answer, end, waits) = if number == 0 {
                    (bytes, end, waits)
                } else {
                    let body = frames::frame(DATA, END_STREAM, 1, b"ok");
                    ([frames::frame(HEADERS, END_HEADERS, 1, STATUS_200), body].concat(), End::Stall, false)
                };
                send_frames(wire, answer, end, seen, waits)
            });
            let gateway = with_one_place(&backend, "h2");
            assert_eq!(exchange(&gateway, version, &head_seen).await, expected, "{context}");
            if !matches!(end, End::Stall) {
                assert_eq!(gateway.client().get("/").await.text(), "ok", "{context}");
                assert_eq!(backend.connections(), 2, "{context}");
            }
        }
    }
}

/// The same in the other direction: half an upload is no request, whatever error code its client sends.
#[tokio::test]
async fn an_upload_reset_with_no_error_is_no_request() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::public(upstream.address, &format!("protocol = \"{protocol}\""));
        for code in [0, 8] {
            let head = frames::frame(HEADERS, END_HEADERS, 1, &frames::header_block("POST", "/half"));
            let half = frames::frame(DATA, 0, 1, b"half of it");
            let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), head, half]).await;
            eventually("the upload arrives", || upstream.in_flight() == 1).await;
            client.send(frames::frame(RST_STREAM, 0, 1, &[0, 0, 0, code])).await;
            eventually("the upload is cancelled", || upstream.in_flight() == 0).await;
        }
        assert!(upstream.seen().is_empty(), "{protocol}: {:?}", upstream.seen());
    }
}

/// Web servers do this with a body that is too large: they respond, and close without reading the rest.
#[tokio::test]
async fn an_early_response_reaches_a_client_that_is_still_sending() {
    const REJECTION: &str = "HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large";
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        let head = wire.read_until("\r\n\r\n").await;
        if head.starts_with("GET") {
            return wire.send(OK).await;
        }
        // Closing with an unread part of the body resets the connection.
        wire.read_bytes(100_000).await;
        wire.send(REJECTION).await;
    });
    let gateway = with_one_place(&backend, "http1");
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for round in 0..20 {
            let connection = HttpConnection::of(version, gateway.address()).await;
            let (pieces, body) = connection::streamed();
            let asking = tokio::spawn(connection.sender().send(Request::post("/").body(body).expect("a request")));
            let sending = tokio::spawn(async move { while pieces.try_send(vec![b'x'; 64 << 10]).await {} });
            let answer = asking.await.expect("no panic").expect("an answer");
            assert_eq!(answer.status(), 413, "{version:?}, {round}");
            assert_eq!(connection::text(answer.into_body()).await, "too large");
            connection.abort();
            sending.await.expect("it ends");
            assert_eq!(gateway.client().get("/").await.text(), "ok");
        }
    }
}

/// A request that does not end keeps its connection, and has no line in the log.
#[tokio::test]
async fn failed_exchanges_leave_nothing_behind() {
    let backend = ScriptedBackend::start(|mut wire, number| async move {
        wire.read_until("\r\n\r\n").await;
        match number % 4 {
            0 => End::Reset.of(wire).await,
            1 => {
                wire.send(IN_BODY).await;
                End::Reset.of(wire).await;
            }
            2 => wire.send("SSH-2.0\r\n").await,
            _ => wire.send(TOO_LONG).await,
        }
    });
    let gateway = Gateway::public(backend.address, "");
    for number in 0..40 {
        let client = if number % 2 == 0 { gateway.client() } else { gateway.clients()[1].clone() };
        // The client aborts half of the requests.
        let _ = client.try_send(Method::POST, "/", "a body".into()).await;
    }
    assert_eq!(gateway.log_lines(40).await.len(), 40, "each request ended");
    gateway.wait_for_metric("connections_opened_total", 40).await;
    gateway.wait_for_metric("connections_closed_total", 40).await;
}
