//! `enforce = false`: an invalid token is reported but not rejected, so that a service can be moved behind the gateway
//! without an outage.

use bearward::tokens::jwt::Algorithm;
use serde_json::json;

use crate::support::tokens::Mint;
use crate::support::{Client, Gateway, Upstream};

const ROUTES: &str = r#"
[[route]]
path = "/"
scopes = ["a"]
enforce = false
token_from = ["header", "cookie:session", "query:t"]
[[route.claim]]
pointer = "/tenant"
equals = "acme"
[[route]]
path = "/enforced"
[[route]]
path = "/post"
methods = ["POST"]
enforce = false
[[route]]
path = "/drop"
token = "drop"
enforce = false
"#;

#[tokio::test]
async fn an_invalid_token_is_only_reported() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, ROUTES);
    let now = gateway.now_secs();
    let acme = |changes: serde_json::Value| {
        let mut claims = json!({ "tenant": "acme" });
        claims.as_object_mut().expect("an object").extend(changes.as_object().expect("an object").clone());
        mint.with_claims(now, claims)
    };
    let valid = acme(json!({}));
    let client = || gateway.client().header("x-auth-observed", "forged").header("X_Auth_Observed", "forged");
    let rows: Vec<(Client, &str)> = vec![
        (client().bearer(&valid), ""),
        (client(), "no_token"),
        (client().header("authorization", "Basic YTpi"), "no_token"),
        (client().bearer(&valid).bearer(&valid), "several_tokens"),
        (client().bearer(&valid).header("cookie", &format!("session={valid}")), "several_tokens"),
        (client().bearer("x"), "malformed_token"),
        (client().bearer(&format!("{valid}x")), "bad_signature"),
        (client().bearer(&acme(json!({ "exp": now - 30, "iat": now - 60 }))), "expired"),
        (client().bearer(&acme(json!({ "aud": "x" }))), "wrong_audience"),
        (client().bearer(&acme(json!({ "scope": "b" }))), "insufficient_scope"),
        (client().bearer(&mint.valid_token(now)), "claim_rejected"),
    ];
    for (row, (client, reason)) in rows.iter().enumerate() {
        let response = client.get(&format!("/{row}")).await;
        assert_eq!((response.status.as_u16(), response.text().as_str()), (200, "hello"), "{reason}");
        let seen = upstream.seen().pop().expect("it arrived");
        let observed: Vec<_> = seen.headers.get_all("x-auth-observed").iter().collect();
        assert_eq!(observed, if reason.is_empty() { vec![] } else { vec![*reason] }, "{seen:?}");
        assert!(!seen.headers.contains_key("x_auth_observed"));
        // An invalid token does not set the identity headers.
        let identity =
            seen.headers.keys().filter(|name| name.as_str().starts_with("x-auth-") && *name != "x-auth-observed");
        assert_eq!(identity.count() > 0, reason.is_empty(), "{reason}: {seen:?}");
        assert_eq!(seen.header("x-auth-subject"), reason.is_empty().then_some("bob"));
    }
    let lines = gateway.log_lines(rows.len()).await;
    for (row, (_, reason)) in rows.iter().enumerate() {
        let line = lines.iter().find(|line| line["path"] == format!("/{row}")).expect("a line for each request");
        assert_eq!(line["observed"].as_str().unwrap_or_default(), *reason, "{line}");
        assert!(line.get("reason").is_none() && line["status"] == 200, "{line}");
    }
    let expired = lines.iter().find(|line| line["observed"] == "expired").expect("a line");
    assert_eq!(expired["detail"], "expired 0s ago, clock skew included");
    let metrics = gateway.admin_client().get("/metrics").await.text();
    assert!(metrics.contains("bearward_observed_total{reason=\"no_token\"} 2\n"), "{metrics}");
    assert!(metrics.contains("bearward_rejections_total{reason=\"no_token\"} 0\n"), "{metrics}");
}

#[tokio::test]
async fn other_invalid_requests_are_still_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    gateway.client().get("/a/../b").await.assert_rejected(400, "invalid_request");
    gateway.client().get("/a%2fb").await.assert_rejected(400, "invalid_request");
    gateway.client().header("host", "a, b").get("/").await.assert_rejected(400, "invalid_request");
    gateway.client().get("/post").await.assert_rejected(405, "invalid_request");
    gateway.client().get("/enforced").await.assert_rejected(401, "unauthorized");
    gateway.client().delete("/token/x").await.assert_rejected(401, "unauthorized");
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn csrf_and_revoked_tokens_are_only_reported() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let pair = gateway.issue("alice", "a").await;
    let observed = async |client: Client, method: http::Method, path: &str| {
        let response = client.send(method, path, Default::default()).await;
        assert_eq!(response.status, 200, "{response:?}");
        upstream.seen().pop().expect("it arrived")
    };
    let forged = gateway.client().header("cookie", &format!("session={}", pair.access));
    let seen = observed(forged.header("origin", "https://evil.example"), http::Method::POST, "/").await;
    assert_eq!(seen.header("x-auth-observed"), Some("csrf"));
    assert_eq!(gateway.revoke(&pair.access, &pair.token_id).await.status, 200);
    let seen = observed(gateway.client().bearer(&pair.access), http::Method::GET, "/").await;
    assert_eq!(seen.header("x-auth-observed"), Some("revoked"));
    assert_eq!(seen.header("authorization"), Some(format!("Bearer {}", pair.access).as_str()), "forwarded unchanged");
    // The token is also removed from the query, or dropped, if it is invalid.
    let seen = observed(gateway.client(), http::Method::GET, &format!("/x?t={}&y", pair.access)).await;
    assert_eq!((seen.uri.as_str(), seen.header("x-auth-observed")), ("/x?y", Some("revoked")));
    let seen = observed(gateway.client().bearer(&pair.access), http::Method::GET, "/drop").await;
    assert_eq!((seen.header("authorization"), seen.header("x-auth-observed")), (None, Some("revoked")));
}
