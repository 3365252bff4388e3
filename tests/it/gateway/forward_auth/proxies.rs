//! The real proxies, with the configurations of `deploy/beside`.

mod ext_authz;
mod proofs;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bearward::protocols::http::name_pattern::NamePattern;
use bearward::types::secret;
use futures_util::{SinkExt, StreamExt};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::support::certificates::Authority;
use crate::support::clock::ManualClock;
use crate::support::front_proxy::{FrontProxy, installed, nginx};
use crate::support::gateway::ISSUER;
use crate::support::ports::free_address;
use crate::support::source;
use crate::support::wait::eventually_ok;
use crate::support::wire::RawResponse;
use crate::support::{Gateway, Upstream, Wire};

/// Routes in addition to those of `deploy/beside/gateway.toml`.
const MORE: &str = "[[route]]\npath = \"/limited\"\npublic = true\n[[route.rate]]\nper = \"address\"\nrequests = 1\n\
    window = \"1h\"\n[[route]]\npath = \"/observed\"\nenforce = false\n[[route]]\npath = \"/replaced\"\n\
    token = \"replace\"\ntoken_audience = [\"https://orders.internal\"]\n\
    [[route]]\npath = \"/certified\"\npublic = true\nclient_certificate = \"required\"\n\
    [forwarding]\ntrusted = [\"127.0.0.1\"]\nclient_certificate = \"verified\"\n";

/// Where the clients of the tests connect from. All of 127.0.0.0/8 is this machine.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

const SECRET: &str = "a-secret-of-thirty-two-characters";
const WITH_SECRET: &str = "secret_file = \"proxy.secret\"";

const IDENTITY: [&str; 5] = ["X-Auth-Subject", "X-Auth-Scope", "X-Auth-Token-Id", "X-Auth-Issuer", "X-Auth-Observed"];

/// What a client writes to seem another one.
const FORGED_IDENTITY: &str = "X-Auth-Subject: root\r\nX-Auth-Scope: all\r\nX-Auth-Issuer: root\r\n\
    X-Auth-Token-Id: root\r\nX-Auth-Observed: root\r\n";

/// What a client writes to seem to have asked for something else.
const FORGED: &str = "X-Forwarded-Uri: /public/\r\nX-Forwarded-Method: OPTIONS\r\nX-Original-URI: /public/\r\n\
    X-Original-Method: OPTIONS\r\nX-Original-Host: other\r\nX-Forwarded-For: 198.51.100.1\r\n\
    X-Forwarded-Proto: gopher\r\nX-Forward-Auth-Secret: guessed\r\n";

struct Site {
    gateway: Gateway,
    backend: Upstream,
    address: SocketAddr,
    folder: TempDir,
    proxy: Option<FrontProxy>,
    /// Its clients get the body of the gateway's rejection.
    passes_bodies: bool,
    /// It replaces or removes the identity headers of its clients. The gateway does not reject these requests.
    replaces_forged: bool,
}

impl Site {
    /// `callers`: further keys about the proxies that may ask.
    fn new(dialect: &str, passes_bodies: bool, callers: &str) -> Site {
        Site::with_routes(MORE, dialect, passes_bodies, callers)
    }

    fn with_routes(more: &str, dialect: &str, passes_bodies: bool, callers: &str) -> Site {
        let text = source::read("deploy/beside/gateway.toml");
        let path = if dialect == "ext_authz_grpc" { "path = \"/auth\"\n" } else { "no such text" };
        let text = text.replace(path, "");
        let own = format!("dialect = \"{dialect}\"\n{callers}");
        let text = text.replace("dialect = \"x-original\"", &own);
        let routes = &text[text.find("[[route]]").expect("routes")..];
        let backend = Upstream::start();
        let text = Gateway::config_text(&backend.address.to_string(), &format!("{more}{routes}"))
            .replace("[tokens]\n", "[tokens]\nproof_nonce = \"required\"\n")
            // As in the file: it names the host of proofs.
            .replace(ISSUER, "https://app.example");
        let own = Arc::new(TempDir::new().expect("a folder"));
        secret::write_private(&own.path().join("proxy.secret"), SECRET.as_bytes()).expect("written");
        let gateway = Gateway::in_folder(text, own, Arc::new(ManualClock::new()));
        let folder = TempDir::new().expect("a folder");
        Site { gateway, backend, address: free_address(), folder, proxy: None, passes_bodies, replaces_forged: false }
    }

    /// Writes a file of `deploy/beside` with the addresses of this site.
    fn write(&self, name: &str, edit: impl FnOnce(String) -> String) {
        let text = source::read(format!("deploy/beside/{name}"));
        // In two steps: a port of this site can contain one of the file.
        let ports = [
            ("8080", "@1", self.gateway.address()),
            ("3000", "@2", self.backend.address),
            ("8000", "@3", self.address),
        ];
        let text = ports.iter().fold(text, |text, (port, mark, _)| text.replace(port, mark));
        let text = ports.iter().fold(text, |text, (_, mark, address)| text.replace(mark, &address.port().to_string()));
        std::fs::write(self.folder.path().join(name), edit(text)).expect("written");
    }

    fn start(mut self, program: &Path, arguments: &[&str]) -> Site {
        self.proxy = Some(FrontProxy::start(program, arguments, self.folder.path(), self.address));
        self
    }

    /// Sends a request as it is. A POST has a body.
    async fn send(&self, line: &str, fields: &str) -> RawResponse {
        let body = if line.starts_with("POST") { "Content-Length: 4\r\n\r\ndata" } else { "\r\n" };
        let mut wire = Wire::connect_from(CLIENT, self.address).await;
        let host = format!("app.example:{}", self.address.port());
        wire.send(format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}{body}")).await;
        wire.read_response().await
    }

    /// No request has reached the backend since.
    fn assert_silent(&self, about: &str) {
        let seen = self.backend.seen();
        assert!(seen.is_empty(), "{about}: {seen:?}");
    }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// What every proxy has to do.
async fn check(site: &mut Site) {
    let pair = site.gateway.issue("alice", "orders").await;
    allowed_requests(site, &pair.access).await;
    rejected_requests(site, &pair.access).await;
    proofs::through(site).await;
    encoded_paths(site).await;
    forged_identities(site, &pair.access).await;
    other_spellings(site, &pair.access).await;
    websockets(site, &pair.access).await;
    other_protocols(site, &pair.access).await;
    nominated_headers(site, &pair.access).await;
    other_paths(site).await;
    named_certificates(site).await;
    evidence_of_clients(site).await;
    limits(site).await;
    // Without the gateway, nothing passes.
    site.gateway.drain();
    let response = site.send("GET /public/a", "").await;
    assert!(response.status >= 500, "{response:?}");
    site.assert_silent("without the gateway");
}

async fn allowed_requests(site: &Site, token: &str) {
    for (line, fields, subject) in [
        ("GET /orders/7?a=b&c=%2F", format!("{}{FORGED}", bearer(token)), Some("alice")),
        ("POST /orders", format!("{}{FORGED}", bearer(token)), Some("alice")),
        ("GET /public/a", FORGED.to_owned(), None),
        ("GET /public/a", format!("{}{FORGED}", bearer("x.y.z")), None),
        ("GET /observed", FORGED.to_owned(), None),
    ] {
        let response = site.send(line, &fields).await;
        assert_eq!(response.status, 200, "{line}: {response:?}");
        let seen = site.backend.only_request();
        assert_eq!(format!("{} {}", seen.method, seen.target()), line);
        assert_eq!(seen.body, if line.starts_with("POST") { "data" } else { "" }, "{line}");
        let value = |name: &str| seen.header(name).filter(|value| !value.is_empty());
        assert_eq!(value("x-auth-subject"), subject, "{line}: {seen:?}");
        assert_eq!(value("x-auth-scope"), subject.map(|_| "orders"), "{line}: {seen:?}");
        assert_eq!(value("x-auth-observed"), line.contains("observed").then_some("no_token"), "{line}: {seen:?}");
        assert!(IDENTITY.iter().all(|name| seen.headers.get_all(*name).iter().count() <= 1), "{line}: {seen:?}");
        assert!(IDENTITY.iter().all(|name| seen.header(name) != Some("root")), "{line}: {seen:?}");
        assert_ne!(seen.header("x-forward-auth-secret"), Some(SECRET), "{line}");
        site.backend.forget();
    }
    let response = site.send("GET /replaced", &bearer(token)).await;
    assert_eq!(response.status, 200, "{response:?}");
    let seen = site.backend.only_request();
    let replaced = seen.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).expect("a token");
    assert_eq!(crate::support::tokens::claims_of(replaced)["aud"], "https://orders.internal");
    let line = site.gateway.log_line(|line| line["path"] == "/replaced").await;
    assert_eq!(seen.header("x-request-id"), line["request_id"].as_str(), "{seen:?}");
    site.backend.forget();
    let path = site.gateway.log_line(|line| line["path"] == "/orders/7").await;
    assert_eq!((&path["client"], &path["method"]), (&"127.0.0.9".into(), &"GET".into()), "{path}");
}

async fn rejected_requests(site: &Site, token: &str) {
    let other = site.gateway.issue("bob", "").await;
    site.gateway.revoke(&other.access, &other.token_id).await;
    for (line, fields, status) in [
        ("GET /orders", String::new(), 401),
        ("GET /orders", bearer("x.y.z"), 401),
        ("GET /orders", bearer(&other.access), 401),
        ("GET /orders", FORGED.to_owned(), 401),
        ("DELETE /orders", FORGED.to_owned(), 401),
        ("GET /orders", format!("{}{}", bearer(token), bearer(token)), 400),
    ] {
        let response = site.send(line, &fields).await;
        // Some proxies reject or join a repeated header themselves.
        assert!(response.status == status || status == 400 && response.status >= 400, "{line} {fields}: {response:?}");
        let challenges =
            response.head.iter().filter(|line| line.to_lowercase().starts_with("www-authenticate: bearer"));
        assert_eq!(challenges.count(), usize::from(status == 401), "{line} {fields}: {response:?}");
        if site.passes_bodies && status == 401 {
            assert!(response.body.contains("\"requestId\""), "{line}: {response:?}");
        }
        site.assert_silent(&format!("{line} {fields}"));
    }
    // The endpoint belongs to the gateway, not to the clients of the proxy.
    for path in ["/auth", "/.bearward", "/auth/public/"] {
        let response = site.send(&format!("GET {path}"), FORGED).await;
        assert!(response.status >= 400 && response.header("x-auth-subject").is_none(), "{path}: {response:?}");
        site.assert_silent(path);
    }
}

/// None of these is a way from a public path to another one.
async fn encoded_paths(site: &Site) {
    for path in [
        "/public/../orders",
        "/public/%2e%2e/orders",
        "/public/..%2forders",
        "/public/%2e%2e%2forders",
        "/public/%252e%252e/orders",
        "/public/..;/orders",
        "/public/..%5corders",
        "/public%2f../orders",
        "//orders",
        "/orders%00/public/",
        "/orders?/public/",
        "/orders;/public/",
        "/orders#/public/",
        "/./orders",
        "http://app.example/orders",
        "/%6frders",
        "*",
    ] {
        let response = site.send(&format!("GET {path}"), FORGED).await;
        assert!(response.status >= 300, "{path}: {response:?}");
        site.assert_silent(path);
    }
}

/// The gateway rejects them, or the proxy replaces them without asking about them.
async fn forged_identities(site: &Site, token: &str) {
    for (path, token) in [("/public/a", String::new()), ("/observed", String::new()), ("/orders", bearer(token))] {
        let response = site.send(&format!("GET {path}"), &format!("{token}{FORGED_IDENTITY}")).await;
        assert_eq!(response.status == 200, site.replaces_forged, "{path}: {response:?}");
        for seen in site.backend.seen() {
            assert!(site.replaces_forged, "{path}: {seen:?}");
            let root = seen.headers.values().filter(|value| ["root", "all"].iter().any(|forged| *value == forged));
            assert_eq!(root.count(), 0, "{path}: {seen:?}");
        }
        site.backend.forget();
    }
}

/// Backends that read headers as CGI does take these for the identity headers.
async fn other_spellings(site: &Site, token: &str) {
    let own = IDENTITY.map(NamePattern::exact);
    for name in ["X_Auth_Subject", "x_auth_subject", "X-Auth_Subject", "X.Auth.Subject", "X_AUTH_OBSERVED"] {
        for (path, token) in [("/public/a", String::new()), ("/orders", bearer(token))] {
            site.send(&format!("GET {path}"), &format!("{token}{name}: root\r\n")).await;
            for seen in site.backend.seen() {
                let forged = seen.headers.iter().filter(|(_, value)| value.as_bytes() == b"root");
                let forged: Vec<_> =
                    forged.filter(|(name, _)| own.iter().any(|own| own.matches(name.as_str().as_bytes()))).collect();
                assert!(forged.is_empty(), "{name} {path}: {seen:?}");
            }
            site.backend.forget();
        }
    }
}

async fn websockets(site: &Site, token: &str) {
    let open = async |token: Option<&str>| {
        let url = format!("ws://{}/websocket", site.address);
        let mut request = url.into_client_request().expect("a request");
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("a value");
            request.headers_mut().insert("authorization", value);
        }
        tokio_tungstenite::connect_async(request).await
    };
    assert!(open(None).await.is_err());
    site.assert_silent("a WebSocket without a token");
    let (mut socket, _) = open(Some(token)).await.expect("a WebSocket");
    socket.send("through".into()).await.expect("sent");
    assert_eq!(socket.next().await.expect("an echo").expect("an echo").into_text().expect("text").as_str(), "through");
    assert_eq!(site.backend.only_request().header("x-auth-subject"), Some("alice"));
    site.backend.forget();
}

/// Behind an upgrade to h2c, further requests would pass the proxy unseen.
async fn other_protocols(site: &Site, token: &str) {
    // The field twice is what some proxies read by its first value, and match by any.
    for protocol in ["h2c", "h2c, websocket", "websocket/13", "TLS/1.0", "h2c\r\nUpgrade: websocket"] {
        let fields = format!("{}Upgrade: {protocol}\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n", bearer(token));
        let mut wire = Wire::connect_from(CLIENT, site.address).await;
        let connection = "Connection: Upgrade, HTTP2-Settings";
        wire.send(format!("GET /orders HTTP/1.1\r\nHost: app.example\r\n{connection}\r\n{fields}\r\n")).await;
        let response = wire.read_response().await;
        assert_ne!(response.status, 101, "{protocol}");
        assert!(site.backend.seen().iter().all(|seen| seen.header("upgrade").is_none()), "{protocol}: {response:?}");
        site.backend.forget();
    }
}

/// A proxy that removes what `Connection` names must not remove the headers of the gateway.
async fn nominated_headers(site: &Site, token: &str) {
    let mut wire = Wire::connect_from(CLIENT, site.address).await;
    let connection = "Connection: close, X-Auth-Subject, X-Auth-Issuer";
    wire.send(format!("GET /orders HTTP/1.1\r\nHost: app.example\r\n{connection}\r\n{}\r\n", bearer(token))).await;
    wire.read_response().await;
    for seen in site.backend.seen() {
        assert_eq!(seen.header("x-auth-subject"), Some("alice"), "{seen:?}");
        assert!(seen.header("x-auth-issuer").is_some(), "{seen:?}");
    }
    site.backend.forget();
}

/// Some backends read another path in these headers.
async fn other_paths(site: &Site) {
    for name in ["X-Rewrite-URL", "X-Original-URL"] {
        site.send("GET /public/a", &format!("{name}: /orders\r\n")).await;
        assert!(site.backend.seen().iter().all(|seen| seen.header(name).is_none()), "{name}");
        site.backend.forget();
    }
}

/// A backend would read them as the word of the gateway or of the proxy.
async fn evidence_of_clients(site: &Site) {
    let names = ["DPoP", "Client-Cert", "Client-Cert-Chain", "Client_Cert", "client_cert-chain", "Client.Cert"];
    let patterns = ["DPoP", "Client-Cert", "Client-Cert-Chain"].map(NamePattern::exact);
    for path in ["/public/a", "/observed"] {
        for name in names {
            let fields = format!("{name}: :AQID:\r\n");
            let response = site.send(&format!("GET {path}"), &fields).await;
            // The gateway rejects another spelling, if the proxy does not remove it.
            let is_spelled_otherwise = name.contains(['_', '.']);
            assert!(response.status == 200 || is_spelled_otherwise && response.status == 400, "{name}: {response:?}");
            for seen in site.backend.seen() {
                let is_evidence =
                    |name: &&http::HeaderName| patterns.iter().any(|pattern| pattern.matches(name.as_str().as_bytes()));
                assert_eq!(seen.headers.keys().find(is_evidence), None, "{path} {name}: {seen:?}");
            }
            site.backend.forget();
        }
    }
    // A bound token without a good proof gets no further than its report.
    let fields = "Authorization: DPoP x.y.z\r\nDPoP: x.y.z\r\n";
    assert_eq!(site.send("GET /observed", fields).await.status, 200);
    assert_eq!(site.backend.only_request().header("dpop"), None);
    site.backend.forget();
}

/// The gateway believes a trusted proxy which certificate a client has, and no client.
async fn named_certificates(site: &Site) {
    let certificate = STANDARD.encode(Authority::new().client(|_| {}).certificate());
    for fields in [format!("Client-Cert: :{certificate}:\r\n"), String::new()] {
        let response = site.send("GET /certified", &fields).await;
        assert_eq!(response.status, 403, "{fields}: {response:?}");
        site.assert_silent(&fields);
    }
}

async fn limits(site: &Site) {
    assert_eq!(site.send("GET /limited", FORGED).await.status, 200);
    let response = site.send("GET /limited", FORGED).await;
    assert_eq!(response.status, 429, "{response:?}");
    assert!(response.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()), "{response:?}");
    assert!(response.body.contains("rate_limited") && (!site.passes_bodies || response.body.contains("requestId")));
    // Another client of the same proxy.
    let mut wire = Wire::connect_from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 10)), site.address).await;
    wire.send("GET /limited HTTP/1.1\r\nHost: app.example\r\nConnection: close\r\n\r\n").await;
    assert_eq!(wire.read_response().await.status, 200);
    site.backend.forget();
}

#[tokio::test]
async fn nginx_forwards_what_the_gateway_allows() {
    let site = Site::new("x-original", false, WITH_SECRET);
    // Folders of Debian that only root can write to.
    let paths =
        "http {\naccess_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n";
    let asks = "proxy_pass http://bearward/auth;";
    let shows = format!("{asks} proxy_set_header X-Forward-Auth-Secret \"{SECRET}\";");
    let host = "X-Original-Host   $host";
    let with_port = format!("{host}:$server_port");
    site.write("nginx.conf", |text| text.replacen("http {", paths, 1).replace(asks, &shows).replace(host, &with_port));
    let folder = site.folder.path().to_str().expect("UTF-8").to_owned();
    let global = "daemon off; pid nginx.pid; error_log stderr;";
    let mut site = site.start(&nginx(), &["-p", &folder, "-c", "nginx.conf", "-g", global]);
    check(&mut site).await;
}

#[tokio::test]
async fn traefik_forwards_what_the_gateway_allows() {
    let site = Site::new("x-forwarded", true, "");
    site.write("traefik-routes.yaml", |text| text);
    let quiet = "global: { checkNewVersion: false, sendAnonymousUsage: false }\n";
    site.write("traefik.yaml", |text| format!("{text}{quiet}"));
    let mut site = site.start(&installed("bin/traefik"), &["--configfile=traefik.yaml"]);
    eventually_ok("Traefik has read its routes", async || {
        let status = site.send("GET /orders", "").await.status;
        if status == 404 { Err("404".to_owned()) } else { Ok(()) }
    })
    .await;
    check(&mut site).await;
}

#[tokio::test]
async fn caddy_forwards_what_the_gateway_allows() {
    let site = Site::new("x-forwarded", true, WITH_SECRET);
    let shows = format!("uri /auth\nheader_up X-Forward-Auth-Secret {SECRET}");
    site.write("Caddyfile", |text| text.replace("uri /auth", &shows));
    let mut site = site.start(&installed("bin/caddy"), &["run", "--adapter", "caddyfile", "--config", "Caddyfile"]);
    check(&mut site).await;
}

#[tokio::test]
async fn envoy_forwards_what_the_gateway_allows() {
    let site = Site { replaces_forged: true, ..Site::new("prefix", true, WITH_SECRET) };
    let prefix = "path_prefix: /auth\n";
    let shows =
        format!("authorization_request: {{ headers_to_add: [{{ key: X-Forward-Auth-Secret, value: {SECRET} }}] }}");
    site.write("envoy.yaml", |text| text.replace(prefix, &format!("{prefix}{:24}{shows}\n", "")));
    let arguments = ["-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart", "-l", "error"];
    let mut site = site.start(&installed("envoy/_bin/envoy"), &arguments);
    check(&mut site).await;
}
