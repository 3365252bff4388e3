//! Tokens of a client for itself, and their end.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::super::{assert_error, post};
use super::{MachineKey, TYPE, access_token, gateway, granted};
use crate::support::tokens::{claims_of, header_of};
use crate::support::{Gateway, TokenPair, Upstream};

#[tokio::test]
async fn a_client_gets_a_token_for_itself() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let gateway = gateway(&upstream, &key, "");
    let now = gateway.now_secs();
    let mut secrets = Vec::new();
    for client in gateway.clients() {
        let assertion = key.assertion(now);
        let response = granted(client, &assertion, &[]).await;
        assert_eq!(response.header("cache-control"), Some("no-store"));
        let access = access_token(&response);
        let claims = claims_of(&access);
        let lifetime = claims["exp"].as_u64().expect("a number") - now;
        assert!((285..=300).contains(&lifetime), "oauth.client.lifetime, less its jitter: {lifetime}");
        let expected = json!({
            "access_token": access, "token_type": "Bearer", "expires_in": lifetime,
            "scope": "orders:read orders:write",
        });
        assert_eq!(response.json(), expected, "without a refresh token (RFC 6749 section 4.4.3)");
        assert_eq!(header_of(&access)["typ"], "at+jwt");
        for (name, value) in [("sub", "client|ci"), ("client_id", "ci"), ("aud", "https://api.example")] {
            assert_eq!(claims[name], value, "{name}");
        }
        assert_eq!(gateway.status_of(&access).await, 200);
        secrets.extend([assertion, access]);
    }
    let log = gateway.log_text(8).await;
    assert!(secrets.iter().all(|secret| !log.contains(secret)), "{log}");
    assert_eq!(upstream.seen()[0].header("x-auth-subject"), Some("client|ci"));
    let listed = gateway.admin_client().get("/admin/v1/subjects/client%7Cci/tokens").await.json();
    assert_eq!(listed["tokens"].as_array().map(Vec::len), Some(4), "each token has a session: {listed}");
}

#[tokio::test]
async fn a_clients_token_ends_with_its_session() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let gateway = gateway(&upstream, &key, "");
    let issue = async || access_token(&granted(gateway.client(), &key.assertion(gateway.now_secs()), &[]).await);
    let (own, by_subject, expired) = (issue().await, issue().await, issue().await);
    let session = claims_of(&own)["sid"].as_str().expect("a token id").to_owned();
    assert_eq!(gateway.revoke(&own, &session).await.status, 200);
    assert_eq!((gateway.status_of(&own).await, gateway.status_of(&by_subject).await), (401, 200));
    assert_eq!(gateway.admin_client().delete("/admin/v1/subjects/client%7Cci/tokens").await.status, 200);
    assert_eq!(gateway.status_of(&by_subject).await, 401);
    gateway.advance(Duration::from_millis(10));
    let next = issue().await;
    assert_eq!(gateway.status_of(&next).await, 200, "its key is still good");
    gateway.advance(Duration::from_secs(306));
    assert_eq!((gateway.status_of(&next).await, gateway.status_of(&expired).await), (401, 401));
}

#[tokio::test]
async fn a_client_gets_no_more_than_it_may_have() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let gateway = gateway(&upstream, &key, "");
    let ask = async |more: &[(&str, &str)]| granted(gateway.client(), &key.assertion(gateway.now_secs()), more).await;
    let narrow = ask(&[("scope", "orders:read")]).await;
    assert_eq!(narrow.json()["scope"], "orders:read");
    assert_eq!(claims_of(&access_token(&narrow))["scope"], "orders:read");
    for scope in ["admin", "orders:read admin", "orders:read token:revoke"] {
        assert_error(&ask(&[("scope", scope)]).await, 400, "invalid_scope");
    }
    for name in ["audience", "resource"] {
        assert_eq!(ask(&[(name, "https://api.example")]).await.status, 200);
        assert_error(&ask(&[(name, "https://other.example")]).await, 400, "invalid_target");
    }
    let lines = gateway.log_lines(8).await;
    let reasons = |code: &str| lines.iter().filter(|line| line["reason"] == code).count();
    assert_eq!((reasons("invalid_scope"), reasons("invalid_target")), (3, 2));
}

#[tokio::test]
async fn only_a_client_with_this_grant_gets_tokens_for_itself() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let without = "[[oauth.client]]\nclient_id = \"app\"\njwks_file = \"ci.json\"\nalgorithms = [\"ES256\"]\n\
        client_credentials = false\n";
    let gateway = gateway(&upstream, &key, without);
    let assertion = key.with_claims(gateway.now_secs(), json!({ "iss": "app", "sub": "app" }));
    assert_error(&granted(gateway.client(), &assertion, &[]).await, 400, "unauthorized_client");
    let grant = ("grant_type", "client_credentials");
    for form in [vec![grant], vec![grant, ("client_id", "any")], vec![grant, ("client_id", "ci")]] {
        assert_error(&post(gateway.client(), "/oauth/token", &form).await, 401, "invalid_client");
    }
    let unknown = post(gateway.client(), "/oauth/token", &[("grant_type", "password")]).await;
    assert_error(&unknown, 400, "unsupported_grant_type");
    let lines = gateway.log_lines(5).await;
    let count = |code: &str| lines.iter().filter(|line| line["reason"] == code).count();
    let counts = ["unauthorized_client", "client_not_authenticated", "unsupported_grant_type"].map(count);
    assert_eq!(counts, [1, 3, 1]);
}

/// A session of a registered client ends and is refreshed only for that client.
#[tokio::test]
async fn a_registered_client_authenticates_at_every_endpoint() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let gateway = gateway(&upstream, &key, "");
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "clientId": "ci" })).await;
    let pair = TokenPair::from_json(&issued.json());
    let refresh = [("grant_type", "refresh_token"), ("refresh_token", pair.refresh.as_str())];
    let revoke = [("token", pair.refresh.as_str())];
    for (path, form) in [("/oauth/token", &refresh[..]), ("/oauth/revoke", &revoke)] {
        let named = [form, &[("client_id", "ci")]].concat();
        assert_error(&post(gateway.client(), path, &named).await, 401, "invalid_client");
        assert_error(&post(gateway.client(), path, form).await, 400, "invalid_grant");
    }
    let body = json!({ "refreshToken": pair.refresh, "clientId": "ci" });
    let with_bearer = gateway.client().bearer(&pair.access).post("/user/refresh", &body).await;
    with_bearer.assert_rejected(401, "invalid_client");

    let assertion = || key.assertion(gateway.now_secs());
    let authenticated = async |path: &str, form: &[(&str, &str)]| {
        let assertion = assertion();
        let proof = [("client_assertion_type", TYPE), ("client_assertion", assertion.as_str())];
        post(gateway.client(), path, &[form, &proof].concat()).await
    };
    let refreshed = authenticated("/oauth/token", &refresh).await;
    assert_eq!(refreshed.status, 200, "{refreshed:?}");
    assert_eq!(gateway.status_of(refreshed.json()["access_token"].as_str().expect("a token")).await, 200);
    assert_eq!(authenticated("/oauth/revoke", &revoke).await.status, 200);
    assert_eq!(gateway.status_of(&pair.access).await, 401);
}

#[tokio::test]
async fn tokens_of_clients_do_not_end_the_logins_of_users() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let gateway = gateway(&upstream, &key, "[limits]\nsessions_per_subject = 1\n");
    let issue = async || access_token(&granted(gateway.client(), &key.assertion(gateway.now_secs()), &[]).await);
    let tokens = [issue().await, issue().await, issue().await];
    for token in &tokens {
        assert_eq!(gateway.status_of(token).await, 200);
    }
}

#[tokio::test]
async fn no_login_has_the_subject_of_a_client() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let gateway = gateway(&upstream, &key, "");
    for subject in ["client|ci", "client|", "client|other"] {
        let response = gateway.request_tokens(&json!({ "sub": subject })).await;
        assert_eq!(response.status, 400, "{response:?}");
    }
    let key = gateway.admin_client().post("/admin/v1/api-keys", &json!({ "sub": "client|ci" })).await;
    assert_eq!(key.status, 400, "{key:?}");
    assert_eq!(gateway.request_tokens(&json!({ "sub": "client" })).await.status, 201);
}

#[tokio::test]
async fn the_metadata_name_grants_methods_and_algorithms() {
    let (upstream, key) = (Upstream::start(), MachineKey::new());
    let with = gateway(&upstream, &key, "");
    let metadata = |gateway: &Gateway| {
        let client = gateway.client();
        async move { client.get("/.well-known/oauth-authorization-server").await.json() }
    };
    let found = metadata(&with).await;
    assert_eq!(found["grant_types_supported"], json!(["refresh_token", "client_credentials"]));
    for endpoint in ["token", "revocation"] {
        assert_eq!(found[format!("{endpoint}_endpoint_auth_methods_supported")], json!(["none", "private_key_jwt"]));
        let algorithms = format!("{endpoint}_endpoint_auth_signing_alg_values_supported");
        assert_eq!(found[algorithms], json!(["ES256"]), "RFC 8414 section 2 requires it");
    }
    let without = super::super::gateway(&upstream);
    let found = metadata(&without).await;
    assert_eq!(found["grant_types_supported"], json!(["refresh_token"]));
    assert_eq!(found["token_endpoint_auth_methods_supported"], json!(["none"]));
    assert_eq!(found["token_endpoint_auth_signing_alg_values_supported"], Value::Null);
    let grant = [("grant_type", "client_credentials")];
    assert_error(&post(without.client(), "/oauth/token", &grant).await, 400, "unsupported_grant_type");
    assert_eq!(without.client().send(Method::GET, "/oauth/token", "".into()).await.status, 405);
}
