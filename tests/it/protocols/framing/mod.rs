//! Where one request ends and the next begins has one answer. What has two is refused: `hostile/framings.rs` has the table.

mod agreement;
mod hostile;

use serde_json::{Value, json};

use crate::support::{Gateway, Upstream, Wire};

/// Would reach the backend as a request of its own if what stands before it were framed in another way.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Says `request` and the smuggled one behind it; answers the statuses that come back before the connection closes.
async fn statuses(gateway: &Gateway, request: &str) -> Vec<u16> {
    let mut client = Wire::connect(gateway.address()).await;
    client.send(format!("{request}{SMUGGLED}")).await;
    let heard = client.read_to_end().await;
    let status = |line: &str| line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok();
    heard.lines().filter_map(status).collect()
}

fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}")
}

#[tokio::test]
async fn this_is_no_forward_proxy() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for target in ["backend:80", "/", "http://a/"] {
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        let answered = statuses(&gateway, &request).await;
        assert!(matches!(answered[..], [400] | [405]), "{target}: {answered:?}");
    }
    // A target in absolute form is read as its path, if it is for the same host.
    let mut client = Wire::connect(gateway.address()).await;
    client.send("GET http://a/path?query HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.read_response().await.status, 200);
    assert_eq!(upstream.only_request().uri, "/path?query");
}

/// What stands before it was a request; what stands behind it is nobody's.
#[tokio::test]
async fn requests_before_a_refused_head_are_answered_and_nothing_behind_it_is_read() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let good = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    // It arrives while the first is answered, piece by piece.
    let before = [good("/drip"), good("/1"), good("/2")].concat();
    let bad = "GET /bad HTTP/1.1\nHost: a\r\n\r\n";
    let mut client = Wire::connect(gateway.address()).await;
    client.send([&before, bad, SMUGGLED].concat()).await;
    for _ in 0..3 {
        assert_eq!(client.read_response().await.status, 200);
    }
    let refused = client.read_response().await;
    assert_eq!((refused.status, refused.header("connection")), (400, Some("close")));
    let told: Value = serde_json::from_str(&refused.body).expect("JSON");
    assert_eq!((&told["error"], &told["status"]), (&json!("invalid_request"), &json!(400)));
    client.assert_closed().await;
    assert_eq!(upstream.seen().iter().map(|seen| &*seen.uri).collect::<Vec<_>>(), ["/drip", "/1", "/2"]);
    let lines = gateway.log_lines(4).await;
    let line = lines.iter().find(|line| line["status"] == 400).expect("a line for it");
    assert_eq!(line["request_id"], told["requestId"]);
    assert_eq!((&line["reason"], &line["method"]), (&json!("malformed_framing"), &json!("-")));
    assert_eq!(line["detail"], "a line that ends in LF without CR");
    assert_eq!(line["sent"], refused.body.len());
}

/// However a network cuts it.
#[tokio::test]
async fn a_request_in_single_bytes_is_read_as_one_in_one_piece() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let chunked = post("Transfer-Encoding: chunked", "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX: 1\r\n\r\n");
    let good = [post("Content-Length: 5", "hello"), "\r\n".into(), chunked].concat();
    let bad = post("Content-Length: 5\r\nContent-Length: 5", "hello");
    let mut client = Wire::connect(gateway.address()).await;
    client.stream.set_nodelay(true).expect("a socket");
    for byte in good.bytes().chain(bad.bytes()) {
        // What is refused may be refused before it was all said.
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

/// What is no HTTP never comes to the end of a line, perhaps.
#[tokio::test]
async fn another_protocol_is_told_at_once() {
    let gateway = Gateway::public(Upstream::start().address, "");
    let mut client = Wire::connect(gateway.address()).await;
    client.send(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03").await;
    assert_eq!(client.read_response().await.status, 400);
    client.assert_closed().await;
}

/// A wish for another protocol that is not granted changes nothing; what follows is HTTP.
#[tokio::test]
async fn what_follows_a_wish_for_another_protocol_is_read_when_the_answer_is_known() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let wish = "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n";
    let get = "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut client = Wire::connect(gateway.address()).await;
    client.send([wish, get, wish, "\x01\x02"].concat()).await;
    for status in [200, 200, 200, 400] {
        assert_eq!(client.read_response().await.status, status);
    }
    client.assert_closed().await;
    // Where it is granted, what was said too early belongs to the tunnel, whatever it looks like.
    let key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let websocket = wish.replace("GET /1", "GET /ws").replace("other\r\n", &format!("websocket\r\n{key}"));
    let early = b"\x81\x85\0\0\0\0hello";
    let mut client = Wire::connect(gateway.address()).await;
    client.send([websocket.as_bytes(), early].concat()).await;
    assert_eq!(client.read_response().await.status, 101);
    assert_eq!(client.read_bytes(7).await, b"\x81\x05hello");
    client.send(early).await;
    assert_eq!(client.read_bytes(7).await, b"\x81\x05hello");
}

#[tokio::test]
async fn a_head_may_be_so_large_and_no_larger() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(
        upstream.address,
        "[limits]\nrequest_header_size = \"8KiB\"\nuri_size = \"1KiB\"\ntoken_size = \"1KiB\"\nrequest_header_count = 20",
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
        let answered = statuses(&gateway, &request).await;
        assert_eq!(answered, [status], "{}", &request[..60]);
    }
}

/// What comes behind a refused request is read only if there is no doubt where it begins.
#[tokio::test]
async fn pipelined_requests_are_answered_in_turn() {
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
async fn a_refused_request_leaves_no_byte_of_its_body_behind() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let body = SMUGGLED.repeat(10_000);
    let mut client = Wire::connect(gateway.address()).await;
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
    assert_eq!(client.read_response().await.status, 401);
    client.assert_closed().await;
    assert_eq!(gateway.log_lines(1).await.len(), 1);
}

/// A length that is kept in too few bits once cut a name short, and hid what came behind it (HAProxy CVE-2021-40346).
#[tokio::test]
async fn a_long_name_arrives_whole_or_not_at_all() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[limits]\nrequest_header_size = \"256KiB\"");
    for length in [254, 255, 256, 257, 270, 511, 512, 1023, 1024, 32_767, 32_768, 65_534, 65_535, 65_536, 65_550] {
        let name = "n".repeat(length);
        let before = upstream.seen().len();
        let mut client = Wire::connect(gateway.address()).await;
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{name}: 1\r\nContent-Length: {}\r\n", SMUGGLED.len());
        client.send(format!("{head}Connection: close\r\n\r\n{SMUGGLED}")).await;
        let heard = client.read_to_end().await;
        assert_eq!(heard.matches("HTTP/1.1 ").count(), 1, "{length}: {heard}");
        match upstream.seen().get(before..) {
            Some([seen]) => {
                assert_eq!(seen.header(&name), Some("1"), "{length}");
                assert_eq!(seen.body, SMUGGLED, "{length}");
            }
            Some([]) => assert!(heard.starts_with("HTTP/1.1 4"), "{length}: {heard}"),
            other => panic!("{length}: {other:?}"),
        }
    }
    assert!(upstream.seen().len() >= 9, "names of up to a kilobyte arrive: {}", upstream.seen().len());
}
