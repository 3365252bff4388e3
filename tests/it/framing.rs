//! Where one request ends and the next begins has one answer, or there is none: the connection closes.

use crate::support::{Gateway, Upstream, Wire};

/// Would reach the backend as a request of its own if what stands before it were framed in another way.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Says `request` and the smuggled one behind it; answers the statuses that come back before the connection closes.
async fn statuses(gateway: &Gateway, request: &str) -> Vec<u16> {
    let mut client = Wire::connect(gateway.address()).await;
    client.say(format!("{request}{SMUGGLED}")).await;
    let heard = client.hear_to_the_end().await;
    let status = |line: &str| line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok();
    heard.lines().filter_map(status).collect()
}

fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}")
}

/// Each is refused with 400, and nothing behind it is read.
#[tokio::test]
async fn a_request_with_two_readings_is_refused_and_its_connection_closed() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let te = |value: &str| post(&format!("Transfer-Encoding: {value}"), "0\r\n\r\n");
    let length = |value: &str| post(&format!("Content-Length: {value}"), "hello");
    for request in [
        // lengths
        length("5\r\nContent-Length: 6"),
        length("5, 5"),
        length("5, 6"),
        length("+5"),
        length("-5"),
        length("0x5"),
        length("5 5"),
        length("five"),
        length(""),
        length("18446744073709551616"),
        // codings
        te("xchunked"),
        te("chunked,"),
        te("chunked, identity"),
        te("identity, chunked"),
        te("identity"),
        te("gzip, chunked"),
        te("chunked, chunked"),
        te("chunked\r\nTransfer-Encoding: chunked"),
        te("chunked\r\nTransfer-Encoding: identity"),
        te("\"chunked\""),
        te("chunked;q=1"),
        te(""),
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
        // lines
        post("X: 1\r\n folded", ""),
        post("X: 1\r\n\tfolded", ""),
        post(" X: 1", ""),
        post("X : 1", ""),
        post("Transfer-Encoding : chunked", "0\r\n\r\n"),
        post("X: 1\rTransfer-Encoding: chunked", "0\r\n\r\n"),
        post("X: 1\r\r\nY: 1", ""),
        post("X: \0", ""),
        post("X\0: 1", ""),
        post(": 1", ""),
        post("X", ""),
        post("X\u{e9}: 1", ""),
        post("X(1): 1", ""),
        // request lines
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n".into(),
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n".into(),
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n".into(),
        "GET / http/1.1\r\nHost: a\r\n\r\n".into(),
        "GET /\r\nHost: a\r\n\r\n".into(),
        "G\u{e9}T / HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        // hosts
        "GET / HTTP/1.1\r\n\r\n".into(),
        "GET / HTTP/1.0\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n".into(),
        "GET / HTTP/1.1\r\nHost:\r\n\r\n".into(),
        "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n".into(),
        "GET http://b@a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(),
    ] {
        assert_eq!(statuses(&gateway, &request).await, [400], "{request:?}");
    }
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
}

#[tokio::test]
async fn this_is_no_forward_proxy() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for target in ["backend:80", "/", "http://a/"] {
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        let answered = statuses(&gateway, &request).await;
        assert!(matches!(answered[..], [400] | [405]), "{target}: {answered:?}");
    }
    // A target in absolute form is read as its path, if it is for the same host.
    let mut client = Wire::connect(gateway.address()).await;
    client.say("GET http://a/path?query HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 200);
    assert_eq!(upstream.only().uri, "/path?query");
}

/// HTTP lets a server refuse these or read them in the one safe way (RFC 9112 sections 2.2, 6.1, 6.3). Either way the
/// backend gets one request, in the gateway's own words.
#[tokio::test]
async fn what_may_be_repaired_reaches_the_backend_in_one_reading() {
    for (request, body) in [
        // Transfer-Encoding wins, Content-Length goes, and nothing behind the body is believed.
        (post("Content-Length: 6\r\nTransfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"), "abc"),
        (post("Transfer-Encoding: chunked\r\nContent-Length: 60", "3\r\nabc\r\n0\r\n\r\n"), "abc"),
    ] {
        let upstream = Upstream::start();
        let gateway = Gateway::open(upstream.address, "");
        assert_eq!(statuses(&gateway, &request).await, [200], "{request:?}");
        let seen = upstream.only();
        assert_eq!(seen.body, body);
        assert_eq!(seen.header("content-length"), None, "{seen:?}");
    }
    for (request, body) in [
        (post("Content-Length: 3\r\nContent-Length: 3\r\nConnection: close", "abc"), "abc"),
        (post("Content-Length: 3\nConnection: close", "abc"), "abc"),
        (post("\r\nX: this is the body", ""), ""),
    ] {
        let upstream = Upstream::start();
        let gateway = Gateway::open(upstream.address, "");
        let answered = statuses(&gateway, &request).await;
        assert_eq!(answered[0], 200, "{request:?}");
        let seen = upstream.seen();
        assert_eq!(seen[0].body, body);
        assert!(
            seen.iter()
                .all(|seen| seen.header("content-length").is_none_or(|length| length.parse() == Ok(seen.body.len())))
        );
    }
}

/// The head was fine, so the backend is already asked; but it never takes a broken body for a whole one.
#[tokio::test]
async fn a_body_with_broken_chunks_is_a_broken_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for chunks in [
        "FFFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "3;a\nb\r\nabc\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "3\r\nabc\r\nG\r\n",
        "0\r\nX : 1\r\n\r\n",
        "0\r\nX\r\n\r\n",
    ] {
        let answered = statuses(&gateway, &post("Transfer-Encoding: chunked", chunks)).await;
        assert_eq!(answered, [400], "{chunks:?}");
    }
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
    let lines = gateway.log_lines(15).await;
    assert!(lines.iter().all(|line| line["reason"] == "bad_framing"), "{lines:?}");
}

#[tokio::test]
async fn a_head_may_be_so_large_and_no_larger() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(
        upstream.address,
        "[limits]\nhead_size = \"8KiB\"\nuri_size = \"1KiB\"\ntoken_size = \"1KiB\"\nheaders = 20",
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
    client.say([&with_token("/1"), without, &with_token("/2"), &with_token("/3")].concat()).await;
    for status in [200, 401, 200, 200] {
        assert_eq!(client.answer().await.status, status);
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
    client.say(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
    assert_eq!(client.answer().await.status, 401);
    client.is_closed().await;
    assert_eq!(gateway.log_lines(1).await.len(), 1);
}
