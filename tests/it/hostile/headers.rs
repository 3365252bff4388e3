//! Headers that only the gateway may set, and invalid hosts.

use bearward::types::reject::Reason::{self, *};
use http::{HeaderName, HeaderValue, Request};

use super::{Attack, address_of, assert_all_rejected};
use crate::support::upstream::ReceivedRequest;
use crate::support::{Gateway, Upstream, Wire};

/// Identity headers: only the gateway sends them to a backend.
const IDENTITY: &[&str] =
    &["X-Auth-Subject", "X-Auth-Scope", "X-Auth-Token-Id", "X-Auth-Issuer", "X-Auth-Observed", "X-Auth-Tenant"];

/// The origin and the id of a request: set by the gateway, or not at all (Traefik CVE-2026-35051, CVE-2024-52003;
/// oauth2-proxy CVE-2026-40575; caddy-security CVE-2024-21494).
const ORIGIN: &[&str] = &[
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Proto",
    "X-Forwarded-Protocol",
    "X-Forwarded-Scheme",
    "X-Forwarded-Ssl",
    "X-Forwarded-Server",
    "X-Forwarded-By",
    "X-Forwarded-Prefix",
    "X-Forwarded-Path",
    "X-Forwarded-Uri",
    "X-Forwarded-Method",
    "X-Forwarded-User",
    "X-Forwarded-Email",
    "X-Forwarded-Groups",
    "X-Forwarded-Preferred-Username",
    "X-Forwarded-Access-Token",
    "X-Forwarded-Client-Cert",
    "X-Forwarded-Tls-Client-Cert",
    "X-Forwarded-Tls-Client-Cert-Info",
    "X-Forwarded-Original-For",
    "X-Real-IP",
    "X-Original-URL",
    "X-Original-URI",
    "X-Original-Host",
    "X-Original-Method",
    "X-Original-Forwarded-For",
    "X-Rewrite-URL",
    "X-Request-Id",
    "True-Client-IP",
    "Client-IP",
    "CF-Connecting-IP",
    "X-Cluster-Client-IP",
    "Fastly-Client-IP",
    "X-Envoy-External-Address",
    "Forwarded-For",
    "X-Forwarded",
    "Remote-User",
    "X-WebAuth-User",
    "X-Auth-Request-User",
    "Client-Cert",
    "SSL-Client-Verify",
    "X-SSL-Client-Verify",
];

/// Spellings that CGI, WSGI and the like turn into the same variable (Caddy GHSA-f59h-q822-g45g), also with other
/// characters.
fn spellings(name: &str) -> Vec<String> {
    let others = ["_", ".", "!", "~", "+", "$"].map(|dash| name.replace('-', dash));
    let mut all = vec![name.to_owned(), name.to_lowercase(), name.to_uppercase(), name.replacen('-', "_", 1)];
    all.extend(others);
    all.sort();
    all.dedup();
    all
}

/// Hop-by-hop fields, each with the fields that the client sends.
const HOP_BY_HOP: &[(&str, &str)] = &[
    ("Keep-Alive", "Keep-Alive: forged"),
    ("Proxy-Connection", "Proxy-Connection: forged"),
    ("Proxy-Authorization", "Proxy-Authorization: Basic forged"),
    ("Proxy-Authenticate", "Proxy-Authenticate: forged"),
    ("TE", "TE: forged"),
    ("Upgrade", "Upgrade: forged"),
    ("Upgrade", "Connection: Upgrade\r\nUpgrade: forged"),
    ("Upgrade", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c, forged\r\nHTTP2-Settings: AAMAAABk"),
    ("HTTP2-Settings", "HTTP2-Settings: forged"),
    ("X-Nominated", "Connection: x-nominated\r\nX-Nominated: forged"),
    ("X-Nominated", "Connection: a,, X-Nominated ,b\r\nX-Nominated: forged"),
    ("X-Nominated", "Connection: a\r\nConnection: X-NOMINATED\r\nX-Nominated: forged"),
];

/// Fields that `Connection` must not remove: attackers used it to remove what a proxy had set (Traefik CVE-2024-45410).
const NOMINATED: &[&str] = &[
    "X-Auth-Subject",
    "x-auth-subject",
    "X-Auth-Scope",
    "X-Auth-Token-Id",
    "X-Auth-Issuer",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "Forwarded",
    "X-Request-Id",
    "Host",
    "Authorization",
];

/// Headers that made some gateway require no token, or check another path. Here only the request line decides
/// (oauth2-proxy CVE-2026-34457, CVE-2026-40575).
const BYPASSES: &[&str] = &[
    "User-Agent: GoogleHC/1.0",
    "User-Agent: kube-probe/1.30",
    "User-Agent: ELB-HealthChecker/2.0",
    "X-Forwarded-Uri: /public",
    "X-Forwarded-Path: /public",
    "X-Forwarded-Method: OPTIONS",
    "X-Forwarded-For: 127.0.0.1",
    "X-Forwarded-User: root",
    "X-Original-URL: /public",
    "X-Original-URI: /public",
    "X-Original-Method: OPTIONS",
    "X-Rewrite-URL: /public",
    "X-HTTP-Method-Override: OPTIONS",
    "X-Auth-Subject: root",
    "X-Real-IP: 127.0.0.1",
    "Forwarded: for=127.0.0.1;proto=https",
    "Proxy-Authorization: Bearer x",
    "Cookie: access_token=x; session=x",
    "Referer: https://gateway.test/public",
    "Origin: https://gateway.test",
    "Sec-WebSocket-Protocol: bearer, x",
    "Access-Control-Request-Method: GET",
    "X-Middleware-Subrequest: middleware",
    "X-Skip-Auth: true",
    "Connection: Authorization",
];

/// Invalid hosts, and more than one host. Programs differ in which part of these they use.
pub(super) const HOSTS: &[&str] = &[
    "Host:",
    "Host: a b",
    "Host: a\tb",
    "Host: a,b",
    "Host: a, b",
    "Host: alice@a",
    "Host: a@b:80",
    "Host: http://a",
    "Host: //a",
    "Host: a/",
    "Host: a/../b",
    "Host: a\\b",
    "Host: a?",
    "Host: a#b",
    "Host: a;b",
    "Host: a%00",
    "Host: a%2fb",
    "Host: %61",
    "Host: a:",
    "Host: a:x",
    "Host: a:-1",
    "Host: a:+80",
    "Host: a:0x50",
    "Host: a:80:80",
    "Host: a:123456",
    "Host: a:65536",
    "Host: a..",
    "Host: a..:80",
    "Host: a..b",
    "Host: .a",
    "Host: .",
    "Host: ..",
    "Host: a:80 ,b",
    "Host: :80",
    "Host: ::1",
    "Host: [::1",
    "Host: ::1]",
    "Host: [::1]a",
    "Host: [::1]:",
    "Host: [::1%25eth0]",
    "Host: []",
    "Host: [a]",
    "Host: [1.2.3.4]",
    "Host: *",
    "Host: \"a\"",
    "Host: a'b",
    "Host: <script>",
    "Host: a(b)",
    "Host: a!",
    "Host: {a}",
    "Host: $a",
    "Host: a|b",
    "Host: \u{e9}",
    "Host: a\r\nHost: a",
    "Host: a\r\nHost: b",
    "Host: a\r\nhost: a",
    "Host: a\r\nHost:",
    "Host:\r\nHost: a",
    "X: 1",
    "Host_: a",
    "X-Forwarded-Host: a",
];

fn request(line: &str, fields: &str) -> Vec<u8> {
    format!("{line} HTTP/1.1\r\n{fields}\r\nConnection: close\r\n\r\n").into_bytes()
}

/// The same request for `explain`.
fn explained(path: &str, fields: &str) -> Request<()> {
    let mut request = Request::get(path).body(()).expect("a request");
    for line in format!("{fields}\r\nConnection: close").split("\r\n") {
        let (name, value) = line.split_once(':').expect("a field");
        let name: HeaderName = name.parse().expect("a name");
        request.headers_mut().append(name, HeaderValue::from_bytes(value.trim().as_bytes()).expect("a value"));
    }
    request
}

#[tokio::test]
async fn hostile_hosts_and_bypass_headers_are_rejected() {
    let upstream = Upstream::start();
    let public = "[[route]]\npath = \"/public\"\npublic = true\n[[route]]\npath = \"/\"\n";
    let gateway = Gateway::with_config(&upstream, public);
    let attack = |path: &str, fields: &str, reason: Reason| Attack {
        name: fields.to_owned(),
        sent: request(&format!("GET {path}"), fields),
        explained: Some(explained(path, fields)),
        reason,
    };
    let long = format!("Host: {}", "a".repeat(256));
    let hosts = HOSTS.iter().copied().chain([long.as_str()]).map(|fields| attack("/public", fields, BadHost));
    let bypasses =
        BYPASSES.iter().map(|bypass| attack("/private", &format!("Host: gateway.test\r\n{bypass}"), NoToken));
    let attacks: Vec<Attack> = hosts.chain(bypasses).collect();
    eprintln!("{} hostile hosts and bypasses", attacks.len());
    assert_all_rejected(&gateway, &upstream, &attacks).await;
    assert_eq!(upstream.connections(), 0, "a rejected request opens no connection to the backend");
}

/// A request that the gateway forwards, but not unchanged.
struct Forgery {
    name: String,
    fields: String,
    /// The header that the gateway must remove. If `None`, it must remove nothing.
    removed: Option<String>,
}

fn forgeries() -> Vec<Forgery> {
    let mut forgeries = Vec::new();
    for name in IDENTITY.iter().chain(ORIGIN).flat_map(|name| spellings(name)) {
        let fields = format!("{name}: forged\r\n{name}: forged again");
        forgeries.push(Forgery { name: name.clone(), fields, removed: None });
    }
    for (name, fields) in HOP_BY_HOP {
        forgeries.push(Forgery { name: (*fields).into(), fields: (*fields).into(), removed: Some((*name).into()) });
    }
    for name in NOMINATED {
        let fields = format!("Connection: {name}");
        forgeries.push(Forgery { name: fields.clone(), fields, removed: None });
    }
    forgeries
}

/// Checks what the backend got about the caller.
fn fault_in(forgery: &Forgery, seen: &ReceivedRequest, client: &str, token_id: &str) -> Option<String> {
    let values =
        |name: &str| seen.headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?")).collect::<Vec<_>>();
    let forwarded = format!("for={client};proto=http");
    for (name, expected) in [
        ("host", "gateway.test"),
        ("x-auth-subject", "alice"),
        ("x-auth-scope", "orders:read"),
        ("x-auth-token-id", token_id),
        ("x-auth-issuer", "https://gateway.example"),
        ("x-forwarded-for", client),
        ("x-forwarded-host", "gateway.test"),
        ("x-forwarded-proto", "http"),
        ("forwarded", &forwarded),
    ] {
        if values(name) != [expected] {
            return Some(format!("{}: {name} is {:?}, not {expected}", forgery.name, values(name)));
        }
    }
    let is_forged = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains("forged"));
    let is_forbidden = |name: &str, value| {
        is_forged(value) || forgery.removed.as_ref().is_some_and(|removed| removed.eq_ignore_ascii_case(name))
    };
    let found = seen.headers.iter().find(|(name, value)| is_forbidden(name.as_str(), value));
    found.map(|found| format!("{}: the backend got {found:?}", forgery.name))
}

#[tokio::test]
async fn forged_headers_reach_no_backend_in_any_spelling() {
    let upstream = Upstream::start();
    let tenant = "[[identity.claim]]\npointer = \"/tenant\"\nheader = \"X-Auth-Tenant\"\n";
    let gateway = Gateway::with_config(&upstream, tenant);
    let pair = gateway.issue("alice", "orders:read").await;
    let forgeries = forgeries();
    eprintln!("{} hostile headers", forgeries.len());
    assert!(forgeries.len() >= 100, "too few attacks: {}", forgeries.len());
    let mut faults = Vec::new();
    for (number, forgery) in forgeries.iter().enumerate() {
        let client = address_of(number);
        let mut wire = Wire::connect_from(client, gateway.address()).await;
        let fields = format!("Host: gateway.test\r\nAuthorization: Bearer {}\r\n{}", pair.access, forgery.fields);
        wire.send(format!("GET /{number} HTTP/1.1\r\n{fields}\r\n\r\n")).await;
        let response = wire.read_response().await;
        assert_eq!(response.status, 200, "{}: {response:?}", forgery.name);
        let seen = upstream.seen().pop().expect("a request at the backend");
        assert_eq!(seen.uri, format!("/{number}"));
        faults.extend(fault_in(forgery, &seen, &client.to_string(), &pair.token_id));
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}
