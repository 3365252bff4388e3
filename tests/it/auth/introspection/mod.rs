//! Opaque tokens: the gateway asks their issuer about them (RFC 7662).

mod certificates;
mod endpoint;
mod floods;
mod hostile;
mod proofs;
mod provider;
mod reloaded;
mod signed;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use serde_json::json;
use tempfile::TempDir;

use self::endpoint::{Endpoint, active, response, write_client_secret};
use crate::support::clock::ManualClock;
use crate::support::tokens::{Mint, claims_of, segment};
use crate::support::{Client, Gateway, Upstream, gzip, secrets};

const LOGIN: &str = "https://login.example";
const AUDIENCE: &str = "https://api.example";
const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);

const ROUTES: &str = r#"
[[route]]
path = "/write"
scopes = ["write"]
[[route]]
path = "/replaced"
token = "replace"
token_audience = ["https://orders.internal"]
[[route]]
path = "/own"
issuers = ["https://gateway.example"]
[[route]]
path = "/"
"#;

/// An `[[issuer]]` that is asked at this endpoint.
fn issuer(name: &str, endpoint: &Endpoint, of_issuer: &str, more: &str) -> String {
    format!(
        "[[issuer]]\nissuer = \"{name}\"\naudience = [\"{AUDIENCE}\"]\n{of_issuer}\n[issuer.introspection]\n\
         endpoint = \"{}\"\nclient_id = \"gate way\"\nclient_secret_file = \"client.secret\"\n{more}\n",
        endpoint.url()
    )
}

fn start(upstream: &Upstream, more: &str) -> Gateway {
    let folder = Arc::new(TempDir::new().expect("a folder"));
    write_client_secret(folder.path());
    let text = Gateway::config_text(&upstream.address.to_string(), &format!("{more}{ROUTES}"));
    Gateway::in_folder(text, folder, Arc::new(ManualClock::new()))
}

/// A gateway that asks the endpoint about all opaque tokens.
fn asking(upstream: &Upstream, endpoint: &Endpoint, more: &str) -> Gateway {
    start(upstream, &issuer(LOGIN, endpoint, "", more))
}

fn client(gateway: &Gateway, token: &str) -> Client {
    secrets::remember(token);
    gateway.client().bearer(token)
}

async fn status(gateway: &Gateway, token: &str) -> u16 {
    client(gateway, token).get("/").await.status.as_u16()
}

#[tokio::test]
async fn an_active_token_makes_its_subject_the_caller() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    for http in gateway.clients() {
        upstream.forget();
        assert_eq!(http.bearer("alice.1").get("/").await.status, 200);
        let seen = upstream.only_request();
        let identity = ["x-auth-subject", "x-auth-scope", "x-auth-issuer", "x-auth-token-id"];
        assert_eq!(identity.map(|name| seen.header(name)), [Some("alice"), Some("read"), Some(LOGIN), None]);
    }
    let questions = endpoint.questions();
    assert_eq!((questions.len(), &*questions[0].form), (1, "token=alice.1&token_type_hint=access_token"));
    // base64 of `gate%20way:%2Ba%20secret%3A%20100%25` (RFC 6749 section 2.3.1).
    let expected = "authorization: Basic Z2F0ZSUyMHdheTolMkJhJTIwc2VjcmV0JTNBJTIwMTAwJTI1";
    assert!(questions[0].head.lines().any(|line| line == expected), "{}", questions[0].head);
    let log = gateway.log_text(4).await;
    assert!(!log.contains("alice.1"), "{log}");
}

/// A server may ignore `Accept-Encoding`.
#[tokio::test]
async fn an_answer_in_gzip_is_read() {
    let upstream = Upstream::start();
    let endpoint = Endpoint::start();
    let gateway = asking(&upstream, &endpoint, "");
    endpoint.respond(|token| {
        let answer = active(token, &json!({})).to_string();
        response("200 OK", "application/json\r\nContent-Encoding: gzip", gzip(answer.as_bytes()))
    });
    assert_eq!((status(&gateway, "alice.1").await, endpoint.count()), (200, 1));
}

#[tokio::test]
async fn an_answer_is_cached_and_not_what_it_led_to() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    let alice = client(&gateway, "alice.1");
    for (path, expected) in [("/", 200), ("/write", 403), ("/own", 401), ("/", 200)] {
        assert_eq!(alice.get(path).await.status, expected, "{path}");
    }
    assert_eq!(endpoint.count(), 1);
    // The issuer takes a scope away: that is known as soon as the answer is too old.
    endpoint.answer_json(|_| json!({ "scope": "write" }));
    gateway.advance(MINUTE - SECOND);
    assert_eq!((alice.get("/write").await.status.as_u16(), endpoint.count()), (403, 1));
    gateway.advance(SECOND);
    assert_eq!((alice.get("/write").await.status.as_u16(), endpoint.count()), (200, 2));
    // No answer outlives the token.
    let exp = gateway.now_secs() + 10;
    endpoint.answer_json(move |_| json!({ "exp": exp }));
    gateway.advance(MINUTE);
    endpoint.answer_json(move |_| json!({ "exp": exp + 70 }));
    assert_eq!(alice.get("/").await.status, 200);
    endpoint.deny();
    gateway.advance(19 * SECOND);
    assert_eq!(alice.get("/").await.status, 200);
    gateway.advance(SECOND);
    alice.get("/").await.assert_rejected(401, "invalid_token");
}

#[tokio::test]
async fn an_inactive_token_is_asked_about_again_after_5_seconds() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    endpoint.deny();
    for _ in 0..3 {
        client(&gateway, "alice.1").get("/").await.assert_rejected(401, "invalid_token");
    }
    assert_eq!(endpoint.count(), 1);
    assert_eq!(gateway.log_lines(3).await[2]["reason"], "token_inactive");
    endpoint.answer_json(|_| json!({}));
    gateway.advance(Duration::from_millis(4_999));
    assert_eq!(status(&gateway, "alice.1").await, 401);
    gateway.advance(Duration::from_millis(1));
    assert_eq!((status(&gateway, "alice.1").await, endpoint.count()), (200, 2));
    // And an active one that ends.
    endpoint.deny();
    gateway.advance(MINUTE);
    assert_eq!((status(&gateway, "alice.1").await, status(&gateway, "alice.1").await, endpoint.count()), (401, 401, 3));
    for (metric, expected) in [
        ("bearward_introspections_total{outcome=\"inactive\"}", 2.0),
        ("bearward_introspections_total{outcome=\"active\"}", 1.0),
        ("bearward_introspection_seconds_count{outcome=\"inactive\"}", 2.0),
    ] {
        assert_eq!(gateway.metric(metric).await, expected, "{metric}");
    }
}

#[tokio::test]
async fn no_token_is_shown_to_an_issuer_that_may_not_see_it() {
    let (upstream, endpoint, other) = (Upstream::start(), Endpoint::start(), Endpoint::start());
    other.answer_json(|_| json!({ "iss": "https://other.example" }));
    let mint = Mint::new(Algorithm::ES256);
    let more = [
        issuer(LOGIN, &endpoint, "", ""),
        issuer("https://other.example", &other, "", "token_prefix = [\"other_\", \"o-\"]"),
    ];
    let gateway = start(&upstream, &more.concat());
    let pair = gateway.issue("alice", "").await;
    let (key, _) = gateway.issue_key(&json!({ "sub": "robot" })).await;
    let now = gateway.now_secs();
    let stranger = mint.with_claims(now, json!({ "iss": "https://stranger.example" }));
    let forged = mint.with_claims(now, json!({ "iss": claims_of(&pair.access)["iss"] }));
    let encrypted = format!("{}..AA.AA.AA", segment("{\"alg\":\"dir\",\"enc\":\"A256GCM\"}"));
    let unsigned = format!("{}.{}.", segment("{\"alg\":\"none\"}"), segment(format!("{{\"iss\":\"{LOGIN}\"}}")));
    for token in [
        &pair.refresh,
        &key,
        &stranger,
        &forged,
        &encrypted,
        &unsigned,
        &"bwk_x".into(),
        &"bwr1_x".into(),
        &"bws_x".into(),
    ] {
        assert_eq!(status(&gateway, token).await, 401, "{token}");
    }
    assert_eq!((endpoint.count(), other.count()), (0, 0));
    assert_eq!(status(&gateway, &pair.access).await, 200);
    // By its prefix, to one of them only. By its `iss`, without a look at the signature.
    let jwt = mint.with_claims(now, json!({ "iss": LOGIN }));
    for (token, expected) in [("other_1", [0, 1]), ("o-1", [0, 2]), ("o_1", [1, 2]), (&jwt, [2, 2])] {
        assert_eq!(status(&gateway, token).await, 200, "{token}");
        assert_eq!([endpoint.count(), other.count()], expected, "{token}");
    }
    assert_eq!(client(&gateway, "other_1").get("/own").await.status, 401);
}

#[tokio::test]
async fn an_issuer_with_keys_is_not_asked_about_its_jwts() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let mint = Mint::new(Algorithm::ES256);
    let folder = Arc::new(TempDir::new().expect("a folder"));
    write_client_secret(folder.path());
    std::fs::write(folder.path().join("jwks.json"), mint.jwks()).expect("written");
    let more = issuer(LOGIN, &endpoint, "algorithms = [\"ES256\"]\njwks_file = \"jwks.json\"", "");
    let text = Gateway::config_text(&upstream.address.to_string(), &more);
    let gateway = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
    let jwt = mint.with_claims(gateway.now_secs(), json!({ "iss": LOGIN }));
    let forged = Mint::new(Algorithm::ES256).with_claims(gateway.now_secs(), json!({ "iss": LOGIN }));
    assert_eq!((status(&gateway, &jwt).await, status(&gateway, &forged).await, endpoint.count()), (200, 401, 0));
    assert_eq!((status(&gateway, "alice.1").await, endpoint.count()), (200, 1));
}

#[tokio::test]
async fn a_revocation_ends_a_token_that_is_cached_as_active() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    let now = gateway.now_secs();
    endpoint.answer_json(move |token| json!({ "jti": token, "iat": now, "sid": format!("session of {token}") }));
    for (token, what) in [
        ("alice.1", json!({ "sub": "alice", "issuer": LOGIN })),
        ("bob.1", json!({ "jti": "bob.1", "issuer": LOGIN })),
        ("dora.1", json!({ "session": "session of dora.1", "issuer": LOGIN })),
    ] {
        assert_eq!((status(&gateway, token).await, status(&gateway, "carol.1").await), (200, 200));
        assert_eq!(gateway.admin_client().post("/admin/v1/revocations", &what).await.status, 200);
        assert_eq!((status(&gateway, token).await, status(&gateway, "carol.1").await), (401, 200));
    }
    assert_eq!(gateway.log_line(|line| line["status"] == 401).await["reason"], "revoked");
    // Also after the issuer was asked again, which says that it is active.
    gateway.advance(2 * MINUTE);
    assert_eq!((status(&gateway, "alice.1").await, endpoint.count()), (401, 5));
    assert_eq!((status(&gateway, "dora.1").await, endpoint.count()), (401, 6));
}

#[tokio::test]
async fn a_backend_can_get_a_jwt_that_ends_with_the_opaque_token() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    let exp = gateway.now_secs() + 45;
    for (token, end, expected) in [("alice.1", json!(exp), exp), ("alice.2", json!(null), gateway.now_secs() + 120)] {
        upstream.forget();
        endpoint.answer_json(move |_| json!({ "exp": end, "username": "alice@example" }));
        assert_eq!(client(&gateway, token).get("/replaced").await.status, 200);
        let seen = upstream.only_request();
        let jwt = seen.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).expect("a token");
        let claims = claims_of(jwt);
        assert!(jwt != token && !format!("{claims}").contains(token), "the opaque token stays here");
        assert_eq!(
            (&claims["iss"], &claims["aud"]),
            (&json!("https://gateway.example"), &json!("https://orders.internal"))
        );
        assert_eq!(
            (&claims["sub"], &claims["scope"], &claims["client_id"]),
            (&json!("alice"), &json!("read"), &json!("app"))
        );
        assert_eq!(
            (claims["exp"].as_u64(), &claims["active"], &claims["token_type"]),
            (Some(expected), &json!(null), &json!(null))
        );
    }
}

/// With a long `cache`, the issuer can have ended the token a while ago, and the backend does not ask it.
#[tokio::test]
async fn a_jwt_for_a_backend_ends_after_5_minutes_at_most() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "cache = \"10m\"");
    let alice = client(&gateway, "alice.1");
    let mut ends = Vec::new();
    for wait in [0, 2, 1, 6] {
        gateway.advance(wait * MINUTE);
        upstream.forget();
        assert_eq!(alice.get("/replaced").await.status, 200);
        let seen = upstream.only_request();
        let jwt = seen.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).expect("a token");
        ends.push(claims_of(jwt)["exp"].as_u64().expect("a time") - gateway.now_secs());
    }
    assert_eq!((ends, endpoint.count()), (vec![300, 180, 300, 300], 1));
}

#[tokio::test]
async fn a_reload_forgets_the_answers_of_before() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    assert_eq!((status(&gateway, "alice.1").await, endpoint.count()), (200, 1));
    endpoint.deny();
    gateway.running().reload(gateway.config()).expect("it reloads");
    assert_eq!((status(&gateway, "alice.1").await, endpoint.count()), (401, 2));
}

#[tokio::test]
async fn an_explanation_shows_what_the_endpoint_said() {
    let (upstream, endpoint) = (Upstream::start(), Endpoint::start());
    let gateway = asking(&upstream, &endpoint, "");
    let explain = async || {
        let answer = gateway.admin_client().post("/admin/v1/explain", &json!({ "token": "alice.1" })).await;
        (answer.json()["decision"].clone(), answer.json()["reason"].clone(), answer.text())
    };
    let (decision, _, text) = explain().await;
    assert!(decision == "allowed" && text.contains("active: sub \\\"alice\\\", scope \\\"read\\\""), "{text}");
    assert!(!text.contains("alice.1"), "{text}");
    endpoint.deny();
    let (decision, reason, text) = explain().await;
    assert!(decision == "rejected" && reason == "token_inactive", "{text}");
    // It has no effect on requests.
    endpoint.answer_json(|_| json!({}));
    assert_eq!(status(&gateway, "alice.1").await, 200);
}
