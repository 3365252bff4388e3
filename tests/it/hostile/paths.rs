//! Targets that were read in one way by who decided, and in another by who served.

use bearward::types::reject::Reason::{self, *};
use http::{Request, Uri};

use super::{Attack, all_are_refused};
use crate::support::connection::{HttpConnection, empty};
use crate::support::{Gateway, Upstream};

/// Dot segments, for whoever resolves them behind the gateway (Envoy CVE-2019-9901, Traefik CVE-2025-32431).
const DOT_SEGMENTS: &[&str] = &[
    "/..",
    "/../",
    "/.",
    "/./",
    "/../private",
    "/./private",
    "/public/..",
    "/public/../",
    "/public/.",
    "/public/./",
    "/public/../private",
    "/public/./private",
    "/public/x/../../private",
    "/public/../../../../etc/passwd",
    "/public/./../private",
    "/public/.././private",
    "/public/..?x=y",
    "/public/.?x=y",
    "/public/../private?x=y",
    // as a client that encodes dots writes them (Heimdall GHSA-3q34-rx83-r6mq)
    "/%2e",
    "/%2e/private",
    "/%2E%2E",
    "/%2e%2e/private",
    "/public/%2e%2e/private",
    "/public/%2E%2E/private",
    "/public/%2e%2E/private",
    "/public/%2E%2e/private",
    "/public/.%2e/private",
    "/public/.%2E/private",
    "/public/%2e./private",
    "/public/%2E./private",
    "/public/%2e/private",
    "/public/%2E/private",
    "/public/%2e%2e",
    "/public/%2e%2e/%2e%2e/private",
];

/// `%2F` and `%5C` are separators to some and letters to others (Envoy CVE-2021-29492, Traefik GHSA-gm3x-23wp-hc2c).
const SEPARATORS: &[&str] = &[
    "/%2f",
    "/%2F",
    "/%2fprivate",
    "/public%2fprivate",
    "/public%2Fprivate",
    "/public/%2fprivate",
    "/public%2f/private",
    "/public%2f%2fprivate",
    "/public%2f..%2fprivate",
    "/public%2F..%2Fprivate",
    "/public%2f%2e%2e%2fprivate",
    "/public/..%2fprivate",
    "/public/..%2Fprivate",
    "/public/%2e%2e%2fprivate",
    "/public%2f../private",
    "/..%2f..%2f..%2fetc%2fpasswd",
    "/%5c",
    "/%5C",
    "/%5cprivate",
    "/public%5cprivate",
    "/public%5Cprivate",
    "/public%5c..%5cprivate",
    "/public/..%5cprivate",
    "/public/..%5Cprivate",
    "/public/%2e%2e%5cprivate",
    "/public%5c../private",
    "/%5c%5cevil.example%5cshare",
    "/public/%2f%5cprivate",
    // which some servers merge
    "//",
    "///",
    "//private",
    "///private",
    "/public//private",
    "/public//",
    "/public///private",
    "//evil.example/private",
    "//evil.example/%2e%2e",
    "/public//../private",
    "//..//private",
];

/// A server that cuts at `;` sees another path, and another one sees `..` (Envoy CVE-2026-73551, -73553, -73511).
const PARAMETERS: &[&str] = &[
    "/;",
    "/;/private",
    "/;x=y/private",
    "/public;",
    "/public;x",
    "/public;jsessionid=1",
    "/public;x=y/private",
    "/public/;/private",
    "/public/..;",
    "/public/..;/private",
    "/public/..;foo=bar/private",
    "/public/..;/..;/private",
    "/public/.;/private",
    "/public/.;x/private",
    "/public/%2e%2e;/private",
    "/public/.%2e;x=y/private",
    "/public/..%3b/private",
    "/public/..%3B/private",
    "/public%3b/private",
    "/public%3Bx=y/private",
    "/public/;..;/private",
    "/public/private;.css",
    "/private;/../public",
];

/// What ends a path, a line or a string, where it is decoded.
const ENDS: &[&str] = &[
    "/public%00",
    "/public%00/private",
    "/private%00.css",
    "/%00",
    "/public/..%00/private",
    "/public%3f",
    "/public%3F/private",
    "/public/..%3fx/private",
    "/public%23",
    "/public%23/private",
    "/private%23.css",
    "/public%0a",
    "/public%0d",
    "/public%0d%0a",
    "/public%0D%0ASet-Cookie:%20a=b",
    "/public%0d%0aX-Auth-Subject:%20root",
    "/public%0d%0a%0d%0aGET%20/private%20HTTP/1.1",
    "/public%09",
    "/public%0b",
    "/public%0c",
    "/public%08",
    "/public%01",
    "/public%1b%5b2J",
    "/public%1f",
    "/public%7f",
    "/public%7F/private",
];

/// Encoded twice, or not properly once: a lenient decoder makes something of it (Traefik GHSA-vrch-868g-9jx5).
const ENCODINGS: &[&str] = &[
    "/%252e%252e/private",
    "/public/%252e%252e/private",
    "/public/%252E%252E/private",
    "/public/.%252e/private",
    "/public%252fprivate",
    "/public%252Fprivate",
    "/public%255cprivate",
    "/public/..%252fprivate",
    "/public/..%255cprivate",
    "/public%253bprivate",
    "/public%2500",
    "/public%252f%252e%252e%252fprivate",
    "/%2561dmin",
    "/%25252e%25252e/private",
    "/public/%25%32%65/private",
    "/public/%2%65%2%65/private",
    "/public/%",
    "/public/%/private",
    "/%",
    "/%%",
    "/%%32%65",
    "/%2",
    "/%2/private",
    "/public/%2",
    "/%zz",
    "/%2g",
    "/%g2",
    "/%-2",
    "/%+2f",
    "/%u002e%u002e/private",
    "/public%u002fprivate",
    "/public%u2215private",
    "/%uff0e%uff0e/private",
    "/%x2e%x2e/private",
    "/public/%5%63private",
];

/// Bytes that stand in no path, and that somebody takes for one that does.
const BYTES: &[&str] = &[
    "/public\\..\\private",
    "/public/..\\private",
    "/public\\private",
    "/public/\\/private",
    "/\\evil.example\\share",
    "/caf\u{e9}",
    "/\u{ff0e}\u{ff0e}/private",
    "/public\u{ff0f}private",
    "/public\u{2215}private",
    "/public\u{2024}\u{2024}/private",
    "/public/\u{202e}etavirp",
    "/public\u{200b}/private",
    "/\u{212a}",
];

/// What is no target at all: it does not get as far as a path.
const UNREADABLE: &[&[u8]] = &[
    b"",
    b"?",
    b"?x",
    b"#",
    b"#/private",
    b"/public#/../private",
    b"/public?x#/private",
    b"/public#",
    b"/%&#46;/private",
    b"http://gateway.test/public#private",
    b"private/../public",
    b"../private",
    b"./private",
    b"\\private",
    b"\\\\evil.example\\share",
    b"/a b",
    b"/public /private",
    b"/public\t/private",
    b"/public\x01",
    b"/public\x0b/private",
    b"/public\x0c/private",
    b"/public\0/private",
    b"/public\x1b[2J",
    b"/public\x7f",
    b"/public\r/private",
    b"/caf\xe9",
    b"/\xc0\xae\xc0\xae/private",
    b"/public/\xc0\xafprivate",
    b"/public\xe0\x80\xafprivate",
    b"/public\xed\xa0\x80",
    b"/\xff",
    "\u{feff}/private".as_bytes(),
    b"/<public>",
    b"/public`id`",
    b"http:/private",
    b"http://",
    b"http:///private",
    b"http//gateway.test/private",
    b"http://gateway.test\\@evil.example/private",
];

/// Forms of a target other than a path, and what is too long: the target, the Host, and the reason.
pub(super) const FORMS: &[(&str, &str, Reason)] = &[
    ("*", "gateway.test", BadPath),
    ("gateway.test", "gateway.test", BadPath),
    ("gateway.test:80", "gateway.test:80", BadPath),
    ("private", "gateway.test", BadHost),
    ("http:private", "gateway.test", BadHost),
    ("evil.example:443", "gateway.test", BadHost),
    ("http://gateway.test/../private", "gateway.test", BadPath),
    ("http://gateway.test/public/%2e%2e/private", "gateway.test", BadPath),
    ("http://gateway.test//private", "gateway.test", BadPath),
    ("http://gateway.test/public/..;/private", "gateway.test", BadPath),
    ("https://gateway.test/public%2fprivate", "gateway.test", BadPath),
    ("http://evil.example/private", "gateway.test", BadHost),
    ("http://gateway.test:8080/private", "gateway.test", BadHost),
    ("http://gateway.test./private", "gateway.test", BadHost),
    ("http://alice@gateway.test/private", "gateway.test", BadHost),
    ("http://alice@gateway.test/private", "alice@gateway.test", BadHost),
    ("http://gateway.test@evil.example/private", "gateway.test", BadHost),
    ("http://gateway.test:x/private", "gateway.test", BadHost),
    ("http://gateway.test:x/private", "gateway.test:x", BadHost),
    ("://gateway.test/private", "gateway.test", BadHost),
    ("file://gateway.test/etc/passwd", "gateway.test", BadHost),
    ("ws://gateway.test/private", "gateway.test", BadHost),
];

fn attack(target: &[u8], host: &str, reason: Reason) -> Attack {
    let sent = [b"GET ", target, b" HTTP/1.1\r\nHost: ", host.as_bytes(), b"\r\nConnection: close\r\n\r\n"].concat();
    let name = String::from_utf8_lossy(target).chars().take(80).collect::<String>();
    let asked =
        Uri::try_from(target).ok().filter(|_| reason != MalformedFraming && reason != HeadTooLarge).map(|uri| {
            let request = Request::get(uri).header("host", host).header("connection", "close");
            request.body(()).expect("a request")
        });
    Attack { name, sent, asked, reason }
}

fn ambiguous() -> impl Iterator<Item = &'static str> {
    [DOT_SEGMENTS, SEPARATORS, PARAMETERS, ENDS, ENCODINGS, BYTES].into_iter().flatten().copied()
}

#[tokio::test]
async fn a_hostile_path_is_refused_with_its_reason_and_goes_nowhere() {
    let upstream = Upstream::start();
    // Not even a token is asked for: nothing but the path is in the way.
    let gateway = Gateway::public(upstream.address, "");
    let long = format!("/{}", "a/".repeat(4096));
    let endless = format!("/{}", "../".repeat(23_000));
    let attacks: Vec<Attack> = ambiguous()
        .map(|path| attack(path.as_bytes(), "gateway.test", BadPath))
        .chain(UNREADABLE.iter().map(|target| attack(target, "gateway.test", MalformedFraming)))
        .chain(FORMS.iter().map(|(target, host, reason)| attack(target.as_bytes(), host, *reason)))
        .chain([attack(long.as_bytes(), "gateway.test", UriTooLong)])
        .chain([attack(endless.as_bytes(), "gateway.test", HeadTooLarge)])
        .collect();
    eprintln!("{} hostile paths", attacks.len());
    assert!(attacks.len() >= 150, "a table that tries little: {}", attacks.len());
    all_are_refused(&gateway, &upstream, &attacks).await;
    assert_eq!(upstream.connections(), 0, "nobody connects to the backend for a refused request");
    assert_eq!(gateway.client().get("/public/private").await.status, 200, "what nothing is wrong with is accepted");
}

#[tokio::test]
async fn a_hostile_path_is_no_better_over_http2() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut client = HttpConnection::http2(gateway.address()).await;
    for path in ambiguous() {
        let request = Request::get(path).body(empty());
        let Ok(request) = request else { panic!("{path} is no URI") };
        assert_eq!(client.send(request).await.status(), 400, "{path}");
    }
    let lines = gateway.log_lines(ambiguous().count()).await;
    assert!(lines.iter().all(|line| line["reason"] == "bad_path"), "{lines:?}");
    assert_eq!(upstream.connections(), 0);
}
