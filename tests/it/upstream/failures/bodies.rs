//! Failures in the middle: of an answer, of an upload, on either side.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Request, Version};
use http_body_util::BodyExt;
use tokio::sync::Notify;

use super::{logged, told};
use crate::support::session::{self, Session, eventually};
use crate::support::{Gateway, Scripted, Upstream, Wire};

fn get(path: &str) -> Request<session::Body> {
    Request::get(path).body(session::empty()).expect("a request")
}

#[tokio::test]
async fn an_answer_that_breaks_off_breaks_off_for_the_client() {
    for head in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
        let backend = Scripted::start(move |mut wire, _| async move {
            wire.hear_until("\r\n\r\n").await;
            wire.say(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n5\r\nhello\r\n")).await;
        });
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let gateway = Gateway::open(backend.address, "");
            let mut session = Session::of(version, gateway.address()).await;
            let answer = session.send(get("/")).await;
            assert_eq!(answer.status(), 200);
            answer.into_body().collect().await.expect_err("no whole body");
            assert_eq!(logged(&gateway).await, told(200, "", false));
        }
    }
}

/// A client that hears nothing at all takes it that nobody has answered, and some then ask again, also by POST.
#[tokio::test]
async fn an_answer_that_breaks_off_right_behind_its_head_is_seen_to_be_one() {
    for (head, rest) in [("Transfer-Encoding: chunked", "no length\r\n"), ("Content-Length: 100", "")] {
        let backend = Scripted::start(move |mut wire, _| async move {
            wire.hear_until("\r\n\r\n").await;
            wire.say(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{rest}")).await;
        });
        let gateway = Gateway::open(backend.address, "");
        for _ in 0..20 {
            let mut wire = Wire::connect(gateway.address()).await;
            wire.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
            let heard = wire.hear_to_the_end().await.to_lowercase();
            assert!(heard.starts_with("http/1.1 200 ok\r\n") && heard.ends_with("\r\n\r\n"), "{heard:?}");
            assert!(heard.contains(&head.to_lowercase()), "{heard:?}");
        }
        assert_eq!(logged(&gateway).await, told(200, "", false));
    }
}

#[tokio::test]
async fn an_answer_that_stops_is_cut_after_a_while() {
    let backend = Scripted::start(|mut wire, _| async move {
        wire.hear_until("\r\n\r\n").await;
        wire.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello").await;
        wire.hear_to_the_end().await;
    });
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let gateway = Gateway::open(backend.address, "[timeouts]\nbody_idle = \"200ms\"");
        let mut session = Session::of(version, gateway.address()).await;
        session.send(get("/")).await.into_body().collect().await.expect_err("no whole body");
        assert_eq!(logged(&gateway).await, told(200, "", false));
    }
}

/// A client may take its time between two reads: the backend is not to blame for that.
#[tokio::test]
async fn a_client_that_pauses_does_not_make_the_backend_slow() {
    let more = Arc::new(Notify::new());
    let asked = more.clone();
    let backend = Scripted::start(move |mut wire, _| {
        let asked = asked.clone();
        async move {
            wire.hear_until("\r\n\r\n").await;
            let (large, rest) = (vec![b'x'; 16 << 20], "the rest");
            wire.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", large.len() + rest.len())).await;
            wire.say(large).await;
            asked.notified().await;
            wire.say(rest).await;
            wire.hear_to_the_end().await;
        }
    });
    let gateway = Gateway::open(backend.address, "[timeouts]\nbody_idle = \"300ms\"");
    let mut session = Session::http1(gateway.address()).await;
    let mut body = session.send(get("/")).await.into_body();
    session::next_piece(&mut body).await.expect("a first piece");
    // Longer than a backend may be silent.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut read = 0;
    while read < 15 << 20 {
        read += session::next_piece(&mut body).await.expect("it goes on").len();
    }
    more.notify_one();
    while session::next_piece(&mut body).await.is_some() {}
    assert_eq!(logged(&gateway).await, told(200, "", true));
}

#[tokio::test]
async fn an_upload_may_take_longer_than_an_answer() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "[timeouts]\nupstream_response = \"200ms\"\nbody_idle = \"5s\"");
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut session = Session::of(version, gateway.address()).await;
        let (pieces, body) = session::streamed();
        let sending = tokio::spawn(session.sender().send(Request::post("/").body(body).expect("a request")));
        for pause in [50, 300, 50, 300] {
            pieces.send("piece").await;
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        drop(pieces);
        let answer = sending.await.expect("no panic").expect("an answer");
        assert_eq!(answer.status(), 200, "{version:?}");
        assert_eq!(session::text(answer.into_body()).await, "piecepiecepiecepiece");
        session.send(get("/")).await;
    }
}

#[tokio::test]
async fn an_upload_that_stops_is_the_clients_fault() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let timeouts = "[timeouts]\nupstream_response = \"200ms\"\nbody_idle = \"200ms\"";
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let gateway = Gateway::open(upstream.address, &format!("protocol = \"{protocol}\"\n{timeouts}"));
            let mut session = Session::of(version, gateway.address()).await;
            let (pieces, body) = session::streamed();
            pieces.send("piece").await;
            let answer = session.send(Request::post("/").body(body).expect("a request")).await;
            assert_eq!(answer.status(), 408, "{version:?} to {protocol}");
            session::text(answer.into_body()).await;
            assert_eq!(logged(&gateway).await, told(408, "body_timeout", true));
        }
        assert!(upstream.seen().is_empty(), "half a body is no request");
    }
}

#[tokio::test]
async fn a_body_may_be_so_large_and_no_larger() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway =
            Gateway::open(upstream.address, &format!("protocol = \"{protocol}\"\n[limits]\nbody_size = \"10B\""));
        for client in gateway.clients() {
            let answer = client.send(http::Method::POST, "/", "0123456789".into()).await;
            assert_eq!(answer.text(), "0123456789");
            // By its Content-Length.
            let answer = client.send(http::Method::POST, "/", "0123456789a".into()).await;
            answer.refused(413, "invalid_request");
        }
        // By counting.
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let session = Session::of(version, gateway.address()).await;
            let (pieces, body) = session::streamed();
            let sending = tokio::spawn(session.sender().send(Request::post("/").body(body).expect("a request")));
            pieces.send("0123456789").await;
            pieces.send("a").await;
            let answer = sending.await.expect("no panic").expect("an answer");
            assert_eq!(answer.status(), 413, "{version:?} to {protocol}");
            session::text(answer.into_body()).await;
            drop(session);
        }
        let refused = gateway.log_lines(10).await;
        let refused = refused.iter().filter(|line| line["reason"] == "body_too_large").count();
        assert_eq!(refused, 6);
        assert_eq!(upstream.seen().len(), 4);
    }
}

/// The refusal has to be heard by a client that is still sending, not lost in a reset.
#[tokio::test]
async fn a_client_that_is_still_sending_hears_why_it_is_refused() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for _ in 0..5 {
        let mut client = Wire::connect(gateway.address()).await;
        let length = 4 << 20;
        client.say(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")).await;
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..length / piece.len() {
            client.say(&piece).await;
        }
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.header("connection")), (401, Some("close")), "{answer:?}");
        client.is_closed().await;
    }
}

#[tokio::test]
async fn an_answer_may_come_before_the_upload_is_finished() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        // One worker has one pool.
        let text = Gateway::open_text(upstream.address, &format!("protocol = \"{protocol}\""));
        let gateway = Gateway::from_text(text.replace("workers = 2", "workers = 1"));
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut session = Session::of(version, gateway.address()).await;
            let (pieces, body) = session::streamed();
            pieces.send("piece").await;
            let answer = session.send(Request::post("/early").body(body).expect("a request")).await;
            assert_eq!(answer.status(), 200, "{version:?} to {protocol}");
            assert_eq!(session::text(answer.into_body()).await, "early");
            // The connection is busy with the rest of that upload, which may take for ever: nobody waits for it.
            for _ in 0..3 {
                assert_eq!(gateway.client().get("/").await.status, 200);
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_with_it() {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let left = Arc::new(AtomicBool::new(false));
        let arrived = Arc::new(Notify::new());
        let (sees, arrives) = (left.clone(), arrived.clone());
        let backend = Scripted::start(move |mut wire, _| {
            let (sees, arrives) = (sees.clone(), arrives.clone());
            async move {
                wire.hear_until("\r\n\r\n").await;
                arrives.notify_one();
                wire.is_closed().await;
                sees.store(true, Ordering::SeqCst);
            }
        });
        let gateway = Gateway::open(backend.address, "");
        let session = Session::of(version, gateway.address()).await;
        let asking = tokio::spawn(session.sender().send(get("/")));
        arrived.notified().await;
        session.cut();
        asking.abort();
        eventually("the backend is told", || left.load(Ordering::SeqCst)).await;
        assert_eq!(logged(&gateway).await, told(0, "", false));
    }
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_an_answer_is_logged() {
    let upstream = Upstream::start();
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let gateway = Gateway::open(upstream.address, "");
        let mut session = Session::of(version, gateway.address()).await;
        let mut body = session.send(get("/large/100000000")).await.into_body();
        session::next_piece(&mut body).await.expect("a piece");
        session.cut();
        drop(body);
        assert_eq!(logged(&gateway).await, told(200, "", false));
    }
}
