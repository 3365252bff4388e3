//! The members that a captured login adds to the response of the backend.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::*;
use crate::support::tokens::claims_of;

#[tokio::test]
async fn a_login_response_gains_tokens_and_keeps_its_own_fields() {
    // A number that no double can hold, spaces and escapes: the gateway must not change them.
    let own = r#" {"user": {"id": 12345678901234567890123, "name": "Al\u0069ce"}, "z":1.0, "a":[{}] } "#;
    let head = format!(
        "{JSON}X-Bearward-Subject: alice\r\nX-Bearward-Scope: orders:read b\r\n\
         X-Bearward-Claims: {{\"tenant\":\"acme\",\"roles\":[\"x\"]}}\r\n\
         etag: \"1\"\r\nlast-modified: Sat, 01 Jan 2022 00:00:00 GMT\r\n\
         cache-control: public, max-age=60\r\ncdn-cache-control: max-age=60\r\n\
         content-digest: sha-256=:AAAA:\r\ncontent-md5: AAAA\r\nexpires: Sat, 01 Jan 2033 00:00:00 GMT\r\n\
         set-cookie: a=1\r\nset-cookie: b=2\r\nx-own: 1\r\n"
    );
    let (upstream, _) = backend(response_text("201 Created", &head, own));
    let gateway = gateway(upstream.address, "");
    for client in gateway.clients() {
        let response = client.post("/login", &json!({ "user": "alice", "password": "right" })).await;
        assert_eq!(response.status, 201, "{response:?}");
        let text = response.text();
        assert!(
            text.starts_with(r#" {"user": {"id": 12345678901234567890123, "name": "Al\u0069ce"}, "z":1.0, "a":[{}] ,"#),
            "{text}"
        );
        let body = response.json();
        assert_eq!(body["success"], Value::Bool(true));
        assert_eq!(body.as_object().expect("an object").len(), 3 + 4, "{text}");
        assert_eq!(response.header("content-length"), Some(text.len().to_string().as_str()));
        assert_eq!(response.header("cache-control"), Some("no-store"));
        for outdated in ["etag", "last-modified", "content-digest", "content-md5", "expires", "cdn-cache-control"] {
            assert_eq!(response.header(outdated), None, "{outdated}");
        }
        let cookies: Vec<_> =
            response.headers.get_all("set-cookie").iter().map(|value| value.to_str().expect("text")).collect();
        assert_eq!(
            (cookies.as_slice(), response.header("x-own")),
            (["a=1", "b=2"].as_slice(), Some("1")),
            "other headers are not changed"
        );

        let pair = TokenPair::from_json(&body);
        let claims = claims_of(&pair.access);
        assert_eq!(claims["exp"], body["expiresAt"]);
        assert_eq!((&claims["sub"], &claims["scope"]), (&json!("alice"), &json!("orders:read b")));
        assert_eq!((&claims["tenant"], &claims["roles"]), (&json!("acme"), &json!(["x"])));
        assert_eq!(gateway.status_of(&pair.access).await, 201, "the token is valid");
        let next = TokenPair::from_json(&gateway.refresh(&pair.access, &pair.refresh).await.json());
        assert_eq!(gateway.revoke(&next.access, &next.token_id).await.status, 200);
        assert_eq!(gateway.status_of(&next.access).await, 401, "a captured session can be revoked");
    }
    let lines = gateway.log_lines(1).await;
    let line = lines.iter().find(|line| line["path"] == "/login").expect("the login is logged");
    assert!(line["token_id"].as_str().is_some_and(|id| id.len() == 22), "{line}");
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_captured_login_has_the_address_of_its_client() {
    let (upstream, _) = backend(response_text("200 OK", &format!("{JSON}{ALICE}"), "{}"));
    let more = "[[route]]\npath = \"/form\"\npublic = true\nlogin = \"cookie\"\n\
                [forwarding]\ntrusted = [\"127.0.0.0/8\"]\n";
    let gateway = gateway(upstream.address, more);
    for (path, address) in [("/login", "198.51.100.7"), ("/form", "198.51.100.8")] {
        let client = gateway.client().header("x-forwarded-for", address).header("origin", "http://gateway.test");
        assert_eq!(client.post(path, &json!({ "password": "right" })).await.status, 200, "{path}");
        let listed = gateway.admin_client().get("/admin/v1/subjects/alice/tokens").await.json();
        assert_eq!(listed["tokens"][0]["address"], address, "{path}: {listed}");
        gateway.advance(Duration::from_secs(1));
    }
}

/// A backend may end all old sessions of a user before it begins a new one.
#[tokio::test]
async fn a_login_is_dated_by_the_response_of_the_backend() {
    let (asked, released) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let (arrived, waiting) = (asked.clone(), released.clone());
    let upstream = ScriptedBackend::start(move |mut wire, _| {
        let (arrived, waiting) = (arrived.clone(), waiting.clone());
        async move {
            while let Some(head) = wire.try_read_until("\r\n\r\n").await {
                if head.contains("POST /login ") {
                    arrived.add_permits(1);
                    waiting.acquire().await.expect("open").forget();
                }
                wire.send(response_text("200 OK", &format!("{JSON}{ALICE}"), "{}")).await;
            }
        }
    });
    let gateway = gateway(upstream.address, "");
    let client = gateway.client();
    let login = tokio::spawn(async move { client.post("/login", &json!({ "password": "right" })).await });
    asked.acquire().await.expect("open").forget();
    gateway.advance(Duration::from_secs(1));
    let alice = json!({ "sub": "alice" });
    assert_eq!(gateway.admin_client().post("/admin/v1/revocations", &alice).await.status, 200);
    gateway.advance(Duration::from_secs(1));
    released.add_permits(1);
    let pair = TokenPair::from_json(&login.await.expect("no panic").json());
    assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200);
}

/// A mass revocation cannot find a login in flight in the store, but must revoke it as well. Revocations before the
/// backend's response do not count.
#[tokio::test]
async fn a_login_overtaken_by_a_mass_revocation_gets_no_tokens() {
    let (in_flight, released) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let (head_sent, waiting) = (in_flight.clone(), released.clone());
    let upstream = ScriptedBackend::start(move |mut wire, _| {
        let (head_sent, waiting) = (head_sent.clone(), waiting.clone());
        async move {
            while let Some(head) = wire.try_read_until("\r\n\r\n").await {
                // The body of the login before may precede the head.
                if !head.contains("POST /login ") {
                    wire.send(response_text("200 OK", "", "")).await;
                    continue;
                }
                wire.send(format!("HTTP/1.1 200 OK\r\n{JSON}{ALICE}content-length: 7\r\n\r\n{{\"a\"")).await;
                head_sent.add_permits(1);
                waiting.acquire().await.expect("open").forget();
                wire.send(":1}").await;
            }
        }
    });
    let gateway = gateway(upstream.address, "");
    let admin = gateway.admin_client();
    let revoke = async |what: Value| assert_eq!(admin.post("/admin/v1/revocations", &what).await.status, 200);
    for (what, overtaken) in [
        (json!({ "sub": "alice" }), true),
        (json!({ "all": true }), true),
        (json!({ "all": true, "issuer": "https://gateway.example" }), true),
        (json!({ "sub": "bob" }), false),
        (json!({ "sub": "alice", "before": "2020-01-01T00:00:00Z" }), false),
    ] {
        // Before the backend responds, because the backend may end all old sessions itself.
        revoke(json!({ "sub": "alice" })).await;
        gateway.advance(Duration::from_millis(1));
        let before = session_count(&gateway, "alice").await;
        let client = gateway.client();
        let login = tokio::spawn(async move { client.post("/login", &json!({})).await });
        in_flight.acquire().await.expect("open").forget();
        // Gives the gateway time to read the head that the backend has sent. No metric shows when it has.
        tokio::time::sleep(Duration::from_millis(100)).await;
        gateway.advance(Duration::from_millis(1));
        revoke(what.clone()).await;
        released.add_permits(1);
        let response = login.await.expect("no panic");
        let new_sessions = session_count(&gateway, "alice").await - before;
        if overtaken {
            response.assert_rejected(503, "temporarily_unavailable");
            assert_eq!(new_sessions, 0, "{what}");
        } else {
            assert_eq!(response.status, 200, "{what}: {response:?}");
            gateway.advance(Duration::from_secs(2));
            assert_eq!(
                gateway.client().bearer(&TokenPair::from_json(&response.json()).access).get("/public/").await.status,
                200
            );
        }
    }
}

#[tokio::test]
async fn any_json_object_can_carry_tokens() {
    for (status, head, body) in [
        ("200 OK", JSON, "{}"),
        ("202 Accepted", JSON, "\n{\t} \r\n"),
        ("203 Fine", "content-type: Application/JSON; charset=utf-8\r\n", r#"{"success":true}"#),
        (
            "200 OK",
            "content-type: application/hal+json\r\ncontent-encoding: identity\r\n",
            r#"{"a":1,"success" : true }"#,
        ),
        ("200 OK", JSON, r#"{"Success":false,"access_token":"theirs","tokenId":"theirs","nested":{"accessToken":1}}"#),
    ] {
        let (upstream, _) = backend(response_text(status, &format!("{head}{ALICE}"), body));
        let gateway = gateway(upstream.address, "");
        let response = log_in(&gateway).await;
        eprintln!("{body}: {response:?}");
        assert_eq!(gateway.status_of(&TokenPair::from_json(&response.json()).access).await, response.status.as_u16());
        assert_eq!(response.text().matches("\"success\"").count(), 1, "no duplicate member");
    }
    // The backend sends no Content-Length. The gateway adds one.
    let chunked = format!(
        "HTTP/1.1 200 OK\r\n{JSON}{ALICE}transfer-encoding: chunked\r\n\r\n4\r\n{{\"a\"\r\n3\r\n:1}}\r\n0\r\n\r\n"
    );
    let (upstream, _) = backend(chunked);
    let gateway = gateway(upstream.address, "");
    let response = log_in(&gateway).await;
    assert_eq!(response.header("content-length"), Some(response.body.len().to_string().as_str()));
    assert_eq!((&response.json()["a"], response.header("transfer-encoding")), (&json!(1), None));
}

#[tokio::test]
async fn extra_fields_are_added_if_enabled() {
    let start = |body: &str| {
        let (upstream, _) = backend(response_text("200 OK", &format!("{JSON}{ALICE}"), body));
        let text = Gateway::config_text(&upstream.address.to_string(), ROUTES);
        (Gateway::from_text(text.replace("[tokens]\n", "[tokens]\nextra_fields = true\n")), upstream)
    };
    let (gateway, _upstream) = start("{}");
    let body = log_in(&gateway).await.json();
    assert_eq!(body["tokenId"], TokenPair::from_json(&body).token_id.as_str());
    assert!(body["expiresIn"].as_u64().is_some_and(|seconds| seconds <= 900));
    let (gateway, _upstream) = start(r#"{"tokenId":"theirs"}"#);
    log_in(&gateway).await.assert_rejected(503, "temporarily_unavailable");
}

#[tokio::test]
async fn a_login_fails_while_the_store_fails() {
    let (upstream, _) = backend(response_text("200 OK", &format!("{JSON}{ALICE}"), r#"{"bare":1}"#));
    let gateway = gateway(upstream.address, "");
    let database = Connection::open(gateway.path().join("bearward.db")).expect("opened");
    database.execute_batch("begin immediate").expect("locked");
    let response = log_in(&gateway).await;
    response.assert_rejected(503, "temporarily_unavailable");
    assert!(!response.text().contains("bare"));
    assert_eq!(gateway.log_lines(1).await[0]["reason"], "store_unavailable");
    database.execute_batch("rollback").expect("unlocked");
    let pair = TokenPair::from_json(&log_in(&gateway).await.json());
    assert_eq!(gateway.status_of(&pair.access).await, 200);
    assert_eq!(session_count(&gateway, "alice").await, 1);
}
