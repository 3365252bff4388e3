//! The sources of secrets, and their changes while a gateway runs.

mod lost;
mod replicas;
mod signing_key;
mod systemd;
mod watched;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::sign::{SigningKey, generate_pem};
use serde_json::{Value, json};

use crate::support::tokens::header_of;
use crate::support::wait::eventually_within;
use crate::support::{Client, MountedVolume, TokenPair};

/// The gateway looks at its files every two seconds.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A new private key in PEM, and its `kid`.
fn new_key() -> (String, String) {
    let pem = generate_pem(Algorithm::ES256).expect("a key");
    let kid = SigningKey::from_pem(pem.expose(), Algorithm::ES256).expect("its own key").kid;
    (String::from_utf8(pem.expose().to_vec()).expect("PEM is text"), kid)
}

/// Tokens of another user each time: `limits.sessions_per_subject` would end the first sessions.
async fn issue(admin: &Client) -> TokenPair {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let subject = format!("user-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let response = admin.post("/admin/v1/tokens", &json!({ "sub": subject })).await;
    assert_eq!(response.status, 201, "{response:?}");
    TokenPair::from_json(&response.json())
}

async fn status(client: &Client, access: &str) -> u16 {
    client.clone().bearer(access).get("/").await.status.as_u16()
}

async fn refresh(client: &Client, pair: &TokenPair) -> TokenPair {
    let body = json!({ "refreshToken": pair.refresh });
    let response = client.clone().bearer(&pair.access).post("/user/refresh", &body).await;
    assert_eq!(response.status, 200, "{response:?}");
    TokenPair::from_json(&response.json())
}

fn kid_of(token: &str) -> String {
    header_of(token)["kid"].as_str().expect("text").to_owned()
}

/// Waits until this key signs. Returns a pair with a token of it.
async fn wait_for_signer(admin: &Client, kid: &str) -> TokenPair {
    eventually_within(TIMEOUT, &format!("{kid} signs"), async || {
        let pair = issue(admin).await;
        let found = kid_of(&pair.access);
        if found == kid { Ok(pair) } else { Err(found) }
    })
    .await
}

/// Waits until the gateway lists these keys in these states.
async fn wait_for_states(admin: &Client, expected: &[(&str, &str)]) {
    eventually_within(TIMEOUT, &format!("the keys are {expected:?}"), async || {
        let listed = admin.get("/admin/v1/keys").await.json();
        let text = |key: &Value, name: &str| key[name].as_str().expect("text").to_owned();
        let keys = listed["keys"].as_array().expect("a list");
        let has = |(kid, state): &(&str, &str)| {
            keys.iter().any(|key| text(key, "kid") == *kid && text(key, "state") == *state)
        };
        if keys.len() == expected.len() && expected.iter().all(has) { Ok(()) } else { Err(listed.to_string()) }
    })
    .await;
}

/// The `kid`s in `/.well-known/jwks.json`.
async fn published(client: &Client) -> Vec<String> {
    let keys = client.get("/.well-known/jwks.json").await.json();
    let kid = |key: &Value| key["kid"].as_str().expect("text").to_owned();
    keys["keys"].as_array().expect("a list").iter().map(kid).collect()
}

/// One value of `/metrics`.
async fn metric(admin: &Client, name: &str) -> f64 {
    let page = admin.get("/metrics").await.text();
    let line = page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{page}"));
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}
