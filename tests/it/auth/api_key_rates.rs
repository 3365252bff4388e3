//! The rate of an API key.

use std::time::Duration;

use http::Method;
use serde_json::json;

use crate::support::{Client, Gateway, Upstream};

const ROUTES: &str = "[[route]]\npath = \"/\"\napi_keys = true\n[[route]]\npath = \"/scoped\"\napi_keys = true\n\
    scopes = [\"a\"]\n[[route]]\npath = \"/limited\"\napi_keys = true\n[[route.rate]]\nper = \"subject\"\nrequests = 1\n\
    window = \"1h\"\n";

#[tokio::test]
async fn a_key_with_a_rate_gets_429_and_the_backend_nothing() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let (key, id) = gateway.issue_key(&json!({ "sub": "robot", "rate": "3/min" })).await;
    let (other, _) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    let with = |key: &str| gateway.client().bearer(key);
    for left in [2, 1] {
        let response = with(&key).get("/").await;
        assert_eq!(response.status, 200);
        assert_eq!(response.header("ratelimit-policy"), Some("\"api-key\";q=3;w=60"));
        let quota = response.header("ratelimit").expect("a quota");
        assert!(quota.starts_with(&format!("\"api-key\";r={left};t=")), "{quota}");
    }
    // A request that its route rejects counts too, as for every rate.
    with(&key).get("/scoped").await.assert_rejected(403, "insufficient_scope");
    for client in [with(&key), Client::http2(gateway.address()).header("x-api-key", &key)] {
        let response = client.get("/").await;
        response.assert_rejected(429, "rate_limited");
        assert_eq!(response.header("retry-after"), Some("20"), "{response:?}");
    }
    assert_eq!(upstream.seen().len(), 2);
    assert_eq!(with(&other).get("/").await.status, 200);
    assert_eq!(with(&other).get("/").await.header("ratelimit"), None);
    let line = gateway.log_line(|line| line["status"] == 429).await;
    assert_eq!((&line["detail"], &line["token_id"]), (&json!("rate api-key"), &json!(id)), "{line}");
    // A reload gives no key another burst.
    gateway.running().reload(gateway.config()).expect("it reloads");
    with(&key).get("/").await.assert_rejected(429, "rate_limited");
    let explained = gateway.admin_client().post("/admin/v1/explain", &json!({ "path": "/", "token": key })).await;
    assert!(explained.text().contains("rate_limited") || explained.text().contains("rate api-key"), "{explained:?}");
    gateway.advance(Duration::from_secs(20));
    assert_eq!(with(&key).get("/").await.status, 200);
    with(&key).get("/").await.assert_rejected(429, "rate_limited");
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_key_pays_nothing_for_what_another_limit_rejects() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let (key, _) = gateway.issue_key(&json!({ "sub": "robot", "rate": "2/day" })).await;
    let client = gateway.client().bearer(&key);
    let response = client.get("/limited").await;
    assert_eq!(response.header("ratelimit-policy"), Some("\"subject\";q=1;w=3600, \"api-key\";q=2;w=86400"));
    for _ in 0..3 {
        client.get("/limited").await.assert_rejected(429, "rate_limited");
    }
    assert_eq!(client.get("/").await.status, 200);
    client.get("/").await.assert_rejected(429, "rate_limited");
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn the_rate_of_a_key_is_listed_and_checked() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    gateway.issue_key(&json!({ "sub": "robot", "rate": "100/min" })).await;
    let gateway = gateway.restart();
    let admin = gateway.admin_client();
    assert_eq!(admin.get("/admin/v1/api-keys").await.json()["apiKeys"][0]["rate"], "100/min");
    for rate in ["", "0/min", "100", "100/m", "1000001/s", "-1/s", "100/min, 5/s"] {
        let response = admin.post("/admin/v1/api-keys", &json!({ "sub": "robot", "rate": rate })).await;
        response.assert_rejected(400, "invalid_request");
        assert!(response.text().contains("such as 100/min"), "{response:?}");
    }
    assert_eq!(
        admin.send(Method::GET, "/admin/v1/api-keys", "".into()).await.json()["apiKeys"].as_array().map(Vec::len),
        Some(1)
    );
    gateway.drain_and_check_log();
}

/// The proxy forwards the request itself, and shows the fields to its client if it copies them.
#[tokio::test]
async fn the_rate_of_a_key_holds_beside_another_proxy() {
    let upstream = Upstream::start();
    let forward_auth = "[forward_auth]\npath = \"/auth\"\ndialect = \"prefix\"\nfrom = [\"127.0.0.1\"]\n";
    let gateway = Gateway::with_config(&upstream, &format!("{ROUTES}{forward_auth}"));
    let (key, _) = gateway.issue_key(&json!({ "sub": "robot", "rate": "1/h" })).await;
    let proxy = gateway.client().proxy().header("x-forwarded-proto", "https").bearer(&key);
    for (client, status) in [("198.51.100.7", 200), ("198.51.100.8", 429)] {
        let response = proxy.clone().header("x-forwarded-for", client).get("/auth/").await;
        assert_eq!(response.status, status, "one key, however many addresses: {response:?}");
        assert_eq!(response.header("ratelimit-policy"), Some("\"api-key\";q=1;w=3600"));
    }
}
