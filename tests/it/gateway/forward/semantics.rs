//! The semantics of HTTP methods, statuses, lengths and `Expect` through the gateway.

use std::process::Command;

use http::{Method, Request};

use crate::support::connection::{self, HttpConnection};
use crate::support::frames::{self, END_HEADERS, HEADERS};
use crate::support::ports::ClosedPort;
use crate::support::{Gateway, ScriptedBackend, Upstream, Wire};

#[tokio::test]
async fn a_head_response_has_a_length_and_no_body() {
    let backend = ScriptedBackend::responding_with("HTTP/1.1 200 OK\r\ncontent-length: 12345\r\n\r\n");
    let gateway = Gateway::public(backend.address, "");
    for client in gateway.clients() {
        let response = client.send(Method::HEAD, "/", Default::default()).await;
        assert_eq!((response.status.as_u16(), response.header("content-length")), (200, Some("12345")), "{response:?}");
        assert!(response.body.is_empty());
    }
}

#[tokio::test]
async fn a_rejected_head_request_gets_no_body() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for client in gateway.clients() {
        let response = client.send(Method::HEAD, "/", Default::default()).await;
        assert_eq!(response.status, 401, "{response:?}");
        assert!(response.body.is_empty());
    }
    let lines = gateway.log_lines(4).await;
    assert!(lines.iter().all(|line| line["complete"] != false && line["reason"] == "no_token"), "{lines:?}");
}

#[tokio::test]
async fn statuses_pass_with_and_without_a_body() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for client in gateway.clients() {
        for status in [200, 201, 204, 206, 301, 304, 400, 401, 404, 418, 500, 503, 599] {
            let response = client.get(&format!("/status/{status}")).await;
            assert_eq!(response.status, status);
            assert!(response.body.is_empty());
        }
    }
    let opened = upstream.connections();
    assert!(opened <= 2, "connections are reused after a response without a body: {opened} were opened");
}

/// HTTP/2 clients reset a stream if its Content-Length does not match its body.
#[tokio::test]
async fn a_204_response_has_no_content_length() {
    let backend = ScriptedBackend::responding_with("HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\n");
    let gateway = Gateway::public(backend.address, "");
    for client in gateway.clients() {
        let response = client.get("/").await;
        assert_eq!((response.status.as_u16(), response.header("content-length")), (204, None));
    }
}

#[tokio::test]
async fn two_cookies_and_a_range_response_pass() {
    let backend = ScriptedBackend::responding_with(
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0-4/10\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
         content-length: 5\r\n\r\nhello",
    );
    let gateway = Gateway::public(backend.address, "");
    for client in gateway.clients() {
        let response = client.header("range", "bytes=0-4").get("/").await;
        assert_eq!((response.status.as_u16(), response.text().as_str()), (206, "hello"));
        assert_eq!(response.header("content-range"), Some("bytes 0-4/10"));
        let cookies: Vec<_> = response.headers.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"]);
    }
}

#[tokio::test]
async fn large_headers_pass_both_ways() {
    let large: &'static str = "v".repeat(12_000).leak();
    let response: &'static str = format!("HTTP/1.1 200 OK\r\nx-large: {large}\r\ncontent-length: 0\r\n\r\n").leak();
    let backend = ScriptedBackend::responding_with(response);
    let upstream = Upstream::start();
    for (gateway, in_response) in
        [(Gateway::public(backend.address, ""), true), (Gateway::public(upstream.address, ""), false)]
    {
        for client in gateway.clients() {
            let response = client.header("x-large", large).get("/").await;
            assert_eq!((response.status.as_u16(), response.header("x-large")), (200, in_response.then_some(large)));
        }
    }
    let seen = upstream.seen();
    assert_eq!(seen.len(), 4, "one request of each client");
    assert!(seen.iter().all(|seen| seen.header("x-large") == Some(large)));
}

/// Some search engines read their queries from the body of a GET.
#[tokio::test]
async fn a_get_request_can_have_a_body() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for client in gateway.clients() {
        assert_eq!(client.send(Method::GET, "/", "query".into()).await.text(), "query");
    }
    for mut connection in
        [HttpConnection::http1(gateway.address()).await, HttpConnection::http2(gateway.address()).await]
    {
        let (upload, body) = connection::streamed();
        let request = Request::get("/").header("transfer-encoding", "chunked").body(body).expect("a request");
        let sending = tokio::spawn(connection.sender().send(request));
        upload.send("query").await;
        drop(upload);
        let response = sending.await.expect("no panic").expect("a response");
        assert_eq!(connection::text(response.into_body()).await, "query");
        connection.send(Request::get("/").body(connection::empty()).expect("a request")).await;
    }
}

#[tokio::test]
async fn expect_gets_401_or_100_before_the_body_is_sent() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let head = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n";

    let mut no_token = Wire::connect(gateway.address()).await;
    no_token.send(format!("{head}\r\n")).await;
    assert_eq!(no_token.read_response().await.status, 401, "no 100 before it");
    no_token.assert_closed().await;

    let mut alice = Wire::connect(gateway.address()).await;
    alice.send(format!("{head}Authorization: Bearer {}\r\n\r\n", pair.access)).await;
    assert_eq!(alice.read_response().await.status, 100);
    alice.send("hello").await;
    let response = alice.read_response().await;
    assert_eq!((response.status, response.body.as_str()), (200, "hello"));
    assert_eq!(upstream.only_request().header("expect"), None);
}

/// A client may send its body without a 100. The gateway must not read the body as the next request.
#[tokio::test]
async fn a_rejected_body_is_neither_requested_nor_read() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(
        &upstream,
        "[[route]]\npath = \"/\"\nscopes = [\"write\"]\n[limits]\nbody_size = \"1KiB\"",
    );
    let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "write").await);
    for (fields, status) in [
        (String::new(), 401),
        ("Authorization: Bearer made.up.token\r\n".to_owned(), 401),
        (format!("Authorization: Bearer {}\r\n", alice.access), 403),
        (format!("Authorization: Bearer {}\r\n", bob.access), 413),
    ] {
        let mut client = Wire::connect(gateway.address()).await;
        let head = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n";
        client.send(format!("{head}{fields}\r\n")).await;
        let response = client.read_response().await;
        assert_eq!((response.status, response.header("connection")), (status, Some("close")), "{response:?}");
        client.assert_closed().await;
    }
    assert_eq!(upstream.connections(), 0);
}

/// The gateway forwards a 100 of the backend. It does not send one by itself before the backend is connected.
#[tokio::test]
async fn an_unreachable_backend_causes_no_100_continue() {
    let closed = ClosedPort::new();
    let gateway = Gateway::public(closed.address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n").await;
    assert_eq!(client.read_response().await.status, 502, "and no 100 before it");
    client.assert_closed().await;
}

/// Over HTTP/1.1, curl waits for a 100 before it sends a file. Over HTTP/2 it sends at once, so the rejection without a
/// token is not tested: curl 7.88 reports the reset that follows the response (RFC 9113 section 8.1) instead of the
/// response.
#[tokio::test]
async fn curl_uploads_a_file() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let file = gateway.path().join("file");
    std::fs::write(&file, vec![b'x'; 3 << 20]).expect("written");
    let authorization = format!("Authorization: Bearer {}", pair.access);
    for (protocol, token, expected) in [
        ("--http1.1", Some(&authorization), "100 200"),
        ("--http2", Some(&authorization), "200"),
        ("--http1.1", None, "401"),
    ] {
        let mut curl = Command::new("curl");
        // Longer than curl's default, so that it does not send the body without a 100.
        curl.args(["--silent", "--show-error", "--no-buffer", "--include", protocol, "--expect100-timeout", "30"]);
        curl.arg("--cacert").arg(gateway.certificate()).arg("--upload-file").arg(&file);
        curl.args(["--header", "Expect: 100-continue"]).args(token.iter().flat_map(|token| ["--header", token]));
        let output = curl.arg(format!("https://localhost:{}/swallow", gateway.tls_address().port())).output();
        let output = output.expect("curl is installed");
        let text = String::from_utf8_lossy(&output.stdout);
        let statuses: Vec<&str> =
            text.lines().filter(|line| line.starts_with("HTTP/")).filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(statuses.join(" "), expected, "{protocol}: {text}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(text.ends_with("3145728"), token.is_some(), "{protocol}: {text}");
    }
    assert_eq!(upstream.seen().len(), 2);
}

/// `OPTIONS *` is about a server as a whole. The gateway cannot respond for the backend.
#[tokio::test]
async fn connect_and_options_asterisk_are_rejected() {
    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let gateway = Gateway::public(upstream.address, &format!("protocol = \"{protocol}\""));
        for (request, status) in [("CONNECT backend:80", 405), ("OPTIONS *", 400)] {
            let mut client = Wire::connect(gateway.address()).await;
            client.send(format!("{request} HTTP/1.1\r\nHost: backend:80\r\n\r\n")).await;
            assert_eq!(client.read_response().await.status, status, "{request}");
        }
        // Over HTTP/2, CONNECT has an authority but neither scheme nor path (RFC 9113 section 8.5).
        let connect = frames::block(&[(":method", "CONNECT"), (":authority", "backend:80")]);
        let head = frames::frame(HEADERS, END_HEADERS, 1, &connect);
        let mut client = frames::connect(gateway.address(), &[frames::connection_preface(), head]).await;
        assert_eq!(frames::next(&mut client, &[HEADERS]).await.stream, 1);
        let lines = gateway.log_lines(3).await;
        let rejected: Vec<_> = lines.iter().filter(|line| line["reason"] == "connect_not_allowed").collect();
        assert_eq!(rejected.len(), 2, "{lines:?}");
        assert!(rejected.iter().all(|line| line["status"] == 405), "{rejected:?}");
        assert!(upstream.seen().is_empty());
    }
}

#[tokio::test]
async fn the_host_is_kept_or_replaced_as_configured() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    gateway.client().header("host", "shop.example:8443").get("/").await;
    assert_eq!(upstream.only_request().host(), "shop.example:8443");

    for (upstream, protocol) in [(Upstream::start(), "http1"), (Upstream::start_http2(), "h2")] {
        let options = format!("protocol = \"{protocol}\"\npreserve_host = false");
        let gateway = Gateway::public(upstream.address, &options);
        gateway.client().header("host", "shop.example").get("/").await;
        let seen = upstream.only_request();
        assert_eq!(seen.host(), upstream.address.to_string());
        assert_eq!(seen.header("x-forwarded-host"), Some("shop.example"));
    }
}

#[tokio::test]
async fn the_host_of_an_ipv6_backend_has_brackets() {
    let upstream = Upstream::at("[::1]:0");
    let gateway = Gateway::public(upstream.address, "preserve_host = false");
    assert_eq!(gateway.client().get("/").await.status, 200);
    assert_eq!(upstream.only_request().host(), upstream.address.to_string());
}

#[tokio::test]
async fn an_http_1_0_client_gets_a_response_it_can_read() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut old = Wire::connect(gateway.address()).await;
    old.send("GET /drip HTTP/1.0\r\nHost: a\r\n\r\n").await;
    let response = old.read_response().await;
    assert!(response.head[0].starts_with("HTTP/1.0 200"), "{response:?}");
    assert_eq!(response.header("transfer-encoding"), None);
    assert_eq!(response.body, "one two three", "the body ends with the connection");

    let mut old = Wire::connect(gateway.address()).await;
    for _ in 0..2 {
        old.send("POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nkept").await;
        let response = old.read_response().await;
        assert_eq!((response.header("connection"), response.body.as_str()), (Some("keep-alive"), "kept"));
    }
}
