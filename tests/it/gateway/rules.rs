//! The rules of a route for valid tokens, and what the client and the operator see when a token breaks one.

use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};

use crate::support::tokens::Mint;
use crate::support::{Gateway, Upstream};

const ROUTES: &str = r#"
[[route]]
path = "/all"
scopes = ["a", "b"]
[[route]]
path = "/any"
any_scope = ["x", "b"]
[[route]]
path = "/both"
scopes = ["a"]
any_scope = ["x", "y"]
[[route]]
path = "/tenant"
[[route.claim]]
pointer = "/tenant/name"
equals = "acme"
[[route]]
path = "/admin"
[[route.claim]]
pointer = "/realm_access/roles"
contains = "admin"
[[route.claim]]
pointer = "/plan"
one_of = ["team", "enterprise"]
[[route.claim]]
pointer = "/email"
present = true
[[route]]
path = "/write"
methods = ["POST"]
[[route]]
path = "/"
"#;

#[tokio::test]
async fn a_token_must_satisfy_every_rule_of_its_route() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, ROUTES);
    let now = gateway.now_secs();
    let admin = json!({
        "realm_access": { "roles": ["user", "admin"] }, "plan": "team", "email": "b@example",
        "tenant": { "name": "acme" },
    });
    let without = |name: &str| {
        let mut claims = admin.clone();
        claims.as_object_mut().expect("an object").remove(name);
        claims
    };
    let with = |name: &str, value: Value| {
        let mut claims = admin.clone();
        claims[name] = value;
        claims
    };
    let at = |path: &str, row: usize| format!("{}/{row}", path.trim_end_matches('/'));
    // The scope is `a b` unless a row changes it.
    let rows: Vec<(&str, Value, &str)> = vec![
        ("/all", json!({}), ""),
        ("/all", json!({ "scope": "b a c" }), ""),
        ("/all", json!({ "scope": ["a", "b"] }), ""),
        ("/all", json!({ "scope": " a  b " }), ""),
        ("/all", json!({ "scope": ["a", "b", "x y"] }), "bad_claims"),
        ("/all", json!({ "scope": null, "scp": "a b" }), ""),
        ("/all", json!({ "scope": "a" }), "insufficient_scope"),
        ("/all", json!({ "scope": "ab" }), "insufficient_scope"),
        ("/all", json!({ "scope": "A b" }), "insufficient_scope"),
        ("/all", json!({ "scope": null }), "insufficient_scope"),
        ("/any", json!({}), ""),
        ("/any", json!({ "scope": "x" }), ""),
        ("/any", json!({ "scope": "a y" }), "insufficient_scope"),
        ("/both", json!({ "scope": "y a" }), ""),
        ("/both", json!({ "scope": "a b" }), "insufficient_scope"),
        ("/both", json!({ "scope": "x" }), "insufficient_scope"),
        ("/tenant", admin.clone(), ""),
        ("/tenant", json!({}), "claim_rejected"),
        ("/tenant", with("tenant", json!({ "name": "ACME" })), "claim_rejected"),
        ("/tenant", with("tenant", json!({ "name": ["acme"] })), "claim_rejected"),
        ("/tenant", with("tenant", json!("acme")), "claim_rejected"),
        ("/tenant", json!({ "tenant/name": "acme" }), "claim_rejected"),
        ("/admin", admin.clone(), ""),
        ("/admin", with("realm_access", json!({ "roles": "admin" })), ""),
        ("/admin", with("realm_access", json!({ "roles": ["admins"] })), "claim_rejected"),
        ("/admin", with("realm_access", json!({ "roles": [["admin"]] })), "claim_rejected"),
        ("/admin", with("plan", json!("free")), "claim_rejected"),
        ("/admin", with("email", Value::Null), "claim_rejected"),
        ("/admin", without("plan"), "claim_rejected"),
        ("/admin", without("realm_access"), "claim_rejected"),
        ("/", json!({ "scope": null }), ""),
    ];
    for (row, (path, changes, reason)) in rows.iter().enumerate() {
        let token = mint.with_claims(now, changes.clone());
        let response = gateway.client().bearer(&token).get(&at(path, row)).await;
        match *reason {
            "" => assert_eq!(response.status, 200, "{path} {changes}: {response:?}"),
            "claim_rejected" => response.assert_rejected(403, "forbidden"),
            "bad_claims" => response.assert_rejected(401, "invalid_token"),
            reason => response.assert_rejected(403, reason),
        }
    }
    let lines = gateway.log_lines(rows.len()).await;
    for (row, (path, changes, reason)) in rows.iter().enumerate() {
        let line = lines.iter().find(|line| line["path"] == at(path, row)).expect("a line for each request");
        assert_eq!(line["reason"].as_str().unwrap_or_default(), *reason, "{path} {changes}: {line}");
    }
    let passed = rows.iter().filter(|(_, _, reason)| reason.is_empty()).count();
    assert_eq!(upstream.seen().len(), passed, "the backend received only the allowed requests");
}

#[tokio::test]
async fn the_client_sees_the_missing_scope_and_the_log_the_claim() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, ROUTES);
    let now = gateway.now_secs();
    let token = mint.with_claims(now, json!({ "scope": "c", "tenant": { "name": "initech" } }));
    for (path, scope) in [("/all", "a b"), ("/any", "x"), ("/both", "a x")] {
        let response = gateway.client().bearer(&token).get(path).await;
        let challenge = response.header("www-authenticate").expect("a challenge");
        let expected = format!(
            "error=\"insufficient_scope\", \
             error_description=\"the token lacks a required scope\", scope=\"{scope}\""
        );
        assert!(challenge.ends_with(&expected), "{path}: {challenge}");
    }
    let response = gateway.client().bearer(&token).get("/tenant").await;
    response.assert_rejected(403, "forbidden");
    assert!(!response.text().contains("tenant"), "the response does not name the claim: {response:?}");
    let lines = gateway.log_lines(4).await;
    let line = lines.iter().find(|line| line["path"] == "/tenant").expect("a line");
    assert_eq!(line["detail"], "claim /tenant/name does not match its rule");
    assert!(!line.to_string().contains("initech"), "the value of the claim is not logged: {line}");
    gateway.client().bearer(&token).get("/write").await.assert_rejected(405, "invalid_request");
}

#[tokio::test]
async fn claims_reach_the_backend_in_headers_clients_cannot_forge() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let more = r#"
[[identity.claim]]
pointer = "/tenant/name"
header = "X-Tenant"
[[identity.claim]]
pointer = "/roles"
header = "X-Roles"
[[route]]
path = "/"
[[route]]
path = "/public"
public = true
"#;
    let gateway = Gateway::with_issuer(&upstream, &mint, more);
    let now = gateway.now_secs();
    let token = mint.with_claims(now, json!({ "tenant": { "name": "Böse\r\nX-Roles: root" }, "roles": ["a", "b,c"] }));
    let other = mint.with_claims(now, json!({ "tenant": { "name": { "is": "an object" } } }));
    let forged = |client: crate::support::Client| {
        ["X-Tenant", "x_tenant", "X.Roles"].iter().fold(client, |client, name| client.header(name, "forged"))
    };
    let get = async |client: crate::support::Client, path: &str| {
        assert_eq!(forged(client).get(path).await.status, 200);
        upstream.seen().pop().expect("it arrived")
    };
    // Twice, because the second request uses the token cache.
    for _ in 0..2 {
        let seen = get(gateway.client().bearer(&token), "/").await;
        assert_eq!(seen.header("x-tenant"), Some("B%C3%B6se%0D%0AX-Roles: root"));
        assert_eq!(seen.header("x-roles"), Some("a,b%2Cc"));
        assert_eq!(seen.headers.get_all("x-roles").iter().count(), 1);
    }
    for (client, path) in [(gateway.client().bearer(&other), "/"), (gateway.client(), "/public")] {
        let seen = get(client, path).await;
        let stray =
            seen.headers.keys().find(|name| name.as_str().contains("tenant") || name.as_str().contains("roles"));
        assert_eq!(stray, None, "{path}: {seen:?}");
    }
}
