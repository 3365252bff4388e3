//! The times of a request, by server and route: metrics and the access log.

use std::net::SocketAddr;

use bearward::config::{self, Probe};
use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::support::ports::ClosedPort;
use crate::support::wait::eventually_ok;
use crate::support::{Client, Gateway, Upstream};

fn reload(gateway: &Gateway, text: &str) {
    let config = config::parse(text, gateway.path(), Probe::None).expect("a good configuration");
    gateway.running().reload(config).expect("it reloads");
}

async fn wait_for(gateway: &Gateway, route: &str, status: &str, count: f64) {
    let name = format!("bearward_route_requests_total{{route=\"{route}\",status=\"{status}\"}}");
    eventually_ok(&format!("{name} is {count}"), async || {
        let seen = gateway.metric(&name).await;
        if seen == count { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn requests_are_counted_by_route_over_a_reload() {
    let upstream = Upstream::start();
    let routes = "[[route]]\nname = \"orders\"\npath = \"/orders/\"\npublic = true\n[[route]]\npath = \"/\"\n";
    let gateway = Gateway::with_config(&upstream, routes);
    gateway.client().get("/orders/1").await;
    gateway.client().get("/").await.assert_rejected(401, "unauthorized");
    gateway.client().get("/a/%2e%2e/").await.assert_rejected(400, "invalid_request");
    wait_for(&gateway, "orders", "2xx", 1.0).await;
    wait_for(&gateway, "/", "4xx", 1.0).await;

    let renamed = gateway.configuration().replace("path = \"/\"\n", "name = \"rest\"\npath = \"/\"\n");
    reload(&gateway, &renamed);
    gateway.client().get("/orders/2").await;
    gateway.client().get("/").await.assert_rejected(401, "unauthorized");
    wait_for(&gateway, "orders", "2xx", 2.0).await;
    wait_for(&gateway, "rest", "4xx", 1.0).await;
    let page = gateway.admin_client().get("/metrics").await.text();
    assert!(!page.contains("{route=\"/\""), "a route that is gone has no metric");
}

/// `/slow` waits for a second.
#[tokio::test]
async fn the_time_of_the_backend_is_not_that_of_the_gateway() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    assert_eq!(gateway.client().get("/slow").await.status, 200);
    let line = gateway.log_lines(1).await.remove(0);
    let micros = |name: &str| line[name].as_u64().unwrap_or_else(|| panic!("{name} in {line}"));
    assert!(micros("backend_us") >= 1_000_000 && micros("duration_us") >= micros("backend_us"), "{line}");
    assert_eq!(line["server"], upstream.address.to_string(), "{line}");
    assert!(line.get("retries").is_none() && line.get("received").is_none(), "{line}");
    let of_backend = gateway.metric("bearward_upstream_response_seconds_sum{upstream=\"backend\"}").await;
    let of_gateway = gateway.metric("bearward_overhead_seconds_sum").await;
    let whole = gateway.metric("bearward_request_duration_seconds_sum").await;
    assert!(of_backend >= 1.0 && of_gateway + of_backend <= whole, "{of_gateway} + {of_backend} of {whole}");

    gateway.client().get("/a/%00").await.assert_rejected(400, "invalid_request");
    gateway.wait_for_metric("request_duration_seconds_count", 2).await;
    assert_eq!(gateway.metric("bearward_overhead_seconds_count").await, 1.0, "only forwarded requests count");
    let rejected = gateway.log_lines(2).await.remove(1);
    assert!(rejected.get("server").is_none() && rejected.get("backend_us").is_none(), "{rejected}");
}

async fn line_of(gateway: &Gateway, path: &str) -> Value {
    gateway.log_line(|line| line["path"] == path).await
}

#[tokio::test]
async fn a_retried_request_names_the_server_that_answered() {
    let (closed, upstream) = (ClosedPort::new(), Upstream::start());
    let servers: [SocketAddr; 2] = [closed.address, upstream.address];
    let text = Gateway::public_config(servers[0], "[upstream.ejection]\nconsecutive_failures = 0").replace(
        &format!("\"http://{}\"", servers[0]),
        &format!("\"http://{}\", \"http://{}\"", servers[0], servers[1]),
    );
    let gateway = Gateway::from_text(text.replace("workers = 2", "workers = 1"));
    for path in ["/first", "/second"] {
        assert_eq!(gateway.client().get(path).await.status, 200);
    }
    let lines = gateway.log_lines(2).await;
    let server = upstream.address.to_string();
    assert!(lines.iter().all(|line| line["server"] == server.as_str()), "{lines:?}");
    let retries: Vec<_> = lines.iter().map(|line| line["retries"].as_u64()).collect();
    assert!(retries.contains(&Some(1)) && retries.contains(&None), "{retries:?}");
}

#[tokio::test]
async fn a_failed_request_names_the_server_that_failed() {
    let closed = ClosedPort::new();
    let gateway = Gateway::public(closed.address, "");
    gateway.client().get("/a").await.assert_rejected(502, "bad_gateway");
    let line = line_of(&gateway, "/a").await;
    assert_eq!(line["server"], closed.address.to_string());
    assert!(line["backend_us"].is_u64() && line["reason"] == "upstream_connect", "{line}");
    assert_eq!(gateway.metric("bearward_overhead_seconds_count").await, 0.0, "no backend responded");
}

#[tokio::test]
async fn received_bytes_and_tls_are_in_the_log() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    for client in gateway.clients() {
        let upload = Bytes::from(vec![b'x'; 100_000]);
        assert_eq!(client.send(Method::POST, "/upload", upload).await.status, 200);
    }
    let lines = gateway.log_lines(4).await;
    assert!(lines.iter().all(|line| line["received"] == 100_000), "{lines:?}");
    let over_tls: Vec<_> = lines.iter().filter(|line| line.get("tls").is_some()).collect();
    assert_eq!(over_tls.len(), 2, "{lines:?}");
    for line in over_tls {
        assert_eq!(line["tls"], "TLSv1.3");
        let cipher = line["cipher"].as_str().expect("a text");
        assert!(cipher.starts_with("TLS_AES_") || cipher.starts_with("TLS_CHACHA20_"), "{cipher}");
    }
    // A call that the gateway answers itself.
    let client: Client = gateway.client();
    client.post("/user/refresh", &serde_json::json!({ "refreshToken": "x" })).await;
    let line = line_of(&gateway, "/user/refresh").await;
    assert_eq!(line["received"], "{\"refreshToken\":\"x\"}".len(), "{line}");
}
