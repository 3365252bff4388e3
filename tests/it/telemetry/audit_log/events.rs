//! The events of the audit log and their fields.

use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};

use crate::support::gateway::ISSUER;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint, claims_of};
use crate::support::{Gateway, TokenPair, Upstream};

const AFTER_GRACE: Duration = Duration::from_millis(10_001);

async fn refreshed(gateway: &Gateway, pair: &TokenPair) -> TokenPair {
    TokenPair::from_json(&gateway.refresh(&pair.access, &pair.refresh).await.json())
}

/// Returns an event without the values that differ in each run.
fn without_varying(mut event: Value) -> Value {
    let members = event.as_object_mut().expect("an object");
    for changing in ["seq", "time", "request_id"] {
        assert!(members.remove(changing).is_some() || changing == "request_id", "{changing} is missing");
    }
    event
}

#[tokio::test]
async fn each_use_of_a_refresh_token_is_recorded_once_and_in_order() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let wanted = json!({ "sub": "alice", "address": "198.51.100.7" });
    let first = TokenPair::from_json(&gateway.request_tokens(&wanted).await.json());
    let bob = gateway.issue("bob", "").await;
    let second = refreshed(&gateway, &first).await;
    assert_eq!(refreshed(&gateway, &first).await.refresh, second.refresh);
    gateway.advance(AFTER_GRACE);
    assert_eq!(refreshed(&gateway, &first).await.refresh, second.refresh);
    let third = refreshed(&gateway, &second).await;
    gateway.refresh(&first.access, &first.refresh).await.assert_rejected(409, "refresh_conflict");
    gateway.refresh(&bob.access, &third.refresh).await.assert_rejected(400, "invalid_grant");
    assert_eq!(gateway.status_of(&third.access).await, 200);
    gateway.advance(AFTER_GRACE);
    gateway.refresh(&second.access, &second.refresh).await.assert_rejected(400, "invalid_grant");
    gateway.refresh(&third.access, &third.refresh).await.assert_rejected(400, "invalid_grant");
    // A malformed refresh token or one of an unknown login is not recorded.
    gateway.refresh(&bob.access, "x").await.assert_rejected(400, "invalid_grant");

    let events = gateway.audit_events(12).await;
    let sequence: Vec<_> = events.iter().map(|event| event["seq"].as_u64().expect("a number")).collect();
    assert_eq!(sequence, (1..=12).collect::<Vec<_>>());
    // The first start creates a key.
    assert_eq!((&events[0]["event"], events[0]["kid"].is_string()), (&json!("key.created"), true));
    assert_eq!((&events[1]["event"], &events[1]["kid"]), (&json!("key.activated"), &events[0]["kid"]));
    let of_alice = |event: &str, generation: u64| {
        json!({
            "event": event, "token_id": first.token_id, "subject": "alice", "generation": generation,
            "client": "127.0.0.1",
        })
    };
    let mut issued = of_alice("token.issued", 1);
    issued["client"] = "198.51.100.7".into();
    issued["operator"] = "admin".into();
    let mut denied = of_alice("refresh.denied", 3);
    denied["reason"] = "grant_revoked".into();
    let expected = [
        issued,
        json!({
            "event": "token.issued", "token_id": bob.token_id, "subject": "bob", "generation": 1, "operator": "admin",
        }),
        of_alice("token.refreshed", 2),
        of_alice("refresh.replayed", 2),
        of_alice("refresh.recovered", 2),
        of_alice("token.refreshed", 3),
        of_alice("refresh.conflict", 1),
        json!({
            "event": "refresh.binding_mismatch", "token_id": first.token_id, "caller": "bob", "client": "127.0.0.1",
        }),
        of_alice("refresh.reuse_detected", 2),
        denied,
    ];
    assert_eq!(events[2..].iter().cloned().map(without_varying).collect::<Vec<_>>(), expected);

    let lines = gateway.log_lines(10).await;
    let reused = lines.iter().find(|line| line["reason"] == "grant_reused").expect("the access log has the line");
    assert_eq!(events[10]["request_id"], reused["request_id"], "the request id connects both logs");
    assert_eq!(events[10]["time"], reused["time"]);
}

#[tokio::test]
async fn each_revocation_is_recorded_once_with_its_actor() {
    let upstream = Upstream::start();
    let mint = Mint::new(Algorithm::ES256);
    let gateway = Gateway::with_issuer(&upstream, &mint, "[limits]\nsessions_per_subject = 2");
    let security = gateway.issue("security", "token:revoke").await;
    let mut pairs = Vec::new();
    for _ in 0..3 {
        pairs.push(gateway.issue("alice", "").await);
        gateway.advance(Duration::from_secs(1));
    }
    let other = gateway.issue("bob", "").await;
    // Revoked by the limit, by the owner, and by a client with the scope. A revoked login is not revoked again.
    assert_eq!(gateway.revoke(&pairs[1].access, &pairs[0].token_id).await.status, 200);
    assert_eq!(gateway.revoke(&pairs[2].access, &pairs[1].token_id).await.status, 200);
    assert_eq!(gateway.revoke(&security.access, &pairs[2].token_id).await.status, 200);
    assert_eq!(gateway.revoke(&security.access, &pairs[2].token_id).await.status, 200);
    gateway.revoke(&other.access, &security.token_id).await.assert_rejected(404, "token_not_found");
    let admin = gateway.admin_client();
    assert_eq!(admin.delete(&format!("/admin/v1/tokens/{}", other.token_id)).await.status, 200);
    let now = bearward::types::clock::UnixTime::from_secs(gateway.now_secs()).to_string();
    for what in [
        json!({ "sub": "alice" }),
        json!({ "clientId": "spa" }),
        json!({ "clientId": "spa", "sub": "alice" }),
        json!({ "jti": "7", "issuer": EXTERNAL_ISSUER }),
        json!({ "all": true, "issuer": EXTERNAL_ISSUER, "before": "2026-01-01T00:00:00Z" }),
        json!({ "all": true }),
    ] {
        assert_eq!(admin.post("/admin/v1/revocations", &what).await.status, 200);
    }

    let events = gateway.audit_events(17).await;
    let recorded: Vec<Value> =
        events.into_iter().filter(|event| event["event"] != "token.issued").skip(2).map(without_varying).collect();
    let ended = |pair: &TokenPair, subject: &str, reason: &str| json!({ "event": "token.revoked", "token_id": pair.token_id, "subject": subject, "reason": reason, "client": "127.0.0.1" });
    let by_operator = |mut event: Value| {
        event["operator"] = "admin".into();
        event
    };
    let mut by_limit = by_operator(ended(&pairs[0], "alice", "limit"));
    by_limit.as_object_mut().expect("an object").remove("client");
    let mut by_scope = ended(&pairs[2], "alice", "admin");
    by_scope["caller"] = "security".into();
    let client = "127.0.0.1";
    let expected = [
        by_limit,
        ended(&pairs[1], "alice", "logout"),
        by_scope,
        by_operator(ended(&other, "bob", "admin")),
        by_operator(json!({
            "event": "subject.revoked", "issuer": ISSUER, "subject": "alice", "before": now, "client": client,
        })),
        by_operator(json!({ "event": "client.revoked", "client_id": "spa", "before": now, "client": client })),
        by_operator(json!({
            "event": "client.revoked", "client_id": "spa", "subject": "alice", "before": now, "client": client,
        })),
        by_operator(json!({
            "event": "access_token.revoked", "issuer": EXTERNAL_ISSUER, "jti": "7", "client": client,
        })),
        by_operator(json!({
            "event": "issuer.revoked", "issuer": EXTERNAL_ISSUER, "before": "2026-01-01T00:00:00.000Z",
            "client": client,
        })),
        by_operator(json!({ "event": "everything.revoked", "before": now, "client": client })),
    ];
    assert_eq!(recorded, expected);
}

/// A subject can have any characters, but an event is one line.
#[tokio::test]
async fn no_subject_can_break_a_line() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let subject = "a\n{\"seq\":1}\r\u{2028}\"\\\0";
    let pair = gateway.issue(subject, "").await;
    gateway.refresh(&pair.access, &pair.refresh).await;
    let events = gateway.audit_events(4).await;
    assert_eq!(events.len(), 4);
    assert!(events[2..].iter().all(|event| event["subject"] == subject), "{events:?}");
    assert_eq!(claims_of(&pair.access)["sub"], subject);
}
