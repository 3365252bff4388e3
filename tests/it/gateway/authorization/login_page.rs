//! `oauth.login_page`: users sign in at the login page of the application, which knows nothing of OAuth.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;

use super::{CALLBACK, MCP, Page, authorize};
use crate::gateway::oauth::post;
use crate::support::clock::ManualClock;
use crate::support::tokens::claims_of;
use crate::support::visitor::{APP, Visitor, parameter};
use crate::support::{Gateway, ScriptedBackend, TestResponse};

const OAUTH: &str = r#"
[oauth]
login_page = "/login"
[[oauth.client]]
client_id = "spa"
client_auth = "none"
redirect_uris = ["https://client.example/callback"]
[[route]]
path = "/login"
public = true
login = "cookie"
[[route]]
path = "/refreshed"
token_from = ["login_cookie"]
[[route]]
path = "/mcp"
resource = true
"#;

const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

/// The page logs in each user who posts a name, and goes on to `return`. It says who gets a page.
fn application() -> ScriptedBackend {
    ScriptedBackend::start(|mut wire, _| async move {
        while let Some(head) = wire.try_read_until("\r\n\r\n").await {
            let field = |name: &str| {
                let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
                line.unwrap_or_default().to_owned()
            };
            let body = wire.read_bytes(field("content-length").parse().unwrap_or(0)).await;
            let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
            let response = match String::from_utf8_lossy(&body).strip_prefix("user=") {
                Some(user) => {
                    let back = parameter(&format!("{APP}{target}"), "return").unwrap_or_else(|| "/".to_owned());
                    format!(
                        "HTTP/1.1 303 See Other\r\nlocation: {back}\r\nx-bearward-subject: {user}\r\n\
                         content-length: 0\r\n\r\n"
                    )
                }
                None => {
                    let page = format!("{target} of {}", field("x-auth-subject"));
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len())
                }
            };
            wire.send(response).await;
        }
    })
}

struct Application {
    gateway: Gateway,
    #[allow(dead_code)]
    backend: ScriptedBackend,
    visitor: Visitor,
}

impl Application {
    fn start() -> Application {
        let backend = application();
        let text = Gateway::config_text(&backend.address.to_string(), OAUTH).replace("https://gateway.example", APP);
        let folder = Arc::new(TempDir::new().expect("a folder"));
        let gateway = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
        Application { visitor: Visitor::of(&gateway), gateway, backend }
    }

    /// The login page to which this request of a client leads.
    async fn login_page(&mut self, url: &str) -> String {
        let response = self.visitor.navigate(url).await;
        assert_eq!(response.status, 200, "{}", response.text());
        let page = self.visitor.way.last().expect("a page").clone();
        assert!(page.starts_with(&format!("{APP}/login?return=%2Foauth%2F")), "{page}");
        page
    }

    /// The user submits the form of the login page. Returns where the browser goes next.
    async fn log_in(&mut self, page: &str, user: &str) -> String {
        let response = self.visitor.submit(page, &format!("user={user}")).await;
        assert_eq!(response.status, 303, "{}", response.text());
        let target = response.header("location").expect("a redirect");
        format!("{APP}{target}")
    }

    async fn decide(&mut self, page: &Page, decision: &str) -> String {
        let response = self.visitor.submit(&format!("{APP}/oauth/consent"), &page.form(decision)).await;
        assert_eq!(response.status, 303, "{}", response.text());
        response.header("location").expect("a redirect").to_owned()
    }

    async fn call(&self, access: &str) -> TestResponse {
        self.gateway.client().host("app.example").bearer(access).get("/mcp").await
    }

    async fn redeem(&self, answer: &str) -> TestResponse {
        let code = parameter(answer, "code").unwrap_or_else(|| panic!("no code in {answer}"));
        let form = [
            ("grant_type", "authorization_code"),
            ("code", &*code),
            ("client_id", "spa"),
            ("redirect_uri", CALLBACK),
            ("code_verifier", VERIFIER),
        ];
        post(self.gateway.client().host("app.example"), "/oauth/token", &form).await
    }
}

#[tokio::test]
async fn a_client_gets_tokens_for_a_user_of_the_application() {
    let mut application = Application::start();
    let login = application.login_page(&authorize(&[])).await;
    let consent = application.log_in(&login, "alice").await;
    let page = Page::of(&application.visitor.navigate(&consent).await);
    assert!(page.html.contains("alice") && page.html.contains(MCP), "{}", page.html);
    let answer = application.decide(&page, "allow").await;
    let tokens = application.redeem(&answer).await.json();
    let access = tokens["access_token"].as_str().unwrap_or_else(|| panic!("no token: {tokens}"));
    let claims = claims_of(access);
    assert_eq!((&claims["sub"], &claims["aud"]), (&"alice".into(), &MCP.into()));
    assert_eq!(application.call(access).await.text(), "/mcp of alice");
    // The session is used again, and the user is asked anyway.
    let again = Page::of(&application.visitor.navigate(&authorize(&[])).await);
    assert!(again.html.contains("alice"), "{}", again.html);
    let denied = application.decide(&again, "deny").await;
    assert_eq!(parameter(&denied, "error").as_deref(), Some("access_denied"));
    // The user sees the grant, and ends it.
    let grants = application.visitor.navigate(&format!("{APP}/oauth/grants")).await.text();
    let id = grants.split_once("name=\"grant\" value=\"").expect("a grant").1.split('"').next().expect("an id");
    application.visitor.submit(&format!("{APP}/oauth/grants"), &format!("grant={id}")).await;
    assert_eq!(application.call(access).await.status, 401);
}

/// The page may not know that the client wants the user to sign in again.
#[tokio::test]
async fn a_login_page_that_sends_the_browser_back_at_once_makes_no_circle() {
    let mut application = Application::start();
    let login = application.login_page(&authorize(&[])).await;
    assert_eq!(parameter(&login, "prompt"), None);
    let back = format!("{APP}{}", parameter(&login, "return").expect("a way back"));
    let response = application.visitor.navigate(&back).await;
    assert_eq!(response.status, 400, "{}", response.text());
    application.log_in(&login, "alice").await;
    application.gateway.clock.advance(Duration::from_mins(1));
    let login = application.login_page(&authorize(&[("prompt", "login")])).await;
    assert_eq!(parameter(&login, "prompt").as_deref(), Some("login"));
    let back = format!("{APP}{}", parameter(&login, "return").expect("a way back"));
    assert_eq!(application.visitor.navigate(&back).await.status, 400, "the session is as old as before");
    let consent = application.log_in(&login, "alice").await;
    Page::of(&application.visitor.navigate(&consent).await);
}

#[tokio::test]
async fn another_user_signs_in_from_the_consent_page() {
    let mut application = Application::start();
    let login = application.login_page(&authorize(&[])).await;
    let consent = application.log_in(&login, "alice").await;
    let page = Page::of(&application.visitor.navigate(&consent).await);
    let link = page.html.split_once("Not you? <a href=\"").expect("a link").1.split('"').next().expect("its target");
    let login = format!("{APP}{}", link.replace("&amp;", "&"));
    assert_eq!(parameter(&login, "prompt").as_deref(), Some("login"));
    let consent = application.log_in(&login, "bob").await;
    let page_of_bob = Page::of(&application.visitor.navigate(&consent).await);
    assert!(page_of_bob.html.contains("bob"), "{}", page_of_bob.html);
    // The first page is that of alice: bob is asked again.
    let shown = application.visitor.submit(&format!("{APP}/oauth/consent"), &page.form("allow")).await;
    assert!(Page::of(&shown).html.contains("bob"), "{}", shown.text());
}

/// A cookie that a thief has kept is no session: it has been refreshed since.
#[tokio::test]
async fn a_spent_refresh_token_is_no_session() {
    let mut application = Application::start();
    let login = application.login_page(&authorize(&[])).await;
    application.log_in(&login, "alice").await;
    let mut thief = application.visitor.clone();
    application.gateway.clock.advance(Duration::from_mins(20));
    let refreshed = application.visitor.load(&format!("{APP}/refreshed")).await;
    assert_eq!(refreshed.text(), "/refreshed of alice");
    Page::of(&application.visitor.navigate(&authorize(&[])).await);
    thief.navigate(&authorize(&[])).await;
    let end = thief.way.last().expect("a page");
    assert!(end.starts_with(&format!("{APP}/login?")), "{end}");
}

/// A client that acts for a user must not grant anything to another client.
#[tokio::test]
async fn the_token_of_a_client_is_no_session_of_a_user() {
    let mut application = Application::start();
    let login = application.login_page(&authorize(&[])).await;
    let consent = application.log_in(&login, "alice").await;
    let page = Page::of(&application.visitor.navigate(&consent).await);
    let answer = application.decide(&page, "allow").await;
    let tokens = application.redeem(&answer).await.json();
    let mut client = Visitor::of(&application.gateway);
    client.set("__Host-bearward-refresh", tokens["refresh_token"].as_str().expect("a token"));
    client.set("__Host-bearward-access", tokens["access_token"].as_str().expect("a token"));
    client.navigate(&authorize(&[])).await;
    let end = client.way.last().expect("a page");
    assert!(end.starts_with(&format!("{APP}/login?")), "{end}");
}

/// A session must not grant more than itself, and one that is bound to a key needs the proof of it.
#[tokio::test]
async fn only_a_whole_login_is_a_session_of_a_user() {
    let application = Application::start();
    let of_client = json!({ "subject": "alice", "clientId": "spa" });
    let narrow = json!({ "subject": "alice", "aud": MCP });
    let bound = json!({ "subject": "alice", "jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I" });
    let whole = json!({ "subject": "alice" });
    for (login, ends_at) in
        [(of_client, "/login?"), (narrow, "/login?"), (bound, "/login?"), (whole, "/oauth/consent?")]
    {
        let issued = application.gateway.request_tokens(&login).await;
        assert_eq!(issued.status, 201, "{login}: {}", issued.text());
        let mut visitor = Visitor::of(&application.gateway);
        let issued = issued.json();
        visitor.set("__Host-bearward-refresh", issued["refreshToken"].as_str().expect("a token"));
        visitor.set("__Host-bearward-access", issued["accessToken"].as_str().expect("a token"));
        visitor.navigate(&authorize(&[])).await;
        let end = visitor.way.last().expect("a page");
        assert!(end.starts_with(&format!("{APP}{ends_at}")), "{login}: {end}");
    }
}

/// Nothing would show that it was stolen: the page rotates no refresh token.
#[tokio::test]
async fn a_refresh_token_alone_is_no_session_of_a_user() {
    let application = Application::start();
    let whole = json!({ "subject": "alice" });
    let [first, second] =
        [application.gateway.request_tokens(&whole).await, application.gateway.request_tokens(&whole).await];
    let [first, second] = [first.json(), second.json()];
    let refresh = first["refreshToken"].as_str().expect("a token");
    for access in [None, second["accessToken"].as_str(), Some("a.b.c")] {
        let mut thief = Visitor::of(&application.gateway);
        thief.set("__Host-bearward-refresh", refresh);
        if let Some(access) = access {
            thief.set("__Host-bearward-access", access);
        }
        thief.navigate(&authorize(&[])).await;
        let end = thief.way.last().expect("a page");
        assert!(end.starts_with(&format!("{APP}/login?")), "{access:?}: {end}");
    }
    // An access token that has expired is good enough, as for a refresh.
    application.gateway.clock.advance(Duration::from_mins(20));
    let mut alice = Visitor::of(&application.gateway);
    alice.set("__Host-bearward-refresh", refresh);
    alice.set("__Host-bearward-access", first["accessToken"].as_str().expect("a token"));
    alice.navigate(&authorize(&[])).await;
    let end = alice.way.last().expect("a page");
    assert!(end.starts_with(&format!("{APP}/oauth/consent?")), "{end}");
}
