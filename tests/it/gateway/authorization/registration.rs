//! Clients that register themselves (RFC 7591).

use bearward::protocols::http::parameters;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::{CALLBACK, Front, OAUTH, authorize, fetched};
use crate::gateway::oauth::post;
use crate::support::TestResponse;
use crate::support::visitor::parameter;

async fn front() -> Front {
    Front::with(&OAUTH.replace("[oauth]\n", "[oauth]\nregistration = [\"loopback\"]\n")).await
}

async fn register(front: &Front, body: &Value) -> TestResponse {
    front.gateway.client().host("app.example").post("/oauth/register", body).await
}

#[tokio::test]
async fn a_program_registers_itself_and_gets_tokens() {
    let mut front = front().await;
    let callback = "http://127.0.0.1:7777/callback";
    let body = json!({
        "client_name": "Codex", "redirect_uris": [callback], "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"], "token_endpoint_auth_method": "none", "application_type": "native",
        "logo_uri": "http://127.0.0.1:1/logo.png",
    });
    let registered = register(&front, &body).await;
    assert_eq!(registered.status, 201, "{}", registered.text());
    assert_eq!(registered.header("cache-control"), Some("no-store"));
    let client = registered.json();
    assert_eq!(client["redirect_uris"], json!([callback]));
    assert_eq!(client["token_endpoint_auth_method"], "none");
    assert_eq!(client["client_secret"], Value::Null);
    let id = client["client_id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("bwd1_") && id.len() <= 250, "{}", id.len());
    let other_port = "http://127.0.0.1:8888/callback";
    let page = front.consent_page(&authorize(&[("client_id", &id), ("redirect_uri", other_port)])).await;
    for shown in ["“\u{2068}Codex\u{2069}”", "It registered itself", "a program on this device"] {
        assert!(page.html.contains(shown), "{shown} in {}", page.html);
    }
    let answer = front.decide(&page, "allow").await;
    let code = parameter(&answer, "code").expect("a code");
    let tokens = front.redeem(&code, &[("client_id", &id), ("redirect_uri", other_port)]).await;
    assert_eq!(tokens.status, 200, "{}", tokens.text());
    assert_eq!(front.status("/mcp", &tokens.json()["access_token"]).await, 200);
}

/// What Cursor and VS Code register: a scheme without a dot, and the page of a site beside addresses of the device.
#[tokio::test]
async fn a_scheme_or_a_site_that_the_operator_names_can_be_registered() {
    const CURSOR: &str = "cursor://anysphere.cursor-mcp/oauth/callback";
    let list = "[\"loopback\", \"cursor://\", \"https://vscode.dev\"]";
    let front = Front::with(&OAUTH.replace("[oauth]\n", &format!("[oauth]\nregistration = {list}\n"))).await;
    let code_uris = ["https://vscode.dev/redirect", "http://127.0.0.1/", "http://127.0.0.1:33418/"];
    for uris in [&[CURSOR][..], &code_uris] {
        let registered = register(&front, &json!({ "client_name": "Editor", "redirect_uris": uris })).await;
        assert_eq!(registered.status, 201, "{}", registered.text());
        let id = registered.json()["client_id"].as_str().expect("an id").to_owned();
        let asked = fetched(&front, &authorize(&[("client_id", &id), ("redirect_uri", uris[0])])).await;
        assert_eq!(asked.status, 303, "{}", asked.text());
    }
    for uri in [
        "vscode://vscode.example/callback",
        "cursor.evil:/callback",
        "https://vscode.dev.evil.example/redirect",
        "https://vscode.dev:8443/redirect",
        "https://evil.example/vscode.dev",
        "com.example.app:/callback",
    ] {
        let body = json!({ "redirect_uris": [uri] });
        register(&front, &body).await.assert_rejected(400, "invalid_redirect_uri");
    }
}

/// Hostile cases 7, 59 and 60.
#[tokio::test]
async fn what_the_operator_does_not_allow_is_not_registered() {
    let front = front().await;
    for (body, error) in [
        (json!({ "redirect_uris": [CALLBACK] }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": ["http://127.0.0.1/a", CALLBACK] }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": ["com.example.app:/callback"] }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": ["javascript:alert(1)"] }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": ["http://127.0.0.1/#a"] }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": [7] }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": [] }), "invalid_redirect_uri"),
        (json!({}), "invalid_redirect_uri"),
        (json!({ "redirect_uris": vec!["http://127.0.0.1/a"; 11] }), "invalid_redirect_uri"),
        (
            json!({ "redirect_uris": ["http://127.0.0.1/a"], "token_endpoint_auth_method": "client_secret_basic" }),
            "invalid_client_metadata",
        ),
        (json!({ "redirect_uris": [format!("http://127.0.0.1/{}", "a".repeat(480))] }), "invalid_client_metadata"),
    ] {
        let response = register(&front, &body).await;
        response.assert_rejected(400, error);
    }
    let client = || front.gateway.client().host("app.example");
    let twice = "{\"redirect_uris\":[\"http://127.0.0.1/a\"],\"redirect_uris\":[\"http://localhost/a\"]}";
    let response = client().header("content-type", "application/json");
    let response = response.send(http::Method::POST, "/oauth/register", twice.into()).await;
    response.assert_rejected(400, "invalid_client_metadata");
    let large = json!({ "redirect_uris": ["http://127.0.0.1/a"], "client_name": "a".repeat(9_000) });
    assert_eq!(register(&front, &large).await.status, 413);
}

/// A scheme without a dot opens any program: `search-ms:`, `vscode:`.
#[tokio::test]
async fn a_private_scheme_is_a_reversed_domain_name() {
    let keys = "[oauth]\nregistration = [\"private_schemes\"]\n";
    let front = Front::with(&OAUTH.replace("[oauth]\n", keys)).await;
    for (uri, status) in [
        ("com.example.app:/callback", 201),
        ("cursor://anysphere.cursor-mcp/callback", 400),
        ("search-ms:/x", 400),
        ("http://127.0.0.1/callback", 400),
    ] {
        assert_eq!(register(&front, &json!({ "redirect_uris": [uri] })).await.status, status, "{uri}");
    }
}

/// Hostile cases 58 and 63.
#[tokio::test]
async fn a_registration_is_good_for_its_own_redirect_uris_alone() {
    let front = front().await;
    let body = json!({ "redirect_uris": ["http://localhost:3000/callback"] });
    let id = register(&front, &body).await.json()["client_id"].as_str().expect("an id").to_owned();
    for (redirect_uri, status) in [
        ("http://localhost:4000/callback", 303),
        ("http://127.0.0.1:3000/callback", 400),
        ("http://localhost:3000/other", 400),
        (CALLBACK, 400),
    ] {
        let url = authorize(&[("client_id", &id), ("redirect_uri", redirect_uri)]);
        assert_eq!(fetched(&front, &url).await.status, status, "{redirect_uri}");
    }
    front.gateway.clock.advance(std::time::Duration::from_secs(91 * 86_400));
    let url = authorize(&[("client_id", &id), ("redirect_uri", "http://localhost:3000/callback")]);
    assert_eq!(fetched(&front, &url).await.status, 400, "after oauth.registration_lifetime");
    let off = Front::start().await;
    assert_eq!(register(&off, &body).await.status, 404);
}

/// Hostile case 61. A database that takes no writes shows that none is asked for.
#[tokio::test]
async fn strangers_write_nothing_however_often_they_ask() {
    const MANY: usize = 1_000;
    let mut front = front().await;
    let database = Connection::open(front.gateway.path().join("bearward.db")).expect("opened");
    database.execute_batch("begin immediate").expect("locked");
    let body = json!({ "client_name": "A", "redirect_uris": ["http://127.0.0.1/callback"] });
    let mut id = String::new();
    for _ in 0..MANY {
        let registered = register(&front, &body).await;
        assert_eq!(registered.status, 201, "{}", registered.text());
        id = registered.json()["client_id"].as_str().expect("an id").to_owned();
    }
    let asked = authorize(&[("client_id", &id), ("redirect_uri", "http://127.0.0.1:1/callback")]);
    let (_, query) = asked.split_once('?').expect("a query");
    let pushed: Vec<(String, String)> = parameters::read(query).expect("parameters").into_iter().collect();
    let pushed: Vec<(&str, &str)> = pushed.iter().map(|(name, value)| (&**name, &**value)).collect();
    for _ in 0..MANY / 10 {
        assert_eq!(front.alice.load(&asked).await.status, 303);
        let response = post(front.gateway.client().host("app.example"), "/oauth/par", &pushed).await;
        assert_eq!(response.status, 201, "{}", response.text());
        front.redeem(&format!("bwc1_{}", "A".repeat(300)), &[]).await.assert_rejected(400, "invalid_grant");
    }
    database.execute_batch("rollback").expect("unlocked");
}
