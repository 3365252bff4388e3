//! The maximum age and the last request of a connection: it closes without losing a request.

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
async fn a_connection_closes_after_its_last_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\nrequests_per_connection = 3");
    let mut client = Wire::connect(gateway.address()).await;
    for close in [None, None, Some("close")] {
        client.send(GET).await;
        let response = client.read_response().await;
        assert_eq!((response.status, response.header("connection")), (200, close));
    }
    client.assert_closed().await;

    let requests: Vec<_> = (0..3).map(|number| frames::get(2 * number + 1, "/slow")).collect();
    let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), requests.concat()]).await;
    let mut responses = 0;
    let mut has_goaway = false;
    while responses < 3 || !has_goaway {
        let frame = frames::next(&mut client, &[GOAWAY, HEADERS]).await;
        match frame.kind {
            HEADERS => responses += 1,
            _ => {
                assert_eq!(frame.payload[4..8], [0; 4], "no error");
                has_goaway = true;
            }
        }
    }
    client.read_to_end().await;
    assert_eq!(upstream.seen().len(), 6);
}

#[tokio::test]
async fn an_old_connection_closes_after_its_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[timeouts]\nmax_connection_age = \"300ms\"");
    let mut client = Wire::connect(gateway.address()).await;
    client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
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
        .expect("it closes long before timeouts.request_header");
}

/// A connection that is never idle reaches the maximum age, too. Other clients are served in that time.
#[tokio::test]
async fn a_connection_that_is_never_idle_closes_at_its_age() {
    let upstream = Upstream::start();
    let gateway = Gateway::public_single_worker(upstream.address, "[timeouts]\nmax_connection_age = \"1s\"");
    let ended = Cell::new(false);
    let attack = async {
        let mut attacker = Wire::connect(gateway.address()).await;
        let began = Instant::now();
        while attacker.try_send(GET).await.is_ok()
            && let Some(response) = attacker.try_read_until("\r\n\r\nhello").await
        {
            assert!(response.starts_with("HTTP/1.1 200"), "{response}");
            assert!(began.elapsed() < TIMEOUT, "the connection stays open");
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
async fn a_request_that_takes_too_long_times_out() {
    let upstream = Upstream::start();
    // Long enough for the honest client.
    let gateway = Gateway::public_single_worker(upstream.address, "[timeouts]\nrequest = \"1s\"");
    let mut honest = HonestClient::connect(&gateway).await;
    let (mut rejected, mut cancelled) = (0, 0);
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
                rejected += 1;
            }
        })
        .await;
    gateway.wait_for_metric("rejections_total{reason=\"request_timeout\"}", rejected).await;

    // A longer response is cut off, and the client sees that it is incomplete.
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
            cancelled += 1;
        })
        .await;
    gateway.wait_for_metric("streams_ended_total{reason=\"request_timeout\"}", cancelled).await;
}

/// An event stream may last longer. Its media type is compared without case.
#[tokio::test]
async fn timeouts_request_does_not_apply_to_event_streams() {
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
    let response = client.read_response().await;
    assert_eq!((response.status, &*response.body), (200, "4\r\n:hi\n\r\n0\r\n\r\n"));
}

/// The gateway recognizes a WebSocket by its handshake and a gRPC call by its media type.
#[tokio::test]
async fn timeouts_request_does_not_apply_to_websockets_and_grpc() {
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
        let response = Response::builder().header("content-type", "application/grpc+proto");
        response.body(body).expect("an response")
    })
    .await;
    let gateway = Gateway::public(backend.address, "protocol = \"h2\"\n[timeouts]\nrequest = \"300ms\"");
    let began = Instant::now();
    let mut connection = HttpConnection::http2(gateway.address()).await;
    let call =
        Request::post("/service/Method").header("content-type", "application/grpc+proto").header("te", "trailers");
    let response = connection.send(call.body(connection::full(MESSAGE)).expect("a request")).await;
    let (text, trailers) = connection::text_and_trailers(response.into_body()).await;
    assert_eq!(text, [MESSAGE, MESSAGE].map(|message| String::from_utf8_lossy(message)).concat());
    assert_eq!(trailers.expect("trailers")["grpc-status"], "0");
    assert!(began.elapsed() >= 2 * LIMIT, "{:?}", began.elapsed());
}

/// A gRPC message: not compressed, four bytes long.
const MESSAGE: &[u8] = b"\0\0\0\0\x04bear";
