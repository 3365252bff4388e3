//! `POST /admin/v1/tokens`: the first token pair of a login, and which requests are rejected.

use bearward::tokens::login::RESERVED_CLAIMS;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::tokens::claims_of;
use crate::support::{Gateway, TokenPair, Upstream};

#[tokio::test]
async fn a_trusted_backend_gets_a_pair_for_its_user() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let request = json!({
        "sub": "ålice/1 ", "scope": "orders:read orders:write", "aud": ["https://other.example", "https://api.example"],
        "clientId": "shop", "claims": { "tier": "gold", "roles": ["a", { "b": null }] }, "label": "Ida's 📱",
        "idle": 3_600, "absolute": 7_200,
    });
    let answer = gateway.request_tokens(&request).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let body = answer.json();
    let mut members: Vec<_> = body.as_object().expect("an object").keys().collect();
    members.sort();
    assert_eq!(members, ["accessToken", "expiresAt", "refreshToken", "success", "tokenId"]);
    let pair = TokenPair::from_json(&body);
    assert_eq!((&body["success"], &body["tokenId"]), (&json!(true), &json!(pair.token_id)));

    let mut claims = claims_of(&pair.access);
    assert_eq!(body["expiresAt"], claims["exp"]);
    assert_eq!(claims["auth_time"], claims["iat"]);
    assert_eq!(claims["auth_time_ms"], claims["iat"].as_u64().expect("a number") * 1000);
    for changing in ["exp", "iat", "jti", "auth_time", "auth_time_ms"] {
        claims[changing].take();
    }
    let expected = json!({
        "iss": "https://gateway.example", "sub": "ålice/1 ", "aud": ["https://other.example", "https://api.example"],
        "client_id": "shop", "scope": "orders:read orders:write", "sid": pair.token_id, "rgn": 1,
        "tier": "gold", "roles": ["a", { "b": null }], "exp": null, "iat": null, "jti": null,
        "auth_time": null, "auth_time_ms": null,
    });
    assert_eq!(claims, expected);
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    let refresh = json!({ "refreshToken": pair.refresh, "clientId": "shop" });
    let next = gateway.client().bearer(&pair.access).post("/user/refresh", &refresh).await;
    let next = TokenPair::from_json(&next.json());
    assert_eq!(claims_of(&next.access)["roles"], expected["roles"], "a refresh keeps the claims");

    let minimal = gateway.request_tokens(&json!({ "sub": "bob", "aud": "https://api.example" })).await;
    let claims = claims_of(&TokenPair::from_json(&minimal.json()).access);
    assert_eq!(claims["aud"], "https://api.example");
    assert!(claims.get("scope").is_none() && claims.get("client_id").is_none(), "{claims}");
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn invalid_token_requests_are_rejected_with_the_fault() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let mut rows: Vec<(Value, &str)> = vec![
        (json!([]), "object"),
        (json!(["alice"]), "object"),
        (json!("alice"), "object"),
        (json!({}), "missing field `sub`"),
        (json!({ "sub": 5 }), "expected a string"),
        (json!({ "sub": "" }), "1 to 255 bytes"),
        (json!({ "sub": "x".repeat(256) }), "1 to 255 bytes"),
        (json!({ "sub": "alice", "scopes": "a" }), "unknown field `scopes`"),
        (json!({ "sub": "alice", "client_id": "a" }), "unknown field `client_id`"),
        (json!({ "sub": "alice", "success": true }), "unknown field `success`"),
        (json!({ "sub": "alice", "scope": "a\"b" }), "RFC 6749 does not allow"),
        (json!({ "sub": "alice", "scope": "a\\b" }), "RFC 6749 does not allow"),
        (json!({ "sub": "alice", "scope": "a\nb" }), "RFC 6749 does not allow"),
        (json!({ "sub": "alice", "scope": "é" }), "RFC 6749 does not allow"),
        (json!({ "sub": "alice", "scope": ["a"] }), "expected a string"),
        (json!({ "sub": "alice", "aud": 5 }), "Audience"),
        (json!({ "sub": "alice", "aud": "https://other.example" }), "aud must include https://api.example"),
        (json!({ "sub": "alice", "aud": ["https://api.example/"] }), "aud must include https://api.example"),
        (json!({ "sub": "alice", "claims": [] }), "expected a map"),
        (json!({ "sub": "alice", "claims": { "x": "y".repeat(6_000) } }), "limits.token_size is 8192"),
        (json!({ "sub": "alice", "address": "localhost" }), "address"),
        (json!({ "sub": "alice", "idle": 0 }), "at least 1 second"),
        (json!({ "sub": "alice", "absolute": 0 }), "at least 1 second"),
        (json!({ "sub": "alice", "idle": -1 }), "invalid value"),
        (json!({ "sub": "alice", "idle": 1.5 }), "invalid type"),
        (json!({ "sub": "alice", "absolute": "7d" }), "invalid type"),
    ];
    for claim in RESERVED_CLAIMS {
        rows.push((json!({ "sub": "alice", "claims": { *claim: "mine" } }), claim));
    }
    for (request, expected) in rows {
        let answer = gateway.request_tokens(&request).await;
        eprintln!("{request}: {answer:?}");
        answer.assert_rejected(400, "invalid_request");
        let description = answer.json()["error_description"].as_str().expect("text").to_owned();
        assert!(description.contains(expected), "{expected:?} is missing: {description}");
    }
    for body in ["", "{", r#"{"sub":"alice","sub":"bob"}"#, r#"{"sub":"alice","claims":{"a":1,"a":2}}"#] {
        let admin = gateway.admin_client();
        admin.send(Method::POST, "/admin/v1/tokens", Bytes::from(body)).await.assert_rejected(400, "invalid_request");
    }
    let large = json!({ "sub": "alice", "label": "x".repeat(8 * 1024) });
    gateway.request_tokens(&large).await.assert_rejected(413, "invalid_request");
    let listed = gateway.admin_client().get("/admin/v1/subjects/alice/tokens").await.json();
    assert_eq!(listed["tokens"], json!([]), "no login was created");
}

#[tokio::test]
async fn lifetimes_can_be_shorter_than_configured_but_not_longer() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (day, now) = (86_400, gateway.now_secs());
    for (row, (idle, absolute, idle_after, absolute_after)) in [
        (None, None, 7 * day, 30 * day),
        (Some(day), Some(2 * day), day, 2 * day),
        (Some(8 * day), Some(31 * day), 7 * day, 30 * day),
        (None, Some(day), day, day),
        (Some(u64::MAX), Some(u64::MAX), 7 * day, 30 * day),
        (Some(1), None, 1, 30 * day),
    ]
    .into_iter()
    .enumerate()
    {
        let subject = format!("row{row}");
        let pair = gateway.request_tokens(&json!({ "sub": subject, "idle": idle, "absolute": absolute })).await;
        assert_eq!(pair.status, 201, "{pair:?}");
        let listed = gateway.admin_client().get(&format!("/admin/v1/subjects/{subject}/tokens")).await.json();
        let at = |after: u64| bearward::types::clock::UnixTime::from_secs(now + after).to_string();
        let listed = (&listed["tokens"][0]["idleExpiry"], &listed["tokens"][0]["absoluteExpiry"]);
        assert_eq!(listed, (&json!(at(idle_after)), &json!(at(absolute_after))), "row {row}");
    }
}

#[tokio::test]
async fn beyond_the_limit_the_least_recently_used_login_is_revoked() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, "[limits]\nsessions_per_subject = 3");
    let second = std::time::Duration::from_secs(1);
    let mut pairs = Vec::new();
    for _ in 0..3 {
        pairs.push(gateway.issue("alice", "").await);
        gateway.advance(second);
    }
    let bob = gateway.issue("bob", "").await;
    pairs[0] = TokenPair::from_json(&gateway.refresh(&pairs[0].access, &pairs[0].refresh).await.json());
    gateway.advance(second);
    let fourth = gateway.issue("alice", "").await;
    for (pair, status) in [(&pairs[0], 200), (&pairs[1], 401), (&pairs[2], 200), (&fourth, 200), (&bob, 200)] {
        assert_eq!(gateway.status_of(&pair.access).await, status);
    }
    gateway.refresh(&pairs[1].access, &pairs[1].refresh).await.assert_rejected(400, "invalid_grant");
    let listed = gateway.admin_client().get("/admin/v1/subjects/alice/tokens").await.json();
    let revoked = listed["tokens"].as_array().expect("a list").iter().find(|token| token["state"] != "live");
    let revoked = revoked.expect("it is listed");
    assert_eq!((&revoked["tokenId"], &revoked["reason"]), (&json!(pairs[1].token_id), &json!("limit")));
}
