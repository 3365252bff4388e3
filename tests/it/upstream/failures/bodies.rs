//! Failures in the middle of a response or an upload, on either side.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, Version};
use http_body_util::BodyExt;
use tokio::sync::Notify;

use super::{log_entry, logged};
use crate::support::connection::{self, HttpConnection};
use crate::support::wait::eventually;
use crate::support::{Gateway, ScriptedBackend, Upstream, Wire, frames};

fn get(path: &str) -> Request<connection::Body> {
    Request::get(path).body(connection::empty()).expect("a request")
}

#[tokio::test]
async fn a_truncated_response_is_truncated_for_the_client() {
    for head in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
        let backend = ScriptedBackend::start(move |mut wire, _| async move {
            wire.read_until("\r\n\r\n").await;
            wire.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n5\r\nhello\r\n")).await;
        });
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let gateway = Gateway::public(backend.address, "");
            let mut connection = HttpConnection::of(version, gateway.address()).await;
            let answer = connection.send(get("/")).await;
            assert_eq!(answer.status(), 200);
            answer.into_body().collect().await.expect_err("a truncated body");
            assert_eq!(logged(&gateway).await, log_entry(200, "upstream_broken", false));
        }
    }
}

/// Some clients retry a request without any response, also a POST. So the client must get the head of the response.
#[tokio::test]
async fn a_response_truncated_after_its_head_keeps_its_head() {
    for (head, rest) in [("Transfer-Encoding: chunked", "no length\r\n"), ("Content-Length: 100", "")] {
        let backend = ScriptedBackend::start(move |mut wire, _| async move {
            wire.read_until("\r\n\r\n").await;
            wire.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{rest}")).await;
        });
        let gateway = Gateway::public(backend.address, "");
        for _ in 0..20 {
            let mut wire = Wire::connect(gateway.address()).await;
            wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
            let received = wire.read_to_end().await.to_lowercase();
            assert!(received.starts_with("http/1.1 200 ok\r\n") && received.ends_with("\r\n\r\n"), "{received:?}");
            assert!(received.contains(&head.to_lowercase()), "{received:?}");
        }
        assert_eq!(logged(&gateway).await, log_entry(200, "upstream_broken", false));
    }
}

/// The length tells that the body is whole, without the end of the stream.
#[tokio::test]
async fn a_whole_response_may_end_with_a_reset() {
    for (length, is_whole) in [("5", true), ("6", false)] {
        let backend = ScriptedBackend::start(move |mut wire, _| async move {
            wire.read_bytes(frames::PREFACE.len()).await;
            wire.send(frames::frame(frames::SETTINGS, 0, 0, &[])).await;
            let stream = frames::next(&mut wire, &[frames::HEADERS]).await.stream;
            let head = [&[frames::OK][..], &frames::block(&[("content-length", length)])].concat();
            wire.send(frames::frame(frames::HEADERS, frames::END_HEADERS, stream, &head)).await;
            wire.send(frames::frame(frames::DATA, 0, stream, b"hello")).await;
            // NO_ERROR
            wire.send(frames::frame(frames::RST_STREAM, 0, stream, &[0; 4])).await;
            wire.read_to_end().await;
        });
        let gateway = Gateway::public(backend.address, "protocol = \"h2\"");
        let mut connection = HttpConnection::http2(gateway.address()).await;
        // The reset can overtake the head.
        let body = match connection.try_send(get("/")).await {
            Ok(response) => response.into_body().collect().await.ok().map(|body| body.to_bytes()),
            Err(_) => None,
        };
        assert_eq!(body.as_deref(), is_whole.then_some(&b"hello"[..]), "{length}");
        let reason = if is_whole { "" } else { "upstream_broken" };
        assert_eq!(logged(&gateway).await, log_entry(200, reason, is_whole), "{length}");
    }
}

#[tokio::test]
async fn a_response_that_stops_is_cut_off_after_body_idle() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello").await;
        wire.read_to_end().await;
    });
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let gateway = Gateway::public(backend.address, "[timeouts]\nbody_idle = \"200ms\"");
        let mut connection = HttpConnection::of(version, gateway.address()).await;
        connection.send(get("/")).await.into_body().collect().await.expect_err("a truncated body");
        assert_eq!(logged(&gateway).await, log_entry(200, "upstream_timeout", false));
    }
}

/// A client may pause between two reads. This is not a fault of the backend.
#[tokio::test]
async fn a_client_that_pauses_does_not_make_the_backend_slow() {
    let more = Arc::new(Notify::new());
    let requested = more.clone();
    let backend = ScriptedBackend::start(move |mut wire, _| {
        let requested = requested.clone();
        async move {
            wire.read_until("\r\n\r\n").await;
            let (large, rest) = (vec![b'x'; 16 << 20], "the rest");
            wire.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", large.len() + rest.len())).await;
            wire.send(large).await;
            requested.notified().await;
            wire.send(rest).await;
            wire.read_to_end().await;
        }
    });
    let gateway = Gateway::public(backend.address, "[timeouts]\nbody_idle = \"300ms\"");
    let mut connection = HttpConnection::http1(gateway.address()).await;
    let mut body = connection.send(get("/")).await.into_body();
    connection::next_chunk(&mut body).await.expect("a first chunk");
    // Longer than timeouts.body_idle. The pause is under test, so there is no condition to wait for.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut read = 0;
    while read < 15 << 20 {
        read += connection::next_chunk(&mut body).await.expect("the body goes on").len();
    }
    more.notify_one();
    while connection::next_chunk(&mut body).await.is_some() {}
    assert_eq!(logged(&gateway).await, log_entry(200, "", true));
}

#[tokio::test]
async fn an_upload_can_take_longer_than_the_response_timeout() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[timeouts]\nupstream_response = \"200ms\"\nbody_idle = \"5s\"");
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut connection = HttpConnection::of(version, gateway.address()).await;
        let (pieces, body) = connection::streamed();
        let sending = tokio::spawn(connection.sender().send(Request::post("/").body(body).expect("a request")));
        for pause in [50, 300, 50, 300] {
            pieces.send("piece").await;
            // The pace of the upload is under test.
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        drop(pieces);
        let answer = sending.await.expect("no panic").expect("an answer");
        assert_eq!(answer.status(), 200, "{version:?}");
        assert_eq!(connection::text(answer.into_body()).await, "piecepiecepiecepiece");
        connection.send(get("/")).await;
    }
}

#[tokio::test]
async fn an_upload_that_stops_is_a_408() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let timeouts = "[timeouts]\nupstream_response = \"200ms\"\nbody_idle = \"200ms\"";
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let gateway = Gateway::public(upstream.address, &format!("protocol = \"{protocol}\"\n{timeouts}"));
            let mut connection = HttpConnection::of(version, gateway.address()).await;
            let (pieces, body) = connection::streamed();
            pieces.send("piece").await;
            let answer = connection.send(Request::post("/").body(body).expect("a request")).await;
            assert_eq!(answer.status(), 408, "{version:?} to {protocol}");
            connection::text(answer.into_body()).await;
            assert_eq!(logged(&gateway).await, log_entry(408, "body_timeout", true));
        }
        assert!(upstream.seen().is_empty(), "half an upload is no request");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_rejected() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway =
            Gateway::public(upstream.address, &format!("protocol = \"{protocol}\"\n[limits]\nbody_size = \"10B\""));
        for client in gateway.clients() {
            let answer = client.send(http::Method::POST, "/", "0123456789".into()).await;
            assert_eq!(answer.text(), "0123456789");
            // Rejected by its Content-Length.
            let answer = client.send(http::Method::POST, "/", "0123456789a".into()).await;
            answer.assert_rejected(413, "invalid_request");
        }
        // Rejected by its counted bytes.
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let connection = HttpConnection::of(version, gateway.address()).await;
            let (pieces, body) = connection::streamed();
            let sending = tokio::spawn(connection.sender().send(Request::post("/").body(body).expect("a request")));
            pieces.send("0123456789").await;
            pieces.send("a").await;
            let answer = sending.await.expect("no panic").expect("an answer");
            assert_eq!(answer.status(), 413, "{version:?} to {protocol}");
            connection::text(answer.into_body()).await;
            drop(connection);
        }
        let rejected = gateway.log_lines(10).await;
        let rejected = rejected.iter().filter(|line| line["reason"] == "body_too_large").count();
        assert_eq!(rejected, 6);
        assert_eq!(upstream.seen().len(), 4);
    }
}

/// A reset must not destroy the response to a client that is still sending.
#[tokio::test]
async fn a_client_that_is_still_sending_gets_the_rejection() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for _ in 0..5 {
        let mut client = Wire::connect(gateway.address()).await;
        let length = 4 << 20;
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")).await;
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..length / piece.len() {
            client.send(&piece).await;
        }
        let answer = client.read_response().await;
        assert_eq!((answer.status, answer.header("connection")), (401, Some("close")), "{answer:?}");
        client.assert_closed().await;
    }
}

#[tokio::test]
async fn a_response_can_precede_the_end_of_the_upload() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        // One worker has one pool.
        let text = Gateway::public_config(upstream.address, &format!("protocol = \"{protocol}\""));
        let gateway = Gateway::from_text(text.replace("workers = 2", "workers = 1"));
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut connection = HttpConnection::of(version, gateway.address()).await;
            let (pieces, body) = connection::streamed();
            pieces.send("piece").await;
            let answer = connection.send(Request::post("/early").body(body).expect("a request")).await;
            assert_eq!(answer.status(), 200, "{version:?} to {protocol}");
            assert_eq!(connection::text(answer.into_body()).await, "early");
            // The connection still carries the rest of the upload, so the gateway must not make other requests wait for
            // it.
            for _ in 0..3 {
                assert_eq!(gateway.client().get("/").await.status, 200);
            }
        }
    }
}

#[tokio::test]
async fn a_disconnecting_client_cancels_its_backend_request() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let left = Arc::new(AtomicBool::new(false));
        let arrived = Arc::new(Notify::new());
        let (sees, arrives) = (left.clone(), arrived.clone());
        let backend = ScriptedBackend::start(move |mut wire, _| {
            let (sees, arrives) = (sees.clone(), arrives.clone());
            async move {
                wire.read_until("\r\n\r\n").await;
                arrives.notify_one();
                wire.assert_closed().await;
                sees.store(true, Ordering::SeqCst);
            }
        });
        let gateway = Gateway::public(backend.address, "");
        let connection = HttpConnection::of(version, gateway.address()).await;
        let asking = tokio::spawn(connection.sender().send(get("/")));
        arrived.notified().await;
        connection.abort();
        asking.abort();
        eventually("the backend request is cancelled", || left.load(Ordering::SeqCst)).await;
        assert_eq!(logged(&gateway).await, log_entry(0, "", false));
    }
}

#[tokio::test]
async fn a_client_that_disconnects_during_a_response_is_logged() {
    let upstream = Upstream::start();
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let gateway = Gateway::public(upstream.address, "");
        let mut connection = HttpConnection::of(version, gateway.address()).await;
        let mut body = connection.send(get("/large/100000000")).await.into_body();
        connection::next_chunk(&mut body).await.expect("a piece");
        connection.abort();
        drop(body);
        assert_eq!(logged(&gateway).await, log_entry(200, "", false));
    }
}
