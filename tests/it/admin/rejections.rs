//! The reason of a rejection, by the id that the client has.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use crate::support::program::{GatewayProcess, bearward};
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, TestResponse, Upstream};

const ROUTES: &str = "[[route]]\npath = \"/admin\"\nname = \"back office\"\nscopes = [\"admin\"]\n\
                      [[route]]\npath = \"/moving\"\nenforce = false\n[[route]]\npath = \"/\"\n";

async fn listed(gateway: &Gateway, query: &str) -> Vec<Value> {
    let answer = gateway.admin_client().get(&format!("/admin/v1/rejections{query}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["rejections"].as_array().expect("a list").clone()
}

fn id_of(response: &TestResponse) -> String {
    response.json()["requestId"].as_str().expect("an id").to_owned()
}

/// The request is recorded when its response was sent, which the client may see first.
async fn found(gateway: &Gateway, response: &TestResponse) -> Value {
    let id = id_of(response);
    eventually_ok("the rejection is recorded", async || {
        let answer = gateway.admin_client().get(&format!("/admin/v1/rejections/{id}")).await;
        (answer.status == 200).then(|| answer.json()).ok_or(answer.text())
    })
    .await
}

#[tokio::test]
async fn a_request_id_tells_why_the_request_was_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let alice = gateway.issue("alice", "read").await;
    for client in gateway.clients() {
        let without = client.get("/orders?secret=1").await;
        without.assert_rejected(401, "unauthorized");
        let why = found(&gateway, &without).await;
        assert_eq!((&why["reason"], &why["status"], &why["method"]), (&json!("no_token"), &json!(401), &json!("GET")));
        assert_eq!((&why["path"], &why["route"]), (&json!("/orders"), &json!("/")), "the path has no query");
        assert!(why["subject"].is_null() && why["observed"].is_null(), "{why}");

        let forbidden = client.bearer(&alice.access).get("/admin/users").await;
        forbidden.assert_rejected(403, "insufficient_scope");
        let why = found(&gateway, &forbidden).await;
        assert_eq!((&why["reason"], &why["route"]), (&json!("insufficient_scope"), &json!("back office")));
        assert_eq!((&why["subject"], &why["tokenId"]), (&json!("alice"), &json!(alice.token_id)));
        assert_eq!(why["client"], "127.0.0.1");
        assert!(!why.to_string().contains(&alice.access) && !why.to_string().contains("secret=1"), "{why}");
    }
}

#[tokio::test]
async fn an_observed_request_is_kept_too() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let observed = gateway.client().get("/moving").await;
    assert_eq!(observed.status, StatusCode::OK);
    let id = upstream.only_request().header("x-request-id").expect("an id").to_owned();
    eventually_ok("it is recorded", async || {
        let found = listed(&gateway, "").await.into_iter().find(|entry| entry["requestId"] == id.as_str());
        let found = found.ok_or("nothing was recorded")?;
        let is_observed = found["observed"] == json!(true) && found["reason"] == "no_token" && found["status"] == 200;
        is_observed.then_some(()).ok_or(found.to_string())
    })
    .await;
}

#[tokio::test]
async fn the_list_has_the_newest_first_and_filters() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let alice = gateway.issue("alice", "").await;
    let mut last = Value::Null;
    for _ in 0..3 {
        let response = gateway.client().get("/").await;
        last = found(&gateway, &response).await["requestId"].clone();
        gateway.advance(std::time::Duration::from_secs(1));
        found(&gateway, &gateway.client().bearer(&alice.access).get("/admin").await).await;
        gateway.advance(std::time::Duration::from_secs(1));
    }
    for (query, count) in [
        ("", 6),
        ("?limit=2", 2),
        ("?reason=no_token", 3),
        ("?reason=expired", 0),
        ("?subject=alice", 3),
        ("?route=back%20office", 3),
        ("?client=127.0.0.1&reason=no_token&limit=1", 1),
        ("?client=127.0.0.2", 0),
    ] {
        assert_eq!(listed(&gateway, query).await.len(), count, "{query}");
    }
    assert_eq!(listed(&gateway, "?reason=no_token").await[0]["requestId"], last);
    for query in ["?limit=0", "?limit=501", "?limit=x", "?reason=x", "?client=x", "?page=2", "?limit=1&limit=1"] {
        let answer = gateway.admin_client().get(&format!("/admin/v1/rejections{query}")).await;
        answer.assert_rejected(400, "invalid_request");
    }
    for id in ["x", "0123456789abcdef0123456789abcdef"] {
        gateway.admin_client().get(&format!("/admin/v1/rejections/{id}")).await.assert_rejected(404, "not_found");
    }
    gateway.client().get("/admin/v1/rejections").await.assert_rejected(401, "unauthorized");
}

/// The gateway keeps only the first part of such a subject.
#[tokio::test]
async fn a_revoked_or_expired_token_names_its_subject() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, ROUTES);
    let [alice, bob, carol] = ["alice", "bob", "carol"];
    let (used, unused, old) =
        (gateway.issue(alice, "").await, gateway.issue(bob, "").await, gateway.issue(carol, "").await);
    for token in [&used, &old] {
        assert_eq!(gateway.status_of(&token.access).await, 200);
    }
    for token in [&used, &unused] {
        let path = format!("/admin/v1/tokens/{}", token.token_id);
        assert_eq!(gateway.admin_client().delete(&path).await.status, 200);
        let why = found(&gateway, &gateway.client().bearer(&token.access).get("/").await).await;
        assert_eq!((&why["reason"], &why["tokenId"]), (&json!("revoked"), &json!(token.token_id)), "{why}");
    }
    assert_eq!(listed(&gateway, "?subject=alice").await.len(), 1);
    assert_eq!(listed(&gateway, "?subject=bob").await.len(), 1);
    let line = gateway.log_line(|line| line["reason"] == "revoked" && line["subject"] == "alice").await;
    assert_eq!(line["token_id"], json!(used.token_id), "{line}");

    gateway.advance(Duration::from_secs(3600));
    let why = found(&gateway, &gateway.client().bearer(&old.access).get("/").await).await;
    assert_eq!((&why["reason"], &why["subject"]), (&json!("expired"), &json!("carol")), "known before it expired");
    let forged = format!("{}x", &used.access[..used.access.len() - 1]);
    let why = found(&gateway, &gateway.client().bearer(&forged).get("/").await).await;
    assert!(why["subject"].is_null() && why["tokenId"].is_null(), "{why}");
}

#[tokio::test]
async fn rejections_of_a_long_subject_are_found() {
    let upstream = Upstream::start();
    let text = Gateway::config_text(&upstream.address.to_string(), ROUTES);
    let gateway = Gateway::from_text(text.replace("[access_log]\n", "[access_log]\nmax_field_size = \"64B\"\n"));
    let subject = "s".repeat(63) + "é-and-more";
    let token = gateway.issue(&subject, "").await;
    found(&gateway, &gateway.client().bearer(&token.access).get("/admin").await).await;
    for (asked, count) in [(subject.as_str(), 1), (&subject[..40], 0)] {
        let asked: String = asked.bytes().map(|byte| format!("%{byte:02X}")).collect();
        assert_eq!(listed(&gateway, &format!("?subject={asked}")).await.len(), count, "{asked}");
    }
}

#[tokio::test]
async fn no_rejection_is_kept_if_the_operator_wants_none() {
    let upstream = Upstream::start();
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let gateway = Gateway::from_text(text.replace("[admin]\n", "[admin]\nrecent_rejections = 0\n"));
    let response = gateway.client().get("/").await;
    response.assert_rejected(401, "unauthorized");
    let id = id_of(&response);
    gateway.log_line(|line| line["request_id"] == id).await;
    assert!(listed(&gateway, "").await.is_empty());
}

#[tokio::test]
async fn explain_asks_the_running_gateway_by_the_request_id() {
    let upstream = Upstream::start();
    let folder = tempfile::TempDir::new().expect("a folder");
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    std::fs::write(folder.path().join("gateway.toml"), text).expect("written");
    let path = folder.path().to_owned();
    let served = tokio::task::spawn_blocking(move || GatewayProcess::start(&path)).await.expect("it starts");
    let response = served.client().bearer("a.b.c").get("/orders").await;
    let id = id_of(&response);
    let explain = |id: &str, more: &[&str]| {
        let output = bearward(folder.path(), &[&["explain", "--request-id", id], more].concat());
        let [printed, error] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
        (output.status.code(), printed, error)
    };
    let printed = eventually_ok("the rejection is recorded", async || match explain(&id, &[]) {
        (Some(0), printed, _) => Ok(printed),
        other => Err(format!("{other:?}")),
    })
    .await;
    for line in ["client      127.0.0.1", "path        /orders", "reason      malformed_token", "decision    rejected"]
    {
        assert!(printed.contains(line), "{line}:\n{printed}");
    }
    let json: Value = serde_json::from_str(&explain(&id, &["--json"]).1).expect("JSON");
    assert_eq!(json["requestId"], id.as_str());
    let (status, _, error) = explain("0123456789abcdef0123456789abcdef", &[]);
    assert!(status == Some(3) && error.contains("admin.recent_rejections"), "{error}");
    let (status, _, error) = explain("x/../keys", &[]);
    assert!(status == Some(2) && error.contains("is not a request id"), "{error}");
}
