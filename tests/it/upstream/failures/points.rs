//! A backend that fails at each point of an exchange, in each way that a connection can. Whatever it was: the client is told
//! what there is to tell, a broken answer never looks whole, and the next request has all that this one had.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Version};
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

use crate::support::frames::{self, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS};
use crate::support::session::{self, Session, eventually};
use crate::support::{Gateway, Scripted, Upstream, Wire};

pub(super) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Close,
    Reset,
    /// Says that nothing more comes, and goes on listening.
    HalfClose,
    /// Says nothing more, and stays.
    Stall,
}

impl End {
    pub(super) async fn of(self, mut wire: Wire) {
        match self {
            End::Close => {}
            End::Reset => {
                let socket = socket2::SockRef::from(&wire.stream);
                socket.set_linger(Some(Duration::ZERO)).expect("it closes with a reset");
            }
            End::HalfClose => {
                wire.stream.shutdown().await.expect("it is open");
                wire.hear_to_the_end().await;
            }
            End::Stall => drop(wire.hear_to_the_end().await),
        }
    }
}

/// What the client hears.
#[derive(Debug, PartialEq)]
enum Heard {
    Refused(u16, &'static str),
    Whole(&'static str),
    /// 200, and a body that breaks off.
    Broken,
}

use Heard::{Broken, Refused, Whole};

const AFTER_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
const IN_BODY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
const IN_CHUNK: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello";
const NO_CHUNK: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n";
const UNTIL_CLOSED: &str = "HTTP/1.1 200 OK\r\n\r\nhello";
const TOO_LONG: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more";

const POINTS: [(&str, End, Heard); 21] = [
    ("", End::Close, Refused(502, "upstream_broken")),
    ("", End::Reset, Refused(502, "upstream_broken")),
    ("", End::HalfClose, Refused(502, "upstream_broken")),
    ("", End::Stall, Refused(504, "upstream_timeout")),
    ("HTTP/1.1 200 OK\r\nContent-Le", End::Close, Refused(502, "upstream_broken")),
    ("HTTP/1.1 200 OK\r\nContent-Le", End::Reset, Refused(502, "upstream_broken")),
    ("HTTP/1.1 200 OK\r\nContent-Le", End::HalfClose, Refused(502, "upstream_broken")),
    ("HTTP/1.1 200 OK\r\nContent-Le", End::Stall, Refused(504, "upstream_timeout")),
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
    (UNTIL_CLOSED, End::HalfClose, Whole("hello")),
    // By its end alone nobody could tell that this is not all of it.
    (UNTIL_CLOSED, End::Reset, Broken),
    (TOO_LONG, End::Close, Whole("hello")),
];

/// One worker with one connection to its backend: what is not given back is missed at once.
pub(super) fn with_one_place(backend: &Scripted, protocol: &str) -> Gateway {
    let more = format!(
        "protocol = \"{protocol}\"\nmax_concurrent_requests = 1\nconnect_timeout = \"2s\"\n\
         [timeouts]\nupstream_response = \"300ms\"\nbody_idle = \"300ms\""
    );
    let text = Gateway::open_text(backend.address, &more);
    Gateway::from_text(text.replace("workers = 2", "workers = 1"))
}

/// What a client of this protocol hears; `head_seen` is told when it has the head of an answer.
async fn ask(gateway: &Gateway, version: Version, head_seen: &Notify) -> Heard {
    let mut session = Session::of(version, gateway.address()).await;
    let Ok(answer) = session.try_send(Request::get("/").body(session::empty()).expect("a request")).await else {
        // Head and failure came at once, and HTTP/1.1 has no other way to tell of both.
        let line = gateway.log_lines(1).await.remove(0);
        assert_eq!((line["status"].as_u64(), line["complete"].as_bool()), (Some(200), Some(false)), "{line}");
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
        (200, Ok(body)) => Whole(body.leak()),
        (200, Err(_)) => Broken,
        (status, _) => Refused(status, reason),
    }
}

#[tokio::test]
async fn at_each_point_in_each_way() {
    for (said, end, expected) in POINTS {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let told = format!("{version:?}, {end:?} after {said:?}");
            let head_seen = Arc::new(Notify::new());
            let seen = head_seen.clone();
            let backend = Scripted::start(move |mut wire, number| {
                let seen = seen.clone();
                async move {
                    if number > 0 {
                        while wire.try_hear_until("\r\n\r\n").await.is_some() {
                            wire.say(OK).await;
                        }
                        return;
                    }
                    wire.hear_until("\r\n\r\n").await;
                    wire.say(said).await;
                    if said.contains("\r\n\r\n") {
                        seen.notified().await;
                    }
                    end.of(wire).await;
                }
            });
            let gateway = with_one_place(&backend, "http1");
            assert_eq!(ask(&gateway, version, &head_seen).await, expected, "{told}");
            for _ in 0..2 {
                assert_eq!(gateway.client().get("/").await.text(), "ok", "{told}");
            }
            assert_eq!(backend.connections(), 2, "{told}: the broken one is not used again, and the next one is");
        }
    }
}

/// What an HTTP/2 backend says: its SETTINGS, and then these frames in answer to the first request.
async fn say_in_frames(mut wire: Wire, said: Vec<u8>, end: End, seen: Arc<Notify>, wait: bool) {
    wire.hear_bytes(frames::PREFACE.len()).await;
    wire.say(frames::frame(SETTINGS, 0, 0, &[])).await;
    frames::next(&mut wire, &[HEADERS]).await;
    wire.say(said).await;
    if wait {
        seen.notified().await;
    }
    end.of(wire).await;
}

/// `:status: 200` is number 8 of HPACK's static table.
pub(super) const STATUS_200: &[u8] = &[0x88];

#[tokio::test]
async fn at_each_point_over_http2() {
    let head = frames::frame(HEADERS, END_HEADERS, 1, STATUS_200);
    let piece = frames::frame(DATA, 0, 1, b"hello");
    let whole = frames::frame(DATA, END_STREAM, 1, b"hello");
    // An answer before the answer: number 8 again, with a value of its own.
    let early_hints = frames::frame(HEADERS, END_HEADERS, 1, b"\x08\x03103");
    let reset = |code: u8| frames::frame(RST_STREAM, 0, 1, &[0, 0, 0, code]);
    let (internal_error, no_error) = (reset(2), reset(0));
    let points = [
        (vec![], End::Close, Refused(502, "upstream_broken")),
        (vec![], End::Reset, Refused(502, "upstream_broken")),
        (vec![], End::Stall, Refused(504, "upstream_timeout")),
        (internal_error.clone(), End::Stall, Refused(502, "upstream_broken")),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), End::Close, Refused(502, "upstream_broken")),
        (frames::frame(DATA, 0, 1, b"no head"), End::Stall, Refused(502, "upstream_broken")),
        (head.clone(), End::Close, Broken),
        (head.clone(), End::Reset, Broken),
        (head.clone(), End::Stall, Broken),
        ([&head[..], &piece].concat(), End::Close, Broken),
        ([&head[..], &piece].concat(), End::Reset, Broken),
        ([&head[..], &piece].concat(), End::Stall, Broken),
        ([&head[..], &piece, &internal_error].concat(), End::Stall, Broken),
        // To hyper that is an end; to a client it would be a whole answer.
        ([&head[..], &piece, &no_error].concat(), End::Stall, Broken),
        ([&head[..], &whole, &no_error].concat(), End::Stall, Whole("hello")),
        ([&head[..], &whole].concat(), End::Close, Whole("hello")),
        ([&early_hints[..], &head, &whole].concat(), End::Stall, Whole("hello")),
        (early_hints.clone(), End::Stall, Refused(504, "upstream_timeout")),
        (early_hints.clone(), End::Close, Refused(502, "upstream_broken")),
    ];
    for (said, end, expected) in points {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let told = format!("{version:?}, {end:?} after {:?}", said.escape_ascii().to_string());
            let head_seen = Arc::new(Notify::new());
            let (seen, frames_said) = (head_seen.clone(), said.clone());
            let waits = said.starts_with(&head);
            let backend = Scripted::start(move |wire, number| {
                let (seen, said) = (seen.clone(), frames_said.clone());
                let (answer, end, waits) = if number == 0 {
                    (said, end, waits)
                } else {
                    let body = frames::frame(DATA, END_STREAM, 1, b"ok");
                    ([frames::frame(HEADERS, END_HEADERS, 1, STATUS_200), body].concat(), End::Stall, false)
                };
                say_in_frames(wire, answer, end, seen, waits)
            });
            let gateway = with_one_place(&backend, "h2");
            assert_eq!(ask(&gateway, version, &head_seen).await, expected, "{told}");
            if !matches!(end, End::Stall) {
                assert_eq!(gateway.client().get("/").await.text(), "ok", "{told}");
                assert_eq!(backend.connections(), 2, "{told}");
            }
        }
    }
}

/// The same the other way round: half an upload is no request, whatever its client gives as the reason for leaving.
#[tokio::test]
async fn an_upload_that_is_reset_without_an_error_is_no_request() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::open(upstream.address, &format!("protocol = \"{protocol}\""));
        for code in [0, 8] {
            let head = frames::frame(HEADERS, END_HEADERS, 1, &frames::header_block("POST", "/half"));
            let half = frames::frame(DATA, 0, 1, b"half of it");
            let mut client = frames::connect(gateway.address(), &[frames::hello(), head, half]).await;
            eventually("it arrives", || upstream.in_flight() == 1).await;
            client.say(frames::frame(RST_STREAM, 0, 1, &[0, 0, 0, code])).await;
            eventually("it is given up", || upstream.in_flight() == 0).await;
        }
        assert!(upstream.seen().is_empty(), "{protocol}: {:?}", upstream.seen());
    }
}

/// As web servers do with a body that is too large: they answer, and close without reading the rest.
#[tokio::test]
async fn an_answer_before_a_close_reaches_a_client_that_is_still_sending() {
    const REFUSAL: &str = "HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large";
    let backend = Scripted::start(|mut wire, _| async move {
        let head = wire.hear_until("\r\n\r\n").await;
        if head.starts_with("GET") {
            return wire.say(OK).await;
        }
        // Some of the body is there, and is not read: this close is a reset.
        wire.hear_bytes(100_000).await;
        wire.say(REFUSAL).await;
    });
    let gateway = with_one_place(&backend, "http1");
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for round in 0..20 {
            let session = Session::of(version, gateway.address()).await;
            let (pieces, body) = session::streamed();
            let asking = tokio::spawn(session.sender().send(Request::post("/").body(body).expect("a request")));
            let sending = tokio::spawn(async move { while pieces.try_send(vec![b'x'; 64 << 10]).await {} });
            let answer = asking.await.expect("no panic").expect("an answer");
            assert_eq!(answer.status(), 413, "{version:?}, {round}");
            assert_eq!(session::text(answer.into_body()).await, "too large");
            session.cut();
            sending.await.expect("it ends");
            assert_eq!(gateway.client().get("/").await.text(), "ok");
        }
    }
}

/// A request that is not over keeps its connection, and what keeps a request has no line in the log.
#[tokio::test]
async fn nothing_is_left_of_failed_exchanges() {
    let backend = Scripted::start(|mut wire, number| async move {
        wire.hear_until("\r\n\r\n").await;
        match number % 4 {
            0 => End::Reset.of(wire).await,
            1 => {
                wire.say(IN_BODY).await;
                End::Reset.of(wire).await;
            }
            2 => wire.say("SSH-2.0\r\n").await,
            _ => wire.say(TOO_LONG).await,
        }
    });
    let gateway = Gateway::open(backend.address, "");
    for number in 0..40 {
        let client = if number % 2 == 0 { gateway.client() } else { gateway.clients()[1].clone() };
        // Half of them are broken off, for which the client has no answer either.
        let _ = client.try_send(Method::POST, "/", "a body".into()).await;
    }
    assert_eq!(gateway.log_lines(40).await.len(), 40, "each request came to an end");
    gateway.counts("connections_opened_total", 40).await;
    gateway.counts("connections_closed_total", 40).await;
}
