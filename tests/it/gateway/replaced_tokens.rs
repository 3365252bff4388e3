//! `token = "replace"`: the upstream sees a token of the gateway's own, which says what the client's said and no more.

use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::jws::verify_signature;
use bearward::tokens::jwt::key_set::KeySet;
use bearward::types::clock::UnixTime;
use bearward::types::trace::Trace;
use serde_json::{Value, json};

use crate::support::tokens::{FOREIGN, Mint};
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

/// What the upstream saw last, once its signature holds by the keys that the gateway publishes.
async fn seen(gateway: &Gateway, upstream: &Upstream) -> (String, Value) {
    let seen = upstream.seen().pop().expect("a request");
    let token = seen.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).expect("a token");
    let jwks = gateway.client().get("/.well-known/jwks.json").await.text();
    let keys = KeySet::from_jwks(&jwks, &[Algorithm::ES256]).expect("published keys");
    let claims = verify_signature(token, &keys, Trace::OFF).expect("a good signature");
    (token.to_owned(), serde_json::from_slice(&claims).expect("JSON"))
}

#[tokio::test]
async fn it_says_what_the_clients_token_says_for_another_audience() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&upstream, ROUTES);
    let pair = gateway.issue("alice", "orders:read").await;
    let own = crate::support::tokens::claims_of(&pair.access);
    assert_eq!(gateway.client().bearer(&pair.access).get("/orders").await.status, 200);
    let (token, claims) = seen(&gateway, &upstream).await;
    assert_ne!(token, pair.access);
    let now = gateway.now_secs();
    let same = ["sub", "scope", "sid", "rgn", "client_id"].map(|name| (name, own[name].clone()));
    assert!(same.iter().all(|(name, value)| claims[name] == *value), "{claims}");
    assert_eq!(claims["iss"], own["iss"]);
    assert_eq!(claims["aud"], "https://orders.internal");
    assert_eq!(claims["iat"], now);
    assert_ne!(claims["jti"], own["jti"]);
    assert!(claims.get("idp").is_none());
    assert_eq!(upstream.seen().pop().expect("a request").header("x-auth-subject"), Some("alice"));

    // Not good for coming back.
    gateway.client().bearer(&token).get("/").await.refused(401, "invalid_token");
    // Another audience has its own; both are kept.
    assert_eq!(gateway.client().bearer(&pair.access).get("/stock").await.status, 200);
    assert_eq!(seen(&gateway, &upstream).await.1["aud"], json!(["https://stock.internal", "https://both.internal"]));
    assert_eq!(gateway.client().bearer(&pair.access).get("/orders").await.status, 200);
    assert_eq!(seen(&gateway, &upstream).await.0, token, "made once");
    // On another route the client's own goes on.
    assert_eq!(gateway.client().bearer(&pair.access).get("/").await.status, 200);
    assert_eq!(seen(&gateway, &upstream).await.0, pair.access);
}

#[tokio::test]
async fn wherever_the_token_was_the_upstream_sees_only_ours() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&upstream, ROUTES);
    let pair = gateway.issue("alice", "").await;
    let answer = gateway.client().header("cookie", &format!("a=1; session={}", pair.access)).get("/orders").await;
    assert_eq!(answer.status, 200);
    assert_eq!(upstream.only().header("cookie"), Some("a=1"));
    assert_eq!(seen(&gateway, &upstream).await.1["sub"], "alice");
    // Nobody's token is replaced by nobody's.
    assert_eq!(gateway.client().bearer("x").get("/observed").await.status, 200);
    let observed = upstream.seen().pop().expect("a request");
    assert_eq!((observed.header("authorization"), observed.header("x-auth-observed")), (None, Some("malformed_token")));
}

#[tokio::test]
async fn another_issuers_families_and_keys_are_not_taken_for_ours() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::RS256);
    let gateway = Gateway::trusting(&upstream, &mint, ROUTES);
    let now = gateway.now_secs();
    let extra = json!({ "sid": "s", "rgn": 1, "cnf": { "jkt": "x" }, "idp": "forged", "tenant": "t", "nbf": now });
    let token = mint.with_claims(now, extra);
    assert_eq!(gateway.client().bearer(&token).get("/orders").await.status, 200);
    let (_, claims) = seen(&gateway, &upstream).await;
    for name in ["sid", "rgn", "cnf", "nbf"] {
        assert!(claims.get(name).is_none(), "{name}: {claims}");
    }
    assert_eq!((&claims["idp"], &claims["tenant"], &claims["sub"]), (&json!(FOREIGN), &json!("t"), &json!("bob")));
}

/// The gateway's tokens live for 15 minutes, this client's for one hour: the upstream's is renewed after half of its life,
/// and the last ends with the client's.
#[tokio::test]
async fn it_never_outlives_the_clients_and_is_renewed_before_it_ends() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::trusting(&upstream, &mint, ROUTES);
    let start = gateway.now_secs();
    let token = mint.with_claims(start, json!({ "exp": start + 3600 }));
    let end = UnixTime::from_secs(start + 3600 + 30).as_secs();
    let ask = async || {
        assert_eq!(gateway.client().bearer(&token).get("/orders").await.status, 200);
        seen(&gateway, &upstream).await
    };
    let (first, claims) = ask().await;
    assert_eq!(claims["exp"], start + 900);
    gateway.advance(Duration::from_millis(449_999));
    assert_eq!(ask().await.0, first, "a millisecond before half of its life");
    gateway.advance(Duration::from_millis(1));
    let (second, claims) = ask().await;
    assert_ne!(second, first);
    assert_eq!(claims["exp"], start + 450 + 900);
    gateway.advance(Duration::from_secs(3600 - 450));
    let (last, claims) = ask().await;
    assert_eq!(claims["exp"], end, "the clock skew that the client has");
    gateway.advance(Duration::from_millis(29_999));
    assert_eq!(ask().await.0, last);
    gateway.advance(Duration::from_millis(1));
    assert_eq!(gateway.client().bearer(&token).get("/orders").await.status, 401);
}

/// Each token may come to have one for every audience, and they stay as long as it does.
#[tokio::test]
async fn what_replaces_known_tokens_counts_as_memory_for_them() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::trusting(&upstream, &mint, &format!("[limits]\ntoken_cache_size = \"1MiB\"\n{ROUTES}"));
    let mut in_memory = 0;
    for number in 0..150 {
        let claims = json!({ "jti": number.to_string(), "note": "n".repeat(2000) });
        let token = mint.with_claims(gateway.now_secs(), claims);
        for path in ["/orders", "/stock"] {
            assert_eq!(gateway.client().bearer(&token).get(path).await.status, 200);
        }
        let replaced: usize =
            upstream.seen().iter().filter_map(|seen| seen.header("authorization")).map(str::len).sum();
        upstream.forget();
        // As key, and its claims as values.
        in_memory = token.len() * 5 + replaced;
    }
    let known = gateway.metric("bearward_known_tokens ").await as usize;
    assert!(known > 5, "{known} of {in_memory} bytes each");
    assert!(known * in_memory <= 1 << 20, "{known} of {in_memory} bytes each");
}
