//! Each configuration in `deploy/examples` starts, and does what it is for.

use std::fs;
use std::net::SocketAddr;

use bearward::config::{self, Probe};
use bearward::protocols::http::parameters;
use bearward::tokens::jwt::Algorithm;
use bearward::types::secret::write_private;
use http::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::support::certificates::Authority;
use crate::support::files::{names, write_certificates};
use crate::support::program::{GatewayProcess, Program};
use crate::support::source;
use crate::support::tokens::Mint;
use crate::support::visitor::{Visitor, parameter, shown_scopes};
use crate::support::wait::eventually_ok;
use crate::support::{Client, KeyServer, OidcProvider, ScriptedBackend, TokenPair, Upstream};

/// RFC 7636 appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// The value of a hidden field.
fn field(html: &str, name: &str) -> String {
    let rest = html.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("no {name} in {html}")).1;
    rest.split('"').next().expect("a value").to_owned()
}

/// A gateway that runs an example.
struct Example {
    served: GatewayProcess,
    folder: TempDir,
}

/// Starts an example on free ports, in a folder of its own, with `backend` as its only server. `replace`: more parts
/// that exist only where the example is used.
async fn start(name: &str, backend: SocketAddr, replace: &[(&str, &str)]) -> Example {
    start_with(name, backend, replace, |_| {}).await
}

/// As [`start`], with more files.
async fn start_with(
    name: &str,
    backend: SocketAddr,
    replace: &[(&str, &str)],
    prepare: impl FnOnce(&TempDir),
) -> Example {
    let folder = TempDir::new().expect("a folder");
    write_certificates(&Authority::new(), &folder.path().join("tls"));
    prepare(&folder);
    let mut text = source::read(format!("deploy/examples/{name}"));
    for (old, new) in replace {
        assert!(text.contains(old), "{name}: {old} is gone");
        text = text.replace(old, new);
    }
    text = text.replace("/var/lib/bearward/", "");
    let lines = text.lines().map(|line| match line.split_once(" = ") {
        Some(("address", _)) => "address = \"127.0.0.1:0\"".to_owned(),
        Some(("servers", _)) => format!("servers = [\"http://{backend}\"]"),
        _ => line.to_owned(),
    });
    let mut text = lines.collect::<Vec<_>>().join("\n");
    if !text.contains("[admin]\naddress") {
        text = text.replace("[admin]", "[admin]\naddress = \"127.0.0.1:0\"");
    }
    text.push('\n');
    fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let path = folder.path().to_owned();
    let serving =
        tokio::task::spawn_blocking(move || GatewayProcess::wait_for(Program::start(&path, &["serve"]), &path));
    Example { served: serving.await.expect("it starts"), folder }
}

impl Example {
    /// HTTP/1.1 over TLS.
    fn client(&self) -> Client {
        self.over_tls(Client::http1(self.served.addresses[0]))
    }

    fn over_tls(&self, client: Client) -> Client {
        client.over_tls(&self.folder.path().join("tls/ca.pem")).server_name("gateway.example")
    }

    async fn issue(&self, scope: &str) -> String {
        let answer =
            self.served.admin_client().post("/admin/v1/tokens", &json!({ "sub": "alice", "scope": scope })).await;
        TokenPair::from_json(&answer.json()).access
    }
}

#[test]
fn every_example_has_a_test() {
    let names = names(&source::root().join("deploy/examples"));
    assert_eq!(
        names,
        [
            "authorize.toml",
            "behind-a-balancer.toml",
            "browser-app-elsewhere.toml",
            "browser-app.toml",
            "grpc.toml",
            "several-issuers.toml",
            "sign-in.toml"
        ]
    );
}

/// Operators copy the examples.
#[test]
fn no_example_has_a_warning() {
    let folder = TempDir::new().expect("a folder");
    write_certificates(&Authority::new(), &folder.path().join("tls"));
    fs::create_dir(folder.path().join("keys")).expect("a folder");
    fs::write(folder.path().join("keys/partner.json"), Mint::new(Algorithm::ES256).jwks()).expect("written");
    write_private(&folder.path().join("login.secret"), b"not a secret").expect("written");
    for name in names(&source::root().join("deploy/examples")) {
        let text = source::read(format!("deploy/examples/{name}")).replace("/var/lib/bearward/", "");
        let (_, warnings) = config::parse_with_warnings(&text, folder.path(), Probe::None).expect("a valid example");
        assert!(warnings.is_empty(), "{name}: {}", warnings.render(false));
    }
}

#[tokio::test]
async fn the_example_behind_a_balancer_sees_the_clients_address() {
    let upstream = Upstream::start();
    let example = start("behind-a-balancer.toml", upstream.address, &[("10.0.0.0/24", "127.0.0.0/8")]).await;
    let token = example.issue("").await;
    let balancer =
        example.served.client().header("x-forwarded-for", "198.51.100.7").header("x-forwarded-proto", "https");
    assert_eq!(balancer.clone().bearer(&token).get("/orders/1").await.status, 200);
    let seen = upstream.seen().into_iter().find(|seen| seen.uri == "/orders/1").expect("the request arrived");
    assert_eq!(seen.header("x-forwarded-for"), Some("198.51.100.7"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.header("x-auth-subject"), Some("alice"));
    balancer.get("/orders/1").await.assert_rejected(401, "unauthorized");
    assert_eq!(Client::http1(example.served.admin).host("localhost").get("/readyz").await.status, 200);
}

#[tokio::test]
async fn the_example_for_a_browser_app_logs_in_and_out() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        while let Some(head) = wire.try_read_until("\r\n\r\n").await {
            let subject = if head.starts_with("POST /login ") { "X-Bearward-Subject: alice\r\n" } else { "" };
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{subject}Content-Length: 16\r\n\r\n");
            wire.send(format!("{head}{}", r#"{"name":"Alice"}"#).as_bytes()).await;
        }
    });
    let example = start("browser-app.toml", backend.address, &[]).await;
    let client = example.client();
    assert_eq!(client.get("/app.js").await.status, 200);
    client.get("/api/orders").await.assert_rejected(401, "unauthorized");
    client.get("/live").await.assert_rejected(401, "unauthorized");
    client.send(http::Method::POST, "/", bytes::Bytes::new()).await.assert_rejected(405, "invalid_request");

    let answer = client.send(http::Method::POST, "/login", bytes::Bytes::new()).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["name"]), (200, &json!("Alice")));
    let pair = TokenPair::from_json(&answer.json());
    let user = client.clone().bearer(&pair.access);
    let answer = user.get("/api/orders").await;
    assert_eq!(answer.status, 200);
    assert!(answer.header("ratelimit").is_some_and(|limit| limit.contains("r=599")), "{answer:?}");
    let answer = user.post("/user/refresh", &json!({ "refreshToken": pair.refresh })).await;
    let next = TokenPair::from_json(&answer.json());
    let user = client.bearer(&next.access);
    assert_eq!(user.send(http::Method::POST, "/logout", bytes::Bytes::new()).await.status, 200);
    user.get("/api/orders").await.assert_rejected(401, "invalid_token");
}

#[tokio::test]
async fn the_example_for_a_browser_app_elsewhere_does_cors() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        while wire.try_read_until("\r\n\r\n").await.is_some() {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Bearward-Subject: alice\r\n";
            wire.send(format!("{head}Content-Length: 2\r\n\r\n{{}}").as_bytes()).await;
        }
    });
    let example = start("browser-app-elsewhere.toml", backend.address, &[]).await;
    let page = example.client().header("origin", "https://app.example");
    for (method, path) in [("POST", "/login"), ("POST", "/user/refresh"), ("POST", "/oauth/token"), ("PUT", "/a")] {
        let preflight = page.clone().header("access-control-request-method", method);
        let granted = preflight.send(http::Method::OPTIONS, path, bytes::Bytes::new()).await;
        assert_eq!(granted.status, 204, "{path}: {granted:?}");
    }
    let answer = page.send(http::Method::POST, "/login", bytes::Bytes::new()).await;
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    let pair = TokenPair::from_json(&answer.json());
    assert_eq!(page.clone().bearer(&pair.access).get("/orders").await.status, 200);
    let rejected = page.get("/orders").await;
    assert_eq!((rejected.status.as_u16(), rejected.headers.contains_key("access-control-allow-origin")), (401, true));
}

#[tokio::test]
async fn the_example_for_grpc_checks_scopes_by_method() {
    let upstream = Upstream::start_http2();
    let example = start("grpc.toml", upstream.address, &[]).await;
    let token = example.issue("orders:read").await;
    let client = example.over_tls(Client::http2(example.served.addresses[0]));
    let client = client.header("content-type", "application/grpc");
    let reader = client.clone().bearer(&token);
    for (client, path, status) in [
        (&client, "/shop.Orders/List", Some("16")),
        (&reader, "/shop.Orders/List", None),
        (&reader, "/shop.Orders/Cancel", Some("7")),
        (&client, "/grpc.health.v1.Health/Check", None),
        (&reader, "/shop.Other/List", Some("12")),
    ] {
        let answer = client.send(http::Method::POST, path, bytes::Bytes::new()).await;
        assert_eq!((answer.status.as_u16(), answer.header("grpc-status")), (200, status), "{path}: {answer:?}");
    }
    assert!(upstream.seen().iter().all(|seen| seen.version == http::Version::HTTP_2));
}

#[tokio::test]
async fn the_example_with_several_issuers_accepts_each_where_it_may() {
    let upstream = Upstream::start();
    let (employer, partner) = (Mint::new(Algorithm::ES256), Mint::new(Algorithm::ES256));
    let keys = KeyServer::start(&[&employer]);
    let replace = [("https://login.example/.well-known/jwks.json", &*keys.url("/keys"))];
    let example = start_with("several-issuers.toml", upstream.address, &replace, |folder| {
        fs::create_dir(folder.path().join("keys")).expect("created");
        fs::write(folder.path().join("keys/partner.json"), partner.jwks()).expect("written");
    })
    .await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let roles = json!({ "realm_access": { "roles": ["orders-admin"] }, "scope": "catalog:read" });
    let administrator = employer.with_claims(now, roles);
    let employee = employer.with_header(now, json!({ "typ": "JWT" }));
    let merchant = partner.with_claims(now, json!({ "iss": "https://partner.example", "scope": "catalog:read" }));
    let own = example.issue("").await;
    for (who, token, expected) in [
        ("administrator", &administrator, [200, 200, 200]),
        ("employee", &employee, [200, 403, 403]),
        ("merchant", &merchant, [401, 200, 401]),
        ("own", &own, [200, 403, 401]),
    ] {
        let client = example.client().bearer(token);
        for (path, status) in ["/", "/catalog/1", "/admin/users"].into_iter().zip(expected) {
            let answer = client.get(path).await;
            assert_eq!(answer.status.as_u16(), status, "{who} {path}: {answer:?}");
        }
    }
}

/// At npm's `oidc-provider`. The story speaks HTTP to the gateway, as a proxy that ends TLS.
#[tokio::test]
async fn the_example_for_sign_in_signs_in_and_out() {
    const APP: &str = "https://app.example";
    let client = json!({
        "client_id": "bearward", "client_secret": "of the gateway", "scope": "openid email offline_access groups",
        "grant_types": ["authorization_code", "refresh_token"],
        "redirect_uris": [format!("{APP}/oauth2/callback/login")],
        "post_logout_redirect_uris": [format!("{APP}/oauth2/signed_out")],
    });
    let provider = OidcProvider::start(&json!({
        "clients": [client], "scopes": ["openid", "email", "offline_access", "groups"],
        "accounts": {
            "alice": { "email": "alice@example.com", "email_verified": true, "groups": ["staff"] },
            "bob": { "email": "bob@example.com", "email_verified": true, "groups": ["sales"] },
            "eve": { "email": "eve@other.example", "email_verified": true, "groups": ["staff"] },
        },
    }));
    let upstream = Upstream::start();
    let tls = "tls = { certificate = \"tls/fullchain.pem\", key = \"tls/key.pem\" }";
    let replace = [("https://login.example", &*provider.issuer), (tls, "tls = \"off\"")];
    let example = start_with("sign-in.toml", upstream.address, &replace, |folder| {
        write_private(&folder.path().join("login.secret"), b"of the gateway").expect("written");
    })
    .await;
    let visitor = || Visitor::at(example.served.addresses[0]);
    eventually_ok("the gateway knows the provider", async || match visitor().load(&format!("{APP}/")).await.status {
        status if status == 302 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    assert_eq!(visitor().load(&format!("{APP}/public/a")).await.status, 200);
    for (name, page, admin) in [("alice", 200, 200), ("bob", 200, 403), ("eve", 403, 401)] {
        provider.control("/account", &json!({ "account": name })).await;
        let mut user = visitor();
        assert_eq!(user.navigate(&format!("{APP}/orders")).await.status.as_u16(), page, "{name}: {:#?}", user.way);
        assert_eq!(user.fetch(&format!("{APP}/admin/x")).await.status.as_u16(), admin, "{name}");
        if page == 200 {
            let seen = upstream.seen().into_iter().rfind(|seen| seen.target() == "/orders").expect("it arrived");
            assert_eq!(seen.header("x-auth-subject"), Some(&*format!("login|{name}")));
            assert_eq!(seen.header("x-auth-email"), Some(&*format!("{name}@example.com")));
            let ended = user.submit(&format!("{APP}/oauth2/sign_out"), "").await;
            assert!(ended.header("location").is_some_and(|at| at.starts_with(&provider.issuer)), "{ended:?}");
            assert_eq!(user.fetch(&format!("{APP}/orders")).await.status, 401, "{name}");
        }
    }
}

/// An assistant that registers itself, a command line, a mobile app and a single-page app, at npm's `oidc-provider`.
/// The story speaks HTTP, as a proxy that ends TLS.
#[tokio::test]
async fn the_example_for_an_authorization_server_gives_each_kind_of_client_its_tokens() {
    const SITE: &str = "https://app.example";
    let client = json!({
        "client_id": "bearward", "client_secret": "of the gateway",
        "redirect_uris": [format!("{SITE}/oauth2/callback/login")],
    });
    let accounts = json!({ "alice": { "email": "alice@example.com" } });
    let provider = OidcProvider::start(&json!({ "clients": [client], "accounts": accounts, "account": "alice" }));
    let upstream = Upstream::start();
    let tls = "tls = { certificate = \"tls/fullchain.pem\", key = \"tls/key.pem\" }";
    let replace =
        [("https://login.example", &*provider.issuer), ("https://mcp.example.com", SITE), (tls, "tls = \"off\"")];
    let example = start_with("authorize.toml", upstream.address, &replace, |folder| {
        write_private(&folder.path().join("login.secret"), b"of the gateway").expect("written");
    })
    .await;
    let mut alice = Visitor::at(example.served.addresses[0]);
    eventually_ok("the gateway knows the provider", async || {
        let started = Visitor::at(example.served.addresses[0]).load(&format!("{SITE}/oauth2/sign_in/login")).await;
        if started.status == 302 { Ok(()) } else { Err(started.status.to_string()) }
    })
    .await;
    let metadata = json!({ "redirect_uris": ["http://127.0.0.1/callback"], "client_name": "A program" });
    let http = || Client::http1(example.served.addresses[0]).host("app.example");
    let registered = http().post("/oauth/register", &metadata).await.json();
    let id = registered["client_id"].as_str().expect("an id");
    for (id, redirect_uri, is_asked) in [
        (id, "http://127.0.0.1:7777/callback", true),
        ("notes-cli", "http://127.0.0.1:8888/callback", true),
        ("notes-mobile", "com.example.notes:/callback", true),
        ("notes-app", "https://app.example.com/callback", false),
    ] {
        let query = parameters::write([
            ("response_type", "code"),
            ("client_id", id),
            ("redirect_uri", redirect_uri),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
        ]);
        let url = format!("{SITE}/oauth/authorize?{query}");
        let answer = if is_asked {
            let html = alice.navigate(&url).await.text();
            for shown in ["alice@example.com", "https://app.example/mcp", "Read your notes"] {
                assert!(html.contains(shown), "{shown} in {html}");
            }
            let [request, session] = ["request", "session"].map(|name| field(&html, name));
            let own = [("request", &*request), ("session", &*session), ("decision", "allow")];
            let form = parameters::write(own.into_iter().chain(shown_scopes(&html)));
            let response = alice.submit(&format!("{SITE}/oauth/consent"), &form).await;
            response.header("location").unwrap_or_else(|| panic!("{id}: {}", response.text())).to_owned()
        } else {
            alice.navigate_until(&url, redirect_uri).await
        };
        assert!(answer.starts_with(redirect_uri), "{id}: {answer}");
        let form = parameters::write([
            ("grant_type", "authorization_code"),
            ("code", &*parameter(&answer, "code").expect("a code")),
            ("client_id", id),
            ("code_verifier", VERIFIER),
        ]);
        let client = http().header("content-type", "application/x-www-form-urlencoded");
        let tokens = client.send(Method::POST, "/oauth/token", form.into()).await;
        assert_eq!(tokens.status, 200, "{id}: {}", tokens.text());
        let access = tokens.json()["access_token"].as_str().expect("a token").to_owned();
        assert_eq!(http().bearer(&access).get("/mcp").await.status, 200, "{id}");
    }
}
