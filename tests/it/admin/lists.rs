//! `GET /admin/v1/subjects/{sub}/tokens` and `DELETE /admin/v1/tokens/{tokenId}`.

use std::time::Duration;

use bearward::types::ids::TokenId;
use serde_json::{Value, json};

use crate::support::{Gateway, Upstream};

async fn listed(gateway: &Gateway, subject: &str) -> Vec<Value> {
    let answer = gateway.admin_client().get(&format!("/admin/v1/subjects/{subject}/tokens")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["tokens"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn logins_are_listed_newest_first_with_their_state() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let begun = gateway.now_secs();
    let at = |after: u64| json!(bearward::types::clock::UnixTime::from_secs(begun + after).to_string());
    let kiosk = json!({
        "sub": "alice", "label": "kiosk", "scope": "a b", "idle": 60, "address": "::ffff:198.51.100.7",
        "clientId": "shop",
    });
    assert_eq!(gateway.request_tokens(&kiosk).await.status, 201);
    gateway.advance(Duration::from_secs(60));
    let phone = gateway.issue("alice", "").await;
    gateway.advance(Duration::from_secs(60));
    let laptop = gateway.issue("alice", "").await;
    gateway.issue("alice2", "").await;
    assert_eq!(gateway.revoke(&laptop.access, &phone.token_id).await.status, 200);
    gateway.advance(Duration::from_secs(60));
    assert_eq!(gateway.refresh(&laptop.access, &laptop.refresh).await.status, 200);

    let tokens = listed(&gateway, "alice").await;
    let states: Vec<_> = tokens.iter().map(|token| token["state"].as_str().expect("text")).collect();
    assert_eq!(states, ["live", "revoked", "expired"]);
    let expected = json!({
        "tokenId": laptop.token_id, "sub": "alice", "scope": "", "aud": [], "clientId": "", "label": "",
        "state": "live", "address": "127.0.0.1",
        "createdAt": at(120), "lastUsedAt": at(180), "idleExpiry": at(180 + 7 * 86_400),
        "absoluteExpiry": at(120 + 30 * 86_400),
    });
    assert_eq!(tokens[0], expected);
    assert_eq!((&tokens[1]["reason"], &tokens[1]["revokedAt"]), (&json!("logout"), &at(120)));
    assert_eq!(tokens[1].get("address"), None, "the request named no address, and the login was never refreshed");
    assert_eq!((&tokens[2]["label"], &tokens[2]["scope"]), (&json!("kiosk"), &json!("a b")));
    assert_eq!((&tokens[2]["address"], &tokens[2]["clientId"]), (&json!("198.51.100.7"), &json!("shop")));
}

#[tokio::test]
async fn any_subject_can_be_encoded_in_the_path() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for (subject, segment) in [("a/b?c é%", "a%2Fb%3Fc%20%C3%A9%25"), ("..", ".."), ("x", "%78"), ("\n\0", "%0A%00")] {
        let pair = gateway.issue(subject, "").await;
        let tokens = listed(&gateway, segment).await;
        assert_eq!((tokens.len(), &tokens[0]["tokenId"]), (1, &json!(pair.token_id)), "{subject:?}");
        assert_eq!(gateway.status_of(&pair.access).await, 200);
    }
    assert!(listed(&gateway, "unknown").await.is_empty());
    gateway.admin_client().get("/admin/v1/subjects/%ff/tokens").await.assert_rejected(400, "invalid_request");
}

#[tokio::test]
async fn an_operator_revokes_a_login_by_its_id_or_refresh_token() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let end = async |named: &str| gateway.admin_client().delete(&format!("/admin/v1/tokens/{named}")).await;
    for named in [&alice.token_id, &alice.token_id, &bob.refresh] {
        let answer = end(named).await;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, r#"{"success":true}"#));
    }
    for pair in [&alice, &bob] {
        assert_eq!(gateway.status_of(&pair.access).await, 401);
    }
    assert_eq!(listed(&gateway, "bob").await[0]["reason"], "admin");
    for named in [&TokenId::random().to_string(), "x", &bob.access] {
        end(named).await.assert_rejected(404, "token_not_found");
    }
}
