//! The keys of other issuers: fetched from URLs, discovered, read from files, and rotated.

mod lax_files;
mod policy;
mod provider;
mod replaced;
mod rotation;
mod sources;

use std::sync::Arc;
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::wait::eventually_within;
use crate::support::{Client, Gateway, KeyServer, Upstream};

/// How long to wait for background work of the gateway, such as a fetch of keys.
const TIMEOUT: Duration = Duration::from_secs(20);

fn mint() -> Mint {
    Mint::new(Algorithm::ES256)
}

/// An `[[issuer]]` section. `keys` has the source of its keys and more settings.
fn issuer(name: &str, keys: &str) -> String {
    format!("[[issuer]]\nissuer = \"{name}\"\naudience = [\"https://api.example\"]\nalgorithms = [\"ES256\"]\n{keys}\n")
}

fn fetched_from(url: &str, more: &str) -> String {
    issuer(EXTERNAL_ISSUER, &format!("jwks_url = \"{url}\"\n{more}"))
}

fn folder() -> Arc<TempDir> {
    Arc::new(TempDir::new().expect("a temporary folder"))
}

fn start_in(folder: Arc<TempDir>, upstream: &Upstream, more: &str) -> Gateway {
    let text = Gateway::config_text(&upstream.address.to_string(), more);
    Gateway::in_folder(text, folder, Arc::new(ManualClock::new()))
}

async fn status(gateway: &Gateway, token: &str) -> u16 {
    gateway.client().bearer(token).get("/").await.status.as_u16()
}

/// A new token at each call, so that it is not in the token cache.
fn new_token(gateway: &Gateway, mint: &Mint) -> String {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let jti = format!("token-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    mint.with_claims(gateway.now_secs(), serde_json::json!({ "jti": jti }))
}

/// Waits until the server has had this many requests for its keys.
async fn wait_for_key_requests(server: &KeyServer, count: usize) {
    eventually_within(TIMEOUT, &format!("the keys are requested {count} times"), async || {
        match server.key_requests() {
            requests if requests >= count => Ok(()),
            requests => Err(format!("{requests} times")),
        }
    })
    .await;
}

/// Waits until a request with a new token of this issuer gets this status.
async fn wait_for_status(gateway: &Gateway, mint: &Mint, expected: u16) {
    eventually_within(TIMEOUT, &format!("a new token gets {expected}"), async || {
        match status(gateway, &new_token(gateway, mint)).await {
            status if status == expected => Ok(()),
            status => Err(format!("it gets {status}")),
        }
    })
    .await;
}

/// Waits until there were more fetches with this outcome than `before`.
async fn wait_for_fetch(gateway: &Gateway, outcome: &str, before: f64) {
    eventually_within(TIMEOUT, &format!("another fetch: {outcome}"), async || match fetches(gateway, outcome).await {
        count if count > before => Ok(()),
        count => Err(format!("{count} fetches")),
    })
    .await;
}

/// The age of the keys in seconds.
async fn age(gateway: &Gateway) -> f64 {
    gateway.metric(&format!("bearward_issuer_keys_age_seconds{{issuer=\"{EXTERNAL_ISSUER}\"}}")).await
}

/// The number of fetches of keys with this outcome.
async fn fetches(gateway: &Gateway, outcome: &str) -> f64 {
    let labels = format!("{{issuer=\"{EXTERNAL_ISSUER}\",outcome=\"{outcome}\"}}");
    gateway.metric(&format!("bearward_issuer_key_fetches_total{labels}")).await
}

/// Status and reason of `/readyz`.
async fn readiness(gateway: &Gateway) -> (u16, String) {
    let response = Client::http1(gateway.admin_address()).host("localhost").get("/readyz").await;
    (response.status.as_u16(), response.json()["reason"].as_str().unwrap_or_default().to_owned())
}
