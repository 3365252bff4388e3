//! `POST /admin/v1/keys/{kid}/revoke`, for a key that may have been stolen.

use super::*;
use crate::support::TokenPair;
use crate::support::client::KeepAliveClient;

async fn revoke(gateway: &Gateway, kid: &str, body: &Value) -> TestResponse {
    gateway.admin_client().post(&format!("/admin/v1/keys/{kid}/revoke"), body).await
}

#[tokio::test]
async fn tokens_of_a_revoked_key_are_rejected_at_once() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    // Two connections, so that both workers have the token in their caches.
    let mut connections =
        [KeepAliveClient::open(gateway.address()).await, KeepAliveClient::open(gateway.address()).await];
    for connection in &mut connections {
        assert_eq!(connection.status_of(&alice.access).await, 200);
    }
    let kid = kid_of(&alice.access);
    let response = revoke(&gateway, &kid, &json!({})).await;
    assert_eq!(response.status, 200, "{response:?}");
    let keys = response.json()["keys"].as_array().expect("a list").clone();
    assert_eq!((count(&keys, "active"), count(&keys, "revoked"), keys.len()), (1, 1, 2));

    for connection in &mut connections {
        assert_eq!(connection.status_of(&alice.access).await, 401, "the cached token is rejected");
    }
    gateway.client().bearer(&bob.access).get("/").await.assert_rejected(401, "invalid_token");
    assert!(!published(&gateway).await.contains(&kid));
    let lines = gateway.log_lines(5).await;
    assert!(lines.iter().filter(|line| line["reason"] == "key_revoked").count() == 3, "{lines:?}");

    let new = gateway.issue("carol", "").await;
    assert_ne!(kid_of(&new.access), kid);
    assert_eq!(gateway.status_of(&new.access).await, 200);
    assert_eq!(revoke(&gateway, &kid, &json!({})).await.status, 200, "a second revocation succeeds");

    let gateway = gateway.restart();
    gateway.client().bearer(&alice.access).get("/").await.assert_rejected(401, "invalid_token");
    let lines = gateway.log_lines(8).await;
    assert_eq!(lines.iter().filter(|line| line["reason"] == "key_revoked").count(), 4, "{lines:?}");
    assert_eq!(gateway.status_of(&new.access).await, 200);
    gateway.drain_and_check_log();
}

/// A thief of the key could sign the Bearer that a refresh with a stolen refresh token needs. The refresh token stays
/// valid with a Bearer of another key.
#[tokio::test]
async fn a_bearer_of_a_revoked_key_cannot_refresh() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let first = gateway.issue("alice", "").await;
    assert_eq!(rotate_now(&gateway.admin_client()).await.status, 200);
    let second = TokenPair::from_json(&gateway.refresh(&first.access, &first.refresh).await.json());
    assert_eq!(revoke(&gateway, &kid_of(&second.access), &json!({})).await.status, 200);
    gateway.refresh(&second.access, &second.refresh).await.assert_rejected(401, "invalid_token");
    assert!(gateway.log_lines(2).await.iter().any(|line| line["reason"] == "key_revoked"));

    let third = gateway.refresh(&first.access, &second.refresh).await;
    assert_eq!(third.status, 200, "with a Bearer that another key signed");
    assert_eq!(gateway.status_of(&TokenPair::from_json(&third.json()).access).await, 200);
}

/// With `mayRefresh`, users need not log in again. The operator decides.
#[tokio::test]
async fn tokens_of_a_revoked_key_may_refresh_if_allowed() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let kid = kid_of(&pair.access);
    assert_eq!(revoke(&gateway, &kid, &json!({ "mayRefresh": true })).await.status, 200);
    gateway.client().bearer(&pair.access).get("/").await.assert_rejected(401, "invalid_token");
    gateway.revoke(&pair.access, &pair.token_id).await.assert_rejected(401, "invalid_token");
    let gateway = gateway.restart();
    let next = TokenPair::from_json(&gateway.refresh(&pair.access, &pair.refresh).await.json());
    assert_ne!(kid_of(&next.access), kid);
    assert_eq!(gateway.status_of(&next.access).await, 200);

    assert_eq!(kind_of(&gateway, &kid).await, json!(true));
    assert_eq!(revoke(&gateway, &kid, &json!({})).await.status, 200, "the operator can withdraw it");
    assert_eq!(kind_of(&gateway, &kid).await, json!(false));
    gateway.refresh(&pair.access, &next.refresh).await.assert_rejected(401, "invalid_token");
    assert_eq!(gateway.refresh(&next.access, &next.refresh).await.status, 200);
}

/// Each change of what a revoked key may do has its audit event. One that is not possible is rejected.
#[tokio::test]
async fn a_key_that_is_revoked_for_good_stays_so() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let kid = kid_of(&pair.access);
    assert_eq!(revoke(&gateway, &kid, &json!({ "mayRefresh": true })).await.status, 200);
    assert_eq!(revoke(&gateway, &kid, &json!({ "mayRefresh": true })).await.status, 200, "nothing changes");
    assert_eq!(revoke(&gateway, &kid, &json!({})).await.status, 200);
    assert_eq!(revoke(&gateway, &kid, &json!({})).await.status, 200, "nothing changes");
    let response = revoke(&gateway, &kid, &json!({ "mayRefresh": true })).await;
    response.assert_rejected(409, "invalid_request");
    assert!(response.text().contains("revoked for good"), "{}", response.text());
    let gateway = gateway.restart();
    revoke(&gateway, &kid, &json!({ "mayRefresh": true })).await.assert_rejected(409, "invalid_request");
    assert_eq!(kind_of(&gateway, &kid).await, json!(false));
    gateway.refresh(&pair.access, &pair.refresh).await.assert_rejected(401, "invalid_token");

    // One event for each time that a key is created, activated or revoked, and for the login.
    let events = gateway.audit_events(7).await;
    let revocations: Vec<_> = events.iter().filter(|event| event["event"] == "key.revoked").collect();
    assert!(revocations.iter().all(|event| event["kid"] == *kid), "{revocations:?}");
    let reasons: Vec<_> = revocations.iter().map(|event| event["reason"].as_str()).collect();
    assert_eq!(reasons, [Some("may_refresh"), None]);
}

/// `mayRefresh` of a revoked key in the list.
async fn kind_of(gateway: &Gateway, kid: &str) -> Value {
    let keys = listed(&gateway.admin_client()).await;
    keys.into_iter().find(|key| key["kid"] == *kid).expect("the key is listed")["mayRefresh"].clone()
}

#[tokio::test]
async fn invalid_key_requests_are_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let kid = kid_of(&gateway.issue("alice", "").await.access);
    revoke(&gateway, "unknown", &json!({})).await.assert_rejected(404, "not_found");
    revoke(&gateway, &kid, &json!({ "mayrefresh": true })).await.assert_rejected(400, "invalid_request");
    let admin = gateway.admin_client();
    admin.post("/admin/v1/keys/rotate", &json!({ "now": "yes" })).await.assert_rejected(400, "invalid_request");
    admin.post("/admin/v1/keys", &json!({})).await.assert_rejected(405, "invalid_request");
    admin.get("/admin/v1/keys/rotate").await.assert_rejected(405, "invalid_request");
    admin.get(&format!("/admin/v1/keys/{kid}/revoke")).await.assert_rejected(405, "invalid_request");
    admin.get("/admin/v1/keys/a/b/c").await.assert_rejected(404, "not_found");
    let no_token = Client::http1(gateway.admin_address()).host("localhost");
    no_token.get("/admin/v1/keys").await.assert_rejected(401, "unauthorized");
    assert_eq!(states(&listed(&admin).await), ["active"], "the keys have not changed");
}

/// The gateway applies a revocation only after the store has it.
#[tokio::test]
async fn a_key_revocation_that_is_not_durable_has_no_effect() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let database = rusqlite::Connection::open(gateway.path().join("bearward.db")).expect("opened");
    database.execute_batch("begin immediate").expect("locked");
    revoke(&gateway, &kid_of(&pair.access), &json!({})).await.assert_rejected(503, "temporarily_unavailable");
    rotate_now(&gateway.admin_client()).await.assert_rejected(503, "temporarily_unavailable");
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    database.execute_batch("rollback").expect("unlocked");
    assert_eq!(revoke(&gateway, &kid_of(&pair.access), &json!({})).await.status, 200);
    assert_eq!(gateway.status_of(&pair.access).await, 401);
}

/// The row of another key is changed in the database while the gateway runs.
#[tokio::test]
async fn a_corrupt_key_does_not_prevent_revoking_another_key() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let old = gateway.issue("alice", "").await;
    assert_eq!(rotate_now(&gateway.admin_client()).await.status, 200);
    let new = gateway.issue("alice", "").await;
    let database = rusqlite::Connection::open(gateway.path().join("bearward.db")).expect("opened");
    let changed = database.execute("update signing_keys set sealed = x'00' where kid = ?1", [kid_of(&old.access)]);
    assert_eq!(changed, Ok(1));
    assert_eq!(revoke(&gateway, &kid_of(&new.access), &json!({})).await.status, 200);
    for access in [&old.access, &new.access] {
        assert_eq!(gateway.status_of(access).await, 401);
    }
    assert_eq!(gateway.status_of(&gateway.issue("alice", "").await.access).await, 200);
}
