//! `[forward_auth]`: calls as proxies make them. `proxies` has the real ones.

mod callers;
mod check;
mod connections;
mod ext_authz;
mod limits;
mod proxies;

use bearward::config::{Probe, parse_with_warnings};
use http::Method;
use serde_json::json;

use crate::support::{Client, Gateway, TestResponse, Upstream};

const ROUTES: &str = r#"
[[route]]
path = "/public"
public = true
[[route]]
path = "/orders"
scopes = ["orders"]
methods = ["GET", "HEAD"]
[[route]]
path = "/observed"
enforce = false
[[route]]
path = "/replaced"
token = "replace"
token_audience = ["https://orders.internal"]
[[route]]
path = "/dropped"
token = "drop"
[[route]]
path = "/login"
login = true
public = true
[[route]]
path = "/fixed"
public = true
[route.respond]
status = 410
[[route]]
path = "/site"
token_from = ["cookie:session", "websocket", "query:access"]
[[route]]
path = "/pages"
[route.cors]
origins = ["https://app.example"]
[[route]]
path = "/"
[[identity.claim]]
pointer = "/tenant"
header = "X-Auth-Tenant"
"#;

const NAMES: [&str; 6] =
    ["x-auth-subject", "x-auth-scope", "x-auth-token-id", "x-auth-issuer", "x-auth-tenant", "x-auth-observed"];

/// A gateway that this machine may ask, and a backend that must stay silent.
fn gateway(dialect: &str) -> (Gateway, Upstream) {
    with_config(&format!("{ROUTES}[forward_auth]\npath = \"/auth\"\ndialect = \"{dialect}\"\nfrom = [\"127.0.0.1\"]\n"))
}

fn with_config(more: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::start();
    (Gateway::with_config(&upstream, more), upstream)
}

/// The client that a proxy names, and the scheme.
fn named(client: Client) -> Client {
    client.proxy().header("x-forwarded-for", "198.51.100.7").header("x-forwarded-proto", "https")
}

/// A call in the dialect `x-original`.
fn asking(gateway: &Gateway, method: &str, target: &str) -> Client {
    let client = named(gateway.client()).header("x-original-method", method);
    client.header("x-original-host", "api.example").header("x-original-uri", target)
}

async fn ask(gateway: &Gateway, token: &str, method: &str, target: &str) -> TestResponse {
    asking(gateway, method, target).bearer(token).get("/auth").await
}

fn identity(response: &TestResponse) -> [Option<&str>; 6] {
    NAMES.map(|name| response.header(name))
}

#[tokio::test]
async fn each_dialect_describes_the_same_request() {
    for dialect in ["x-forwarded", "x-original", "prefix"] {
        let (gateway, upstream) = gateway(dialect);
        let pair = gateway.issue("alice", "orders").await;
        let client = named(gateway.client()).bearer(&pair.access);
        let response = match dialect {
            "prefix" => client.host("api.example").get("/auth/orders/7?a=b").await,
            _ => {
                let names = ["method", "host", "uri"].map(|name| format!("{}-{name}", dialect.replace("x-f", "X-F")));
                let values = ["GET", "api.example", "/orders/7?a=b"];
                let client = names.iter().zip(values).fold(client, |client, (name, value)| client.header(name, value));
                client.get("/auth?c=d").await
            }
        };
        assert_eq!((response.status.as_u16(), response.text().as_str()), (200, ""), "{dialect}: {response:?}");
        let issuer = crate::support::gateway::ISSUER;
        let expected = ["alice", "orders", &pair.token_id, issuer, "", ""].map(Some);
        assert_eq!(identity(&response), expected, "{dialect}");
        assert!(response.header("x-request-id").is_some_and(|id| id.len() == 32));

        let line = gateway.log_line(|line| line["path"] == "/orders/7").await;
        for (member, value) in
            [("method", "GET"), ("host", "api.example"), ("client", "198.51.100.7"), ("route", "/orders")]
        {
            assert_eq!(line[member], value, "{dialect}: {line}");
        }
        assert_eq!((&line["status"], &line["subject"]), (&json!(200), &json!("alice")), "{line}");
        assert!(upstream.seen().is_empty(), "{dialect}: nothing is forwarded");
    }
}

#[tokio::test]
async fn a_rejection_is_the_one_of_the_request_itself() {
    let (gateway, upstream) = gateway("x-original");
    let [read, other] = [gateway.issue("alice", "orders").await, gateway.issue("bob", "").await];
    for (token, method, target, status, reason) in [
        ("", "GET", "/orders", 401, "no_token"),
        ("x.y.z", "GET", "/orders", 401, "malformed_token"),
        (other.access.as_str(), "GET", "/orders", 403, "insufficient_scope"),
        (&read.access, "DELETE", "/orders", 405, "method_not_allowed"),
        (&read.access, "GET", "/orders/../stock", 400, "bad_path"),
        (&read.access, "GET", "/orders/%2e%2e/stock", 400, "bad_path"),
        (&read.access, "GET", "/public/..%2forders", 400, "bad_path"),
        (&read.access, "GET", "//orders", 400, "bad_path"),
        (&read.access, "GET", "/public;/../orders", 400, "bad_path"),
        (&read.access, "GET", "/public#/../orders", 400, "bad_auth_call"),
        (&read.access, "GET", "http://api.example/orders", 400, "bad_auth_call"),
        (&read.access, "CONNECT", "/orders", 400, "bad_auth_call"),
        (&read.access, "POST", "/user/refresh", 501, "through_gateway_only"),
        (&read.access, "DELETE", "/token/x", 501, "through_gateway_only"),
        (&read.access, "GET", "/.well-known/jwks.json", 501, "through_gateway_only"),
        (&read.access, "POST", "/login", 501, "through_gateway_only"),
        (&read.access, "GET", "/fixed", 501, "through_gateway_only"),
    ] {
        let client = asking(&gateway, method, target);
        let client = if token.is_empty() { client } else { client.bearer(token) };
        let response = client.get("/auth").await;
        assert_eq!(response.status, status, "{method} {target}: {response:?}");
        assert_eq!(response.json()["status"], status, "{method} {target}");
        let id = response.json()["requestId"].clone();
        let line = gateway.log_line(|line| line["request_id"] == id).await;
        assert_eq!(line["reason"], reason, "{method} {target}");
        assert_eq!(
            response.header("www-authenticate").is_some(),
            matches!(reason, "no_token" | "malformed_token" | "insufficient_scope"),
            "{response:?}"
        );
        assert!(NAMES.iter().all(|name| response.header(name).is_none()), "{response:?}");
    }
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_200_has_every_identity_header() {
    let (gateway, _upstream) = gateway("x-original");
    let pair = gateway.issue("alice", "").await;
    let nothing = [Some(""); 6];
    for name in NAMES {
        let forged = asking(&gateway, "GET", "/public/a").header(name, "forged").get("/auth").await;
        forged.assert_rejected(400, "invalid_request");
    }
    let response = asking(&gateway, "GET", "/public/a").get("/auth").await;
    assert_eq!((response.status.as_u16(), identity(&response)), (200, nothing), "{response:?}");
    // A route that does not enforce says so.
    let response = ask(&gateway, "x.y.z", "GET", "/observed").await;
    let mut observed = nothing;
    observed[5] = Some("malformed_token");
    assert_eq!((response.status.as_u16(), identity(&response)), (200, observed), "{response:?}");
    let response = ask(&gateway, &pair.access, "GET", "/observed").await;
    assert_eq!(identity(&response)[..2], [Some("alice"), Some("")], "{response:?}");
}

#[tokio::test]
async fn authorization_is_what_the_backend_is_to_get() {
    let (gateway, _upstream) = gateway("x-original");
    let pair = gateway.issue("alice", "").await;
    let own = format!("Bearer {}", pair.access);
    let authorization = async |target: &str| {
        let response = ask(&gateway, &pair.access, "GET", target).await;
        assert_eq!(response.status, 200, "{response:?}");
        response.header("authorization").expect("always there").to_owned()
    };
    assert_eq!(authorization("/passed").await, own);
    assert_eq!(authorization("/dropped").await, "");
    let replaced = authorization("/replaced").await;
    let claims = crate::support::tokens::claims_of(replaced.strip_prefix("Bearer ").expect("a token"));
    assert_eq!((&claims["sub"], &claims["aud"]), (&json!("alice"), &json!("https://orders.internal")));
    let in_query = asking(&gateway, "GET", &format!("/site?access={}", pair.access)).get("/auth").await;
    assert_eq!(in_query.header("authorization"), Some(own.as_str()), "{in_query:?}");
}

/// The proxy takes the status of the call. A gRPC call is rejected with the status 200.
#[tokio::test]
async fn a_rejected_grpc_call_is_not_a_200() {
    let (gateway, _upstream) = gateway("prefix");
    let client = named(Client::http2(gateway.address())).host("api.example").header("content-type", "application/grpc");
    let response = client.send(Method::POST, "/auth/stock", bytes::Bytes::new()).await;
    assert_eq!(response.status, 401, "{response:?}");
    assert!(response.header("grpc-status").is_none() && response.header("www-authenticate").is_some());
}

/// Proxies keep `Upgrade` from the call. Without it, the handshake would be an ordinary GET.
#[tokio::test]
async fn a_websocket_of_another_site_is_rejected() {
    let (gateway, _upstream) = gateway("x-original");
    let pair = gateway.issue("alice", "").await;
    let cookie = format!("session={}", pair.access);
    for (key, origin, status) in [
        (None, "https://evil.example", 200),
        (Some("x"), "https://evil.example", 403),
        (Some("x"), "https://api.example", 200),
    ] {
        let client = asking(&gateway, "GET", "/site/live").header("cookie", &cookie).header("origin", origin);
        let client = key.into_iter().fold(client, |client, key| client.header("sec-websocket-key", key));
        assert_eq!(client.get("/auth").await.status, status, "{key:?} {origin}");
    }
    let protocols = format!("bearer, {}", pair.access);
    let handshake = asking(&gateway, "GET", "/site/live").header("sec-websocket-protocol", &protocols);
    let response = handshake.header("sec-websocket-version", "13").get("/auth").await;
    assert_eq!((response.status.as_u16(), response.header("x-auth-subject")), (200, Some("alice")), "{response:?}");
}

#[tokio::test]
async fn a_preflight_that_the_gateway_answers_is_rejected() {
    let (gateway, _upstream) = gateway("x-original");
    let preflight = asking(&gateway, "OPTIONS", "/pages").header("origin", "https://app.example");
    let response = preflight.header("access-control-request-method", "GET").get("/auth").await;
    response.assert_rejected(501, "invalid_request");
}

#[tokio::test]
async fn a_head_request_is_asked_about_with_get() {
    let (gateway, _upstream) = gateway("x-original");
    let pair = gateway.issue("alice", "orders").await;
    assert_eq!(ask(&gateway, &pair.access, "HEAD", "/orders").await.status, 200);
    for method in [Method::HEAD, Method::POST, Method::OPTIONS] {
        let client = asking(&gateway, "GET", "/orders").bearer(&pair.access);
        let response = client.send(method.clone(), "/auth", bytes::Bytes::new()).await;
        assert_eq!((response.status.as_u16(), response.header("allow")), (405, Some("GET")), "{method}");
    }
}

#[test]
fn the_configuration_beside_a_proxy_is_valid() {
    let text = crate::support::source::read("deploy/beside/gateway.toml");
    let folder = tempfile::tempdir().expect("a folder");
    for dialect in ["x-original", "x-forwarded", "prefix", "ext_authz_grpc"] {
        let text = text.replace("dialect = \"x-original\"", &format!("dialect = \"{dialect}\""));
        // The page says so.
        let text = if dialect == "ext_authz_grpc" { text.replace("path = \"/auth\"\n", "") } else { text };
        let (config, warnings) = parse_with_warnings(&text, folder.path(), Probe::None).expect("valid");
        assert!(config.forward_auth.is_some() && warnings.all().is_empty(), "{}", warnings.render(false));
    }
}
