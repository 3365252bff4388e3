//! The keys that sign our own tokens: how they come and go, how one is ended, and what is left of them on disk.

mod commands;
mod published;
mod revoked;
mod rotation;
mod sealed;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::tokens::header_of;
use crate::support::{Client, Gateway, TestResponse, Upstream};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// With more keys in `[tokens]`.
fn gateway_with_tokens(upstream: &Upstream, keys: &str) -> Gateway {
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    Gateway::from_text(text.replace("[tokens]\n", &format!("[tokens]\n{keys}\n")))
}

/// The `kid` of a token.
fn kid_of(token: &str) -> String {
    header_of(token)["kid"].as_str().expect("text").to_owned()
}

/// `GET /admin/v1/keys`
async fn listed(admin: &Client) -> Vec<Value> {
    let response = admin.get("/admin/v1/keys").await;
    assert_eq!(response.status, 200, "{response:?}");
    response.json()["keys"].as_array().expect("a list").clone()
}

/// How many keys there are in this state.
fn count(keys: &[Value], state: &str) -> usize {
    keys.iter().filter(|key| key["state"] == state).count()
}

fn states(keys: &[Value]) -> Vec<&str> {
    keys.iter().map(|key| key["state"].as_str().expect("text")).collect()
}

async fn rotate_now(admin: &Client) -> TestResponse {
    admin.post("/admin/v1/keys/rotate", &json!({ "now": true })).await
}

/// Waits until the keys are in these states, the newest first: the gateway looks at its clock every second.
async fn soon_listed(gateway: &Gateway, expected: &[&str]) -> Vec<Value> {
    let started = Instant::now();
    loop {
        let keys = listed(&gateway.admin_client()).await;
        if states(&keys) == expected {
            return keys;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "not {expected:?}: {keys:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The `kid`s in `/.well-known/jwks.json`.
async fn published(gateway: &Gateway) -> Vec<String> {
    let response = gateway.client().get("/.well-known/jwks.json").await.json();
    let kid = |key: &Value| key["kid"].as_str().expect("text").to_owned();
    response["keys"].as_array().expect("a list").iter().map(kid).collect()
}

/// Waits until only these are published: the list says what shall be, and a tick of the clock later it is.
async fn soon_published(gateway: &Gateway, expected: &[&str]) {
    let started = Instant::now();
    while published(gateway).await != expected {
        assert!(started.elapsed() < Duration::from_secs(20), "not {expected:?}: {:?}", published(gateway).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
