//! For every operator: both color schemes, the keyboard alone, a narrow window, and a quiet console.

use serde_json::{Value, json};

use super::{PARTS, Page, admin_token, gateway, library};
use crate::support::Upstream;
use crate::support::browser::key;

/// Each part as an operator sees it after some traffic.
const SEEN: [&str; 10] = [
    "now",
    "why",
    "why?reason=no_token",
    "logins",
    "logins?subject=alice",
    "apikeys",
    "keys",
    "certificates",
    "upstreams",
    "configuration",
];

#[tokio::test]
async fn axe_finds_nothing_in_either_color_scheme() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    gateway.issue("alice", "").await;
    gateway.issue_key(&json!({ "sub": "robot", "scope": "a", "rate": "100/min" })).await;
    assert_eq!(gateway.client().get("/").await.status, 401);
    let axe = library("axe-core/axe.min.js");
    let page = Page::open(&gateway).await;
    let check = async |what: &str| {
        let script = "const { violations, passes } = await axe.run(document); \
                      return { passed: passes.length, found: violations.map(({ id, nodes }) => \
                      `${id}: ${nodes.map(node => `${node.html} ${node.failureSummary}`).join('\\n')}`) }";
        let result = page.browser.run(script, &Value::Null).await;
        assert_eq!(result["found"], json!([]), "{what}: {result:#}");
        assert!(result["passed"].as_u64() > Some(10), "{what}: {result}");
    };
    page.browser.run(&axe, &Value::Null).await;
    for scheme in ["light", "dark"] {
        page.scheme(scheme).await;
        check(&format!("sign in, {scheme}")).await;
        page.sign_in(&admin_token(&gateway)).await;
        for part in SEEN {
            page.go(part).await;
            check(&format!("{part}, {scheme}")).await;
        }
        page.go("apikeys").await;
        page.enter("#issue-subject", "robot").await;
        page.click("#issue .main").await;
        page.shows("#issued", "issued").await;
        check(&format!("a new key, {scheme}")).await;
        page.go("logins?subject=alice").await;
        page.click("#logins .row .danger").await;
        check(&format!("a question, {scheme}")).await;
        page.click("#confirm-no").await;
        page.click("#sign-out").await;
        page.shows("#sign-in", "Sign in").await;
    }
}

#[tokio::test]
async fn no_part_writes_to_the_console() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    gateway.issue("alice", "").await;
    let page = Page::signed_in(&gateway, &admin_token(&gateway)).await;
    for part in SEEN.into_iter().chain(SEEN) {
        page.go(part).await;
    }
    page.click("#sign-out").await;
    page.shows("#sign-in", "Sign in").await;
    assert_eq!(page.browser.console().await, Vec::<String>::new());
}

#[tokio::test]
async fn everything_can_be_reached_by_the_keyboard() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let alice = gateway.issue("alice", "").await;
    let page = Page::open(&gateway).await;
    let focused = "const { id, hash, innerText } = document.activeElement; return id || hash || innerText";
    // Presses Tab until this has the focus.
    let tab_to = async |wanted: &str| {
        for _ in 0..80 {
            if page.browser.run(focused, &Value::Null).await == wanted {
                let outline = "return getComputedStyle(document.activeElement).outlineStyle";
                assert_eq!(page.browser.run(outline, &Value::Null).await, "solid", "the focus on {wanted} is visible");
                return;
            }
            page.browser.press(key::TAB).await;
        }
        panic!("{wanted} is not reached:\n{}", page.text("body").await);
    };
    tab_to("token").await;
    page.browser.press(&format!("{}{}", admin_token(&gateway), key::ENTER)).await;
    page.shows("h1:focus", "Now").await;
    for part in PARTS.into_iter().skip(1) {
        page.browser.run("document.querySelector('#skip').focus()", &Value::Null).await;
        tab_to(&format!("#{part}")).await;
        page.browser.press(key::ENTER).await;
        let script = "return document.activeElement.id === `${input}-title`";
        page.until(&format!("the title of {part} has the focus"), script, &json!(part)).await;
    }
    page.browser.run("document.querySelector('#skip').focus()", &Value::Null).await;
    page.browser.press(key::ENTER).await;
    page.until("the content has the focus", "return document.activeElement.id === 'content'", &Value::Null).await;

    page.go("logins?subject=alice").await;
    page.shows("#logins", "End all").await;
    tab_to("End").await;
    page.browser.press(key::ENTER).await;
    tab_to("confirm-no").await;
    page.browser.press(key::ESCAPE).await;
    page.until("the question is gone", "return !document.querySelector('#confirm').open", &Value::Null).await;
    assert_eq!(gateway.status_of(&alice.access).await, 200);
    tab_to("End").await;
    page.browser.press(key::ENTER).await;
    page.until("the field has the focus", "return document.activeElement.id === 'confirm-typed'", &Value::Null).await;
    page.browser.press("alice").await;
    tab_to("confirm-yes").await;
    page.browser.press(key::ENTER).await;
    page.shows("#logins-done", "has ended").await;
    assert_eq!(gateway.status_of(&alice.access).await, 401);
}

#[tokio::test]
async fn nothing_is_wider_than_a_phone() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, "");
    let long = "x".repeat(200);
    for subject in ["alice", &long] {
        gateway.issue(subject, "").await;
    }
    let named = json!({ "sub": "alice", "label": "y".repeat(100), "clientId": "z".repeat(100) });
    let named = gateway.admin_client().post("/admin/v1/tokens", &named).await.json();
    let path = format!("/admin/v1/tokens/{}", named["tokenId"].as_str().expect("an id"));
    assert_eq!(gateway.admin_client().delete(&path).await.status, 200);
    gateway.admin_client().post("/admin/v1/tokens", &json!({ "sub": "alice", "label": "y".repeat(100) })).await;
    let key = json!({ "sub": long, "label": "y".repeat(100), "scope": "z".repeat(100), "rate": "1000000/day" });
    gateway.issue_key(&key).await;
    assert_eq!(gateway.client().get(&format!("/{long}")).await.status, 401);
    let page = Page::open(&gateway).await;
    for width in [320, 500, 800, 1000] {
        let size = json!({ "width": width, "height": 640, "deviceScaleFactor": 1, "mobile": false });
        page.browser.devtools("Emulation.setDeviceMetricsOverride", &size).await;
        let fits = async |what: &str| {
            let script = "return { wide: document.documentElement.scrollWidth, elements: \
                          [...document.querySelectorAll('#app *')].filter(element => element.checkVisibility() && \
                          !element.closest('thead') && \
                          element.getBoundingClientRect().right > innerWidth + 1).map(element => element.outerHTML) }";
            let result = page.browser.run(script, &Value::Null).await;
            assert!(result["wide"].as_u64() <= Some(width), "{what} at {width}: {result:#}");
            assert_eq!(result["elements"], json!([]), "{what} at {width}");
        };
        fits("sign in").await;
        page.sign_in(&admin_token(&gateway)).await;
        for part in SEEN {
            page.go(part).await;
            fits(part).await;
        }
        page.click("#sign-out").await;
        page.shows("#sign-in", "Sign in").await;
    }
}
