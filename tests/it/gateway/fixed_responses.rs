//! `[route.respond]` and `[maintenance]`: responses without a backend.

use bearward::config::{self, Config, Probe};
use http::Method;

use crate::support::client::send_raw;
use crate::support::{Gateway, TokenPair, Upstream};

const ROUTES: &str = "
[[route]]
path = \"/\"
[[route]]
path = \"/gone\"
public = true
[route.respond]
status = 410
body = \"<p>gone\"
content_type = \"text/html\"
retry_after = \"90s\"
[route.response_headers]
set = [\"Location: https://new.example/\"]
[route.cors]
origins = [\"https://app.example\"]
[[route]]
path = \"/secret\"
[route.respond]
status = 204
";

#[tokio::test]
async fn a_route_responds_without_a_backend() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let pair = gateway.issue("alice", "").await;
    for client in gateway.clients() {
        for method in [Method::GET, Method::POST, Method::HEAD] {
            let body = if method == Method::POST { "a body that is not read" } else { "" };
            let response = client.send(method.clone(), "/gone/a", body.into()).await;
            assert_eq!(response.status, 410, "{method}");
            assert_eq!(response.text(), if method == Method::HEAD { "" } else { "<p>gone" });
            let fields = ["content-type", "retry-after", "location"].map(|name| response.header(name));
            assert_eq!(fields, [Some("text/html"), Some("90"), Some("https://new.example/")]);
        }
        client.get("/secret").await.assert_rejected(401, "unauthorized");
        let response = client.clone().bearer(&pair.access).get("/secret").await;
        assert_eq!((response.status.as_u16(), response.text()), (204, String::new()));
    }
    assert!(upstream.seen().is_empty());
}

/// The rest of the body must not be read as a request.
#[tokio::test]
async fn an_unread_body_ends_the_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    let length = hidden.len() + 100_000;
    let request = format!("POST /gone HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{hidden}");
    let response = send_raw(gateway.address(), request.as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 410") && response.contains("connection: close"), "{response}");
    assert_eq!(response.matches("HTTP/1.1").count(), 1, "{response}");
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn pages_of_other_origins_can_read_a_fixed_response() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    for client in gateway.clients() {
        for (origin, allowed) in [("https://app.example", Some("https://app.example")), ("https://evil.example", None)]
        {
            let client = client.clone().header("Origin", origin);
            assert_eq!(client.get("/gone").await.header("access-control-allow-origin"), allowed);
            let client = client.header("Access-Control-Request-Method", "PUT");
            let preflight = client.send(Method::OPTIONS, "/gone", "".into()).await;
            assert_eq!(preflight.header("access-control-allow-origin"), allowed);
            assert_eq!(preflight.status.is_success(), allowed.is_some(), "{preflight:?}");
        }
    }
}

const PAUSED: &str = "
[[route]]
path = \"/\"
[[route]]
path = \"/status\"
public = true
maintenance = false
[maintenance]
enabled = false
retry_after = \"10m\"
[cors]
origins = [\"https://app.example\"]
";

fn parsed(gateway: &Gateway, text: &str) -> Config {
    config::parse(text, gateway.path(), Probe::None).expect("a valid configuration")
}

#[tokio::test]
async fn a_reload_turns_maintenance_on_and_off() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, PAUSED);
    let pair = gateway.issue("alice", "").await;
    let off = gateway.configuration().to_owned();
    let on = off.replace("enabled = false", "enabled = true");
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    gateway.running().reload(parsed(&gateway, &on)).expect("reloaded");
    for client in gateway.clients() {
        for token in [None, Some(pair.access.as_str()), Some("malformed")] {
            let client = token.map_or(client.clone(), |token| client.clone().bearer(token));
            let response = client.header("Origin", "https://app.example").get("/orders").await;
            response.assert_rejected(503, "temporarily_unavailable");
            assert_eq!(response.header("retry-after"), Some("600"));
            assert_eq!(response.header("access-control-allow-origin"), Some("https://app.example"));
        }
        assert_eq!(client.get("/status").await.status, 200, "this route goes on");
    }
    let refreshed = gateway.refresh(&pair.access, &pair.refresh).await;
    assert_eq!(refreshed.status, 200, "own calls work on");
    let pair = TokenPair::from_json(&refreshed.json());
    assert_eq!(gateway.log_line(|line| line["status"] == 503).await["reason"], "maintenance");
    gateway.running().reload(parsed(&gateway, &off)).expect("reloaded");
    assert_eq!(gateway.status_of(&pair.access).await, 200);
}

#[tokio::test]
async fn maintenance_has_a_page_for_browsers() {
    let upstream = Upstream::start();
    let page = "enabled = true\nbody = \"<p>Back at 14:00\"\ncontent_type = \"text/html\"";
    let gateway = Gateway::with_config(&upstream, &PAUSED.replace("enabled = false", page));
    for client in gateway.clients() {
        let response = client.get("/").await;
        let fields = ["content-type", "retry-after", "cache-control"].map(|name| response.header(name));
        assert_eq!(fields, [Some("text/html"), Some("600"), Some("no-store")]);
        assert_eq!((response.status.as_u16(), response.text().as_str()), (503, "<p>Back at 14:00"));
        let problem = client.clone().header("Accept", "application/problem+json").get("/").await;
        assert_eq!(problem.json()["error"], "temporarily_unavailable");
        assert_eq!(client.send(Method::HEAD, "/", "".into()).await.text(), "");
    }
}
