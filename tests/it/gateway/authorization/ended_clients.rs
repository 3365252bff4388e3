//! An operator ends everything that a client may do, of all users or of one.

use std::time::Duration;

use serde_json::{Value, json};

use super::{APP, Front, OAUTH, Page, authorize};
use crate::support::visitor::{Visitor, parameter};

const MILLISECOND: Duration = Duration::from_millis(1);
const LOOPBACK: &str = "http://127.0.0.1:7777/callback";

impl Front {
    /// Another grant of the user who is signed in.
    async fn granted_again(&mut self, client_id: &str, callback: &str) -> Value {
        let url = authorize(&[("client_id", client_id), ("redirect_uri", callback)]);
        let page = Page::of(&self.alice.navigate(&url).await);
        let answer = self.decide(&page, "allow").await;
        let code = parameter(&answer, "code").expect("a code");
        let tokens = self.redeem(&code, &[("client_id", client_id), ("redirect_uri", callback)]).await;
        assert_eq!(tokens.status, 200, "{}", tokens.text());
        tokens.json()
    }

    async fn end_client(&self, path: &str) {
        let ended = self.gateway.admin_client().delete(&format!("/admin/v1/clients/{path}")).await;
        assert_eq!((ended.status.as_u16(), ended.text().as_str()), (200, r#"{"success":true}"#), "{path}");
    }

    async fn is_signed_in(&mut self) -> bool {
        self.alice.load(&format!("{APP}/oauth/grants")).await.status == 200
    }
}

/// A gateway that also has a route for its own logins.
async fn front() -> Front {
    Front::with(&format!("{OAUTH}[[route]]\npath = \"/\"\n")).await
}

#[tokio::test]
async fn all_sessions_of_a_client_end_and_others_go_on() {
    let mut front = front().await;
    let code = front.code(&authorize(&[])).await;
    let spa = front.redeem(&code, &[]).await.json();
    let other = front.granted_again("cli", LOOPBACK).await;
    let own = front.gateway.issue("alice", "").await;
    assert_eq!(front.status("/mcp", &spa["access_token"]).await, 200);
    front.end_client("spa/tokens").await;
    front.gateway.clock.advance(MILLISECOND);
    let later = front.granted_again("spa", super::CALLBACK).await;
    for restarted in [false, true] {
        if restarted {
            front.gateway = front.gateway.restart();
            front.alice.move_to(&front.gateway);
        }
        assert_eq!(front.status("/mcp", &spa["access_token"]).await, 401, "{restarted}");
        for tokens in [&other, &later] {
            assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 200, "{restarted}");
        }
        assert_eq!(front.gateway.status_of(&own.access).await, 200, "{restarted}");
        assert!(front.is_signed_in().await, "{restarted}");
    }
    front.refresh(&spa, "spa").await.assert_rejected(400, "invalid_grant");
    assert_eq!(front.refresh(&other, "cli").await.status, 200);
    assert_eq!(front.refresh(&later, "spa").await.status, 200);
    assert_eq!(front.gateway.refresh(&own.access, &own.refresh).await.status, 200);

    let admin = front.gateway.admin_client();
    let listed = admin.get("/admin/v1/tokens?clientId=spa&state=all").await.json();
    let states: Vec<_> = listed["tokens"].as_array().expect("a list").iter().map(|entry| &entry["state"]).collect();
    assert_eq!(states, ["live", "revoked"], "{listed}");
    let live = admin.get(&format!("/admin/v1/tokens?resource={}", "https://app.example/mcp")).await.json();
    assert_eq!(live["tokens"].as_array().expect("a list").len(), 2, "{live}");
    let ended = admin.get("/admin/v1/tokens/ended").await.json();
    let entry = &ended["ended"][0];
    assert_eq!((&entry["what"], &entry["clientId"]), (&json!("client"), &json!("spa")), "{ended}");
}

/// The code was made before the revocation, and no session yet.
#[tokio::test]
async fn a_code_of_before_is_good_for_nothing() {
    let mut front = Front::start().await;
    for path in ["spa/tokens", "spa/tokens?subject=main%7Calice"] {
        front.alice = Visitor::of(&front.gateway);
        let code = front.code(&authorize(&[])).await;
        front.end_client("cli/tokens").await;
        front.end_client("spa/tokens?subject=main%7Cbob").await;
        front.end_client(path).await;
        front.gateway.clock.advance(Duration::from_secs(20));
        front.redeem(&code, &[]).await.assert_rejected(400, "invalid_grant");
        let line = front.gateway.log_line(|line| line["path"] == "/oauth/token" && line["status"] == 400).await;
        assert_eq!(line["reason"], "code_session_ended", "{line}");
        front.gateway.clock.advance(Duration::from_secs(61));
    }
    // Not because of the time that has passed.
    front.alice = Visitor::of(&front.gateway);
    let code = front.code(&authorize(&[])).await;
    front.end_client("cli/tokens").await;
    front.gateway.clock.advance(Duration::from_secs(20));
    assert_eq!(front.redeem(&code, &[]).await.status, 200);
}

/// The user reads the consent page meanwhile, and agrees afterwards: a later grant.
#[tokio::test]
async fn a_consent_after_the_revocation_is_a_new_grant() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[])).await;
    front.end_client("spa/tokens").await;
    front.gateway.clock.advance(MILLISECOND);
    let answer = front.decide(&page, "allow").await;
    let code = parameter(&answer, "code").expect("a code");
    assert_eq!(front.redeem(&code, &[]).await.status, 200);
}

#[tokio::test]
async fn the_sessions_of_one_user_end() {
    let mut front = front().await;
    let code = front.code(&authorize(&[])).await;
    let alice = front.redeem(&code, &[]).await.json();
    let bob = json!({ "sub": "bob", "clientId": "spa" });
    let bob = front.gateway.request_tokens(&bob).await.json();
    let bob = bob["accessToken"].as_str().expect("a token").to_owned();
    let body = json!({ "clientId": "spa", "subject": "main|alice" });
    let revoked = front.gateway.admin_client().post("/admin/v1/revocations", &body).await;
    assert_eq!(revoked.status, 200, "{}", revoked.text());
    for restarted in [false, true] {
        if restarted {
            front.gateway = front.gateway.restart();
        }
        assert_eq!(front.status("/mcp", &alice["access_token"]).await, 401, "{restarted}");
        assert_eq!(front.gateway.status_of(&bob).await, 200, "{restarted}");
    }
    front.refresh(&alice, "spa").await.assert_rejected(400, "invalid_grant");
    front.end_client("spa/tokens").await;
    assert_eq!(front.gateway.status_of(&bob).await, 401);
}

/// The id of a client that has registered itself, with characters that a path escapes.
#[tokio::test]
async fn a_client_that_registered_itself_is_named_by_its_id() {
    let mut front = Front::with(&OAUTH.replace("[oauth]\n", "[oauth]\nregistration = [\"loopback\"]\n")).await;
    let body = json!({ "redirect_uris": [LOOPBACK] });
    let registered = front.gateway.client().host("app.example").post("/oauth/register", &body).await;
    let id = registered.json()["client_id"].as_str().expect("an id").to_owned();
    let url = authorize(&[("client_id", &id), ("redirect_uri", LOOPBACK)]);
    let code = front.code(&url).await;
    let tokens = front.redeem(&code, &[("client_id", &id), ("redirect_uri", LOOPBACK)]).await.json();
    let escaped: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
    front.end_client(&format!("{escaped}/tokens")).await;
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 401);
}

#[tokio::test]
async fn a_wrong_call_ends_nothing() {
    let mut front = Front::start().await;
    let code = front.code(&authorize(&[])).await;
    let tokens = front.redeem(&code, &[]).await.json();
    let admin = front.gateway.admin_client();
    let long = "a".repeat(4_097);
    for path in ["/tokens", "spa/tokens?user=alice", "spa/tokens?subject=", "%FF/tokens", &format!("{long}/tokens")] {
        admin.delete(&format!("/admin/v1/clients/{path}")).await.assert_rejected(400, "invalid_request");
    }
    for path in ["spa", "https://app.example/tokens", "spa/tokens/"] {
        admin.delete(&format!("/admin/v1/clients/{path}")).await.assert_rejected(404, "not_found");
    }
    let wrong = [
        (json!({ "clientId": "spa", "all": true }), "clientId cannot be used with"),
        (json!({ "clientId": "spa", "jti": "1" }), "clientId cannot be used with"),
        (json!({ "clientId": "spa", "issuer": "https://gateway.example" }), "is not configured"),
        (json!({ "clientId": "" }), "1 to 4096 bytes"),
        (json!({ "clientId": "spa", "subject": "" }), "1 to 4096 bytes"),
    ];
    for (body, expected) in wrong {
        let answer = admin.post("/admin/v1/revocations", &body).await;
        answer.assert_rejected(400, "invalid_request");
        assert!(answer.text().contains(expected), "{expected}: {}", answer.text());
    }
    admin.get("/admin/v1/tokens?resource=mcp").await.assert_rejected(400, "invalid_request");
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 200);
}

#[tokio::test]
async fn the_clients_are_listed_with_their_live_sessions() {
    let denied = "[oauth]\nclient_documents = \"any\"\ndenied_clients = [\"trusted\", \"evil.example\"]\n";
    let mut front = Front::with(&OAUTH.replace("[oauth]\n", denied)).await;
    let code = front.code(&authorize(&[])).await;
    assert_eq!(front.redeem(&code, &[]).await.status, 200);
    for (subject, client_id) in [("bob", "spa"), ("bob", "https://evil.example/client"), ("bob", "app"), ("bob", "")] {
        let login = json!({ "sub": subject, "clientId": client_id });
        assert_eq!(front.gateway.request_tokens(&login).await.status, 201);
    }
    let listed = front.gateway.admin_client().get("/admin/v1/clients").await.json();
    let entry = |client_id: &str, source: &str, live: u64, denied: bool| json!({ "clientId": client_id, "source": source, "live": live, "denied": denied });
    let expected = [
        entry("spa", "file", 2, false),
        entry("app", "other", 1, false),
        entry("https://evil.example/client", "document", 1, true),
        entry("cli", "file", 0, false),
        entry("trusted", "file", 0, true),
    ];
    assert_eq!(listed, json!({ "clients": expected }));
    front.end_client("spa/tokens").await;
    let listed = front.gateway.admin_client().get("/admin/v1/clients").await.json();
    assert_eq!(listed["clients"][0]["clientId"], "app", "{listed}");
}
