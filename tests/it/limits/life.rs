//! Connections that have had their time end in order: nothing that was asked is lost.

use std::time::{Duration, Instant};

use http::Request;
use http_body_util::BodyExt;

use super::GET;
use crate::support::frames::{self, GOAWAY, HEADERS};
use crate::support::session::{self, Session};
use crate::support::wire::PATIENCE;
use crate::support::{Gateway, Scripted, Upstream, Wire};

#[tokio::test]
async fn a_connection_ends_with_its_last_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "[limits]\nrequests_per_connection = 3");
    let mut client = Wire::connect(gateway.address()).await;
    for close in [None, None, Some("close")] {
        client.say(GET).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.header("connection")), (200, close));
    }
    client.is_closed().await;

    let said: Vec<_> = (0..3).map(|number| frames::get(2 * number + 1, "/slow")).collect();
    let mut client = frames::connect(gateway.address(), &[frames::hello(), said.concat()]).await;
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
    client.hear_to_the_end().await;
    assert_eq!(upstream.seen().len(), 6);
}

#[tokio::test]
async fn an_old_connection_ends_with_what_it_is_in() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "[timeouts]\nconnection = \"300ms\"");
    let mut client = Wire::connect(gateway.address()).await;
    client.say("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    client.is_closed().await;

    let began = Instant::now();
    let mut client = Session::http2(gateway.address()).await;
    let slow = client.send(Request::get("/slow").body(session::empty()).expect("a request")).await;
    assert_eq!(session::text(slow.into_body()).await, "hello");
    client.ends().await;
    assert!(began.elapsed() < PATIENCE);

    let mut idle = Wire::connect(gateway.address()).await;
    idle.say(GET).await;
    assert_eq!(idle.answer().await.status, 200);
    tokio::time::timeout(Duration::from_secs(5), idle.is_closed()).await.expect("long before timeouts.head");
}

#[tokio::test]
async fn a_request_has_only_so_much_time_in_all() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "[timeouts]\nrequest = \"300ms\"");
    let mut client = Wire::connect(gateway.address()).await;
    client.say("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 504);
    gateway.counts("refusals_total{reason=\"request_timeout\"}", 1).await;

    // An answer that goes on for longer is broken off: the client sees that it is not whole.
    let began = Instant::now();
    let mut client = Session::http1(gateway.address()).await;
    let (pieces, body) = session::streamed();
    let mirror = client.send(Request::post("/mirror").header("host", "a").body(body).expect("a request")).await;
    pieces.send("hello").await;
    assert_eq!(mirror.status(), 200);
    assert!(mirror.into_body().collect().await.is_err() && began.elapsed() < PATIENCE);
    gateway.counts("streams_ended_total{reason=\"request_timeout\"}", 1).await;

    let mut client = Wire::connect(gateway.address()).await;
    client.say(GET).await;
    assert_eq!(client.answer().await.status, 200);
}

/// What is meant to last may: by its media type, however that is written.
#[tokio::test]
async fn events_are_not_held_to_the_time_of_a_request() {
    let limit = Duration::from_millis(300);
    let backend = Scripted::start(move |mut wire, _| async move {
        wire.hear_until("\r\n\r\n").await;
        wire.say("HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        tokio::time::sleep(2 * limit).await;
        wire.say("4\r\n:hi\n\r\n0\r\n\r\n").await;
    });
    let gateway = Gateway::open(backend.address, "[timeouts]\nrequest = \"300ms\"");
    let mut client = Wire::connect(gateway.address()).await;
    client.say(GET).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, &*answer.body), (200, "4\r\n:hi\n\r\n0\r\n\r\n"));
}
