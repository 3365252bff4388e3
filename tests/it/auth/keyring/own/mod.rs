//! The signing keys of the gateway: rotation, revocation, publication and storage.

mod commands;
mod published;
mod revoked;
mod rotation;
mod sealed;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::tokens::header_of;
use crate::support::wait::eventually_within;
use crate::support::{Client, Gateway, TestResponse, Upstream};

const MINUTE: Duration = Duration::from_secs(60);
/// How long to wait for background work of the gateway, such as a rotation. The gateway checks its clock every second.
const TIMEOUT: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_secs(86_400);

/// Starts a gateway with more settings in `[tokens]`.
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

/// Number of keys in this state.
fn count(keys: &[Value], state: &str) -> usize {
    keys.iter().filter(|key| key["state"] == state).count()
}

fn states(keys: &[Value]) -> Vec<&str> {
    keys.iter().map(|key| key["state"].as_str().expect("text")).collect()
}

async fn rotate_now(admin: &Client) -> TestResponse {
    admin.post("/admin/v1/keys/rotate", &json!({ "now": true })).await
}

/// Waits until the keys have these states, the newest key first.
async fn wait_for_states(gateway: &Gateway, expected: &[&str]) -> Vec<Value> {
    eventually_within(TIMEOUT, &format!("the keys are {expected:?}"), async || {
        let keys = listed(&gateway.admin_client()).await;
        if states(&keys) == expected { Ok(keys) } else { Err(format!("{keys:?}")) }
    })
    .await
}

/// The `kid`s in `/.well-known/jwks.json`.
async fn published(gateway: &Gateway) -> Vec<String> {
    let response = gateway.client().get("/.well-known/jwks.json").await.json();
    let kid = |key: &Value| key["kid"].as_str().expect("text").to_owned();
    response["keys"].as_array().expect("a list").iter().map(kid).collect()
}

/// Waits until exactly these keys are published. That can be a second after the admin API lists the new states.
async fn wait_for_published(gateway: &Gateway, expected: &[&str]) {
    eventually_within(TIMEOUT, &format!("the published keys are {expected:?}"), async || {
        let kids = published(gateway).await;
        if kids == expected { Ok(()) } else { Err(format!("{kids:?}")) }
    })
    .await;
}
