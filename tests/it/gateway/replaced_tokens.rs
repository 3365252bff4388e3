//! `token = "replace"`: the backend receives a token of the gateway with the claims of the client's token.

use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::jws::verify_signature;
use bearward::tokens::jwt::key_set::KeySet;
use bearward::types::clock::UnixTime;
use bearward::types::step::StepReporter;
use serde_json::{Value, json};

use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Gateway, Upstream};

const ROUTES: &str = r#"
[[route]]
path = "/orders"
token = "replace"
token_audience = ["https://orders.internal"]
token_from = ["header", "cookie:session"]
[[route]]
path = "/stock"
token = "replace"
token_audience = ["https://stock.internal", "https://both.internal"]
[[route]]
path = "/observed"
token = "replace"
token_audience = ["https://orders.internal"]
enforce = false
[[route]]
path = "/"
"#;

/// The token of the last request at the backend, and its claims. Verifies it with the published keys of the gateway.
async fn last_token(gateway: &Gateway, upstream: &Upstream) -> (String, Value) {
    let seen = upstream.seen().pop().expect("a request");
    let token = seen.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).expect("a token");
    let jwks = gateway.client().get("/.well-known/jwks.json").await.text();
    let keys = KeySet::from_jwks(&jwks, &[Algorithm::ES256]).expect("published keys");
    let claims = verify_signature(token, &keys, StepReporter::OFF).expect("a valid signature");
    (token.to_owned(), serde_json::from_slice(&claims).expect("JSON"))
}

#[tokio::test]
async fn the_replaced_token_keeps_the_claims_but_not_the_audience() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let pair = gateway.issue("alice", "orders:read").await;
    let own = crate::support::tokens::claims_of(&pair.access);
    assert_eq!(gateway.client().bearer(&pair.access).get("/orders").await.status, 200);
    let (token, claims) = last_token(&gateway, &upstream).await;
    assert_ne!(token, pair.access);
    let now = gateway.now_secs();
    let same =
        ["sub", "scope", "sid", "rgn", "client_id", "auth_time", "auth_time_ms"].map(|name| (name, own[name].clone()));
    assert!(same.iter().all(|(name, value)| claims[name] == *value), "{claims}");
    assert_eq!(claims["iss"], own["iss"]);
    assert_eq!(claims["aud"], "https://orders.internal");
    assert_eq!(claims["iat"], now);
    assert_ne!(claims["jti"], own["jti"]);
    assert!(claims.get("idp").is_none());
    assert_eq!(upstream.seen().pop().expect("a request").header("x-auth-subject"), Some("alice"));

    // The gateway does not accept it from a client.
    gateway.client().bearer(&token).get("/").await.assert_rejected(401, "invalid_token");
    // Each audience has its own token. Both are cached.
    assert_eq!(gateway.client().bearer(&pair.access).get("/stock").await.status, 200);
    assert_eq!(
        last_token(&gateway, &upstream).await.1["aud"],
        json!(["https://stock.internal", "https://both.internal"])
    );
    assert_eq!(gateway.client().bearer(&pair.access).get("/orders").await.status, 200);
    assert_eq!(last_token(&gateway, &upstream).await.0, token, "the cached token");
    // On other routes the backend receives the client's token.
    assert_eq!(gateway.client().bearer(&pair.access).get("/").await.status, 200);
    assert_eq!(last_token(&gateway, &upstream).await.0, pair.access);
}

#[tokio::test]
async fn the_backend_never_receives_the_clients_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let pair = gateway.issue("alice", "").await;
    let response = gateway.client().header("cookie", &format!("a=1; session={}", pair.access)).get("/orders").await;
    assert_eq!(response.status, 200);
    assert_eq!(upstream.only_request().header("cookie"), Some("a=1"));
    assert_eq!(last_token(&gateway, &upstream).await.1["sub"], "alice");
    // An invalid token is removed, and no other takes its place.
    assert_eq!(gateway.client().bearer("x").get("/observed").await.status, 200);
    let observed = upstream.seen().pop().expect("a request");
    assert_eq!((observed.header("authorization"), observed.header("x-auth-observed")), (None, Some("malformed_token")));
}

#[tokio::test]
async fn family_claims_of_another_issuer_are_not_copied() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::RS256);
    let gateway = Gateway::with_issuer(&upstream, &mint, &format!("cnf = \"ignore\"\n{ROUTES}"));
    let now = gateway.now_secs();
    let extra = json!({
        "sid": "s", "rgn": 1, "auth_time": now - 60, "auth_time_ms": now * 1000, "cnf": { "jkt": "x" },
        "idp": "forged", "tenant": "t", "nbf": now,
    });
    let token = mint.with_claims(now, extra);
    assert_eq!(gateway.client().bearer(&token).get("/orders").await.status, 200);
    let (_, claims) = last_token(&gateway, &upstream).await;
    for name in ["sid", "rgn", "auth_time_ms", "cnf", "nbf"] {
        assert!(claims.get(name).is_none(), "{name}: {claims}");
    }
    assert_eq!(
        (&claims["idp"], &claims["tenant"], &claims["sub"], &claims["auth_time"]),
        (&json!(EXTERNAL_ISSUER), &json!("t"), &json!("bob"), &json!(now - 60))
    );
}

/// The gateway's tokens live for 15 minutes, the client's token for one hour. A replaced token is renewed after half of
/// its lifetime. The last one expires with the client's token.
#[tokio::test]
async fn a_replaced_token_expires_no_later_than_the_clients_token() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, ROUTES);
    let start = gateway.now_secs();
    let token = mint.with_claims(start, json!({ "exp": start + 3600 }));
    let end = UnixTime::from_secs(start + 3600 + 30).as_secs();
    let replaced = async || {
        assert_eq!(gateway.client().bearer(&token).get("/orders").await.status, 200);
        last_token(&gateway, &upstream).await
    };
    let (first, claims) = replaced().await;
    assert_eq!(claims["exp"], start + 900);
    gateway.advance(Duration::from_millis(449_999));
    assert_eq!(replaced().await.0, first, "a millisecond before half of its lifetime");
    gateway.advance(Duration::from_millis(1));
    let (second, claims) = replaced().await;
    assert_ne!(second, first);
    assert_eq!(claims["exp"], start + 450 + 900);
    gateway.advance(Duration::from_secs(3600 - 450));
    let (last, claims) = replaced().await;
    assert_eq!(claims["exp"], end, "the expiry of the client's token, with its clock skew");
    gateway.advance(Duration::from_millis(29_999));
    assert_eq!(replaced().await.0, last);
    gateway.advance(Duration::from_millis(1));
    assert_eq!(gateway.client().bearer(&token).get("/orders").await.status, 401);
}

/// Backends reject a token that is dated ahead.
#[tokio::test]
async fn a_replaced_token_is_renewed_when_the_clock_is_set_back() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, ROUTES);
    let token = mint.with_claims(gateway.now_secs() - 1_000, json!({ "exp": gateway.now_secs() + 1_000 }));
    let replaced = async || {
        assert_eq!(gateway.client().bearer(&token).get("/orders").await.status, 200);
        last_token(&gateway, &upstream).await
    };
    let (first, _) = replaced().await;
    gateway.clock.set_back(Duration::from_millis(900));
    assert_eq!(replaced().await.0, first, "another worker may have read the clock a moment earlier");
    gateway.clock.set_back(Duration::from_secs(300));
    let (second, claims) = replaced().await;
    assert_ne!(second, first);
    assert_eq!(claims["iat"], gateway.now_secs());
}

/// A cached token can have one replaced token for each audience. They stay in the cache as long as it does.
#[tokio::test]
async fn replaced_tokens_count_against_the_token_cache_size() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, &format!("[limits]\ntoken_cache_size = \"1MiB\"\n{ROUTES}"));
    let mut in_memory = 0;
    for number in 0..150 {
        let claims = json!({ "jti": number.to_string(), "note": "n".repeat(2000) });
        let token = mint.with_claims(gateway.now_secs(), claims);
        for path in ["/orders", "/stock"] {
            assert_eq!(gateway.client().bearer(&token).get(path).await.status, 200);
        }
        let replaced: Vec<usize> =
            upstream.seen().iter().filter_map(|seen| seen.header("authorization")).map(str::len).collect();
        assert_eq!(replaced.len(), 2, "one replaced token for each audience");
        upstream.forget();
        // The size of the token as the key, and of its claims as values.
        in_memory = token.len() * 5 + replaced.iter().sum::<usize>();
    }
    let known = gateway.metric("bearward_token_cache_entries ").await as usize;
    assert!(known > 5, "{known} of {in_memory} bytes each");
    assert!(known * in_memory <= 1 << 20, "{known} of {in_memory} bytes each");
}
