//! Operators with names and roles, and their sessions.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::{Client, Gateway, Upstream};

const VIEWER: &str = "a-token-of-vera-who-reads-1234567890";
const OPERATOR: &str = "a-token-of-otto-who-changes-123456789";

fn started(upstream: &Upstream, keys: &str) -> Gateway {
    let folder = TempDir::new().expect("a folder");
    for (name, token) in [("vera.token", VIEWER), ("otto.token", OPERATOR)] {
        let path = folder.path().join(name);
        fs::write(&path, format!("{token}\n")).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("private");
    }
    let operators = "[[admin.operator]]\nname = \"vera\"\ntoken_file = \"vera.token\"\n\
                     [[admin.operator]]\nname = \"otto\"\ntoken_file = \"otto.token\"\nrole = \"operate\"\n";
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let text = text.replace("[admin]\n", &format!("[admin]\n{keys}\n")) + operators;
    Gateway::in_folder(text, Arc::new(folder), Arc::new(ManualClock::new()))
}

fn client(gateway: &Gateway, token: &str) -> Client {
    Client::http1(gateway.admin_address()).host("localhost").bearer(token)
}

async fn begun(client: &Client) -> String {
    let session = client.post("/admin/v1/sessions", &json!({})).await;
    assert_eq!(session.status, 201, "{session:?}");
    session.json()["token"].as_str().expect("a token").to_owned()
}

#[tokio::test]
async fn the_role_view_changes_nothing() {
    let upstream = Upstream::start();
    let gateway = started(&upstream, "");
    let alice = gateway.issue("alice", "").await;
    let session = begun(&client(&gateway, VIEWER)).await;
    for token in [VIEWER, &session] {
        let vera = client(&gateway, token);
        for path in [
            "config",
            "keys",
            "upstreams",
            "clients",
            "rejections",
            "subjects/alice/tokens",
            "tokens",
            "tokens/ended",
            "sessions/current",
        ] {
            assert_eq!(vera.get(&format!("/admin/v1/{path}")).await.status, 200, "{path}");
        }
        assert_eq!(vera.post("/admin/v1/explain", &json!({ "path": "/" })).await.status, 200);
        for (method, path) in [
            (Method::POST, "/admin/v1/tokens"),
            (Method::DELETE, "/admin/v1/tokens/0000000000000000000000"),
            (Method::DELETE, "/admin/v1/subjects/alice/tokens"),
            (Method::DELETE, "/admin/v1/clients/spa/tokens"),
            (Method::POST, "/admin/v1/revocations"),
            (Method::POST, "/admin/v1/keys/rotate"),
            (Method::POST, "/admin/v1/keys/x/revoke"),
            (Method::POST, "/admin/v1/reload"),
            (Method::PUT, "/admin/v1/keys"),
        ] {
            let body = Bytes::from(json!({ "subject": "alice" }).to_string());
            let answer = vera.send(method.clone(), path, body).await;
            answer.assert_rejected(403, "forbidden");
            assert!(answer.text().contains("the role view"), "{method} {path}: {answer:?}");
        }
    }
    assert_eq!(gateway.status_of(&alice.access).await, 200);
    let ended = client(&gateway, OPERATOR).delete("/admin/v1/subjects/alice/tokens").await;
    assert_eq!(ended.status, 200, "{ended:?}");
    assert_eq!(gateway.status_of(&alice.access).await, 401);
}

#[tokio::test]
async fn audit_events_name_the_operator() {
    let upstream = Upstream::start();
    let gateway = started(&upstream, "");
    let session = begun(&client(&gateway, OPERATOR)).await;
    for (name, token) in [("carol", OPERATOR), ("dave", session.as_str())] {
        let pair = client(&gateway, token).post("/admin/v1/tokens", &json!({ "subject": name })).await;
        assert_eq!(pair.status, 201, "{pair:?}");
    }
    gateway.issue("erin", "").await;
    let events = gateway.audit_events(5).await;
    let operator_of = |subject: &str| {
        let event = events.iter().find(|event| event["subject"] == subject).unwrap_or_else(|| panic!("{events:?}"));
        event["operator"].as_str().map(str::to_owned)
    };
    for (subject, operator) in [("carol", "otto"), ("dave", "otto"), ("erin", "admin")] {
        assert_eq!(operator_of(subject).as_deref(), Some(operator), "{subject}");
    }
    let own: Vec<_> = events.iter().filter(|event| event["subject"].is_null()).collect();
    assert!(own.iter().all(|event| event["operator"].is_null()), "the gateway itself is no operator: {own:?}");
}

#[tokio::test]
async fn a_session_ends_by_its_call_its_time_and_a_restart() {
    let upstream = Upstream::start();
    let gateway = started(&upstream, "session_lifetime = \"1h\"");
    let otto = client(&gateway, OPERATOR);
    let [one, two] = [begun(&otto).await, begun(&otto).await];
    let shown = client(&gateway, &one).get("/admin/v1/sessions/current").await.json();
    assert_eq!((&shown["operator"], &shown["role"]), (&json!("otto"), &json!("operate")));
    assert!(shown["expiresAt"].is_string() && shown["token"].is_null(), "{shown}");
    assert_eq!(otto.get("/admin/v1/sessions/current").await.json()["expiresAt"], Value::Null);

    client(&gateway, &one).post("/admin/v1/sessions", &json!({})).await.assert_rejected(403, "forbidden");
    assert_eq!(client(&gateway, &one).delete("/admin/v1/sessions/current").await.json(), json!({ "success": true }));
    client(&gateway, &one).get("/admin/v1/keys").await.assert_rejected(401, "unauthorized");
    assert_eq!(client(&gateway, &two).get("/admin/v1/keys").await.status, 200);
    gateway.advance(Duration::from_secs(3_601));
    client(&gateway, &two).get("/admin/v1/keys").await.assert_rejected(401, "unauthorized");
    assert_eq!(client(&gateway, OPERATOR).get("/admin/v1/keys").await.status, 200, "the operator's token does not end");

    let three = begun(&client(&gateway, OPERATOR)).await;
    let gateway = gateway.restart();
    client(&gateway, &three).get("/admin/v1/keys").await.assert_rejected(401, "unauthorized");
}

#[tokio::test]
async fn wrong_session_tokens_count_as_wrong_admin_tokens() {
    let upstream = Upstream::start();
    let gateway = started(&upstream, "wrong_tokens = 2");
    for _ in 0..2 {
        client(&gateway, "x").get("/admin/v1/keys").await.assert_rejected(401, "unauthorized");
    }
    client(&gateway, OPERATOR).get("/admin/v1/keys").await.assert_rejected(429, "rate_limited");
}
