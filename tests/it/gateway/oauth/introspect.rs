//! `POST /oauth/introspect` (RFC 7662).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bearward::tokens::jwt::Algorithm;
use bearward::types::secret;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BASIC, OAUTH, assert_error, gateway, post};
use crate::support::clock::ManualClock;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint, claims_of, forged_refresh};
use crate::support::{Gateway, TestResponse, TokenPair, Upstream};

const SCOPE: &str = "token:introspect";

async fn introspect(gateway: &Gateway, caller: &TokenPair, token: &str) -> TestResponse {
    post(gateway.client().bearer(&caller.access), "/oauth/introspect", &[("token", token)]).await
}

async fn introspected(gateway: &Gateway, caller: &TokenPair, token: &str) -> Value {
    let response = introspect(gateway, caller, token).await;
    assert_eq!((response.status.as_u16(), response.header("cache-control")), (200, Some("no-store")), "{response:?}");
    response.json()
}

#[tokio::test]
async fn a_caller_with_the_scope_can_introspect_any_valid_token() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, OAUTH);
    let caller = gateway.issue("service", SCOPE).await;
    let login = json!({ "sub": "alice", "scope": "a b", "clientId": "app", "claims": { "salary": 1 } });
    let pair = TokenPair::from_json(&gateway.request_tokens(&login).await.json());

    let claims = claims_of(&pair.access);
    let mut expected =
        json!({ "active": true, "token_type": "Bearer", "client_id": "app", "sub": "alice", "scope": "a b" });
    for name in ["iss", "aud", "exp", "iat", "auth_time", "jti", "sid"] {
        expected[name] = claims[name].clone();
    }
    assert_eq!(introspected(&gateway, &caller, &pair.access).await, expected, "these members and no others");

    let now = gateway.now_secs();
    let expected = json!({
        "active": true, "token_type": "refresh_token", "iss": "https://gateway.example", "sub": "alice", "scope": "a b",
        "client_id": "app", "sid": pair.token_id, "iat": now, "auth_time": now, "exp": now + 7 * 86_400,
    });
    assert_eq!(introspected(&gateway, &caller, &pair.refresh).await, expected);

    let external = introspected(&gateway, &caller, &mint.valid_token(now)).await;
    assert_eq!(
        (&external["active"], &external["iss"], &external["sub"]),
        (&json!(true), &json!(EXTERNAL_ISSUER), &json!("bob"))
    );
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn introspection_requires_the_scope() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, OAUTH);
    let (alice, caller) = (gateway.issue("alice", "a").await, gateway.issue("service", SCOPE).await);
    let form = [("token", alice.access.as_str())];
    let send = |client| post(client, "/oauth/introspect", &form);
    let own = send(gateway.client().bearer(&alice.access)).await;
    assert_error(&own, 403, "insufficient_scope");
    assert!(own.header("www-authenticate").is_some_and(|challenge| challenge.contains("scope=\"token:introspect\"")));
    let external = mint.with_claims(gateway.now_secs(), json!({ "scope": SCOPE }));
    assert_error(&send(gateway.client().bearer(&external)).await, 403, "insufficient_scope");
    assert_error(&send(gateway.client()).await, 401, "unauthorized");
    let basic = send(gateway.client().header("authorization", "Basic YTpi")).await;
    assert_error(&basic, 401, "invalid_client");
    assert_eq!(basic.header("www-authenticate"), Some(BASIC), "no resource server is configured");
    assert_error(&send(gateway.client().bearer(&caller.refresh)).await, 401, "invalid_token");
    assert_error(&send(gateway.client().bearer(&caller.access).bearer(&caller.access)).await, 400, "invalid_request");
    assert_eq!(gateway.revoke(&caller.access, &caller.token_id).await.status, 200);
    assert_error(&send(gateway.client().bearer(&caller.access)).await, 401, "invalid_token");
}

#[tokio::test]
async fn an_invalid_token_is_reported_as_inactive_only() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let caller = gateway.issue("service", SCOPE).await;
    let first = gateway.issue("alice", "").await;
    let second = TokenPair::from_json(&gateway.refresh(&first.access, &first.refresh).await.json());
    let revoked = gateway.issue("alice", "").await;
    assert_eq!(gateway.revoke(&revoked.access, &revoked.token_id).await.status, 200);
    let forged = forged_refresh(&caller.token_id);
    let large = "x".repeat(8_000);
    for token in ["x", "a,b", &first.refresh, &revoked.access, &revoked.refresh, &second.token_id, &forged, &large] {
        assert_eq!(introspected(&gateway, &caller, token).await, json!({ "active": false }), "{token}");
    }
    for token in [&first.access, &second.access, &second.refresh] {
        assert_eq!(
            introspected(&gateway, &caller, token).await["active"],
            true,
            "a rotation does not end access tokens"
        );
    }
    assert_error(
        &post(gateway.client().bearer(&caller.access), "/oauth/introspect", &[]).await,
        400,
        "invalid_request",
    );

    gateway.advance(Duration::from_secs(3600));
    let caller = gateway.issue("service", SCOPE).await;
    assert_eq!(introspected(&gateway, &caller, &second.access).await, json!({ "active": false }), "expired");
    gateway.advance(Duration::from_secs(7 * 86_400));
    let caller = gateway.issue("service", SCOPE).await;
    assert_eq!(introspected(&gateway, &caller, &second.refresh).await, json!({ "active": false }));
}

/// Every client of a resource server can make it introspect forged tokens, all from one address.
#[tokio::test]
async fn forged_tokens_do_not_block_the_introspection_of_others() {
    let upstream = Upstream::start();
    let config = format!("{OAUTH}[limits]\nbad_signatures = 3\nintrospected_bad_signatures = 20\n");
    let gateway = Gateway::with_config(&upstream, &config);
    let (caller, other) = (gateway.issue("service", SCOPE).await, gateway.issue("service", SCOPE).await);
    let (known, fresh) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    assert_eq!(introspected(&gateway, &caller, &known.access).await["active"], true);
    assert_eq!(introspected(&gateway, &other, &known.access).await["active"], true);
    let forge = gateway.forger().await;
    let first = forge(0);
    assert_eq!(introspected(&gateway, &caller, &first).await, json!({ "active": false }));
    for number in 1..20 {
        assert_eq!(introspected(&gateway, &caller, &forge(number)).await, json!({ "active": false }), "{number}");
    }
    assert_eq!(introspected(&gateway, &caller, &first).await, json!({ "active": false }), "known to be bad");

    // The budget of this caller is used up. Only tokens with an unknown signature have to wait.
    let limited = introspect(&gateway, &caller, &forge(20)).await;
    assert_error(&limited, 429, "rate_limited");
    assert_eq!(limited.header("retry-after"), Some("1"));
    for token in [&known.access, &known.refresh, &fresh.refresh] {
        assert_eq!(introspected(&gateway, &caller, token).await["active"], true);
    }
    assert_eq!(introspected(&gateway, &other, &fresh.access).await["active"], true, "another caller");
    assert_eq!(gateway.status_of(&gateway.issue("carol", "").await.access).await, 200, "the address pays for nothing");
    gateway.advance(Duration::from_millis(500));
    assert_eq!(introspected(&gateway, &caller, &forge(21)).await, json!({ "active": false }));

    // The caller's own credential counts against its address.
    for number in 30..33 {
        let forged = TokenPair { access: forge(number), ..caller.clone() };
        assert_error(&introspect(&gateway, &forged, &known.access).await, 401, "invalid_token");
    }
    let forged = TokenPair { access: forge(40), ..caller.clone() };
    assert_error(&introspect(&gateway, &forged, &known.access).await, 429, "rate_limited");
    gateway.drain_and_check_log();
}

const SECRET: &str = "0123456789+abcdefghijklmnopqrstuv/=";

/// A gateway with a resource server and these keys of `[throttle]`.
fn with_resource_server(upstream: &Upstream, throttle: &str) -> Gateway {
    let folder = Arc::new(TempDir::new().expect("a folder"));
    secret::write_private(&folder.path().join("orders.secret"), SECRET.as_bytes()).expect("written");
    let server = "[[oauth.resource_server]]\nclient_id = \"orders\"\nsecret_file = \"orders.secret\"\n";
    let text = Gateway::config_text(&upstream.address.to_string(), &format!("{OAUTH}{server}"));
    let text = text.replace("failures = 0", throttle);
    Gateway::in_folder(text, folder, Arc::new(ManualClock::new()))
}

async fn introspect_as(gateway: &Gateway, credentials: &str, token: &str) -> TestResponse {
    let basic = format!("Basic {}", STANDARD.encode(credentials));
    post(gateway.client().header("authorization", &basic), "/oauth/introspect", &[("token", token)]).await
}

#[tokio::test]
async fn a_resource_server_introspects_with_its_secret() {
    let upstream = Upstream::start();
    let gateway = with_resource_server(&upstream, "failures = 3");
    let pair = gateway.issue("alice", "a").await;
    let encoded = SECRET.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let right = format!("orders:{SECRET}");
    for credentials in [&right, &format!("orders:{encoded}")] {
        for token in [&pair.access, &pair.refresh] {
            let response = introspect_as(&gateway, credentials, token).await;
            assert_eq!((response.status.as_u16(), &response.json()["active"]), (200, &json!(true)), "{response:?}");
        }
    }
    assert_eq!(introspect_as(&gateway, &right, "x").await.json(), json!({ "active": false }));

    let both = gateway.client().header("authorization", &format!("Basic {}", STANDARD.encode(&right)));
    let both = post(both.bearer(&pair.access), "/oauth/introspect", &[("token", &pair.access)]).await;
    assert_error(&both, 400, "invalid_request");
    for credentials in [&format!("orders:{}", &SECRET[1..]), &format!("Orders:{SECRET}")] {
        let response = introspect_as(&gateway, credentials, &pair.access).await;
        assert_error(&response, 401, "invalid_client");
        assert_eq!(response.header("www-authenticate"), Some(BASIC));
    }
    // The credentials allow nothing else.
    let basic = format!("Basic {}", STANDARD.encode(&right));
    let client = gateway.client().header("authorization", &basic);
    client.get("/").await.assert_rejected(401, "unauthorized");
    assert_error(&introspect_as(&gateway, "orders:", &pair.access).await, 429, "rate_limited");
    assert_eq!(introspect_as(&gateway, &right, &pair.access).await.status, 200, "the right secret is never limited");
    assert!(!gateway.file("access.log").contains(SECRET));
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn the_metadata_names_how_callers_of_introspection_authenticate() {
    let upstream = Upstream::start();
    for (gateway, methods) in [
        (gateway(&upstream), json!(["Bearer"])),
        (with_resource_server(&upstream, ""), json!(["Bearer", "client_secret_basic"])),
    ] {
        let metadata = gateway.client().get("/.well-known/oauth-authorization-server").await.json();
        assert_eq!(metadata["introspection_endpoint_auth_methods_supported"], methods);
    }
}

#[tokio::test]
async fn forged_tokens_of_a_resource_server_have_their_own_budget() {
    let upstream = Upstream::start();
    let gateway = with_resource_server(&upstream, "failures = 1\n[limits]\nbad_signatures = 1");
    let forge = gateway.forger().await;
    let right = format!("orders:{SECRET}");
    for number in 0..10 {
        assert_eq!(introspect_as(&gateway, &right, &forge(number)).await.json(), json!({ "active": false }));
    }
    let fresh = gateway.issue("alice", "").await;
    assert_eq!(introspect_as(&gateway, &right, &fresh.access).await.json()["active"], true);
}

/// A client can make a resource server ask about an empty token. Only wrong credentials are guesses.
#[tokio::test]
async fn malformed_questions_do_not_count_as_failures() {
    let upstream = Upstream::start();
    let gateway = with_resource_server(&upstream, "failures = 3");
    let (caller, alice) = (gateway.issue("service", SCOPE).await, gateway.issue("alice", "").await);
    let right = format!("orders:{SECRET}");
    for _ in 0..5 {
        assert_error(&introspect_as(&gateway, &right, "").await, 400, "invalid_request");
        assert_error(&introspect(&gateway, &caller, "").await, 400, "invalid_request");
    }
    let form = [("grant_type", "refresh_token"), ("refresh_token", alice.refresh.as_str())];
    let refreshed = post(gateway.client(), "/oauth/token", &form).await;
    assert_eq!(refreshed.status, 200, "the address has no failed call: {refreshed:?}");
    for _ in 0..3 {
        assert_error(&introspect_as(&gateway, "orders:wrong", &alice.access).await, 401, "invalid_client");
    }
    assert_error(&post(gateway.client(), "/oauth/token", &form).await, 429, "temporarily_unavailable");
}

/// The caller could take it for a Bearer: the gateway does not know whether the client has the key.
#[tokio::test]
async fn introspection_of_a_bound_token_follows_its_issuer() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let cnf = json!({ "jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I" });
    for (key, expected, kind) in [
        ("", json!(true), "DPoP"),
        ("cnf = \"reject\"\n", json!(false), ""),
        ("cnf = \"ignore\"\n", json!(true), "Bearer"),
    ] {
        let gateway = Gateway::with_issuer(&upstream, &mint, &format!("{key}{OAUTH}"));
        let caller = gateway.issue("service", SCOPE).await;
        let bound = mint.with_claims(gateway.now_secs(), json!({ "cnf": cnf }));
        let claims = introspected(&gateway, &caller, &bound).await;
        assert_eq!(claims["active"], expected);
        assert_eq!(claims.get("cnf"), Some(&cnf).filter(|_| expected == true));
        assert_eq!(claims["token_type"].as_str().unwrap_or_default(), kind);
    }
}
