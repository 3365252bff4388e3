//! `GET /admin/v1/tokens`: sessions by their subject, page by page.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::postgres::PostgresServer;
use crate::support::{Gateway, TestResponse, Upstream};

async fn searched(gateway: &Gateway, query: &str) -> Value {
    let answer = gateway.admin_client().get(&format!("/admin/v1/tokens{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    answer.json()
}

fn subjects(page: &Value) -> Vec<&str> {
    let tokens = page["tokens"].as_array().expect("a list");
    tokens.iter().map(|token| token["sub"].as_str().expect("text")).collect()
}

/// A gateway with each kind of store.
fn each_store(upstream: &Upstream) -> [Gateway; 2] {
    let shared = format!("[store]\n{}", PostgresServer::shared().store_keys());
    [Gateway::start(upstream), Gateway::with_config(upstream, &shared)]
}

#[tokio::test]
async fn an_operator_finds_sessions_by_subject() {
    let upstream = Upstream::start();
    for gateway in each_store(&upstream) {
        let phone = json!({ "sub": "alice", "label": "phone", "clientId": "shop", "address": "198.51.100.7" });
        assert_eq!(gateway.request_tokens(&phone).await.status, 201);
        gateway.advance(Duration::from_secs(1));
        let laptop = gateway.issue("alice", "").await;
        for subject in ["Alice", "alicia", "al%", "bob", "日本"] {
            gateway.issue(subject, "").await;
        }
        let alice = searched(&gateway, "?subject=alice").await;
        assert_eq!((subjects(&alice), &alice["next"]), (vec!["alice", "alice"], &Value::Null));
        let listed = gateway.admin_client().get("/admin/v1/subjects/alice/tokens").await.json();
        assert_eq!(alice["tokens"], listed["tokens"], "an entry is that of the list of one subject");
        assert_eq!(
            (&alice["tokens"][0]["tokenId"], &alice["tokens"][1]["label"]),
            (&json!(laptop.token_id), &json!("phone"))
        );

        let all = ["Alice", "al%", "alice", "alice", "alicia", "bob", "日本"];
        for (query, expected) in [
            ("?subjectPrefix=alic", &["alice", "alice", "alicia"][..]),
            ("?subjectPrefix=al%25", &["al%"]),
            ("?subjectPrefix=%E6%97%A5", &["日本"]),
            ("?subjectPrefix=ALICE", &[]),
            ("?subject=alic", &[]),
            ("?subject=", &[]),
            ("?subjectPrefix=", &all),
            ("", &all),
        ] {
            assert_eq!(subjects(&searched(&gateway, query).await), expected, "{query}");
        }
        let text = searched(&gateway, "").await.to_string();
        assert!(!text.contains(&laptop.access) && !text.contains(&laptop.refresh), "{text}");
    }
}

#[tokio::test]
async fn the_pages_of_a_search_follow_each_other() {
    let upstream = Upstream::start();
    for gateway in each_store(&upstream) {
        for number in 0..7 {
            gateway.issue(&format!("user {}", number / 2), "").await;
        }
        let mut found = Vec::new();
        let mut query = "?subjectPrefix=user&limit=3".to_owned();
        for length in [3, 3, 1] {
            let page = searched(&gateway, &query).await;
            assert_eq!(page["tokens"].as_array().map(Vec::len), Some(length));
            found.extend(subjects(&page).into_iter().map(str::to_owned));
            match page["next"].as_str() {
                Some(next) => query = format!("?subjectPrefix=user&limit=3&after={next}"),
                None => assert_eq!(length, 1),
            }
        }
        assert_eq!(found, ["user 0", "user 0", "user 1", "user 1", "user 2", "user 2", "user 3"]);
    }
}

#[tokio::test]
async fn a_search_tells_live_sessions_from_ended_ones() {
    let upstream = Upstream::start();
    for gateway in each_store(&upstream) {
        let kiosk = json!({ "sub": "kiosk", "idle": 60 });
        assert_eq!(gateway.request_tokens(&kiosk).await.status, 201);
        let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
        gateway.issue("carol", "").await;
        assert_eq!(gateway.revoke(&alice.access, &alice.token_id).await.status, 200);
        let admin = gateway.admin_client();
        assert_eq!(admin.delete(&format!("/admin/v1/tokens/{}", bob.token_id)).await.status, 200);
        gateway.advance(Duration::from_secs(60));
        assert_eq!(subjects(&searched(&gateway, "").await), ["carol"]);
        assert_eq!(subjects(&searched(&gateway, "?state=live").await), ["carol"]);
        assert_eq!(subjects(&searched(&gateway, "?state=all").await), ["alice", "bob", "carol", "kiosk"]);
        let ended = searched(&gateway, "?state=ended").await;
        assert_eq!(subjects(&ended), ["alice", "bob", "kiosk"]);
        let states = [0, 1, 2].map(|index| &ended["tokens"][index]["state"]);
        assert_eq!(states, ["revoked", "revoked", "expired"]);
        assert_eq!((&ended["tokens"][0]["reason"], &ended["tokens"][1]["reason"]), (&json!("logout"), &json!("admin")));

        let all = admin.post("/admin/v1/revocations", &json!({ "all": true })).await;
        assert_eq!(all.status, 200);
        assert!(subjects(&searched(&gateway, "").await).is_empty(), "a revocation of all sessions ends them too");
    }
}

#[tokio::test]
async fn a_wrong_search_is_rejected() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    for subject in ["alice", "bob"] {
        gateway.issue(subject, "").await;
    }
    let next = searched(&gateway, "?limit=1").await["next"].as_str().expect("more").to_owned();
    assert_eq!(subjects(&searched(&gateway, &format!("?subjectPrefix=al&after={next}")).await), [""; 0]);
    let rejected = async |query: &str| -> TestResponse {
        let answer = gateway.admin_client().get(&format!("/admin/v1/tokens?{query}")).await;
        answer.assert_rejected(400, "invalid_request");
        answer
    };
    for query in ["subject=a&subjectPrefix=a", "state=dead", "limit=0", "limit=501", "after=x", "sort=asc"] {
        rejected(query).await;
    }
    let other = rejected(&format!("subjectPrefix=b&after={next}")).await;
    assert!(other.text().contains("the same search"), "{other:?}");
    gateway.admin_client().delete("/admin/v1/tokens").await.assert_rejected(405, "invalid_request");
}

async fn ended(gateway: &Gateway, query: &str) -> Value {
    let answer = gateway.admin_client().get(&format!("/admin/v1/tokens/ended{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    answer.json()
}

#[tokio::test]
async fn the_list_of_what_was_ended_names_the_operator() {
    let upstream = Upstream::start();
    for gateway in each_store(&upstream) {
        assert_eq!(ended(&gateway, "").await, json!({ "ended": [] }));
        let phone = json!({ "sub": "alice", "label": "phone", "clientId": "shop", "address": "198.51.100.7" });
        let phone = gateway.request_tokens(&phone).await.json()["tokenId"].clone();
        let (bob, carol) = (gateway.issue("bob", "").await, gateway.issue("carol", "token:revoke").await);
        let dave = gateway.issue("dave", "").await;
        let admin = gateway.admin_client();
        let path = format!("/admin/v1/tokens/{}", phone.as_str().expect("text"));
        assert_eq!(admin.delete(&path).await.status, 200);
        assert_eq!(gateway.revoke(&bob.access, &bob.token_id).await.status, 200);
        assert_eq!(gateway.revoke(&carol.access, &dave.token_id).await.status, 200);
        assert_eq!(admin.delete("/admin/v1/subjects/carol/tokens").await.status, 200);

        let list = ended(&gateway, "").await;
        let entries = list["ended"].as_array().expect("a list");
        assert_eq!((entries.len(), list.get("next")), (4, None), "{list}");
        assert_eq!((&entries[0]["what"], &entries[0]["sub"]), (&json!("subject"), &json!("carol")));
        assert_eq!((&entries[0]["operator"], entries[0]["before"].is_string()), (&json!("admin"), true));
        assert_eq!((&entries[1]["sub"], &entries[1]["caller"]), (&json!("dave"), &json!("carol")));
        assert_eq!(entries[1].get("operator"), None);
        assert_eq!((&entries[2]["sub"], &entries[2]["reason"]), (&json!("bob"), &json!("logout")));
        let expected = json!({
            "endedAt": entries[3]["endedAt"], "what": "session", "tokenId": phone, "sub": "alice", "clientId": "shop",
            "label": "phone", "address": "198.51.100.7", "reason": "admin", "operator": "admin",
        });
        assert_eq!(entries[3], expected);

        let first = ended(&gateway, "?reason=admin&limit=2").await;
        let after = first["next"].as_str().expect("more");
        let second = ended(&gateway, &format!("?reason=admin&limit=2&after={after}")).await;
        assert_eq!((&first["ended"], &second["ended"]), (&json!(entries[..2]), &json!([entries[3]])));
        let alice = searched(&gateway, "?subject=alice&state=ended").await;
        assert_eq!(alice["tokens"][0]["operator"], "admin");
        let dave = searched(&gateway, "?subject=dave&state=all").await;
        assert_eq!((&dave["tokens"][0]["caller"], dave["tokens"][0].get("operator")), (&json!("carol"), None));
        for query in ["reason=expired", "after=x", "after=-1", "after=18446744073709551615", "limit=0", "state=all"] {
            let answer = gateway.admin_client().get(&format!("/admin/v1/tokens/ended?{query}")).await;
            answer.assert_rejected(400, "invalid_request");
        }
        let restarted = gateway.restart();
        assert_eq!(ended(&restarted, "").await, list, "a restart keeps the list");
    }
}
