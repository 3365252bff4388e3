//! Who may ask.

use http::Method;

use super::{ROUTES, asking, gateway, with_config};
use crate::support::{Client, Gateway, source};

const SECRET: &str = "a-secret-of-thirty-two-characters";

/// A gateway with a file that has the secret.
fn with_secret(from: &str) -> (Gateway, crate::support::Upstream) {
    let upstream = crate::support::Upstream::start();
    let folder = std::sync::Arc::new(tempfile::TempDir::new().expect("a folder"));
    write_secret(folder.path(), SECRET);
    let more = format!(
        "{ROUTES}[forward_auth]\npath = \"/auth\"\ndialect = \"x-original\"\nsecret_file = \"proxy.secret\"\n{from}\n"
    );
    let text = Gateway::config_text(&upstream.address.to_string(), &more);
    (Gateway::in_folder(text, folder, std::sync::Arc::new(crate::support::clock::ManualClock::new())), upstream)
}

fn write_secret(folder: &std::path::Path, secret: &str) {
    bearward::types::secret::write_private(&folder.join("proxy.secret"), secret.as_bytes()).expect("written");
}

#[tokio::test]
async fn an_ordinary_client_cannot_ask() {
    let (gateway, upstream) = with_config(&format!(
        "{ROUTES}[forward_auth]\npath = \"/auth\"\ndialect = \"x-original\"\nfrom = [\"192.0.2.0/24\"]\n"
    ));
    let pair = gateway.issue("alice", "").await;
    let call = asking(&gateway, "GET", "/public").bearer(&pair.access).header("x-forward-auth-secret", SECRET);
    let response = call.get("/auth").await;
    response.assert_rejected(403, "forbidden");
    assert!(response.header("x-auth-subject").is_none());
    for method in [Method::POST, Method::HEAD, Method::DELETE] {
        assert_eq!(call.send(method, "/auth", bytes::Bytes::new()).await.status, 403);
    }
    let line = gateway.log_line(|line| line["reason"] == "auth_caller").await;
    // It says nothing about the request that it describes.
    assert_eq!((&line["client"], &line["path"]), (&"127.0.0.1".into(), &"/auth".into()), "{line}");
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_proxy_with_the_secret_may_ask() {
    for (from, status) in [("", 200), ("from = [\"127.0.0.1\"]", 200), ("from = [\"192.0.2.1\"]", 403)] {
        let (gateway, _upstream) = with_secret(from);
        let call = |secret: &str| asking(&gateway, "GET", "/public").header("x-forward-auth-secret", secret);
        assert_eq!(call(SECRET).get("/auth").await.status, status, "{from}");
        for wrong in ["", "x", &SECRET[1..]] {
            assert_eq!(call(wrong).get("/auth").await.status, 403, "{from} {wrong}");
        }
        assert_eq!(call(SECRET).header("x-forward-auth-secret", SECRET).get("/auth").await.status, 403);
        assert_eq!(asking(&gateway, "GET", "/public").get("/auth").await.status, 403);
    }
}

#[tokio::test]
async fn another_path_is_no_call() {
    let (gateway, upstream) = gateway("x-original");
    let pair = gateway.issue("alice", "").await;
    for path in ["/auth/", "/%61uth", "/auth/x", "/AUTH"] {
        // An ordinary request for this path, whatever its fields say.
        let call = asking(&gateway, "GET", "/public");
        call.get(path).await.assert_rejected(401, "unauthorized");
        assert_eq!(call.bearer(&pair.access).get(path).await.status, 200, "{path}");
        assert_eq!(upstream.seen().pop().expect("forwarded").target(), path);
    }
}

#[tokio::test]
async fn a_call_without_a_field_is_rejected() {
    let (gateway, _upstream) = gateway("x-original");
    let all = [
        ("x-original-method", "GET"),
        ("x-original-host", "api.example"),
        ("x-original-uri", "/public"),
        ("x-forwarded-for", "198.51.100.7"),
        ("x-forwarded-proto", "https"),
    ];
    let call = |fields: &[(&str, &str)]| {
        fields.iter().fold(gateway.client().proxy(), |client: Client, (name, value)| client.header(name, value))
    };
    assert_eq!(call(&all).get("/auth").await.status, 200);
    // What Traefik writes for a WebSocket.
    for proto in ["wss", "ws", "WSS"] {
        let fields = all.map(|(name, usual)| (name, if name == "x-forwarded-proto" { proto } else { usual }));
        assert_eq!(call(&fields).get("/auth").await.status, 200, "{proto}");
    }
    for (left_out, _) in all {
        let fields: Vec<_> = all.into_iter().filter(|(name, _)| *name != left_out).collect();
        call(&fields).get("/auth").await.assert_rejected(400, "invalid_request");
        let line = gateway.log_line(|line| line["detail"].as_str().is_some_and(|text| text.contains(left_out))).await;
        assert_eq!(line["reason"], "bad_auth_call", "{line}");
    }
    for (name, value) in [("x-forwarded-for", "unknown"), ("x-forwarded-proto", "ftp"), ("x-original-host", "a/b")] {
        let fields = all.map(|(other, usual)| (other, if other == name { value } else { usual }));
        call(&fields).get("/auth").await.assert_rejected(400, "invalid_request");
    }
}

/// The manifest names headers so that the gateway sees and rejects them.
#[tokio::test]
async fn every_header_that_a_manifest_names_for_it_is_rejected() {
    let (gateway, _upstream) = gateway("x-original");
    let manifest = source::read("deploy/beside/gateway-api-http.yaml");
    let (_, list) = manifest.split_once("# The gateway rejects a request with one of these.\n").expect("the comment");
    let names: Vec<_> = list.lines().map_while(|line| line.trim().strip_prefix("- ")).collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        let response = asking(&gateway, "GET", "/public").header(name, "root").get("/auth").await;
        assert_eq!(response.status, 400, "{name}: {response:?}");
    }
}

/// The gateway removes these headers from what it forwards. The proxy forwards what the client sent.
#[tokio::test]
async fn an_identity_header_in_any_spelling_is_rejected() {
    let (gateway, _upstream) = gateway("x-original");
    for (name, status) in [
        ("X_Auth_Subject", 400),
        ("x-auth_subject", 400),
        ("X.Auth.Tenant", 400),
        ("x_auth_observed", 400),
        ("X-HTTP-Method-Override", 400),
        ("x_http_method", 400),
        ("X-Auth-Subject", 400),
        ("x-auth-observed", 400),
        ("x_auth_subjects", 200),
        ("x_other", 200),
    ] {
        let response = asking(&gateway, "GET", "/public").header(name, "root").get("/auth").await;
        assert_eq!(response.status, status, "{name}: {response:?}");
    }
    let without_methods = ROUTES.replace("methods = [\"GET\", \"HEAD\"]\n", "");
    let (any_method, _upstream) = with_config(&format!(
        "{without_methods}[forward_auth]\npath = \"/auth\"\ndialect = \"x-original\"\nfrom = [\"127.0.0.1\"]\n"
    ));
    for (method, status) in [("DELETE", 200), ("trace", 400)] {
        let call = asking(&any_method, "GET", "/public").header("x-http-method-override", method);
        assert_eq!(call.get("/auth").await.status, status, "{method}");
    }
    let line = gateway.log_line(|line| line["detail"] == "x.auth.tenant").await;
    assert_eq!((&line["reason"], &line["path"]), (&"forged_header".into(), &"/public".into()), "{line}");
    assert_eq!(line["client"], "198.51.100.7", "{line}");
}

#[tokio::test]
async fn a_reload_reads_the_secret_again() {
    let (gateway, _upstream) = with_secret("");
    let status = async |secret: &str| {
        let call = asking(&gateway, "GET", "/public").header("x-forward-auth-secret", secret);
        call.get("/auth").await.status.as_u16()
    };
    let other = SECRET.replace("thirty", "THIRTY");
    assert_eq!((status(SECRET).await, status(&other).await), (200, 403));
    write_secret(gateway.path(), &other);
    let reloaded = gateway.running().reload(gateway.config()).expect("it reloads");
    assert_eq!((reloaded.active.as_slice(), reloaded.requires_restart.as_slice()), (&["forward_auth"][..], &[][..]));
    assert_eq!((status(SECRET).await, status(&other).await), (403, 200));
    let text = gateway.configuration().replace("path = \"/auth\"", "path = \"/asked\"");
    let moved = bearward::config::parse(&text, gateway.path(), bearward::config::Probe::None).expect("valid");
    gateway.running().reload(moved).expect("it reloads");
    assert_eq!(status(&other).await, 401, "an ordinary request now");
}
