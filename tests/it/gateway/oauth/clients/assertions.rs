//! Each fault of an assertion, and that it is used once.

use bearward::tokens::jwt::Algorithm;
use futures_util::future::join_all;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::super::{assert_error, post};
use super::{ISSUER, MachineKey, TYPE, access_token, gateway, granted};
use crate::support::Upstream;
use crate::support::tokens::{Mint, segment};

#[tokio::test]
async fn each_fault_of_an_assertion_is_invalid_client() {
    let (upstream, key, stranger) = (Upstream::start(), MachineKey::new(), MachineKey::new());
    let gateway = gateway(&upstream, &key, "");
    let now = gateway.now_secs();
    let good = MachineKey::claims(now);
    let sign = |header: Value| key.0.sign(&header, &MachineKey::claims(now));
    let kid = key.0.kid.as_str();
    let unsigned = format!("{}.{}.", segment(json!({ "alg": "none" }).to_string()), segment(good.to_string()));
    let by_public_key = Mint::hmac(Algorithm::HS256, key.0.jwks().as_bytes());
    let faulty = [
        ("aud is a list", key.with_claims(now, json!({ "aud": [ISSUER] }))),
        ("aud has a stranger", key.with_claims(now, json!({ "aud": [ISSUER, "https://other.example"] }))),
        ("aud is the endpoint", key.with_claims(now, json!({ "aud": format!("{ISSUER}/oauth/token") }))),
        ("no aud", key.with_claims(now, json!({ "aud": null }))),
        ("exp in a day", key.with_claims(now, json!({ "exp": now + 86_400 }))),
        ("expired", key.with_claims(now, json!({ "iat": now - 120, "exp": now - 60 }))),
        ("no exp", key.with_claims(now, json!({ "exp": null }))),
        ("made in the future", key.with_claims(now, json!({ "iat": now + 60 }))),
        ("no jti", key.with_claims(now, json!({ "jti": null }))),
        ("another sub", key.with_claims(now, json!({ "sub": "alice" }))),
        ("an unknown client", key.with_claims(now, json!({ "iss": "x", "sub": "x" }))),
        ("the key of another client", stranger.assertion(now)),
        ("its kid, another key", stranger.0.sign(&json!({ "alg": "ES256", "kid": kid }), &good)),
        ("an access token", sign(json!({ "alg": "ES256", "typ": "at+jwt", "kid": kid }))),
        ("a logout token", sign(json!({ "alg": "ES256", "typ": "logout+jwt", "kid": kid }))),
        ("a key in the header", sign(json!({ "alg": "ES256", "kid": kid, "jwk": key.0.jwk() }))),
        ("unsigned", unsigned),
        ("HMAC with the public key", by_public_key.sign(&json!({ "alg": "HS256", "kid": kid }), &good)),
        ("no JWT", "x".to_owned()),
    ];
    for (fault, assertion) in &faulty {
        let response = granted(gateway.client(), assertion, &[]).await;
        assert_eq!(response.status, 401, "{fault}: {response:?}");
        assert_error(&response, 401, "invalid_client");
    }
    access_token(&granted(gateway.client(), &key.assertion(now), &[]).await);
    // In any order: each worker writes its own lines.
    let lines = gateway.log_lines(faulty.len() + 1).await;
    let rejected = lines.iter().filter(|line| line["reason"] == "client_assertion").count();
    assert_eq!(rejected, faulty.len(), "{lines:?}");
    let listed = gateway.admin_client().get("/admin/v1/subjects/client%7Cci/tokens").await.json();
    assert_eq!(listed["tokens"].as_array().map(Vec::len), Some(1), "only the good one began a session: {listed}");
}

#[tokio::test]
async fn a_client_authenticates_in_one_way() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let gateway = gateway(&upstream, &key, "");
    let assertion = || key.assertion(gateway.now_secs());
    for more in [("client_secret", "x"), ("client_id", "other")] {
        assert_error(&granted(gateway.client(), &assertion(), &[more]).await, 401, "invalid_client");
    }
    for authorization in ["Basic Y2k6eA==", "Bearer x"] {
        let client = gateway.client().header("authorization", authorization);
        assert_error(&granted(client, &assertion(), &[]).await, 401, "invalid_client");
    }
    let grant = ("grant_type", "client_credentials");
    let good = assertion();
    for (kind, assertion) in [
        ("urn:ietf:params:oauth:client-assertion-type:saml2-bearer", good.as_str()),
        ("jwt-bearer", &good),
        ("", &good),
        (TYPE, ""),
    ] {
        let form = [grant, ("client_assertion_type", kind), ("client_assertion", assertion)];
        assert_error(&post(gateway.client(), "/oauth/token", &form).await, 401, "invalid_client");
    }
    let twice = [grant, ("client_assertion_type", TYPE), ("client_assertion", &good), ("client_assertion", &good)];
    assert_error(&post(gateway.client(), "/oauth/token", &twice).await, 400, "invalid_request");
    access_token(&granted(gateway.client(), &good, &[("client_id", "ci")]).await);
}

#[tokio::test]
async fn an_assertion_is_used_once_also_at_once() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let gateway = gateway(&upstream, &key, "");
    let now = gateway.now_secs();
    let assertion = key.assertion(now);
    let calls = (0..16).map(|_| granted(gateway.client(), &assertion, &[]));
    let statuses: Vec<u16> = join_all(calls).await.iter().map(|response| response.status.as_u16()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 15, "{statuses:?}");
    let [first, second] = [1, 2].map(|number| key.with_claims(now, json!({ "jti": "same", "iat": now - number })));
    access_token(&granted(gateway.client(), &first, &[]).await);
    assert_error(&granted(gateway.client(), &second, &[]).await, 401, "invalid_client");
    let gateway = gateway.restart();
    assert_error(&granted(gateway.client(), &first, &[]).await, 401, "invalid_client");
}

#[tokio::test]
async fn an_assertion_is_no_access_token() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let gateway = gateway(&upstream, &key, "");
    let now = gateway.now_secs();
    for changes in [json!({}), json!({ "aud": "https://api.example" }), json!({ "iss": ISSUER })] {
        assert_eq!(gateway.status_of(&key.with_claims(now, changes)).await, 401);
    }
    let header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": key.0.kid });
    assert_eq!(gateway.status_of(&key.0.sign(&header, &MachineKey::claims(now))).await, 401);
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn without_its_store_the_gateway_accepts_no_assertion() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let gateway = gateway(&upstream, &key, "");
    let database = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    database.execute_batch("begin immediate").expect("locked");
    let assertion = key.assertion(gateway.now_secs());
    assert_error(&granted(gateway.client(), &assertion, &[]).await, 503, "temporarily_unavailable");
    database.execute_batch("rollback").expect("unlocked");
    access_token(&granted(gateway.client(), &key.assertion(gateway.now_secs()), &[]).await);
}
