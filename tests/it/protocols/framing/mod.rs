//! The end of one request and the beginning of the next. `hostile.rs` has the table of requests that can be read in two
//! ways.

mod agreement;
mod hostile;

use serde_json::{Value, json};

use crate::support::{Gateway, Upstream, Wire};

/// Would reach the backend as a separate request if the request before it were framed in another way.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends `request` followed by the smuggled one, and returns all statuses until the connection closes.
async fn statuses(gateway: &Gateway, request: &str) -> Vec<u16> {
    let mut client = Wire::connect(gateway.address()).await;
    client.send(format!("{request}{SMUGGLED}")).await;
    let received = client.read_to_end().await;
    let status = |line: &str| line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok();
    received.lines().filter_map(status).collect()
}

fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}")
}

#[tokio::test]
async fn the_gateway_is_no_forward_proxy() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for target in ["backend:80", "/", "http://a/"] {
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        let statuses = statuses(&gateway, &request).await;
        assert!(matches!(statuses[..], [400] | [405]), "{target}: {statuses:?}");
    }
    // A target in absolute form is read as its path, if it is for the same host.
    let mut client = Wire::connect(gateway.address()).await;
    client.send("GET http://a/path?query HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.read_response().await.status, 200);
    assert_eq!(upstream.only_request().uri, "/path?query");
}

/// The requests before a malformed head are served. The gateway reads nothing after it.
#[tokio::test]
async fn requests_before_a_malformed_head_are_served() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let good = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    // The malformed head arrives while `/drip` sends its response in pieces.
    let before = [good("/drip"), good("/1"), good("/2")].concat();
    let bad = "GET /bad HTTP/1.1\nHost: a\r\n\r\n";
    let mut client = Wire::connect(gateway.address()).await;
    client.send([&before, bad, SMUGGLED].concat()).await;
    for _ in 0..3 {
        assert_eq!(client.read_response().await.status, 200);
    }
    let rejected = client.read_response().await;
    assert_eq!((rejected.status, rejected.header("connection")), (400, Some("close")));
    let body: Value = serde_json::from_str(&rejected.body).expect("JSON");
    assert_eq!((&body["error"], &body["status"]), (&json!("invalid_request"), &json!(400)));
    client.assert_closed().await;
    assert_eq!(upstream.seen().iter().map(|seen| &*seen.uri).collect::<Vec<_>>(), ["/drip", "/1", "/2"]);
    let lines = gateway.log_lines(4).await;
    let line = lines.iter().find(|line| line["status"] == 400).expect("a line for it");
    assert_eq!(line["request_id"], body["requestId"]);
    assert_eq!((&line["reason"], &line["method"]), (&json!("malformed_framing"), &json!("-")));
    assert_eq!(line["detail"], "a line that ends in LF without CR");
    assert_eq!(line["sent"], rejected.body.len());
}

/// Before, hyper rejected it with an empty response that had no id, and the log had no path.
#[tokio::test]
async fn a_target_that_is_no_uri_is_rejected_as_any_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for (target, path) in [
        ("/search?q=\"a\"", "/search"),
        ("/search?q=<b>", "/search"),
        ("/search?a>b", "/search"),
        ("/list/<b>?x", "/list/%3Cb%3E"),
        ("http://a/`id`?x", "/%60id%60"),
    ] {
        let mut client = Wire::connect(gateway.address()).await;
        let before = "GET /before HTTP/1.1\r\nHost: a\r\n\r\n";
        client.send(format!("{before}PUT {target} HTTP/1.1\r\nHost: a\r\n\r\n{SMUGGLED}")).await;
        assert_eq!(client.read_response().await.status, 200);
        let rejected = client.read_response().await;
        client.assert_closed().await;
        assert_eq!((rejected.status, rejected.header("connection")), (400, Some("close")), "{target}");
        let body: Value = serde_json::from_str(&rejected.body).unwrap_or_else(|error| panic!("{target}: {error}"));
        let description = body["error_description"].as_str().unwrap_or_default();
        assert!(description.contains("not a URI") && !rejected.body.contains("search"), "{body}");
        let line = gateway.log_line(|line| line["request_id"] == body["requestId"]).await;
        assert_eq!((&line["method"], &line["path"]), (&json!("PUT"), &json!(path)), "{target}");
        assert_eq!(line["reason"], "malformed_framing", "{target}");
    }
}

/// A field name that hyper cannot read is larger than the default limit of a head.
#[tokio::test]
async fn a_name_of_a_field_beyond_64_kib_is_rejected_as_a_large_head() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\nrequest_header_size = \"1MiB\"\n");
    for (request, status) in [
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{}: 1\r\n\r\n", "x".repeat(1 << 16)), 431),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(1 << 16)), 414),
    ] {
        let mut client = Wire::connect(gateway.address()).await;
        client.send(request).await;
        let rejected = client.read_response().await;
        assert_eq!(rejected.status, status);
        let body: Value = serde_json::from_str(&rejected.body).expect("JSON");
        gateway.log_line(|line| line["request_id"] == body["requestId"]).await;
    }
}

/// The network may split a request at any byte.
#[tokio::test]
async fn a_request_in_single_bytes_is_read_like_a_whole_one() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let chunked = post("Transfer-Encoding: chunked", "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX: 1\r\n\r\n");
    let good = [post("Content-Length: 5", "hello"), "\r\n".into(), chunked].concat();
    let bad = post("Content-Length: 5\r\nContent-Length: 5", "hello");
    let mut client = Wire::connect(gateway.address()).await;
    client.stream.set_nodelay(true).expect("a socket");
    for byte in good.bytes().chain(bad.bytes()) {
        // The gateway may reject the malformed request before it is complete.
        if client.try_send([byte]).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(client.read_response().await.body, "hello");
    assert_eq!(client.read_response().await.body, "abcde");
    assert_eq!(client.read_response().await.status, 400);
    assert_eq!(upstream.seen().len(), 2);
}

/// Another protocol may never send the end of a line, so the gateway does not wait for it.
#[tokio::test]
async fn another_protocol_than_http_is_rejected_at_once() {
    let gateway = Gateway::public(Upstream::start().address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03").await;
    assert_eq!(client.read_response().await.status, 400);
    client.assert_closed().await;
}

/// If the backend does not switch protocols, the next bytes are HTTP.
#[tokio::test]
async fn bytes_after_an_upgrade_request_wait_for_its_response() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let upgrade = "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n";
    let get = "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut client = Wire::connect(gateway.address()).await;
    client.send([upgrade, get, upgrade, "\x01\x02"].concat()).await;
    for status in [200, 200, 200, 400] {
        assert_eq!(client.read_response().await.status, status);
    }
    client.assert_closed().await;
    // If the backend switches, bytes that came before its response belong to the tunnel.
    let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let websocket = upgrade.replace("GET /1", "GET /ws").replace("other\r\n", &format!("websocket\r\n{key}"));
    let early = b"\x81\x85\0\0\0\0hello";
    let mut client = Wire::connect(gateway.address()).await;
    client.send([websocket.as_bytes(), early].concat()).await;
    assert_eq!(client.read_response().await.status, 101);
    assert_eq!(client.read_bytes(7).await, b"\x81\x05hello");
    client.send(early).await;
    assert_eq!(client.read_bytes(7).await, b"\x81\x05hello");
}

#[tokio::test]
async fn heads_up_to_their_limits_are_accepted() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(
        upstream.address,
        "[limits]\nrequest_header_size = \"8KiB\"\nrequest_header_count = 20\n\
         uri_size = \"1KiB\"\ntoken_size = \"1KiB\"",
    );
    let get = |path: &str, fields: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n");
    let path = |length: usize| format!("/{}", "p".repeat(length - 1));
    let field = |length: usize| format!("X: {}\r\n", "v".repeat(length));
    let fields = |count: usize| "X: 1\r\n".repeat(count);
    for (request, status) in [
        (get(&path(1024), ""), 200),
        (get(&path(1025), ""), 414),
        (get(&path(9000), ""), 431),
        (get(&path(70_000), ""), 431),
        (get("/", &field(7900)), 200),
        (get("/", &field(8192)), 431),
        (get("/", &field(500_000)), 431),
        (get("/", &format!("{}: 1\r\n", "n".repeat(9000))), 431),
        (get("/", &fields(18)), 200),
        (get("/", &fields(19)), 431),
        (format!("{} / HTTP/1.1\r\n", "M".repeat(500_000)), 431),
    ] {
        let statuses = statuses(&gateway, &request).await;
        assert_eq!(statuses, [status], "{}", &request[..60]);
    }
}

/// After a rejected request, the gateway reads the next one if it is certain where that begins.
#[tokio::test]
async fn pipelined_requests_get_their_responses_in_order() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let with_token = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nContent-Length: 1\r\n\r\nx",
            pair.access
        )
    };
    let without = "GET /none HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut client = Wire::connect(gateway.address()).await;
    client.send([&with_token("/1"), without, &with_token("/2"), &with_token("/3")].concat()).await;
    for status in [200, 401, 200, 200] {
        assert_eq!(client.read_response().await.status, status);
    }
    let paths: Vec<_> = upstream.seen().into_iter().map(|seen| seen.uri).collect();
    assert_eq!(paths, ["/1", "/2", "/3"]);
}

#[tokio::test]
async fn the_body_of_a_rejected_request_is_no_next_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let body = SMUGGLED.repeat(10_000);
    let mut client = Wire::connect(gateway.address()).await;
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
    assert_eq!(client.read_response().await.status, 401);
    client.assert_closed().await;
    assert_eq!(gateway.log_lines(1).await.len(), 1);
}

/// A length stored in too few bits once cut off a name and hid what followed it (HAProxy CVE-2021-40346).
#[tokio::test]
async fn a_long_header_name_arrives_complete_or_is_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\nrequest_header_size = \"256KiB\"");
    for length in [254, 255, 256, 257, 270, 511, 512, 1023, 1024, 32_767, 32_768, 65_534, 65_535, 65_536, 65_550] {
        let name = "n".repeat(length);
        let before = upstream.seen().len();
        let mut client = Wire::connect(gateway.address()).await;
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{name}: 1\r\nContent-Length: {}\r\n", SMUGGLED.len());
        client.send(format!("{head}Connection: close\r\n\r\n{SMUGGLED}")).await;
        let received = client.read_to_end().await;
        assert_eq!(received.matches("HTTP/1.1 ").count(), 1, "{length}: {received}");
        match upstream.seen().get(before..) {
            Some([seen]) => {
                assert_eq!(seen.header(&name), Some("1"), "{length}");
                assert_eq!(seen.body, SMUGGLED, "{length}");
            }
            Some([]) => assert!(received.starts_with("HTTP/1.1 4"), "{length}: {received}"),
            other => panic!("{length}: {other:?}"),
        }
    }
    assert!(upstream.seen().len() >= 9, "names of up to a kilobyte arrive: {}", upstream.seen().len());
}
