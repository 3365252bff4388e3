//! Very many key ids and subjects in bounded memory. An attacker can invent key ids; a large service has many users.
//!
//! By hand: `BEARWARD_ROUNDS=100000 cargo test --test it auth::many -- --nocapture`, some minutes in a debug build.

use std::path::Path;
use std::time::Instant;

use bearward::tokens::jwt::Algorithm;
use bearward::types::clock::{Clock, SystemClock};
use serde_json::json;
use tempfile::TempDir;

use crate::support::program::GatewayProcess;
use crate::support::repetitions::repetitions;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint, segment};
use crate::support::{Gateway, KeyServer, Upstream, Wire};

/// Requests that are sent before their responses are read.
const BATCH: usize = 50;

/// How much the memory of the gateway may grow after the first tenth of the requests. It has caches of 1 MiB here, a
/// rate with at most 131,072 buckets of 40 bytes, and the allocator rounds up.
const MORE_MEMORY: usize = 24 << 20;

fn start(folder: &Path, upstream: &Upstream, server: &KeyServer, more: &str) -> GatewayProcess {
    let issuer = format!(
        "[limits]\ntoken_cache_size = \"1MiB\"\nbad_signatures = 10000\nretry_delay = \"0s\"\n[[issuer]]\n\
         issuer = \"{EXTERNAL_ISSUER}\"\naudience = [\"https://api.example\"]\nalgorithms = [\"EdDSA\"]\n\
         jwks_url = \"{}\"\n{more}",
        server.url("/keys")
    );
    let text = Gateway::config_text(&upstream.address.to_string(), &issuer);
    std::fs::write(folder.join("gateway.toml"), text).expect("written");
    GatewayProcess::start(folder)
}

/// Sends a request with each of these tokens. Returns how many of the responses had this status.
async fn send_all(wire: &mut Wire, tokens: &[String], status: u16) -> usize {
    let mut count = 0;
    for batch in tokens.chunks(BATCH) {
        let request =
            |token: &String| format!("GET /honest HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n");
        wire.send(batch.iter().map(request).collect::<String>()).await;
        for _ in batch {
            count += usize::from(wire.read_response().await.status == status);
        }
    }
    count
}

/// Sends a tenth of the requests, notes the memory, and sends the rest. `token` is called with the number of each.
async fn assert_bounded(gateway: &GatewayProcess, status: u16, token: impl Fn(usize) -> String) {
    let count = repetitions(2_000);
    let (mut wire, began) = (Wire::connect(gateway.addresses[0]).await, Instant::now());
    let mut before = 0;
    for turn in 0..10 {
        let numbers = turn * count / 10..(turn + 1) * count / 10;
        let tokens: Vec<String> = numbers.map(&token).collect();
        assert_eq!(send_all(&mut wire, &tokens, status).await, tokens.len());
        if turn == 0 {
            before = gateway.program.peak_memory();
        }
    }
    let after = gateway.program.peak_memory();
    eprintln!("{count} requests in {:?}: peak memory {} MiB, then {} MiB", began.elapsed(), before >> 20, after >> 20);
    assert!(after < before + MORE_MEMORY, "{before} bytes, then {after}");
}

/// The issuer gets one request for each cooldown of 30 seconds, however many key ids there are.
#[tokio::test]
async fn many_unknown_key_ids_cause_one_fetch_in_bounded_memory() {
    let (upstream, mint) = (Upstream::start(), Mint::new(Algorithm::EdDSA));
    let server = KeyServer::start(&[&mint]);
    let folder = TempDir::new().expect("a folder");
    let gateway = start(folder.path(), &upstream, &server, "");
    let valid = mint.valid_token(SystemClock.now().as_secs());
    assert_eq!(gateway.client().bearer(&valid).get("/").await.status, 200);
    let (fetched, began) = (server.key_requests(), Instant::now());
    let [_, claims, signature] = valid.split('.').collect::<Vec<_>>().try_into().expect("three segments");
    let unknown = |number: usize| {
        let header = json!({ "alg": "EdDSA", "typ": "at+jwt", "kid": format!("unknown-{number}") });
        format!("{}.{claims}.{signature}", segment(header.to_string()))
    };
    assert_bounded(&gateway, 401, unknown).await;
    let most = 1 + began.elapsed().as_secs() as usize / 30;
    let fetches = server.key_requests() - fetched;
    assert!((1..=most).contains(&fetches), "{fetches} fetches, at most {most}");
    assert_eq!(gateway.client().bearer(&valid).get("/").await.status, 200);
}

/// With a rate for each subject, so that the limiter remembers them.
#[tokio::test]
async fn many_subjects_are_served_in_bounded_memory() {
    let (upstream, mint) = (Upstream::start(), Mint::new(Algorithm::EdDSA));
    let server = KeyServer::start(&[&mint]);
    let folder = TempDir::new().expect("a folder");
    let rate = "[[rate]]\nper = \"subject\"\nrequests = 1\nwindow = \"1h\"\n";
    let gateway = start(folder.path(), &upstream, &server, rate);
    let token =
        |number: usize| mint.with_claims(SystemClock.now().as_secs(), json!({ "sub": format!("user-{number}") }));
    assert_bounded(&gateway, 200, token).await;
    let newest = token(repetitions(2_000) - 1);
    assert_eq!(gateway.client().bearer(&newest).get("/").await.status, 429, "the newest subjects are remembered");
}
