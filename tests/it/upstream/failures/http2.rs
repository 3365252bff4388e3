//! What only HTTP/2 backends can do wrong.

use std::time::Duration;

use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::session::{self, Session};
use crate::support::{Gateway, Scripted, Upstream, frames};

#[tokio::test]
async fn a_backend_that_goes_away_and_comes_back_costs_no_request_after_it_is_back() {
    let upstream = Upstream::start_http2();
    let address = upstream.address;
    let gateway = Gateway::open(address, "protocol = \"h2\"");
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    drop(upstream);
    // Its connections end with it; until then somebody may still be heard.
    while gateway.client().get("/").await.status != 502 {}
    let upstream = Upstream::http2_at(address);
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    assert_eq!(upstream.seen().len(), 4);
}

/// A graceful end tells which requests it no longer takes: these are sent again, on a new connection.
#[tokio::test]
async fn a_backend_that_says_goaway_again_and_again_costs_no_request() {
    let upstream = Upstream::start_http2();
    let gateway = Gateway::open(upstream.address, "protocol = \"h2\"");
    for _ in 0..20 {
        let answer = gateway.client().get("/goaway").await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert!(upstream.connections() > 1);
}

/// One connection carries all of a worker's requests: clients that do not read must not use up its window.
#[tokio::test]
async fn clients_that_do_not_read_hold_up_nobody_else() {
    let upstream = Upstream::start_http2();
    let gateway = Gateway::open(upstream.address, "protocol = \"h2\"\n[limits]\nhttp2_concurrent_streams = 200");
    let mut lazy = Vec::new();
    for _ in 0..20 {
        let mut session = Session::http1(gateway.address()).await;
        let request = Request::get("/large/100000000").body(session::empty()).expect("a request");
        let body = session.send(request).await.into_body();
        lazy.push((session, body));
    }
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/large/100000").await.body.len(), 100_000);
    }
}

/// Nor may what they leave unread look like an attack of the backend's, which would end the connection for everybody.
#[tokio::test]
async fn clients_that_do_not_read_many_small_frames_hold_up_nobody_else() {
    const LAZY: usize = 2;
    const FRAMES: usize = 20_000;
    let backend = Scripted::start(|mut wire, _| async move {
        wire.say(frames::frame(frames::SETTINGS, 0, 0, &[])).await;
        wire.hear_bytes(frames::PREFACE.len()).await;
        for number in 0.. {
            let asked = frames::next(&mut wire, &[frames::HEADERS, frames::GOAWAY]).await;
            if asked.kind == frames::GOAWAY {
                return;
            }
            let (flags, pieces) = if number < LAZY { (0, FRAMES) } else { (frames::END_STREAM, 0) };
            wire.say(frames::frame(frames::HEADERS, frames::END_HEADERS | flags, asked.stream, &[frames::OK])).await;
            wire.say(frames::frame(frames::DATA, 0, asked.stream, b"x").repeat(pieces)).await;
        }
    });
    let text = Gateway::open_text(backend.address, "protocol = \"h2\"\nmax_concurrent_requests = 4");
    let gateway = Gateway::from_text(text.replace("workers = 2", "workers = 1"));
    // With a window of nothing.
    let settings = frames::frame(frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let mut lazy = Vec::new();
    for _ in 0..LAZY {
        let said = [frames::PREFACE.as_bytes().to_vec(), settings.clone(), frames::get(1, "/")];
        let mut client = frames::connect(gateway.address(), &said).await;
        frames::next(&mut client, &[frames::HEADERS]).await;
        lazy.push(client);
    }
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    assert_eq!(backend.connections(), 1);
}

/// A stream more than the backend allows would wait inside the connection, and be taken for a backend that does not answer.
#[tokio::test]
async fn without_a_word_about_it_a_connection_has_no_more_streams_than_every_backend_should_allow() {
    const ALLOWED: usize = 100;
    let upstream = Upstream::start_http2();
    let more =
        "protocol = \"h2\"\nreserve_percent = 0\nconnect_timeout = \"300ms\"\n[limits]\nhttp2_concurrent_streams = 200";
    let gateway = Gateway::from_text(Gateway::open_text(upstream.address, more).replace("workers = 2", "workers = 1"));
    let session = Session::http2(gateway.address()).await;
    let hang = || Request::get("/hang").body(session::empty()).expect("a request");
    let waiting: Vec<_> = (0..ALLOWED).map(|_| tokio::spawn(session.sender().send(hang()))).collect();
    session::eventually("all are under way", || upstream.in_flight() == ALLOWED).await;
    gateway.client().get("/hang").await.refused(503, "temporarily_unavailable");
    assert_eq!(gateway.log_line(|line| line["status"] == 503).await["reason"], "upstream_busy");
    assert_eq!(upstream.in_flight(), ALLOWED);
    waiting.into_iter().for_each(|request| request.abort());
}

/// gRPC servers end a connection, and every call on it, that is asked more than twice in five minutes of silence whether it is
/// still there. The gateway used to ask every ten seconds.
#[tokio::test]
async fn a_backend_that_is_silent_is_not_asked_again_and_again_whether_it_is_there() {
    const SILENCE: Duration = Duration::from_secs(11);
    let backend = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let gateway = Gateway::open(backend.local_addr().expect("an address"), "protocol = \"h2\"");
    let mut session = Session::http1(gateway.address()).await;
    let asking = session.send(Request::get("/").body(session::empty()).expect("a request"));
    let answering = async {
        let mut stream = backend.accept().await.expect("the gateway connects").0;
        let mut heard = Vec::new();
        while !kinds(&heard).contains(&frames::HEADERS) {
            stream.read_buf(&mut heard).await.expect("read");
        }
        let settings = frames::frame(frames::SETTINGS, 0, 0, &[]);
        let head = frames::frame(frames::HEADERS, frames::END_HEADERS, 1, &[frames::OK]);
        stream.write_all(&[settings, head].concat()).await.expect("written");
        (stream, heard)
    };
    let (answer, (mut stream, mut heard)) = tokio::join!(asking, answering);
    assert_eq!(answer.status(), 200);
    let ended = tokio::time::timeout(SILENCE, stream.read_to_end(&mut heard)).await;
    assert!(ended.is_err(), "the connection was ended");
    assert!(!kinds(&heard).contains(&frames::PING), "{:?}", kinds(&heard));
}

/// Of the frames that a client has said.
fn kinds(heard: &[u8]) -> Vec<u8> {
    let mut rest = heard.get(frames::PREFACE.len()..).unwrap_or_default();
    let mut kinds = Vec::new();
    while let [high, middle, low, kind, ..] = *rest {
        let length = 9 + u32::from_be_bytes([0, high, middle, low]) as usize;
        let Some(after) = rest.get(length..) else { break };
        kinds.push(kind);
        rest = after;
    }
    kinds
}

/// The end comes while a request is on its way: the backend says that it has not looked at it (RFC 9113 section 6.8).
#[tokio::test]
async fn a_request_that_crosses_a_goaway_is_sent_again() {
    let backend = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let gateway = Gateway::open(backend.local_addr().expect("an address"), "protocol = \"h2\"");
    let mut session = Session::http1(gateway.address()).await;
    let asking = session.send(Request::get("/").body(session::empty()).expect("a request"));
    let settings = frames::frame(frames::SETTINGS, 0, 0, &[]);
    let answering = async {
        // Looked at nothing, for no error.
        let goodbye = frames::frame(frames::GOAWAY, 0, 0, &[0; 8]);
        let head = frames::frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, 1, &[frames::OK]);
        for last in [goodbye, head] {
            let mut stream = backend.accept().await.expect("the gateway connects").0;
            let mut heard = Vec::new();
            while !kinds(&heard).contains(&frames::HEADERS) {
                stream.read_buf(&mut heard).await.expect("read");
            }
            stream.write_all(&[settings.clone(), last].concat()).await.expect("written");
            // Until the gateway closes.
            tokio::spawn(async move { stream.read_to_end(&mut heard).await });
        }
    };
    let answer = tokio::select! {
        answer = asking => answer,
        () = async { answering.await; std::future::pending().await } => unreachable!(),
    };
    assert_eq!(answer.status(), 200);
}

/// The same of one request alone (RFC 9113 section 8.7), and of any other reset not.
#[tokio::test]
async fn a_request_that_is_refused_unseen_is_sent_again() {
    const REFUSED_STREAM: u8 = 7;
    const INTERNAL_ERROR: u8 = 2;
    for (code, status) in [(REFUSED_STREAM, 200), (INTERNAL_ERROR, 502)] {
        let backend = Scripted::start(move |mut wire, _| async move {
            wire.hear_bytes(frames::PREFACE.len()).await;
            wire.say(frames::frame(frames::SETTINGS, 0, 0, &[])).await;
            frames::next(&mut wire, &[frames::HEADERS]).await;
            wire.say(frames::frame(frames::RST_STREAM, 0, 1, &[0, 0, 0, code])).await;
            frames::next(&mut wire, &[frames::HEADERS]).await;
            let flags = frames::END_HEADERS | frames::END_STREAM;
            wire.say(frames::frame(frames::HEADERS, flags, 3, &[frames::OK])).await;
            wire.hear_to_the_end().await;
        });
        let gateway = Gateway::open(backend.address, "protocol = \"h2\"");
        let mut session = Session::http1(gateway.address()).await;
        let answer = session.send(Request::get("/").body(session::empty()).expect("a request")).await;
        assert_eq!(answer.status(), status, "{code}");
    }
}
