//! Tokens of the gateway itself that are bound to a key: by the admin API, a captured login, and the token endpoint.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{HOST, presenting};
use crate::support::prover::Prover;
use crate::support::tokens::{claims_of, forged_refresh};
use crate::support::{Client, Gateway, ScriptedBackend, TestResponse, TokenPair, Upstream};

const OAUTH: &str = "[oauth]\ntoken_endpoint = \"/oauth/token\"\nintrospection_endpoint = \"/oauth/introspect\"\n";

/// A session that is bound to the key of this client.
async fn session(gateway: &Gateway, prover: &Prover) -> TokenPair {
    let response = gateway.request_tokens(&json!({ "sub": "alice", "jkt": prover.thumbprint() })).await;
    assert_eq!(response.status, 201, "{response:?}");
    TokenPair::from_json(&response.json())
}

fn proof_for(gateway: &Gateway, prover: &Prover, path: &str, token: &str) -> String {
    prover.proof("POST", &format!("http://{HOST}{path}"), token, gateway.now_secs())
}

async fn refresh_beside(gateway: &Gateway, pair: &TokenPair, proof: &str) -> TestResponse {
    presenting(gateway.client(), &pair.access, proof)
        .post("/user/refresh", &json!({ "refreshToken": pair.refresh }))
        .await
}

async fn form(client: Client, path: &str, fields: &[(&str, &str)]) -> TestResponse {
    let body: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let client = client.header("content-type", "application/x-www-form-urlencoded");
    client.send(Method::POST, path, Bytes::from(body.join("&"))).await
}

async fn refresh_by_form(gateway: &Gateway, refresh: &str, proof: Option<&str>) -> TestResponse {
    let client = proof.into_iter().fold(gateway.client(), |client, proof| client.header("dpop", proof));
    form(client, "/oauth/token", &[("grant_type", "refresh_token"), ("refresh_token", refresh)]).await
}

async fn is_accepted(gateway: &Gateway, prover: &Prover, access: &str) -> bool {
    let proof = prover.proof("GET", &format!("http://{HOST}/"), access, gateway.now_secs());
    presenting(gateway.client(), access, &proof).get("/").await.status == 200
}

#[tokio::test]
async fn an_issued_session_is_bound_to_the_key() {
    let upstream = Upstream::start();
    let (gateway, prover) = (Gateway::start(&upstream), Prover::new());
    let pair = session(&gateway, &prover).await;
    assert_eq!(claims_of(&pair.access)["cnf"], json!({ "jkt": prover.thumbprint() }));
    gateway.client().bearer(&pair.access).get("/").await.assert_rejected(401, "invalid_token");
    assert!(is_accepted(&gateway, &prover, &pair.access).await);
    assert!(!is_accepted(&gateway, &Prover::new(), &pair.access).await);
    for jkt in ["", "x", &prover.thumbprint()[1..], &format!("{}=", prover.thumbprint())] {
        gateway.request_tokens(&json!({ "sub": "alice", "jkt": jkt })).await.assert_rejected(400, "invalid_request");
    }
    let revoked = presenting(
        gateway.client(),
        &pair.access,
        &prover.proof("DELETE", &format!("http://{HOST}/token/{}", pair.token_id), &pair.access, gateway.now_secs()),
    );
    assert_eq!(revoked.delete(&format!("/token/{}", pair.token_id)).await.status, 200);
    assert!(!is_accepted(&gateway, &prover, &pair.access).await);
}

/// doorkeeper 1794: without the key, a stolen refresh token must not even end the session of its owner.
#[tokio::test]
async fn a_refresh_needs_the_key_before_anything_happens() {
    let upstream = Upstream::start();
    let (gateway, prover, thief) = (Gateway::with_config(&upstream, OAUTH), Prover::new(), Prover::new());
    let pair = session(&gateway, &prover).await;
    let body = json!({ "refreshToken": pair.refresh });

    // Beside the access token.
    let bearer = gateway.client().bearer(&pair.access);
    bearer.post("/user/refresh", &body).await.assert_rejected(400, "invalid_dpop_proof");
    let without = gateway.client().header("authorization", &format!("DPoP {}", pair.access));
    without.post("/user/refresh", &body).await.assert_rejected(400, "invalid_dpop_proof");
    for proof in [
        proof_for(&gateway, &thief, "/user/refresh", &pair.access),
        proof_for(&gateway, &prover, "/user/refresh", "another token"),
        proof_for(&gateway, &prover, "/oauth/token", &pair.access),
    ] {
        refresh_beside(&gateway, &pair, &proof).await.assert_rejected(400, "invalid_dpop_proof");
    }
    // By the refresh token alone.
    refresh_by_form(&gateway, &pair.refresh, None).await.assert_rejected(400, "invalid_dpop_proof");
    let stolen = proof_for(&gateway, &thief, "/oauth/token", "");
    refresh_by_form(&gateway, &pair.refresh, Some(&stolen)).await.assert_rejected(400, "invalid_dpop_proof");
    let elsewhere = proof_for(&gateway, &prover, "/user/refresh", "");
    refresh_by_form(&gateway, &pair.refresh, Some(&elsewhere)).await.assert_rejected(400, "invalid_dpop_proof");

    // Nothing has changed.
    let proof = proof_for(&gateway, &prover, "/user/refresh", &pair.access);
    let refreshed = refresh_beside(&gateway, &pair, &proof).await;
    assert_eq!(refreshed.status, 200, "{refreshed:?}");
    refresh_beside(&gateway, &pair, &proof).await.assert_rejected(400, "invalid_dpop_proof");
    let pair_2 = TokenPair::from_json(&refreshed.json());
    assert_eq!(claims_of(&pair_2.access)["cnf"]["jkt"], prover.thumbprint());
    assert!(is_accepted(&gateway, &prover, &pair_2.access).await);

    // A spent refresh token without the key is no reuse.
    gateway.advance(Duration::from_secs(30));
    refresh_by_form(&gateway, &pair.refresh, None).await.assert_rejected(400, "invalid_dpop_proof");
    let proof = proof_for(&gateway, &prover, "/oauth/token", "");
    let by_form = refresh_by_form(&gateway, &pair_2.refresh, Some(&proof)).await;
    assert_eq!((by_form.status.as_u16(), &by_form.json()["token_type"]), (200, &json!("DPoP")), "{by_form:?}");
    // With the key it is, beside an access token.
    gateway.advance(Duration::from_secs(30));
    let proof = proof_for(&gateway, &prover, "/user/refresh", &pair.access);
    refresh_beside(&gateway, &pair, &proof).await.assert_rejected(400, "invalid_grant");
    assert!(!is_accepted(&gateway, &prover, &pair_2.access).await, "the session was revoked");
}

/// Five processes refresh at once, and a sixth one with a copy of their files comes 7 min 45 s later: so a command line
/// with a copied home folder does.
#[tokio::test]
async fn copies_of_a_client_with_the_key_need_no_new_login() {
    let upstream = Upstream::start();
    let (gateway, prover) = (Gateway::with_config(&upstream, OAUTH), Prover::new());
    let pair = session(&gateway, &prover).await;
    let refreshed = async |refresh: &str| {
        let proof = proof_for(&gateway, &prover, "/oauth/token", "");
        let response = refresh_by_form(&gateway, refresh, Some(&proof)).await;
        assert_eq!(response.status, 200, "{response:?}");
        let text = |member: &str| response.json()[member].as_str().expect("a text").to_owned();
        (text("access_token"), text("refresh_token"))
    };
    let five = join_all((0..5).map(|_| refreshed(&pair.refresh))).await;
    let [(access, second), others @ ..] = &*five else { panic!("five") };
    assert!(others.iter().all(|(_, other)| other == second), "one child for all");
    assert!(is_accepted(&gateway, &prover, access).await);
    gateway.advance(Duration::from_secs(300));
    let (_, third) = refreshed(second).await;
    // Of two tokens, the client has used the second one. Only the key can show that its copy is no thief.
    gateway.advance(Duration::from_secs(465));
    let (access, again) = refreshed(&pair.refresh).await;
    assert_eq!(again, third, "no child of its own");
    assert!(is_accepted(&gateway, &prover, &access).await);

    let thief = proof_for(&gateway, &Prover::new(), "/oauth/token", "");
    for proof in [None, Some(&*thief)] {
        refresh_by_form(&gateway, &pair.refresh, proof).await.assert_rejected(400, "invalid_dpop_proof");
    }
    assert!(is_accepted(&gateway, &prover, &access).await, "a thief ends nothing");
    refreshed(&third).await;
}

/// A lost response: the same child, with another proof.
#[tokio::test]
async fn a_retry_gets_the_same_child() {
    let upstream = Upstream::start();
    let (gateway, prover) = (Gateway::with_config(&upstream, OAUTH), Prover::new());
    let pair = session(&gateway, &prover).await;
    let mut children = Vec::new();
    for _ in 0..2 {
        let proof = proof_for(&gateway, &prover, "/oauth/token", "");
        let response = refresh_by_form(&gateway, &pair.refresh, Some(&proof)).await;
        assert_eq!(response.status, 200, "{response:?}");
        children.push(response.json()["refresh_token"].clone());
        refresh_by_form(&gateway, &pair.refresh, Some(&proof)).await.assert_rejected(400, "invalid_dpop_proof");
    }
    assert_eq!(children[0], children[1]);
}

/// A session that is not bound stays as it is. The access tokens of a client with a key are bound.
#[tokio::test]
async fn a_proof_binds_the_access_token_of_an_unbound_session() {
    let upstream = Upstream::start();
    let (gateway, prover) = (Gateway::with_config(&upstream, OAUTH), Prover::new());
    let pair = gateway.issue("alice", "").await;
    let proof = proof_for(&gateway, &prover, "/oauth/token", "");
    let bound = refresh_by_form(&gateway, &pair.refresh, Some(&proof)).await.json();
    assert_eq!(bound["token_type"], "DPoP");
    assert!(is_accepted(&gateway, &prover, bound["access_token"].as_str().expect("a token")).await);
    let plain = refresh_by_form(&gateway, bound["refresh_token"].as_str().expect("a token"), None).await.json();
    assert_eq!(plain["token_type"], "Bearer");
    assert_eq!(gateway.status_of(plain["access_token"].as_str().expect("a token")).await, 200);
}

/// A stolen pair is of no use beside its access token, also if the session itself is not bound.
#[tokio::test]
async fn a_refresh_beside_a_bound_token_of_an_unbound_session_needs_its_key() {
    let upstream = Upstream::start();
    let (gateway, prover, thief) = (Gateway::with_config(&upstream, OAUTH), Prover::new(), Prover::new());
    let unbound = gateway.issue("alice", "").await;
    let proof = proof_for(&gateway, &prover, "/oauth/token", "");
    let granted = refresh_by_form(&gateway, &unbound.refresh, Some(&proof)).await.json();
    let text = |name: &str| granted[name].as_str().expect("a token").to_owned();
    let pair = TokenPair { access: text("access_token"), refresh: text("refresh_token"), ..unbound };
    let bearer = gateway.client().bearer(&pair.access);
    let as_bearer = bearer.post("/user/refresh", &json!({ "refreshToken": pair.refresh })).await;
    as_bearer.assert_rejected(400, "invalid_dpop_proof");
    let stolen = proof_for(&gateway, &thief, "/user/refresh", &pair.access);
    refresh_beside(&gateway, &pair, &stolen).await.assert_rejected(400, "invalid_dpop_proof");
    let proof = proof_for(&gateway, &prover, "/user/refresh", &pair.access);
    let refreshed = refresh_beside(&gateway, &pair, &proof).await;
    assert_eq!(refreshed.status, 200, "{refreshed:?}");
    let next = TokenPair::from_json(&refreshed.json());
    assert_eq!(claims_of(&next.access)["cnf"]["jkt"], prover.thumbprint());
}

/// A revocation is a call with a proof, too.
#[tokio::test]
async fn a_proof_revokes_once() {
    let upstream = Upstream::start();
    let (gateway, prover) = (Gateway::start(&upstream), Prover::new());
    let pair = session(&gateway, &prover).await;
    let path = format!("/token/{}", pair.token_id);
    let proof = prover.proof("DELETE", &format!("http://{HOST}{path}"), &pair.access, gateway.now_secs());
    let other = session(&gateway, &prover).await;
    let elsewhere = format!("/token/{}", other.token_id);
    let client = presenting(gateway.client(), &pair.access, &proof);
    client.delete(&elsewhere).await.assert_rejected(401, "invalid_dpop_proof");
    assert_eq!(gateway.metric("bearward_used_proofs").await, 0.0);
    assert_eq!(client.delete(&path).await.status, 200);
    assert_eq!(gateway.metric("bearward_used_proofs").await, 1.0);
}

#[tokio::test]
async fn introspection_and_metadata_tell_of_the_key() {
    let upstream = Upstream::start();
    let (gateway, prover) = (Gateway::with_config(&upstream, OAUTH), Prover::new());
    let pair = session(&gateway, &prover).await;
    let service = gateway.issue("service", "token:introspect").await;
    let cnf = json!({ "jkt": prover.thumbprint() });
    for (token, kind) in [(&pair.access, "DPoP"), (&pair.refresh, "refresh_token")] {
        let response = form(gateway.client().bearer(&service.access), "/oauth/introspect", &[("token", token)]).await;
        let found = response.json();
        assert_eq!((&found["active"], &found["cnf"], &found["token_type"]), (&json!(true), &cnf, &json!(kind)));
    }
    let metadata = gateway.client().get("/.well-known/oauth-authorization-server").await.json();
    let algorithms = metadata["dpop_signing_alg_values_supported"].as_array().expect("a list");
    assert!(algorithms.contains(&json!("ES256")) && !algorithms.contains(&json!("HS256")), "{metadata}");
}

/// The backend logs the user in. The tokens are bound to the key of the client that asked.
#[tokio::test]
async fn a_captured_login_is_bound_by_a_proof() {
    let backend = ScriptedBackend::responding_with(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-bearward-subject: alice\r\ncontent-length: 16\r\n\r\n\
         {\"welcome\":true}",
    );
    let routes = "[[route]]\npath = \"/login\"\npublic = true\nlogin = true\n";
    let gateway = Gateway::from_text(Gateway::config_text(&backend.address.to_string(), routes));
    let prover = Prover::new();
    let log_in = async |proof: Option<String>| {
        let client = proof.iter().fold(gateway.client(), |client, proof| client.header("dpop", proof));
        client.post("/login", &json!({ "password": "right" })).await
    };
    let elsewhere = log_in(Some(proof_for(&gateway, &prover, "/other", ""))).await;
    elsewhere.assert_rejected(400, "invalid_dpop_proof");
    let proof = proof_for(&gateway, &prover, "/login", "");
    let bound = log_in(Some(proof.clone())).await;
    let access = bound.json()["accessToken"].as_str().expect("a token").to_owned();
    assert_eq!(claims_of(&access)["cnf"]["jkt"], prover.thumbprint());
    log_in(Some(proof)).await.assert_rejected(400, "invalid_dpop_proof");
    let plain = log_in(None).await.json();
    assert_eq!(claims_of(plain["accessToken"].as_str().expect("a token"))["cnf"], Value::Null);
    for detail in ["proof_request: htu has another path", "proof_replayed: the jti was used before with this key"] {
        let line = gateway.log_line(|line| line["detail"] == detail).await;
        assert_eq!(line["reason"], "proof_rejected");
    }
}

/// Everyone can make a key. The store gets a row for the proof of a client that has shown something good, and none for
/// that of a stranger.
#[tokio::test]
async fn the_proof_of_a_stranger_is_not_written() {
    let backend = ScriptedBackend::responding_with(
        "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    );
    let more = format!("{OAUTH}[[route]]\npath = \"/login\"\npublic = true\nlogin = true\n");
    let text = Gateway::config_text(&backend.address.to_string(), &more);
    let gateway = Gateway::from_text(text.replace("[tokens]\n", "[tokens]\nproof_replay = \"store\"\n"));
    let (prover, stranger) = (Prover::new(), Prover::new());
    let marks = || -> i64 {
        let database = rusqlite::Connection::open(gateway.folder.path().join("bearward.db")).expect("opens");
        database.query_row("select count(*) from marks", [], |row| row.get(0)).expect("a number")
    };
    let proof = |prover: &Prover, path: &str| proof_for(&gateway, prover, path, "");
    for refresh in ["none", &*forged_refresh("0000000000000000000001")] {
        let rejected = refresh_by_form(&gateway, refresh, Some(&proof(&stranger, "/oauth/token"))).await;
        rejected.assert_rejected(400, "invalid_grant");
    }
    let password = json!({ "password": "wrong" });
    let login = gateway.client().header("dpop", &proof(&stranger, "/login")).post("/login", &password).await;
    assert_eq!(login.status, 401);
    assert_eq!(marks(), 0);
    let pair = session(&gateway, &prover).await;
    let refreshed = refresh_by_form(&gateway, &pair.refresh, Some(&proof(&prover, "/oauth/token"))).await;
    assert_eq!(refreshed.status, 200, "{refreshed:?}");
    assert_eq!(marks(), 1);
}

/// The store forgets a proof that is too old for a new call. The client decides how long its call lasts.
#[tokio::test]
async fn a_login_that_lasts_longer_than_its_proof_gets_no_tokens() {
    let (arrived, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let waits = (arrived.clone(), go.clone());
    let backend = ScriptedBackend::start(move |mut wire, _| {
        let (arrived, go) = waits.clone();
        async move {
            while wire.try_read_until("}").await.is_some() {
                arrived.notify_one();
                go.notified().await;
                wire.send(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-bearward-subject: alice\r\n\
                     content-length: 2\r\n\r\n{}",
                )
                .await;
            }
        }
    });
    let routes = "[[route]]\npath = \"/login\"\npublic = true\nlogin = true\n";
    let text = Gateway::config_text(&backend.address.to_string(), routes);
    let gateway = Gateway::from_text(text.replace("[tokens]\n", "[tokens]\nproof_replay = \"store\"\n"));
    let prover = Prover::new();
    for (seconds, status) in [(30, 200), (90, 400)] {
        let proof = proof_for(&gateway, &prover, "/login", "");
        let client = gateway.client().header("dpop", &proof);
        let password = json!({ "password": "right" });
        let login = client.post("/login", &password);
        let passes = async {
            arrived.notified().await;
            gateway.clock.advance(Duration::from_secs(seconds));
            go.notify_one();
        };
        let (login, ()) = tokio::join!(login, passes);
        assert_eq!(login.status, status, "{seconds}: {}", login.text());
    }
}

/// What a login says must not become a binding, or end one.
#[tokio::test]
async fn only_the_gateway_sets_the_binding() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let claims = json!({ "sub": "alice", "claims": { "cnf": { "jkt": Prover::new().thumbprint() } } });
    gateway.request_tokens(&claims).await.assert_rejected(400, "invalid_request");
}
