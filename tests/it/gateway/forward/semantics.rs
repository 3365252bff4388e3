//! What HTTP says about methods, statuses and lengths holds behind the gateway as well.

use std::process::Command;

use http::{Method, Request};

use crate::support::frames::{self, END_HEADERS, HEADERS};
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

/// Clients of HTTP/2 end the stream at a length that nothing can come of.
#[tokio::test]
async fn a_204_tells_no_length() {
    let backend = Scripted::answering("HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\n");
    let gateway = Gateway::open(backend.address, "");
    for client in gateway.clients() {
        let answer = client.get("/").await;
        assert_eq!((answer.status.as_u16(), answer.header("content-length")), (204, None));
    }
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

/// A client that is not asked to go on may send its body all the same: it is not taken for a request, nor for anything else.
#[tokio::test]
async fn a_refused_body_is_neither_asked_for_nor_read() {
    let upstream = Upstream::start();
    let gateway =
        Gateway::with(&upstream, "[[route]]\npath = \"/\"\nscopes = [\"write\"]\n[limits]\nbody_size = \"1KiB\"");
    let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "write").await);
    for (fields, status) in [
        (String::new(), 401),
        ("Authorization: Bearer made.up.token\r\n".to_owned(), 401),
        (format!("Authorization: Bearer {}\r\n", alice.access), 403),
        (format!("Authorization: Bearer {}\r\n", bob.access), 413),
    ] {
        let mut client = Wire::connect(gateway.address()).await;
        let head = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n";
        client.say(format!("{head}{fields}\r\n")).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")), "{answer:?}");
        client.is_closed().await;
    }
    assert_eq!(upstream.connections(), 0);
}

/// Nobody is told to go on before somebody is there to take what comes.
#[tokio::test]
async fn nobody_is_asked_to_go_on_for_a_backend_that_is_not_there() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let gateway = Gateway::open(nobody, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.say("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 502, "and no 100 before it");
    client.is_closed().await;
}

/// curl asks before it sends a file, over HTTP/1.1 that is; with HTTP/2 it sends. Refused there in the middle of it, curl 7.88
/// reports the reset that has to follow (RFC 9113 section 8.1) and not the answer before it; other clients do better.
#[tokio::test]
async fn curl_uploads_a_file() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let file = gateway.path().join("file");
    std::fs::write(&file, vec![b'x'; 3 << 20]).expect("written");
    let authorization = format!("Authorization: Bearer {}", pair.access);
    for (protocol, token, told) in [
        ("--http1.1", Some(&authorization), "100 200"),
        ("--http2", Some(&authorization), "200"),
        ("--http1.1", None, "401"),
    ] {
        let mut curl = Command::new("curl");
        // Longer than it would wait before it sends unasked.
        curl.args(["--silent", "--show-error", "--no-buffer", "--include", protocol, "--expect100-timeout", "30"]);
        curl.arg("--cacert").arg(gateway.certificate()).arg("--upload-file").arg(&file);
        curl.args(["--header", "Expect: 100-continue"]).args(token.iter().flat_map(|token| ["--header", token]));
        let output = curl.arg(format!("https://localhost:{}/swallow", gateway.tls_address().port())).output();
        let output = output.expect("curl is there");
        let text = String::from_utf8_lossy(&output.stdout);
        let statuses: Vec<&str> =
            text.lines().filter(|line| line.starts_with("HTTP/")).filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(statuses.join(" "), told, "{protocol}: {text}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.ends_with("3145728"), token.is_some(), "{protocol}: {text}");
    }
    assert_eq!(upstream.seen().len(), 2);
}

/// `OPTIONS *` asks about a server and not about anything on it: the gateway is not that server.
#[tokio::test]
async fn connect_and_what_asks_about_the_server_itself_are_refused() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::open(upstream.address, &format!("protocol = \"{protocol}\""));
        for (request, status) in [("CONNECT backend:80", 405), ("OPTIONS *", 400)] {
            let mut client = Wire::connect(gateway.address()).await;
            client.say(format!("{request} HTTP/1.1\r\nHost: backend:80\r\n\r\n")).await;
            assert_eq!(client.answer().await.status, status, "{request}");
        }
        // Over HTTP/2, CONNECT has a host and nothing else (RFC 9113 section 8.5).
        let connect = frames::block(&[(":method", "CONNECT"), (":authority", "backend:80")]);
        let head = frames::frame(HEADERS, END_HEADERS, 1, &connect);
        let mut client = frames::connect(gateway.address(), &[frames::hello(), head]).await;
        assert_eq!(frames::next(&mut client, &[HEADERS]).await.stream, 1);
        let lines = gateway.log_lines(3).await;
        let refused: Vec<_> = lines.iter().filter(|line| line["reason"] == "connect_not_allowed").collect();
        assert_eq!(refused.len(), 2, "{lines:?}");
        assert!(refused.iter().all(|line| line["status"] == 405), "{refused:?}");
        assert!(upstream.seen().is_empty());
    }
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
