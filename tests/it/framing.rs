//! Where one request ends and the next begins has one answer. What has two is refused: `hostile/framings.rs`.

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

/// A length that is kept in too few bits once cut a name short, and hid what came behind it (HAProxy CVE-2021-40346).
#[tokio::test]
async fn a_long_name_arrives_whole_or_not_at_all() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "[limits]\nhead_size = \"256KiB\"");
    for length in [254, 255, 256, 257, 270, 511, 512, 1023, 1024, 32_767, 32_768, 65_534, 65_535, 65_536, 65_550] {
        let name = "n".repeat(length);
        let before = upstream.seen().len();
        let mut client = Wire::connect(gateway.address()).await;
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{name}: 1\r\nContent-Length: {}\r\n", SMUGGLED.len());
        client.say(format!("{head}Connection: close\r\n\r\n{SMUGGLED}")).await;
        let heard = client.hear_to_the_end().await;
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
