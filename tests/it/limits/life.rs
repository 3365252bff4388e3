//! Connections that have had their time end in order: nothing that was asked is lost.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use http::{Request, Response, Version};
use http_body_util::BodyExt;
use tokio::net::TcpStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;

use super::GET;
use crate::support::connection::{self, HttpConnection};
use crate::support::frames::{self, GOAWAY, HEADERS};
use crate::support::wire::TIMEOUT;
use crate::support::{Backend, Gateway, HonestClient, ScriptedBackend, Upstream, Wire};

#[tokio::test]
async fn a_connection_ends_with_its_last_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\nrequests_per_connection = 3");
    let mut client = Wire::connect(gateway.address()).await;
    for close in [None, None, Some("close")] {
        client.send(GET).await;
        let answer = client.read_response().await;
        assert_eq!((answer.status, answer.header("connection")), (200, close));
    }
    client.assert_closed().await;

    let said: Vec<_> = (0..3).map(|number| frames::get(2 * number + 1, "/slow")).collect();
    let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), said.concat()]).await;
    let mut answered = 0;
    let mut told = false;
    while answered < 3 || !told {
        let frame = frames::next(&mut client, &[GOAWAY, HEADERS]).await;
        match frame.kind {
            HEADERS => answered += 1,
            _ => {
                assert_eq!(frame.payload[4..8], [0; 4], "no error");
                told = true;
            }
        }
    }
    client.read_to_end().await;
    assert_eq!(upstream.seen().len(), 6);
}

#[tokio::test]
async fn an_old_connection_ends_with_what_it_is_in() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[timeouts]\nmax_connection_age = \"300ms\"");
    let mut client = Wire::connect(gateway.address()).await;
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let answer = client.read_response().await;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    client.assert_closed().await;

    let began = Instant::now();
    let mut client = HttpConnection::http2(gateway.address()).await;
    let slow = client.send(Request::get("/slow").body(connection::empty()).expect("a request")).await;
    assert_eq!(connection::text(slow.into_body()).await, "hello");
    client.assert_closed().await;
    assert!(began.elapsed() < TIMEOUT);

    let mut idle = Wire::connect(gateway.address()).await;
    idle.send(GET).await;
    assert_eq!(idle.read_response().await.status, 200);
    tokio::time::timeout(Duration::from_secs(5), idle.assert_closed())
        .await
        .expect("long before timeouts.request_header");
}

/// However busy its clients keep it. Those who come and go meanwhile find their answers.
#[tokio::test]
async fn whoever_never_lets_a_connection_rest_loses_it_all_the_same() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[timeouts]\nmax_connection_age = \"1s\"");
    let ended = Cell::new(false);
    let attack = async {
        let mut attacker = Wire::connect(gateway.address()).await;
        let began = Instant::now();
        while attacker.try_send(GET).await.is_ok()
            && let Some(answer) = attacker.try_read_until("\r\n\r\nhello").await
        {
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(began.elapsed() < TIMEOUT, "it stays for ever");
        }
        ended.set(true);
    };
    let honest = async {
        while !ended.get() {
            HonestClient::connect(&gateway).await.assert_served().await;
        }
    };
    tokio::join!(attack, honest);
}

#[tokio::test]
async fn a_request_has_only_so_much_time_in_all() {
    let upstream = Upstream::start();
    // Long enough for whoever does not make it last.
    let gateway = Gateway::public_single_worker(upstream.address, "[timeouts]\nrequest = \"1s\"");
    let mut honest = HonestClient::connect(&gateway).await;
    let (mut refused, mut broken_off) = (0, 0);
    honest
        .assert_served_during(async || {
            let mut attackers = Vec::new();
            for _ in 0..20 {
                let mut attacker = Wire::connect(gateway.address()).await;
                attacker.send("GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").await;
                attackers.push(attacker);
            }
            for attacker in &mut attackers {
                assert_eq!(attacker.read_response().await.status, 504);
                refused += 1;
            }
        })
        .await;
    gateway.wait_for_metric("rejections_total{reason=\"request_timeout\"}", refused).await;

    // An answer that goes on for longer is broken off: the client sees that it is not whole.
    honest
        .assert_served_during(async || {
            let began = Instant::now();
            let mut attacker = HttpConnection::http1(gateway.address()).await;
            let (pieces, body) = connection::streamed();
            let request = Request::post("/mirror").header("host", "a").body(body).expect("a request");
            let mirror = attacker.send(request).await;
            pieces.send("hello").await;
            assert_eq!(mirror.status(), 200);
            assert!(mirror.into_body().collect().await.is_err() && began.elapsed() < TIMEOUT);
            broken_off += 1;
        })
        .await;
    gateway.wait_for_metric("streams_ended_total{reason=\"request_timeout\"}", broken_off).await;
}

/// What is meant to last may: by its media type, however that is written.
#[tokio::test]
async fn events_are_not_held_to_the_time_of_a_request() {
    let limit = Duration::from_millis(300);
    let backend = ScriptedBackend::start(move |mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send("HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        tokio::time::sleep(2 * limit).await;
        wire.send("4\r\n:hi\n\r\n0\r\n\r\n").await;
    });
    let gateway = Gateway::public(backend.address, "[timeouts]\nrequest = \"300ms\"");
    let mut client = Wire::connect(gateway.address()).await;
    client.send(GET).await;
    let answer = client.read_response().await;
    assert_eq!((answer.status, &*answer.body), (200, "4\r\n:hi\n\r\n0\r\n\r\n"));
}

/// The one by its handshake, the other by its media type.
#[tokio::test]
async fn websockets_and_calls_of_grpc_are_not_held_to_it_either() {
    const LIMIT: Duration = Duration::from_millis(300);
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[timeouts]\nrequest = \"300ms\"");
    let stream = TcpStream::connect(gateway.address()).await.expect("the gateway listens");
    let mut socket = client_async("ws://gateway.test/ws", stream).await.expect("a WebSocket").0;
    for message in ["early", "late"].map(Message::text) {
        socket.send(message.clone()).await.expect("sent");
        let echo = tokio::time::timeout(TIMEOUT, socket.next()).await.expect("an echo in time");
        assert_eq!(echo.expect("an echo").expect("a message"), message);
        tokio::time::sleep(2 * LIMIT).await;
    }

    let backend = Backend::start(Version::HTTP_2, |_| async {
        let (pieces, body) = connection::streamed();
        tokio::spawn(async move {
            pieces.send(MESSAGE).await;
            tokio::time::sleep(2 * LIMIT).await;
            pieces.send(MESSAGE).await;
            pieces.end_with("grpc-status", "0").await;
        });
        let answer = Response::builder().header("content-type", "application/grpc+proto");
        answer.body(body).expect("an answer")
    })
    .await;
    let gateway = Gateway::public(backend.address, "protocol = \"h2\"\n[timeouts]\nrequest = \"300ms\"");
    let began = Instant::now();
    let mut connection = HttpConnection::http2(gateway.address()).await;
    let call =
        Request::post("/service/Method").header("content-type", "application/grpc+proto").header("te", "trailers");
    let answer = connection.send(call.body(connection::full(MESSAGE)).expect("a request")).await;
    let (text, trailers) = connection::text_and_trailers(answer.into_body()).await;
    assert_eq!(text, [MESSAGE, MESSAGE].map(|message| String::from_utf8_lossy(message)).concat());
    assert_eq!(trailers.expect("trailers")["grpc-status"], "0");
    assert!(began.elapsed() >= 2 * LIMIT, "{:?}", began.elapsed());
}

/// A message of gRPC: not compressed, and four bytes long.
const MESSAGE: &[u8] = b"\0\0\0\0\x04bear";
