//! `DELETE /token/{tokenId}`: who may revoke a session, and what is rejected afterwards.

use std::time::Duration;

use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::jwt::Algorithm;
use bearward::types::ids::TokenId;
use http::Method;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::client::KeepAliveClient;
use crate::support::program::GatewayProcess;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};
use crate::support::{Client, Gateway, Secrets, TestResponse, TokenPair, Upstream};

#[track_caller]
fn assert_revoked(response: &TestResponse) {
    assert_eq!((response.status.as_u16(), response.text().as_str()), (200, r#"{"success":true}"#), "{response:?}");
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert_eq!(response.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn a_user_can_revoke_any_of_their_sessions() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let phone = gateway.issue("alice", "").await;
    let laptop = gateway.issue("alice", "").await;
    let tablet = gateway.issue("alice", "").await;
    assert_revoked(&gateway.revoke(&phone.access, &phone.token_id).await);
    gateway.revoke(&phone.access, &phone.token_id).await.assert_rejected(401, "invalid_token");
    assert_revoked(&gateway.revoke(&laptop.access, &phone.token_id).await);
    assert_revoked(&gateway.revoke(&laptop.access, &tablet.token_id).await);

    for (pair, status) in [(&phone, 401), (&laptop, 200), (&tablet, 401)] {
        assert_eq!(gateway.status_of(&pair.access).await, status);
        assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status == 200, status == 200);
    }
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_session_of_another_user_looks_like_an_unknown_one() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let alice = gateway.issue("alice", "token:revoke2 revoke token").await;
    let bob = gateway.issue("bob", "").await;
    let ended = gateway.issue("bob", "").await;
    assert_revoked(&gateway.revoke(&bob.access, &ended.token_id).await);
    let mut responses = Vec::new();
    for token_id in [
        bob.token_id.clone(),
        bob.refresh.clone(),
        ended.token_id.clone(),
        TokenId::random().to_string(),
        "z".repeat(22),
        bob.token_id.to_lowercase() + "A",
        "x".into(),
        "%7e%C3%A9".into(),
        bob.access.clone(),
        "a".repeat(4096),
    ] {
        let response = gateway.revoke(&alice.access, &token_id).await;
        eprintln!("{token_id}");
        response.assert_rejected(404, "token_not_found");
        let mut body = response.json();
        body["requestId"].take();
        let mut headers: Vec<_> = response.headers.iter().filter(|(name, _)| *name != "date").collect();
        headers.sort_by_key(|(name, _)| name.as_str());
        responses.push(format!("{headers:?} {body}"));
    }
    responses.dedup();
    assert_eq!(responses.len(), 1, "{responses:#?}");
    assert_eq!(gateway.status_of(&bob.access).await, 200);
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_caller_with_the_scope_can_revoke_any_session() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let security = gateway.issue("security", "orders:read token:revoke").await;
    let bob = gateway.issue("bob", "").await;
    assert_revoked(&gateway.revoke(&security.access, &bob.token_id).await);
    assert_revoked(&gateway.revoke(&security.access, &bob.token_id).await);
    assert_eq!(gateway.status_of(&bob.access).await, 401);
    gateway.revoke(&security.access, &TokenId::random().to_string()).await.assert_rejected(404, "token_not_found");
}

#[tokio::test]
async fn a_revocation_needs_a_live_bearer_and_delete() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "token:revoke").await;
    let path = format!("/token/{}", pair.token_id);
    for id in [pair.token_id.as_str(), "x"] {
        gateway.client().delete(&format!("/token/{id}")).await.assert_rejected(401, "unauthorized");
        gateway.revoke("x", id).await.assert_rejected(401, "invalid_token");
    }
    for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH] {
        let response = gateway.client().bearer(&pair.access).send(method, &path, Default::default()).await;
        assert_eq!((response.status.as_u16(), response.header("allow")), (405, Some("DELETE")));
    }
    gateway.advance(Duration::from_secs(905));
    gateway.revoke(&pair.access, &pair.token_id).await.assert_rejected(401, "invalid_token");
    let next = TokenPair::from_json(&gateway.refresh(&pair.access, &pair.refresh).await.json());
    assert_revoked(&gateway.revoke(&next.access, &next.token_id).await);
    assert!(upstream.seen().is_empty());
}

/// A client may send the refresh token instead of its id, also with escapes. The access log must not contain it.
#[tokio::test]
async fn a_refresh_token_in_the_path_is_accepted_and_not_logged() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let spellings: [fn(&str) -> String; 3] =
        [str::to_owned, |token| token.replacen('b', "%62", 1), |token| token.replace('_', "%5F")];
    let mut token_ids = Vec::new();
    for encode in spellings {
        let pair = gateway.issue("alice", "").await;
        gateway.revoke("x", &encode(&pair.refresh)).await.assert_rejected(401, "invalid_token");
        assert_revoked(&gateway.revoke(&pair.access, &encode(&pair.refresh)).await);
        assert_eq!(gateway.status_of(&pair.access).await, 401);
        let escaped = pair.access.replacen('e', "%65", 1);
        for token in [encode(&pair.refresh), escaped] {
            gateway.client().bearer(&pair.access).get(&format!("/by/mistake/{token}")).await;
        }
        token_ids.push(pair.token_id);
    }
    let lines = gateway.log_lines(token_ids.len() * 4).await;
    for token_id in token_ids {
        let line = lines.iter().find(|line| line["token_id"] == token_id.as_str() && line["status"] == 200);
        assert_eq!(line.expect("the log has the token id")["path"], "/token/[token]");
    }
    assert!(lines.iter().any(|line| line["path"] == "/by/mistake/[token]"));
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_revocation_applies_to_all_workers_and_all_access_tokens() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let sibling = gateway.issue("alice", "").await;
    let mut pairs = vec![gateway.issue("alice", "").await];
    for _ in 0..3 {
        let newest = &pairs[pairs.len() - 1];
        let next = TokenPair::from_json(&gateway.refresh(&newest.access, &newest.refresh).await.json());
        pairs.push(next);
    }
    let mut connections = Vec::new();
    for _ in 0..64 {
        connections.push(KeepAliveClient::open(gateway.address()).await);
    }
    // Both workers have all tokens in their caches.
    for connection in &mut connections {
        for pair in pairs.iter().chain([&sibling]) {
            assert_eq!(connection.status_of(&pair.access).await, 200);
        }
    }
    for worker in 0..2 {
        assert_ne!(
            gateway.running().metrics.worker(worker).connections_opened.get(),
            0,
            "worker {worker} has no connection"
        );
    }
    assert_revoked(&gateway.revoke(&pairs[1].access, &pairs[0].token_id).await);
    for connection in &mut connections {
        for pair in &pairs {
            assert_eq!(connection.status_of(&pair.access).await, 401);
        }
        assert_eq!(connection.status_of(&sibling.access).await, 200, "another session of the user is not affected");
    }
    for pair in &pairs {
        gateway.refresh(&pair.access, &pair.refresh).await.assert_rejected(400, "invalid_grant");
    }

    let gateway = gateway.restart();
    for pair in &pairs {
        assert_eq!(gateway.status_of(&pair.access).await, 401, "after a restart");
        gateway.refresh(&pair.access, &pair.refresh).await.assert_rejected(400, "invalid_grant");
    }
    assert_eq!(gateway.status_of(&sibling.access).await, 200);
    gateway.drain_and_check_log();
}

/// The clock is set back by a minute after the token was issued, so the token expires a minute later than the store
/// expects.
#[tokio::test]
async fn a_revoked_token_stays_rejected_when_the_clock_is_set_back() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    gateway.clock.set_back(Duration::from_secs(60));
    assert_revoked(&gateway.revoke(&gateway.issue("alice", "").await.access, &pair.token_id).await);
    gateway.advance(Duration::from_secs(910));
    let gateway = gateway.restart();
    assert_eq!(gateway.status_of(&pair.access).await, 401, "not expired yet, and still revoked");
    let lines = gateway.log_lines(2).await;
    assert!(lines.iter().any(|line| line["reason"] == "revoked"), "{lines:?}");
}

#[tokio::test]
async fn a_revocation_survives_kill_9() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), Gateway::config_text(&upstream.address.to_string(), ""))
        .expect("written");
    let secrets = Secrets::default();
    let issue = async |gateway: &GatewayProcess, subject: &str| -> TokenPair {
        let response = gateway.admin_client().post("/admin/v1/tokens", &serde_json::json!({ "sub": subject })).await;
        secrets.note(&response);
        TokenPair::from_json(&response.json())
    };
    let get = async |client: Client, pair: &TokenPair| client.bearer(&pair.access).get("/").await.status.as_u16();
    let mut revoked: Vec<TokenPair> = Vec::new();
    let mut gateway = GatewayProcess::start(folder.path());
    let bob = issue(&gateway, "bob").await;
    for _ in 0..5 {
        let pair = issue(&gateway, "alice").await;
        assert_eq!(get(gateway.client(), &pair).await, 200);
        assert_revoked(&gateway.client().bearer(&pair.access).delete(&format!("/token/{}", pair.refresh)).await);
        revoked.push(pair);
        gateway.program.kill();

        gateway = GatewayProcess::start(folder.path());
        for pair in &revoked {
            assert_eq!(get(gateway.client(), pair).await, 401);
            let body = serde_json::json!({ "refreshToken": pair.refresh });
            gateway
                .client()
                .bearer(&pair.access)
                .post("/user/refresh", &body)
                .await
                .assert_rejected(400, "invalid_grant");
        }
        assert_eq!(get(gateway.client(), &bob).await, 200);
    }
    assert_eq!(gateway.admin_client().delete("/admin/v1/subjects/bob/tokens").await.status, 200);
    gateway.program.kill();
    let gateway = GatewayProcess::start(folder.path());
    assert_eq!(get(gateway.client(), &bob).await, 401, "a revocation of a subject survives too");
    gateway.program.signal("TERM");
    let (status, _, stderr) = gateway.program.wait();
    assert!(status.success());
    secrets.assert_absent_from("standard error", &stderr);
    let log = std::fs::read_to_string(folder.path().join("access.log")).expect("a log");
    secrets.assert_absent_from("the access log", &log);
}

/// A start loads all revocations before the gateway accepts connections.
#[tokio::test]
async fn thousands_of_revocations_survive_a_restart() {
    const COUNT: usize = 3_000;
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, "");
    let of = |jti: usize| mint.with_claims(gateway.now_secs(), serde_json::json!({ "jti": jti.to_string() }));
    let tokens: Vec<String> = [0, 1, COUNT / 2, COUNT - 1, COUNT].map(of).into();
    let now = bearward::types::clock::UnixTime::from_secs(gateway.now_secs());
    let revoke = |jti: usize| {
        let what = Revoked::Token { issuer: EXTERNAL_ISSUER.into(), jti: jti.to_string() };
        gateway.running().broker.store.revoke(what, now.into())
    };
    let mut responses: JoinSet<_> = (0..COUNT).map(revoke).collect();
    while let Some(response) = responses.join_next().await {
        response.expect("no panic").expect("the store works");
    }
    let gateway = gateway.restart();
    let page = gateway.running().metrics.render();
    for line in ["bearward_revocations 3000.0\n", "bearward_revocation_sequence 3000.0\n"] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
    for (token, status) in tokens.iter().zip([401, 401, 401, 401, 200]) {
        assert_eq!(gateway.status_of(token).await, status);
    }
}
