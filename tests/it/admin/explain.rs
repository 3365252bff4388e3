//! `POST /admin/v1/explain`: how the running gateway decides about a request.

use std::time::Duration;

use bearward::types::thumbprint::Thumbprint;
use serde_json::{Value, json};

use crate::support::certificates::Authority;
use crate::support::{Gateway, TokenPair, Upstream};

async fn explained(gateway: &Gateway, question: &Value) -> Value {
    let answer = gateway.admin_client().post("/admin/v1/explain", question).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn found<'e>(explained: &'e Value, step: &str) -> Vec<&'e str> {
    let steps = explained["steps"].as_array().expect("a list").iter();
    steps.filter(|each| each["step"] == step).map(|each| each["found"].as_str().expect("text")).collect()
}

#[tokio::test]
async fn a_revocation_and_a_rotated_key_count_at_once() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, "");
    let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let of_alice = explained(&gateway, &json!({ "token": alice.access, "path": "/orders" })).await;
    assert_eq!((&of_alice["decision"], &of_alice["reason"]), (&json!("allowed"), &Value::Null), "{of_alice}");
    assert_eq!(found(&of_alice, "route"), ["/"]);
    assert!(!of_alice.to_string().contains(&alice.access), "{of_alice}");

    assert_eq!(gateway.revoke(&alice.access, &alice.token_id).await.status, 200);
    let revoked = explained(&gateway, &json!({ "token": alice.access })).await;
    assert_eq!((&revoked["decision"], &revoked["reason"]), (&json!("rejected"), &json!("revoked")));
    assert_eq!(revoked["status"], 401);

    let path = format!("/token/{}", bob.token_id);
    let logout = json!({ "token": bob.access, "method": "DELETE", "path": path });
    let own_call = explained(&gateway, &logout).await;
    assert_eq!(own_call["decision"], "local", "{own_call}");
    assert_eq!(gateway.admin_client().post("/admin/v1/keys/rotate", &json!({ "now": true })).await.status, 200);
    let carol = gateway.issue("carol", "").await;
    assert_eq!(explained(&gateway, &json!({ "token": carol.access })).await["decision"], "allowed");
    assert_eq!(gateway.status_of(&bob.access).await, 200, "explaining a logout ends nothing");
}

/// A bound token is explained beside the certificate of its client.
#[tokio::test]
async fn a_question_can_have_a_certificate() {
    let (authority, upstream) = (Authority::new(), Upstream::start());
    let route =
        "[[route]]\npath = \"/alone/\"\npublic = true\nclient_certificate = \"required\"\n[[route]]\npath = \"/\"\n";
    let gateway = Gateway::with_clients(&upstream, &authority, "client_certificate = \"optional\"", route);
    let [own, other, foreign] = [&authority, &authority, &Authority::new()].map(|authority| authority.client(|_| {}));
    let hash = Thumbprint::of_certificate(&own.certificate()).to_string();
    let issued = gateway.request_tokens(&json!({ "sub": "alice", "x5t#S256": hash })).await;
    let token = TokenPair::from_json(&issued.json()).access;
    let ask = async |pem: Option<String>, path: &str| {
        let mut question = json!({ "token": token, "path": path });
        if let Some(pem) = pem {
            question["certificate"] = json!(pem);
        }
        let found = explained(&gateway, &question).await;
        (found["decision"].as_str().expect("text").to_owned(), found["reason"].clone(), found)
    };
    let (decision, _, all) = ask(Some(own.pem()), "/").await;
    assert_eq!(decision, "allowed", "{all}");
    let [shown] = found(&all, "certificate")[..] else { panic!("{all}") };
    assert!(shown.starts_with(&hash) && shown.contains("verified by client_ca"), "{shown}");
    assert_eq!(found(&all, "proof"), ["the certificate of cnf"]);
    for (pem, path, reason) in [
        (Some(other.pem()), "/", "certificate_other"),
        (None, "/", "certificate_other"),
        (None, "/alone/", "certificate_missing"),
        (Some(foreign.pem()), "/alone/", "certificate_denied"),
    ] {
        let (decision, found, all) = ask(pem, path).await;
        assert_eq!((&*decision, &found), ("rejected", &json!(reason)), "{all}");
    }
    let (_, _, all) = ask(Some(foreign.pem()), "/").await;
    assert!(all["detail"].as_str().is_some_and(|detail| detail.contains("the TLS handshake fails")), "{all}");
    assert_eq!(ask(Some(other.pem()), "/alone/").await.0, "allowed");
    for wrong in [json!({ "certificate": "x" }), json!({ "certificate": own.pem(), "cleartext": true })] {
        gateway.admin_client().post("/admin/v1/explain", &wrong).await.assert_rejected(400, "invalid_request");
    }
}

#[tokio::test]
async fn the_rates_of_the_client_are_shown_and_not_used_up() {
    let upstream = Upstream::start();
    let rate = |name: &str| format!("[[rate]]\nname = {name:?}\nper = \"subject\"\nrequests = 2\nwindow = \"1h\"\n");
    let gateway = Gateway::with_config(&upstream, &(rate("each") + &rate("also")));
    let alice = gateway.issue("alice", "").await;
    let question = json!({ "token": alice.access });
    for _ in 0..5 {
        assert_eq!(found(&explained(&gateway, &question).await, "rate"), ["each: 2 left", "also: 2 left"]);
    }
    for left in [["each: 1 left", "also: 1 left"], ["each: 0 left", "also: 0 left"]] {
        assert_eq!(gateway.status_of(&alice.access).await, 200);
        assert_eq!(found(&explained(&gateway, &question).await, "rate"), left);
    }
    let limited = explained(&gateway, &question).await;
    assert_eq!((&limited["reason"], &limited["status"]), (&json!("quota_exceeded"), &json!(429)), "{limited}");
    assert_eq!(limited["detail"], "rate each", "the gateway stops at the first one");
    assert_eq!(gateway.status_of(&alice.access).await, 429, "as explained");
    let line = gateway.log_line(|line| line["reason"] == "quota_exceeded").await;
    assert!(line["detail"].as_str().is_some_and(|detail| detail.contains("each")), "{line}");
}

/// Otherwise, the use of the child would end the time in which its parent may come again.
#[tokio::test]
async fn a_token_that_is_only_explained_does_not_count_as_used() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, "");
    let parent = gateway.issue("alice", "").await;
    let child = TokenPair::from_json(&gateway.refresh(&parent.access, &parent.refresh).await.json());
    assert_eq!(explained(&gateway, &json!({ "token": child.access })).await["decision"], "allowed");
    gateway.advance(Duration::from_secs(11));
    let again = gateway.refresh(&parent.access, &parent.refresh).await;
    assert_eq!(again.status, 200, "the response of the refresh may be lost: {again:?}");
}

/// The gateway limits wrong signatures for each address.
#[tokio::test]
async fn wrong_tokens_in_questions_are_not_counted() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, "[limits]\nbad_signatures = 2\n");
    let forge = gateway.forger().await;
    for number in 0..10 {
        let forged = explained(&gateway, &json!({ "token": forge(number), "client": "127.0.0.1" })).await;
        assert_eq!(forged["reason"], "bad_signature", "{forged}");
    }
    let response = gateway.client().bearer(&forge(11)).get("/").await;
    response.assert_rejected(401, "invalid_token");
}

/// From the address of the questions, so that what is explained is what that client gets.
#[tokio::test]
async fn too_many_bad_signatures_are_explained() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_config(&upstream, "[limits]\nbad_signatures = 2\n");
    let forge = gateway.forger().await;
    for number in 0..2 {
        gateway.client().bearer(&forge(number)).get("/").await.assert_rejected(401, "invalid_token");
    }
    let limited = explained(&gateway, &json!({ "token": forge(2) })).await;
    assert_eq!((&limited["reason"], &limited["status"]), (&json!("rate_limited"), &json!(429)), "{limited}");
    gateway.client().bearer(&forge(3)).get("/").await.assert_rejected(429, "rate_limited");
    let elsewhere = explained(&gateway, &json!({ "token": forge(2), "client": "192.0.2.1" })).await;
    assert_eq!(elsewhere["reason"], "bad_signature", "{elsewhere}");
}

/// `[throttle]`: the calls of an address, and the refreshes of a login.
#[tokio::test]
async fn throttled_calls_are_explained() {
    let upstream = Upstream::start();
    let gateway = Gateway::with_throttle(upstream.address, "calls = 3\nrefreshes = 1", "");
    let alice = gateway.issue("alice", "").await;
    let question = json!({ "token": alice.access, "method": "POST", "path": "/user/refresh" });
    for _ in 0..5 {
        assert_eq!(explained(&gateway, &question).await["decision"], "local", "a question counts as no call");
    }
    assert_eq!(gateway.refresh(&alice.access, &alice.refresh).await.status, 200);
    let limited = explained(&gateway, &question).await;
    assert_eq!((&limited["reason"], &limited["status"]), (&json!("family_limited"), &json!(429)), "{limited}");

    for id in [&alice.token_id, "none"] {
        gateway.revoke(&alice.access, id).await;
    }
    for call in [question, json!({ "method": "DELETE", "path": "/token/none" })] {
        let limited = explained(&gateway, &call).await;
        assert_eq!((&limited["reason"], &limited["status"]), (&json!("address_limited"), &json!(429)), "{limited}");
    }
    gateway.revoke(&alice.access, "none").await.assert_rejected(429, "rate_limited");
}

#[tokio::test]
async fn a_question_names_each_part_of_a_request() {
    let upstream = Upstream::start();
    let routes = "[[route]]\npath = \"/page\"\ntoken_from = [\"cookie:session\"]\n\
                  [[route]]\npath = \"/write\"\nmethods = [\"POST\"]\n[[route]]\npath = \"/\"\n";
    let gateway = Gateway::with_config(&upstream, routes);
    let alice = gateway.issue("alice", "").await;
    for (question, decision, reason) in [
        (json!({ "token": alice.access, "tokenIn": "cookie:session", "path": "/page" }), "allowed", Value::Null),
        (json!({ "token": alice.access, "path": "/page" }), "rejected", json!("no_token")),
        (json!({ "token": alice.access, "path": "/write" }), "rejected", json!("method_not_allowed")),
        (json!({ "token": alice.access, "path": "/write", "method": "POST" }), "allowed", Value::Null),
        (json!({ "headers": { "Authorization": format!("Bearer {}", alice.access) } }), "allowed", Value::Null),
        (json!({ "token": alice.access, "host": "a.example, b.example" }), "rejected", json!("bad_host")),
        (json!({ "path": "/a/%2e%2e/b" }), "rejected", json!("bad_path")),
    ] {
        let explained = explained(&gateway, &question).await;
        assert_eq!((&explained["decision"], &explained["reason"]), (&json!(decision), &reason), "{question}");
    }
    for question in [
        json!({ "tokenIn": "nowhere", "token": "x" }),
        json!({ "token": "a\nb" }),
        json!({ "method": "A B" }),
        json!({ "path": "a b" }),
        json!({ "headers": { "a b": "" } }),
        json!({ "client": "here" }),
        json!({ "at": "2026-01-01T00:00:00Z" }),
    ] {
        let answer = gateway.admin_client().post("/admin/v1/explain", &question).await;
        answer.assert_rejected(400, "invalid_request");
    }
}
