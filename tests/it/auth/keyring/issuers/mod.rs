//! Keys of other issuers: fetched, discovered, read from files; rotated, lost and found again.

mod rotation;
mod sources;
mod terms;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bearward::tokens::jwt::Algorithm;
use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Client, Gateway, Upstream};

fn mint() -> Mint {
    Mint::new(Algorithm::ES256)
}

/// An `[[issuer]]`; `keys` says where its keys are, and whatever else there is to say.
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

/// A new token at each call: none is known from before.
fn fresh(gateway: &Gateway, mint: &Mint) -> String {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let jti = format!("fresh-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    mint.with_claims(gateway.now_secs(), serde_json::json!({ "jti": jti }))
}

/// Waits for something that comes about by itself.
#[track_caller]
fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(20), "{what} did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// As [`soon`], of what a request tells.
async fn soon_status(gateway: &Gateway, mint: &Mint, expected: u16) {
    let started = Instant::now();
    loop {
        let status = status(gateway, &fresh(gateway, mint)).await;
        if status == expected {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "still {status}, expected {expected}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn age(gateway: &Gateway) -> f64 {
    gateway.metric(&format!("bearward_issuer_keys_age_seconds{{issuer=\"{EXTERNAL_ISSUER}\"}}")).await
}

async fn visits(gateway: &Gateway, outcome: &str) -> f64 {
    let labels = format!("{{issuer=\"{EXTERNAL_ISSUER}\",outcome=\"{outcome}\"}}");
    gateway.metric(&format!("bearward_issuer_key_visits_total{labels}")).await
}

/// Status and reason of `/readyz`.
async fn readiness(gateway: &Gateway) -> (u16, String) {
    let response = Client::http1(gateway.admin_address()).get("/readyz").await;
    (response.status.as_u16(), response.json()["reason"].as_str().unwrap_or_default().to_owned())
}
