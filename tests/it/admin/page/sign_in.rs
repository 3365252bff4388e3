//! Signing in and out, and what the role decides.

use serde_json::{Value, json};

use super::{PARTS, Page, VIEWER, admin_token, gateway};
use crate::support::{Client, Upstream};

/// The texts of all buttons that an operator can see.
const BUTTONS: &str = "return [...document.querySelectorAll('button')].filter(button => button.offsetParent) \
                       .map(button => button.innerText)";

/// The token of the session in this tab.
const KEPT: &str = "return JSON.parse(sessionStorage.getItem('bearward.session'))?.token ?? null";

#[tokio::test]
async fn an_operator_signs_in_and_out() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let (page, admin) = (Page::open(&gateway).await, admin_token(&gateway));
    page.sign_in(&admin).await;
    page.shows("#operator", "admin").await;
    page.shows("h1:focus", "Now").await;
    let token = page.browser.run(KEPT, &Value::Null).await;
    let token = token.as_str().expect("a token").to_owned();
    assert_ne!(token, admin, "the page keeps the token of a session only");
    let kept = page.browser.run("return document.cookie + JSON.stringify(localStorage)", &Value::Null).await;
    assert_eq!(kept, json!("{}"), "no cookie, nothing beyond the tab");
    assert_eq!(page.browser.run("return document.querySelector('#token').value", &Value::Null).await, "");

    page.browser.go(&page.address).await;
    page.shows("#operator", "admin").await;
    page.click("#sign-out").await;
    page.shows("#sign-in", "Sign in").await;
    assert_eq!(page.browser.run(KEPT, &Value::Null).await, Value::Null);
    let client = Client::http1(gateway.admin_address()).host("localhost").bearer(&token);
    crate::support::wait::eventually_ok("the session has ended", async || {
        let status = client.get("/admin/v1/keys").await.status;
        if status == 401 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    page.browser.go(&page.address).await;
    page.shows("#sign-in", "Sign in").await;
}

#[tokio::test]
async fn a_wrong_token_stays_outside() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let page = Page::open(&gateway).await;
    // An attempt that ends clears the field, also of the token that is entered next.
    let ended = "return document.querySelector('#token').value === '' && \
                 !document.querySelector('#sign-in-error').hidden";
    for wrong in ["no-such-token", "<img src=x onerror=alert(1)>", "тайна"] {
        page.sign_in(wrong).await;
        page.until("an error", ended, &Value::Null).await;
        assert!(page.browser.run("return document.querySelector('#app').hidden", &Value::Null).await == true);
        assert!(page.browser.run(KEPT, &Value::Null).await.is_null());
    }
    // No browser sends it.
    page.shows("#sign-in-error", "This token is wrong.").await;
    page.sign_in("no-such-token").await;
    page.until("an error", ended, &Value::Null).await;
    page.shows("#sign-in-error", "This token is wrong. (POST /admin/v1/sessions: 401)").await;
    page.sign_in(&admin_token(&gateway)).await;
    page.shows("#operator", "admin").await;
}

/// Behind a forwarded port, all of them have the same address.
#[tokio::test]
async fn wrong_tokens_of_others_end_no_session() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let page = Page::signed_in(&gateway, &admin_token(&gateway)).await;
    let wrong = Client::http1(gateway.admin_address()).host("localhost").bearer("wrong");
    crate::support::wait::eventually_ok("wrong tokens are limited", async || {
        let status = wrong.get("/admin/v1/keys").await.status;
        if status == 429 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    page.browser.go(&page.address).await;
    page.shows("#operator", "admin").await;
    page.click("#sign-out").await;
    page.sign_in(&admin_token(&gateway)).await;
    page.shows("#sign-in-error", "Too many wrong tokens came from your address.").await;
}

/// The gateway cannot say whether the session lives, so the page must not show nothing.
#[tokio::test]
async fn a_gateway_that_fails_is_asked_again() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let page = Page::signed_in(&gateway, &admin_token(&gateway)).await;
    let failing = json!({ "source": "const real = fetch; let failed = 0; \
                          fetch = (...call) => failed++ ? real(...call) : Response.json({}, { status: 503 })" });
    let script = page.browser.devtools("Page.addScriptToEvaluateOnNewDocument", &failing).await;
    page.browser.go(&page.address).await;
    page.shows("#sign-in-error", "(GET /admin/v1/sessions/current: 503)").await;
    page.click("#try-again").await;
    page.shows("#operator", "admin").await;
    page.browser.devtools("Page.removeScriptToEvaluateOnNewDocument", &script).await;
}

#[tokio::test]
async fn the_role_view_sees_no_button_of_a_change() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    gateway.issue("alice", "").await;
    let reading = ["Sign out", "Pause", "Look up", "Explain", "Show", "Search", "More"].map(str::to_owned);
    for (token, changes) in [(VIEWER, 0), (&admin_token(&gateway), 4)] {
        let page = Page::signed_in(&gateway, token).await;
        let mut found = Vec::new();
        for part in PARTS.into_iter().chain(["logins?subject=alice"]) {
            page.go(part).await;
            if part.starts_with("logins?") {
                page.shows("#logins", "alice").await;
            }
            if part == "keys" {
                page.shows("#signing", "active").await;
            }
            let shown = page.browser.run(BUTTONS, &Value::Null).await;
            let shown = shown.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text").to_owned());
            found.extend(shown.filter(|text| !reading.contains(text)));
        }
        found.sort();
        found.dedup();
        assert!(found.len() >= changes && (changes > 0 || found.is_empty()), "{found:?}");
    }
}

#[tokio::test]
async fn an_ended_session_leads_back_to_the_sign_in() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let page = Page::signed_in(&gateway, &admin_token(&gateway)).await;
    page.go("keys").await;
    let token = page.browser.run(KEPT, &Value::Null).await;
    let session = Client::http1(gateway.admin_address()).host("localhost").bearer(token.as_str().expect("a token"));
    assert_eq!(session.delete("/admin/v1/sessions/current").await.status, 200);
    page.browser.run("location.hash = 'logins'", &Value::Null).await;
    page.shows("#sign-in-error", "Your session has ended").await;
    let left = page.browser.run("return document.querySelectorAll('#app td').length", &Value::Null).await;
    assert_eq!(left, 0, "what was shown is gone");
    page.sign_in(&admin_token(&gateway)).await;
    page.shows("h1:focus", "Logins").await;
}

/// A site of the internet has a DNS name that suddenly means the address of the admin listener (DNS rebinding).
#[tokio::test]
async fn a_page_of_another_host_gets_nothing() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let page = Page::open(&gateway).await;
    page.browser.go("http://attacker.example/").await;
    let shown = page.text("body").await;
    assert!(shown.contains("421"), "{shown}");
    assert_eq!(page.browser.run("return document.scripts.length", &Value::Null).await, 0);
}
