//! Targets that some proxy read in one way and the server after it in another.

use bearward::types::reject::Reason::{self, *};
use http::{Request, Uri};

use super::{Attack, assert_all_rejected};
use crate::support::connection::{HttpConnection, empty};
use crate::support::{Gateway, Upstream};

/// Dot segments, which a backend may resolve (Envoy CVE-2019-9901, Traefik CVE-2025-32431).
pub(super) const DOT_SEGMENTS: &[&str] = &[
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
    // with encoded dots (Heimdall GHSA-3q34-rx83-r6mq)
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

/// Some servers read `%2F` and `%5C` as separators, others as letters (Envoy CVE-2021-29492, Traefik
/// GHSA-gm3x-23wp-hc2c).
pub(super) const SEPARATORS: &[&str] = &[
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
    // some servers merge these
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

/// A server that cuts a path at `;` reads another path, sometimes with `..` (Envoy CVE-2026-73551, -73553, -73511).
pub(super) const PARAMETERS: &[&str] = &[
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

/// Encoded characters that end a path, a line or a string once they are decoded.
pub(super) const ENDS: &[&str] = &[
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

/// Encoded twice, or wrongly. A lenient decoder accepts these (Traefik GHSA-vrch-868g-9jx5).
pub(super) const ENCODINGS: &[&str] = &[
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

/// Encoded bytes that are no UTF-8. A lenient decoder reads an overlong form as `/`, `.` or `\\` (IIS MS00-078, Tomcat
/// CVE-2008-2938).
pub(super) const OVERLONG: &[&str] = &[
    "/public%c0%afprivate",
    "/public%C0%AFprivate",
    "/public/..%c0%afprivate",
    "/public/%c0%ae%c0%ae/private",
    "/public/%c0%ae%c0%ae%c0%afprivate",
    "/public%e0%80%afprivate",
    "/public%f0%80%80%afprivate",
    "/public%f8%80%80%80%afprivate",
    "/public%fc%80%80%80%80%afprivate",
    "/public%c1%9cprivate",
    "/public%c1%1cprivate",
    "/public%c0%80",
    // surrogates, alone and as a pair
    "/public%ed%a0%80",
    "/public%ed%b0%80/private",
    "/public%ed%a0%bd%ed%b2%a9",
    // beyond the last character, incomplete, and alone
    "/public%f4%90%80%80",
    "/public%c3/%a9/private",
    "/public%e2%82",
    "/public%80",
    "/caf%e9",
    "/public%fe%ff",
];

/// Characters that a path cannot have, and that some programs read as others.
pub(super) const BYTES: &[&str] = &[
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

/// Malformed targets: the gateway rejects them before it reads a path.
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
    b"/public?q=\"a\"",
    b"/public?<script>",
    b"/public?a>b",
    b"/public?caf\xe9",
    b"http://gateway.test/public?\"",
    b"http:/private",
    b"http://",
    b"http:///private",
    b"http//gateway.test/private",
    b"http://gateway.test\\@evil.example/private",
];

/// Other forms of a target than a path: the target, the Host, and the reason.
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

pub(super) fn attack(target: &[u8], host: &str, reason: Reason) -> Attack {
    let sent = [b"GET ", target, b" HTTP/1.1\r\nHost: ", host.as_bytes(), b"\r\nConnection: close\r\n\r\n"].concat();
    let name = String::from_utf8_lossy(target).chars().take(80).collect::<String>();
    let explained =
        Uri::try_from(target).ok().filter(|_| reason != MalformedFraming && reason != HeadTooLarge).map(|uri| {
            let request = Request::get(uri).header("host", host).header("connection", "close");
            request.body(()).expect("a request")
        });
    Attack { name, sent, explained, reason }
}

fn ambiguous() -> impl Iterator<Item = &'static str> {
    [DOT_SEGMENTS, SEPARATORS, PARAMETERS, ENDS, ENCODINGS, OVERLONG, BYTES].into_iter().flatten().copied()
}

#[tokio::test]
async fn hostile_paths_are_rejected_with_their_reason() {
    let upstream = Upstream::start();
    // All routes are public, so only the path can cause the rejection.
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
    assert!(attacks.len() >= 150, "too few attacks: {}", attacks.len());
    assert_all_rejected(&gateway, &upstream, &attacks).await;
    assert_eq!(upstream.connections(), 0, "a rejected request opens no connection to the backend");
    assert_eq!(gateway.client().get("/public/private").await.status, 200, "a valid one is accepted");
}

#[tokio::test]
async fn hostile_paths_are_rejected_over_http2() {
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
