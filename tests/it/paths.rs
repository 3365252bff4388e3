//! A path has one reading, or it goes nowhere.

use bytes::Bytes;
use http::Method;

use crate::support::{Gateway, Upstream, Wire};

/// Each has been a way past somebody's rules: read in one way by who decided, and in another by who served.
const AMBIGUOUS: &[&str] = &[
    // Envoy CVE-2019-9901, Heimdall GHSA-3q34-rx83-r6mq
    "/public/../private",
    "/public/%2e%2e/private",
    "/public/.%2E/private",
    "/public/..",
    "/public/./private",
    "/./private",
    "/..",
    // Envoy CVE-2021-29492, Traefik GHSA-vrch-868g-9jx5, GHSA-gm3x-23wp-hc2c
    "/public%2F..%2Fprivate",
    "/public%2f..%2fprivate",
    "/public%5c..%5cprivate",
    "/public%00/private",
    "/public%3b/private",
    "/public%3F/private",
    "/public%23/private",
    // Envoy CVE-2026-73551 and its family
    "/public/..;/private",
    "/public/..;foo=bar/private",
    "/public;jsessionid=1",
    // empty segments, which some servers merge
    "//private",
    "/public//private",
    // decoded twice by somebody
    "/%252e%252e/private",
    "/public%252fprivate",
    // no encoding at all
    "/public/%",
    "/public/%2",
    "/public/%zz",
    // what ends a line or a name
    "/public%0d%0aX-Auth-Subject:%20root",
    "/public%0a",
    "/public%7f",
];

/// What has one reading is nobody's business but the backend's.
const PLAIN: &[&str] = &[
    "/",
    "/a/b/",
    "/%7Euser/%61dmin",
    "/caf%C3%A9",
    "/100%25",
    "/a=b&c,d:e@f!$'()*+",
    "/...",
    "/.well-known/x",
    "/a..b/c.",
    "/?",
    "/?a=b?c=d&e=%2F..%2F;%00//..;[]",
    "/a?/../b",
    "/public?%23",
];

#[tokio::test]
async fn a_path_with_two_readings_is_refused_and_nobody_sees_it() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for path in AMBIGUOUS {
        let mut client = Wire::connect(gateway.address()).await;
        client.say(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let answer = client.answer().await;
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
        assert!(answer.body.contains("two ways"), "{path}: {answer:?}");
        let [_, http2, ..] = gateway.clients();
        http2.send(Method::GET, path, Bytes::new()).await.refused(400, "invalid_request");
    }
    let reasons = gateway.log_lines(2 * AMBIGUOUS.len()).await;
    assert!(reasons.iter().all(|line| line["reason"] == "bad_path"), "{reasons:?}");
    assert!(upstream.seen().is_empty());
}

/// These do not get as far as a path: no URI has such bytes.
#[tokio::test]
async fn a_path_that_is_none_is_refused_before_it_is_read() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for path in
        ["/public\\..\\private", "/a b", "/a\tb", "/a\u{1}b", "/a\u{7f}b", "private", "../private", "*", "?x", ""]
    {
        let mut client = Wire::connect(gateway.address()).await;
        client.say(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(client.answer().await.status, 400, "{path:?}");
    }
    let mut client = Wire::connect(gateway.address()).await;
    client.say(b"GET /caf\xe9 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 400);
    let mut client = Wire::connect(gateway.address()).await;
    client.say("GET /café HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 400);
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
}

#[tokio::test]
async fn what_passes_is_forwarded_byte_for_byte() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for path in PLAIN {
        let mut client = Wire::connect(gateway.address()).await;
        client.say(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(client.answer().await.status, 200, "{path}");
        assert_eq!(upstream.seen().pop().expect("it arrived").uri, *path);
    }
}

/// A target has no fragment. The part before it is what is decided on, and all that the backend gets.
#[tokio::test]
async fn a_fragment_reaches_nobody() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    for (target, path) in [("/a#/../private", "/a"), ("/a?b#c", "/a?b")] {
        let mut client = Wire::connect(gateway.address()).await;
        client.say(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(client.answer().await.status, 200);
        assert_eq!(upstream.seen().pop().expect("it arrived").uri, path);
    }
}

/// A route matches the letters that an encoding stands for, so that no spelling is a way round it.
#[tokio::test]
async fn no_spelling_of_a_path_takes_another_route() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&upstream, "[[route]]\npath = \"/\"\npublic = true\n[[route]]\npath = \"/admin\"\n");
    for path in ["/admin", "/admin/x", "/%61dmin", "/a%64min/", "/%61%64%6D%69%6e"] {
        gateway.client().get(path).await.refused(401, "unauthorized");
    }
    for path in ["/administrator", "/ADMIN", "/x/admin", "/?/admin"] {
        assert_eq!(gateway.client().get(path).await.status, 200, "{path}");
    }
}

/// Rules by host hold for every spelling of the host.
#[tokio::test]
async fn no_spelling_of_a_host_takes_another_route() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(
        &upstream,
        "[[route]]\npath = \"/\"\npublic = true\n\
         [[route]]\nhost = \"admin.example\"\npath = \"/\"\n[[route]]\nhost = \"[::1]\"\npath = \"/\"\n",
    );
    for host in
        ["admin.example", "ADMIN.example", "admin.example:8443", "admin.example.", "admin.example.:1", "[::1]:80"]
    {
        gateway.client().header("host", host).get("/").await.refused(401, "unauthorized");
    }
    for host in ["admin.example:80:80", "x@admin.example", "admin.example,b", "admin.example:"] {
        gateway.client().header("host", host).get("/").await.refused(400, "invalid_request");
    }
    assert_eq!(gateway.client().header("host", "other.example").get("/").await.status, 200);
}
