//! What HTTP says about methods, statuses and lengths holds behind the gateway as well.

use http::{Method, Request};

use crate::support::session::{self, Session};
use crate::support::{Gateway, Scripted, Upstream, Wire};

#[tokio::test]
async fn head_tells_the_length_and_sends_nothing() {
    let backend = Scripted::answering("HTTP/1.1 200 OK\r\ncontent-length: 12345\r\n\r\n");
    let gateway = Gateway::open(backend.address, "");
    for client in gateway.clients() {
        let answer = client.send(Method::HEAD, "/", Default::default()).await;
        assert_eq!((answer.status.as_u16(), answer.header("content-length")), (200, Some("12345")), "{answer:?}");
        assert!(answer.body.is_empty());
    }
}

#[tokio::test]
async fn a_refused_head_has_no_body_either() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for client in gateway.clients() {
        let answer = client.send(Method::HEAD, "/", Default::default()).await;
        assert_eq!(answer.status, 401, "{answer:?}");
        assert!(answer.body.is_empty());
    }
    let lines = gateway.log_lines(4).await;
    assert!(lines.iter().all(|line| line["complete"] != false && line["reason"] == "no_token"), "{lines:?}");
}

#[tokio::test]
async fn statuses_pass_with_and_without_a_body() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for client in gateway.clients() {
        for status in [200, 201, 204, 206, 301, 304, 400, 401, 404, 418, 500, 503, 599] {
            let answer = client.get(&format!("/status/{status}")).await;
            assert_eq!(answer.status, status);
            assert!(answer.body.is_empty());
        }
    }
    let reused = upstream.connections();
    assert!(reused <= 2, "an answer without a body gives its connection back: {reused} were opened");
}

#[tokio::test]
async fn two_cookies_are_set_and_a_range_is_answered() {
    let backend = Scripted::answering(
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-4/10\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
         content-length: 5\r\n\r\nhello",
    );
    let gateway = Gateway::open(backend.address, "");
    for client in gateway.clients() {
        let answer = client.header("range", "bytes=0-4").get("/").await;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (206, "hello"));
        assert_eq!(answer.header("content-range"), Some("bytes 0-4/10"));
        let cookies: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"]);
    }
}

#[tokio::test]
async fn large_headers_pass_both_ways() {
    let large: &'static str = "v".repeat(12_000).leak();
    let answer: &'static str = format!("HTTP/1.1 200 OK\r\nx-large: {large}\r\ncontent-length: 0\r\n\r\n").leak();
    let backend = Scripted::answering(answer);
    let upstream = Upstream::start();
    for (gateway, of_backend) in
        [(Gateway::open(backend.address, ""), true), (Gateway::open(upstream.address, ""), false)]
    {
        for client in gateway.clients() {
            let answer = client.header("x-large", large).get("/").await;
            assert_eq!((answer.status.as_u16(), answer.header("x-large")), (200, of_backend.then_some(large)));
        }
    }
    assert!(upstream.seen().iter().all(|seen| seen.header("x-large") == Some(large)));
}

/// Some search engines take their queries so.
#[tokio::test]
async fn a_get_may_have_a_body_of_known_and_of_unknown_length() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for client in gateway.clients() {
        assert_eq!(client.send(Method::GET, "/", "query".into()).await.text(), "query");
    }
    for mut session in [Session::http1(gateway.address()).await, Session::http2(gateway.address()).await] {
        let (pieces, body) = session::streamed();
        let request = Request::get("/").header("transfer-encoding", "chunked").body(body).expect("a request");
        let sending = tokio::spawn(session.sender().send(request));
        pieces.send("query").await;
        drop(pieces);
        let answer = sending.await.expect("no panic").expect("an answer");
        assert_eq!(session::text(answer.into_body()).await, "query");
        session.send(Request::get("/").body(session::empty()).expect("a request")).await;
    }
}

#[tokio::test]
async fn expect_is_answered_with_401_before_the_body_and_with_100_if_it_is_wanted() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n";

    let mut stranger = Wire::connect(gateway.address()).await;
    stranger.say(format!("{head}\r\n")).await;
    assert_eq!(stranger.answer().await.status, 401, "not asked to go on");
    stranger.is_closed().await;

    let mut alice = Wire::connect(gateway.address()).await;
    alice.say(format!("{head}Authorization: Bearer {}\r\n\r\n", pair.access)).await;
    assert_eq!(alice.answer().await.status, 100);
    alice.say("hello").await;
    let answer = alice.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    assert_eq!(upstream.only().header("expect"), None);
}

#[tokio::test]
async fn the_host_is_kept_or_replaced_as_configured() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    gateway.client().header("host", "shop.example:8443").get("/").await;
    assert_eq!(upstream.only().host(), "shop.example:8443");

    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let options = format!("protocol = \"{protocol}\"\npreserve_host = false");
        let gateway = Gateway::open(upstream.address, &options);
        gateway.client().header("host", "shop.example").get("/").await;
        let seen = upstream.only();
        assert_eq!(seen.host(), upstream.address.to_string());
        assert_eq!(seen.header("x-forwarded-host"), Some("shop.example"));
    }
}

#[tokio::test]
async fn the_host_of_an_ipv6_backend_stands_in_brackets() {
    let upstream = Upstream::at("[::1]:0");
    let gateway = Gateway::open(upstream.address, "preserve_host = false");
    assert_eq!(gateway.client().get("/").await.status, 200);
    assert_eq!(upstream.only().host(), upstream.address.to_string());
}

#[tokio::test]
async fn an_http_1_0_client_gets_an_answer_it_can_read() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let mut old = Wire::connect(gateway.address()).await;
    old.say("GET /drip HTTP/1.0\r\nHost: a\r\n\r\n").await;
    let answer = old.answer().await;
    assert!(answer.head[0].starts_with("HTTP/1.0 200"), "{answer:?}");
    assert_eq!(answer.header("transfer-encoding"), None);
    assert_eq!(answer.body, "one two three", "the end of the connection is the end of the body");

    let mut old = Wire::connect(gateway.address()).await;
    for _ in 0..2 {
        old.say("POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nkept").await;
        let answer = old.answer().await;
        assert_eq!((answer.header("connection"), answer.body.as_str()), (Some("keep-alive"), "kept"));
    }
}
