//! API keys: who may use one where, and what ends it.

use std::time::Duration;

use bearward::tokens::family::api_key::generate;
use bearward::types::ids::TokenId;
use http::Method;
use serde_json::{Value, json};

use crate::support::tokens::claims_of;
use crate::support::wait::eventually_ok;
use crate::support::{Client, Gateway, Upstream};

const ROUTES: &str = r#"
[[route]]
path = "/keys"
api_keys = true
[[route]]
path = "/scoped"
api_keys = true
scopes = ["orders:read"]
[[route]]
path = "/replaced"
api_keys = true
token = "replace"
token_audience = ["https://orders.internal"]
[[route]]
path = "/places"
api_keys = true
token_from = ["header", "cookie:session", "query:t"]
[[route]]
path = "/observed"
api_keys = true
enforce = false
[[route]]
path = "/open"
public = true
[[route]]
path = "/"
"#;

/// A well-formed key with this id and another secret.
fn another(id: &str) -> String {
    generate(TokenId::parse(id).expect("an id")).0
}

async fn status(client: &Client, path: &str) -> u16 {
    client.get(path).await.status.as_u16()
}

async fn listed(gateway: &Gateway) -> Value {
    gateway.admin_client().get("/admin/v1/api-keys").await.json()["apiKeys"].clone()
}

#[tokio::test]
async fn a_key_makes_its_subject_the_caller() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let (key, id) = gateway.issue_key(&json!({ "sub": "robot", "scope": "orders:read orders:write" })).await;
    for client in gateway.clients() {
        for (name, value) in [("authorization", format!("Bearer {key}")), ("x-api-key", key.clone())] {
            upstream.forget();
            let client = client.clone().header(name, &value);
            assert_eq!((status(&client, "/keys").await, status(&client, "/scoped").await), (200, 200), "{name}");
            for seen in upstream.seen() {
                let fields = ["x-auth-subject", "x-auth-scope", "x-auth-token-id", "authorization", "x-api-key"];
                let [subject, scope, token_id, rest @ ..] = fields.map(|name| seen.header(name));
                assert_eq!((subject, scope), (Some("robot"), Some("orders:read orders:write")));
                assert_eq!((token_id, rest), (Some(&*id), [None, None]), "no backend gets a key");
            }
        }
    }
    let (unscoped, _) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    let client = gateway.client().bearer(&unscoped);
    assert_eq!((status(&client, "/keys").await, status(&client, "/scoped").await), (200, 403));
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_key_is_accepted_only_where_the_route_says_so() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let (key, _) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    let client = gateway.client();
    let bearer = client.clone().bearer(&key);
    // Before and after the gateway knows the key.
    for _ in 0..2 {
        bearer.get("/").await.assert_rejected(401, "invalid_token");
        client.clone().header("x-api-key", &key).get("/").await.assert_rejected(401, "unauthorized");
        assert_eq!(status(&bearer, "/keys").await, 200);
    }
    let pair = gateway.issue("alice", "").await;
    for (client, path, expected) in [
        (bearer.clone(), "/places", 200),
        (client.clone().header("x-api-key", &key), "/places", 200),
        (client.clone().header("cookie", &format!("session={key}")), "/places", 401),
        (client.clone(), &*format!("/places?t={key}"), 401),
        (bearer.clone().header("x-api-key", &key), "/keys", 400),
        (client.clone().header("x-api-key", &key).header("x-api-key", &key), "/keys", 400),
        (client.clone().bearer(&pair.access).header("x-api-key", &key), "/keys", 400),
        (client.clone().header("x-api-key", &pair.access), "/keys", 401),
        (client.clone().bearer(&pair.access), "/keys", 200),
        (client.clone(), "/keys", 401),
    ] {
        assert_eq!(status(&client, path).await, expected, "{path}");
    }
    // It neither refreshes nor logs out, and is no token of the admin API.
    gateway.refresh(&key, &pair.refresh).await.assert_rejected(401, "invalid_token");
    assert_eq!(gateway.revoke(&key, &pair.token_id).await.status, 401);
    assert_eq!(
        status(&Client::http1(gateway.admin_address()).host("localhost").bearer(&key), "/admin/v1/keys").await,
        401
    );
    upstream.forget();
    for name in ["authorization", "x-api-key"] {
        let bad = if name == "authorization" { format!("Bearer {key}x") } else { format!("{key}x") };
        assert_eq!(status(&client.clone().header(name, &bad), "/observed").await, 200);
        let seen = upstream.seen().pop().expect("a request");
        assert_eq!((seen.header(name), seen.header("x-auth-subject")), (None, None), "a bad key neither");
        assert_eq!(seen.header("x-auth-observed"), Some("bad_api_key"));
    }
    // A key by mistake, and a key of the backend.
    for (name, value, kept) in [
        ("authorization", format!("Bearer {key}"), false),
        ("x-api-key", key.clone(), false),
        ("x-api-key", "of-the-backend".into(), true),
    ] {
        assert_eq!(status(&gateway.client().header(name, &value), "/open").await, 200);
        let seen = upstream.seen().pop().expect("a request");
        assert_eq!(seen.header(name).is_some(), kept, "{name}");
    }
    // CGI reads these as `X-API-Key`.
    for name in ["x_api_key", "X-Api_Key", "x.api.key"] {
        for (path, client, kept) in [
            ("/keys", bearer.clone().header(name, "other"), false),
            ("/keys", bearer.clone().header(name, &key), false),
            ("/open", client.clone().header(name, &key), false),
            ("/open", client.clone().header(name, "of-the-backend"), true),
        ] {
            assert_eq!(status(&client, path).await, 200);
            let seen = upstream.seen().pop().expect("a request");
            assert_eq!(seen.header(name).is_some(), kept, "{name} {path}");
        }
    }
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn every_bad_key_has_the_same_response() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let (good, id) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    let (revoked, revoked_id) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    let (expired, _) = gateway.issue_key(&json!({ "sub": "robot", "expiresIn": 5 })).await;
    // A well-formed key with the id of another one, and one that no store has.
    let other = another(&id);
    let unknown = generate(TokenId::random()).0;
    let session = gateway.issue("robot", "").await.token_id;
    let of_session = another(&session);
    assert_eq!(status(&gateway.client().bearer(&expired), "/keys").await, 200);
    gateway.advance(Duration::from_secs(5));
    let path = format!("/admin/v1/api-keys/{revoked_id}");
    assert_eq!(status(&gateway.client().bearer(&revoked), "/keys").await, 200);
    assert_eq!(gateway.admin_client().delete(&path).await.status, 200);
    let mut responses = Vec::new();
    for bad in [&revoked, &expired, &other, &unknown, &of_session, &format!("{good}x"), &revoked, &expired, &unknown] {
        let response = gateway.client().bearer(bad).get("/keys").await;
        let mut body = response.json();
        body.as_object_mut().expect("an object").remove("requestId");
        let challenge = response.header("www-authenticate").map(str::to_owned);
        responses.push((response.status.as_u16(), challenge, body));
    }
    assert_eq!(responses[0].0, 401);
    assert!(responses.iter().all(|response| *response == responses[0]), "{responses:?}");
    assert_eq!(status(&gateway.client().bearer(&good), "/keys").await, 200);
    gateway.drain_and_check_log();
}

/// Without clock skew: a key in memory, and one that is looked up then.
#[tokio::test]
async fn a_key_ends_at_its_time() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let mut keys = Vec::new();
    for _ in 0..4 {
        keys.push(gateway.issue_key(&json!({ "sub": "robot", "expiresIn": 10 })).await.0);
    }
    assert_eq!(status(&gateway.client().bearer(&keys[0]), "/keys").await, 200);
    for (step, new, expected) in [(9_999, 1, 200), (1, 2, 401), (1_000, 3, 401)] {
        gateway.advance(Duration::from_millis(step));
        for key in [&keys[0], &keys[new]] {
            assert_eq!(status(&gateway.client().bearer(key), "/keys").await, expected, "key {new}");
        }
    }
}

#[tokio::test]
async fn a_text_without_the_checksum_of_a_key_is_not_looked_up() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let (key, _) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    assert_eq!(status(&gateway.client().bearer(&key), "/keys").await, 200);
    let reads = async || gateway.metric("bearward_api_key_reads_total{result=\"ok\"").await;
    let before = reads().await;
    for place in [10, 40, key.len() - 1] {
        let mut bad = key.clone().into_bytes();
        bad[place] = if bad[place] == b'0' { b'1' } else { b'0' };
        let bad = String::from_utf8(bad).expect("text");
        assert_eq!(status(&gateway.client().bearer(&bad), "/keys").await, 401, "{place}");
    }
    assert_eq!(reads().await, before);
    // Its neighbour: well formed, and looked up.
    assert_eq!(status(&gateway.client().bearer(&generate(TokenId::random()).0), "/keys").await, 401);
    assert_eq!(reads().await, before + 1.0);
}

#[tokio::test]
async fn guesses_are_limited_per_address_and_known_keys_go_on() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, &format!("[limits]\nbad_signatures = 5\n{ROUTES}"));
    let (key, id) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    let (fresh, _) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    let client = gateway.client().bearer(&key);
    assert_eq!(status(&client, "/keys").await, 200);
    let guess = || another(&id);
    let repeated = guess();
    for _ in 0..20 {
        assert_eq!(status(&gateway.client().bearer(&repeated), "/keys").await, 401, "one guess, however often");
        assert_eq!(status(&gateway.client().bearer("bwk_x"), "/keys").await, 401, "costs nothing");
    }
    for _ in 0..4 {
        assert_eq!(status(&gateway.client().bearer(&guess()), "/keys").await, 401);
    }
    gateway.client().bearer(&guess()).get("/keys").await.assert_rejected(429, "rate_limited");
    gateway.client().bearer(&fresh).get("/keys").await.assert_rejected(429, "rate_limited");
    assert_eq!(status(&client, "/keys").await, 200);
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_key_ends_with_its_subject_and_is_kept_over_a_restart() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let (key, _) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    let (later, _) = gateway.issue_key(&json!({ "sub": "other" })).await;
    let gateway = gateway.restart();
    assert_eq!(status(&gateway.client().bearer(&key), "/keys").await, 200);
    gateway.advance(Duration::from_secs(1));
    assert_eq!(gateway.admin_client().delete("/admin/v1/subjects/robot/tokens").await.status, 200);
    assert_eq!(status(&gateway.client().bearer(&key), "/keys").await, 401);
    // Long after the revocation has left the log of revocations.
    gateway.advance(Duration::from_hours(24 * 80));
    assert_eq!(status(&gateway.client().bearer(&key), "/keys").await, 401);
    let gateway = gateway.restart();
    assert_eq!(status(&gateway.client().bearer(&key), "/keys").await, 401);
    assert_eq!(status(&gateway.client().bearer(&later), "/keys").await, 200, "the key of another subject");
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn with_replace_the_backend_gets_a_jwt() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let (key, id) = gateway.issue_key(&json!({ "sub": "robot", "scope": "a", "claims": { "team": "x" } })).await;
    for client in [gateway.client().bearer(&key), gateway.client().header("x-api-key", &key)] {
        assert_eq!(status(&client, "/replaced").await, 200);
        let seen = upstream.seen().pop().expect("a request");
        let token = seen.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).expect("a token");
        let claims = claims_of(token);
        let named = ["sub", "scope", "team", "sid", "aud"].map(|name| claims[name].as_str().expect("text"));
        assert_eq!(named, ["robot", "a", "x", &id, "https://orders.internal"]);
        assert!(claims["exp"].as_u64().expect("a time") <= gateway.now_secs() + 15 * 60);
        assert_eq!(seen.header("x-api-key"), None);
    }
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn operators_see_the_last_use_and_who_issued() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let (key, id) = gateway.issue_key(&json!({ "sub": "robot", "label": "ci", "expiresIn": 3600 })).await;
    let entry = listed(&gateway).await[0].clone();
    assert_eq!((&entry["keyId"], &entry["label"], &entry["state"]), (&json!(id), &json!("ci"), &json!("live")));
    assert_eq!((entry.get("lastUsedAt"), entry.get("apiKey")), (None, None));
    gateway.advance(Duration::from_secs(1));
    // Rejected: neither the wrong route nor the wrong scope is a use.
    assert_eq!(status(&gateway.client().bearer(&key), "/").await, 401);
    assert_eq!(status(&gateway.client().bearer(&key), "/scoped").await, 403);
    // A write that is queued before this one is done when this one is.
    assert_eq!(gateway.admin_client().delete("/admin/v1/subjects/other/tokens").await.status, 200);
    assert_eq!(listed(&gateway).await[0].get("lastUsedAt"), None);
    assert_eq!(status(&gateway.client().bearer(&key), "/keys").await, 200);
    eventually_ok("the use is recorded", async || {
        let entry = listed(&gateway).await[0].clone();
        if entry["lastUsedAt"].is_string() { Ok(()) } else { Err(entry.to_string()) }
    })
    .await;
    // The lists of sessions have no keys.
    for path in ["/admin/v1/subjects/robot/tokens", "/admin/v1/tokens?state=all"] {
        assert_eq!(gateway.admin_client().get(path).await.json()["tokens"], json!([]));
    }
    let pair = gateway.issue("robot", "").await;
    let of_session = format!("/admin/v1/api-keys/{}", pair.token_id);
    assert_eq!(gateway.admin_client().delete(&of_session).await.status, 404, "a session is no key");
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    let path = format!("/admin/v1/api-keys/{id}");
    for _ in 0..2 {
        assert_eq!(gateway.admin_client().delete(&path).await.json(), json!({ "success": true }));
    }
    assert_eq!(listed(&gateway).await[0]["state"], "revoked");
    let ended = gateway.admin_client().get("/admin/v1/tokens/ended").await.json();
    assert_eq!((&ended["ended"][0]["what"], &ended["ended"][0]["tokenId"]), (&json!("apiKey"), &json!(id)));
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_resource_server_can_introspect_a_key_and_its_holder_can_revoke_it() {
    let upstream = Upstream::start();
    let oauth = "[oauth]\nintrospection_endpoint = \"/introspect\"\nrevocation_endpoint = \"/revoke\"\n";
    let gateway = Gateway::with_config(&upstream, &format!("{oauth}{ROUTES}"));
    let (key, id) = gateway.issue_key(&json!({ "sub": "robot", "scope": "a", "claims": { "salary": 1 } })).await;
    let caller = gateway.issue("service", "token:introspect").await;
    let post = async |client: Client, path: &str| {
        let client = client.header("content-type", "application/x-www-form-urlencoded");
        let response = client.send(Method::POST, path, format!("token={key}").into()).await;
        assert_eq!(response.status, 200, "{response:?}");
        response.json()
    };
    let introspected = post(gateway.client().bearer(&caller.access), "/introspect").await;
    let members = ["active", "sub", "scope", "sid"].map(|name| introspected[name].clone());
    assert_eq!(members, [json!(true), json!("robot"), json!("a"), json!(id)]);
    assert_eq!((introspected.get("jti"), introspected.get("salary")), (None, None));
    assert_eq!(listed(&gateway).await[0].get("lastUsedAt"), None, "an introspection is no use");
    assert_eq!(status(&gateway.client().bearer(&key), "/keys").await, 200);
    post(gateway.client(), "/revoke").await;
    assert_eq!(status(&gateway.client().bearer(&key), "/keys").await, 401);
    assert_eq!(post(gateway.client().bearer(&caller.access), "/introspect").await, json!({ "active": false }));
    post(gateway.client(), "/revoke").await;
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn the_route_of_an_api_key_is_explained() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let (key, id) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    for (path, expected) in [("/keys", "allowed"), ("/", "api_key_not_allowed"), ("/scoped", "insufficient_scope")] {
        let request = json!({ "path": path, "token": key });
        let explained = gateway.admin_client().post("/admin/v1/explain", &request).await;
        assert!(explained.text().contains(expected), "{path}: {explained:?}");
        assert!(!explained.text().contains(&key) && (path == "/" || explained.text().contains(&id)));
    }
    gateway.drain_and_check_log();
}
