//! Tokens that the gateway accepts. `hostile/tokens.rs` has the invalid ones.

use std::sync::Arc;
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use bearward::types::secret;
use serde_json::json;
use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Gateway, Upstream};

/// A gateway that also accepts tokens of `mint`.
fn gateway_with_issuer(upstream: &Upstream, mint: &Mint, more: &str) -> Gateway {
    let folder = Arc::new(TempDir::new().expect("a temporary folder"));
    // The file of a shared key is a secret.
    secret::write_private(&folder.path().join("login.json"), mint.jwks().as_bytes()).expect("written");
    let issuer = format!(
        r#"
[[issuer]]
issuer = "{EXTERNAL_ISSUER}"
audience = ["https://api.example"]
jwks_file = "login.json"
algorithms = ["{}"]
{more}
"#,
        crate::support::tokens::name(mint.algorithm)
    );
    let text = Gateway::config_text(&upstream.address.to_string(), &issuer);
    Gateway::in_folder(text, folder, Arc::new(ManualClock::new()))
}

#[tokio::test]
async fn a_valid_token_reaches_the_backend_with_identity_headers() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "orders:read orders:write").await;
    let response = gateway.client().bearer(&pair.access).get("/orders/1?x=y").await;
    assert_eq!((response.status.as_u16(), response.text().as_str()), (200, "hello"));
    let seen = upstream.only_request();
    assert_eq!(seen.uri, "/orders/1?x=y");
    assert_eq!(seen.header("x-auth-subject"), Some("alice"));
    assert_eq!(seen.header("x-auth-scope"), Some("orders:read orders:write"));
    assert_eq!(seen.header("x-auth-token-id"), Some(pair.token_id.as_str()));
    assert_eq!(seen.header("x-auth-issuer"), Some("https://gateway.example"));
    assert_eq!(seen.header("host"), Some("gateway.test"));
}

#[tokio::test]
async fn without_a_token_the_challenge_has_only_the_scheme() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let response = gateway.client().get("/").await;
    response.assert_rejected(401, "unauthorized");
    assert_eq!(response.header("www-authenticate"), Some("Bearer realm=\"bearward\""));
    let problem = gateway.client().header("accept", "application/problem+json").get("/").await;
    assert_eq!(problem.header("content-type"), Some("application/problem+json"));
    assert_eq!(problem.json()["title"], "Unauthorized");
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn two_tokens_are_rejected_even_if_they_are_equal() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    gateway.client().bearer(&pair.access).bearer(&pair.access).get("/").await.assert_rejected(400, "invalid_request");
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn every_algorithm_verifies() {
    use Algorithm::*;
    let upstream = Upstream::start();
    let asymmetric = [ES256, ES384, EdDSA, RS256].map(Mint::new);
    let symmetric = [HS256, HS384, HS512].map(|algorithm| Mint::hmac(algorithm, &[7; 64]));
    for mint in asymmetric.iter().chain(&symmetric) {
        let gateway = gateway_with_issuer(&upstream, mint, "");
        let token = mint.valid_token(gateway.now_secs());
        let response = gateway.client().bearer(&token).get("/").await;
        assert_eq!(response.status, 200, "{:?}: {response:?}", mint.algorithm);
    }
}

#[tokio::test]
async fn nbf_and_exp_apply_to_the_millisecond_also_to_cached_tokens() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = gateway_with_issuer(&upstream, &mint, "clock_skew = \"30s\"");
    let now = gateway.now_secs();
    let token = mint.with_claims(now, json!({ "nbf": now + 60, "exp": now + 100 }));
    let status = async || gateway.client().bearer(&token).get("/").await.status.as_u16();
    gateway.advance(Duration::from_millis(29_999));
    assert_eq!(status().await, 401, "a millisecond before nbf - clock skew");
    gateway.advance(Duration::from_millis(1));
    assert_eq!(status().await, 200);
    gateway.advance(Duration::from_millis(99_999));
    assert_eq!(status().await, 200, "a millisecond before exp + clock skew");
    gateway.advance(Duration::from_millis(1));
    assert_eq!(status().await, 401);
}

#[tokio::test]
async fn types_and_audiences_are_matched_as_configured() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = gateway_with_issuer(&upstream, &mint, r#"types = ["at+jwt", "JWT"]"#);
    let now = gateway.now_secs();
    for token in [
        mint.with_header(now, json!({ "typ": "application/at+jwt" })),
        mint.with_header(now, json!({ "typ": "AT+JWT" })),
        mint.with_header(now, json!({ "typ": "jwt" })),
        mint.with_header(now, json!({ "typ": null })),
        mint.with_claims(now, json!({ "aud": ["https://other.example", "https://api.example"] })),
        mint.with_header(now, json!({ "kid": null })),
        mint.with_claims(now, json!({ "scope": null, "scp": ["a"] })),
        mint.with_claims(now, json!({ "iat": now as f64 + 0.5 })),
    ] {
        let response = gateway.client().bearer(&token).get("/").await;
        assert_eq!(response.status, 200, "{response:?}");
    }
}

#[tokio::test]
async fn an_issuer_cannot_act_for_users_of_another_issuer() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = gateway_with_issuer(&upstream, &mint, "");
    let pair = gateway.issue("alice", "").await;
    // A user of another issuer has the subject `alice` too. It must not revoke or refresh the tokens of the gateway's
    // alice.
    let now = gateway.now_secs();
    let impostor =
        mint.with_claims(now, json!({ "sub": "alice", "scope": "token:revoke", "sid": pair.token_id, "rgn": 1 }));
    gateway.revoke(&impostor, &pair.token_id).await.assert_rejected(404, "token_not_found");
    gateway.refresh(&impostor, &pair.refresh).await.assert_rejected(400, "invalid_grant");
    assert_eq!(gateway.client().bearer(&pair.access).get("/").await.status, 200);
}

#[tokio::test]
async fn a_route_requires_its_scopes_and_a_public_route_no_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(
        &upstream,
        r#"
[[route]]
path = "/orders/"
scopes = ["orders:read", "orders:list"]
preflight = true
[[route]]
path = "/public/"
public = true
"#,
    );
    let enough = gateway.issue("alice", "orders:list orders:read").await;
    let little = gateway.issue("bob", "orders:list").await;
    assert_eq!(gateway.client().bearer(&enough.access).get("/orders/1").await.status, 200);
    let rejected = gateway.client().bearer(&little.access).get("/orders/1").await;
    rejected.assert_rejected(403, "insufficient_scope");
    let challenge = rejected.header("www-authenticate").expect("a challenge");
    assert!(challenge.contains(r#"scope="orders:read orders:list""#), "{challenge}");

    assert_eq!(gateway.client().get("/public/x").await.status, 200);
    let forged = gateway.client().header("X-Auth-Subject", "root").header("x_auth_subject", "root");
    assert_eq!(forged.get("/public/x").await.status, 200);
    let seen = upstream.seen().pop().expect("it arrived");
    assert!(seen.headers.keys().all(|name| !name.as_str().contains("subject")), "{seen:?}");

    gateway.client().bearer(&enough.access).get("/elsewhere").await.assert_rejected(404, "not_found");
    let preflight = gateway.client().header("origin", "https://app.example");
    let options = http::Method::OPTIONS;
    preflight.send(options.clone(), "/orders/1", Default::default()).await.assert_rejected(401, "unauthorized");
    let preflight = preflight.header("access-control-request-method", "PUT");
    assert_eq!(preflight.send(options, "/orders/1", Default::default()).await.status, 200);
}

/// The cache saves only the check of the signature. All bytes of the token must be equal for that.
#[tokio::test]
async fn a_cached_token_is_checked_for_revocation_again() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let get = async |token: &str| gateway.client().bearer(token).get("/").await.status.as_u16();
    for _ in 0..3 {
        assert_eq!(get(&pair.access).await, 200);
    }
    let (message, signature) = pair.access.rsplit_once('.').expect("three segments");
    let first = if signature.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("{message}.{first}{}", &signature[1..]);
    for _ in 0..3 {
        assert_eq!(get(&forged).await, 401);
    }
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    assert_eq!(get(&pair.access).await, 401);
}

/// A flood of forged tokens from one address must not use the CPU time of other clients. Cached tokens are not limited.
#[tokio::test]
async fn bad_signatures_are_limited_per_address() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, "[limits]\nbad_signatures = 5\n");
    let known = gateway.issue("alice", "").await;
    let fresh = gateway.issue("bob", "").await;
    let get = async |token: &str| gateway.client().bearer(token).get("/").await;
    assert_eq!(get(&known.access).await.status, 200);

    let forge = gateway.forger().await;
    let first = forge(0);
    for token in [first.clone(), forge(1), forge(2), forge(3), forge(4)] {
        get(&token).await.assert_rejected(401, "invalid_token");
    }
    // The gateway remembers that this signature is invalid, so it is not counted again.
    get(&first).await.assert_rejected(401, "invalid_token");
    let limited = get(&forge(6)).await;
    limited.assert_rejected(429, "rate_limited");
    assert_eq!(limited.header("retry-after"), Some("2"));
    get(&fresh.access).await.assert_rejected(429, "rate_limited");
    assert_eq!(get(&known.access).await.status, 200, "a cached token is not limited");
    gateway.advance(Duration::from_secs(2));
    assert_eq!(get(&fresh.access).await.status, 200);
}

/// Otherwise a machine with more cores would check more of them.
#[tokio::test]
async fn all_workers_count_bad_signatures_together() {
    const WORKERS: usize = 4;
    let upstream = Upstream::start();
    let text = Gateway::config_text(&upstream.address.to_string(), "[limits]\nbad_signatures = 10\n");
    let gateway = Gateway::from_text(text.replace("workers = 2", &format!("workers = {WORKERS}")));
    let forge = gateway.forger().await;
    let mut checked = 0;
    for number in 0..100 {
        let response = gateway.client().bearer(&forge(number)).get("/").await;
        match response.status.as_u16() {
            401 => checked += 1,
            _ => response.assert_rejected(429, "rate_limited"),
        }
    }
    let metrics = &gateway.running().metrics;
    let requests: Vec<_> = (0..WORKERS).map(|number| metrics.worker(number).requests_started.get()).collect();
    assert!(requests.iter().all(|requests| *requests > 0), "not distributed over all workers: {requests:?}");
    assert_eq!(checked, 10, "{requests:?}");
}
