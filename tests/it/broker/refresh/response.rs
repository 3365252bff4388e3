//! The response of a refresh.

use tokio::task::JoinSet;

use super::{gateway_with_tokens, listed, pair_of, refreshed};
use crate::support::tokens::claims_of;
use crate::support::{Gateway, TokenPair, Upstream};

#[tokio::test]
async fn a_refresh_response_has_exactly_four_fields() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let first = gateway.issue("alice", "orders:read").await;
    let response = gateway.refresh(&first.access, &first.refresh).await;
    let next = pair_of(&response);
    assert_eq!(response.header("content-type"), Some("application/json"));

    let body = response.json();
    let mut members: Vec<_> = body.as_object().expect("an object").keys().collect();
    members.sort();
    assert_eq!(members, ["accessToken", "expiresAt", "refreshToken", "success"]);
    assert_eq!(body["success"], true);

    let (before, claims) = (claims_of(&first.access), claims_of(&next.access));
    assert_eq!(body["expiresAt"], claims["exp"], "the expiry of the token in seconds");
    let lifetime = body["expiresAt"].as_u64().expect("an integer") - gateway.now_secs();
    assert!((855..=900).contains(&lifetime), "15 minutes, minus up to 5 %: {lifetime}");
    for same in ["iss", "sub", "aud", "sid", "scope"] {
        assert_eq!(claims[same], before[same], "{same}");
    }
    assert_eq!((&before["rgn"], &claims["rgn"]), (&1.into(), &2.into()));
    assert_ne!(claims["jti"], before["jti"]);
    assert_eq!(claims["sid"], first.token_id.as_str());
    assert_eq!(next.token_id, first.token_id, "the token id stays the same");
    assert_eq!(next.refresh.len(), 90);
    assert_ne!(next.refresh, first.refresh);

    assert_eq!(gateway.status_of(&next.access).await, 200);
    assert_eq!(gateway.status_of(&first.access).await, 200, "a rotation does not end access tokens");
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn milliseconds_and_extra_fields_are_optional() {
    let upstream = Upstream::start();
    let gateway = gateway_with_tokens(&upstream, "expires_at = \"milliseconds\"\nextra_fields = true");
    let first = gateway.issue("alice", "").await;
    let response = gateway.refresh(&first.access, &first.refresh).await;
    let exp = claims_of(&pair_of(&response).access)["exp"].as_u64().expect("an integer");
    let body = response.json();
    assert_eq!(body["expiresAt"], exp * 1000);
    assert_eq!(body["expiresIn"], exp - gateway.now_secs());
    assert_eq!(body["tokenId"], first.token_id.as_str());
    assert_eq!(body.as_object().expect("an object").len(), 6, "{body}");
}

/// What a repeated refresh returns: the same refresh token, and an access token of its own that is as good.
#[tokio::test]
async fn a_repeated_refresh_gets_a_newly_signed_access_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let first = gateway.issue("alice", "orders:read").await;
    let second = refreshed(&gateway, &first).await;
    gateway.advance(std::time::Duration::from_secs(9));
    let again = refreshed(&gateway, &first).await;
    assert_eq!((&again.refresh, &again.token_id), (&second.refresh, &second.token_id));
    let (one, other) = (claims_of(&second.access), claims_of(&again.access));
    for same in ["iss", "sub", "aud", "sid", "scope", "rgn"] {
        assert_eq!(one[same], other[same], "{same}");
    }
    assert_ne!(one["jti"], other["jti"]);
    assert_eq!(other["iat"], gateway.now_secs());
    for pair in [&second, &again] {
        assert_eq!(gateway.status_of(&pair.access).await, 200);
    }
}

#[tokio::test]
async fn the_lifetime_jitter_shortens_access_tokens() {
    let upstream = Upstream::start();
    for (jitter, shortest) in [(0, 900), (50, 450)] {
        let gateway = gateway_with_tokens(&upstream, &format!("lifetime_jitter = {jitter}\nextra_fields = true"));
        let mut lifetimes = Vec::new();
        for _ in 0..20 {
            let pair = gateway.issue("alice", "").await;
            let body = gateway.refresh(&pair.access, &pair.refresh).await.json();
            let lifetime = body["expiresIn"].as_u64().expect("an integer");
            assert!((shortest..=900).contains(&lifetime), "{jitter} %: {lifetime}");
            let access = body["accessToken"].as_str().expect("a token");
            assert_eq!(claims_of(access)["exp"], body["expiresAt"]);
            assert_eq!(body["expiresAt"], gateway.now_secs() + lifetime);
            lifetimes.push(lifetime);
        }
        lifetimes.dedup();
        assert_eq!(lifetimes.len() > 1, jitter > 0, "{lifetimes:?}");
    }
}

/// As 64 tabs of a browser that resume at the same time.
#[tokio::test]
async fn one_token_refreshed_64_times_at_once_rotates_once() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let first = gateway.issue("alice", "").await;
    let client = gateway.client().bearer(&first.access);
    let body = serde_json::json!({ "refreshToken": first.refresh });
    let mut tabs: JoinSet<_> = (0..64)
        .map(|_| {
            let (client, body) = (client.clone(), body.clone());
            async move { client.post("/user/refresh", &body).await }
        })
        .collect();
    let mut pairs: Vec<TokenPair> = Vec::new();
    while let Some(response) = tabs.join_next().await {
        pairs.push(pair_of(&response.expect("no panic")));
    }
    assert_eq!(pairs.len(), 64);
    for pair in &pairs {
        assert_eq!(pair.refresh, pairs[0].refresh, "all responses have the same refresh token");
        let claims = claims_of(&pair.access);
        assert_eq!((&claims["sid"], &claims["rgn"]), (&first.token_id.as_str().into(), &2.into()));
    }
    let third = refreshed(&gateway, &pairs[63]).await;
    assert_eq!(claims_of(&third.access)["rgn"], 3, "there was one rotation");
    assert_eq!(listed(&gateway, &third, "alice").await["state"], "live");
}

#[tokio::test]
async fn refresh_and_revocation_work_over_tls_and_http2() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let client = crate::support::Client::http2(gateway.tls_address()).over_tls(&gateway.certificate());
    let body = serde_json::json!({ "refreshToken": pair.refresh });
    let next = pair_of(&client.clone().bearer(&pair.access).post("/user/refresh", &body).await);
    let revoked = client.bearer(&next.access).delete(&format!("/token/{}", next.token_id)).await;
    assert_eq!((revoked.status.as_u16(), revoked.text().as_str()), (200, r#"{"success":true}"#));
    assert_eq!(gateway.status_of(&next.access).await, 401);
}
