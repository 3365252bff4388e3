//! API keys: issued, shown once, listed and revoked.

use serde_json::{Value, json};

use super::{Page, VIEWER, admin_token, gateway};
use crate::gateway::streams;
use crate::support::{Upstream, secrets};

const ROUTE: &str = "[[route]]\npath = \"/\"\napi_keys = true\n";

#[tokio::test]
async fn an_issued_key_is_shown_once_and_works() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, ROUTE);
    let page = Page::signed_in(&gateway, &admin_token(&gateway)).await;
    page.go("apikeys").await;
    page.shows("#apikeys", "There is no API key.").await;
    for (name, value) in [("subject", "robot"), ("label", "nightly"), ("scope", "a b"), ("rate", "5/m")] {
        page.enter(&format!("#issue-{name}"), value).await;
    }
    page.click("#issue .main").await;
    page.shows("#issued", "such as 100/min").await;
    page.enter("#issue-rate", "5/min").await;
    page.enter("#issue-days", "2").await;
    page.click("#issue .main").await;
    let key = page.until("the key", "return document.querySelector('#issued-key')?.value", &Value::Null).await;
    let key = key.as_str().expect("text").to_owned();
    secrets::remember(&key);
    let response = gateway.client().bearer(&key).get("/").await;
    assert_eq!((response.status.as_u16(), response.header("ratelimit-policy")), (200, Some("\"api-key\";q=5;w=60")));
    let listed = gateway.admin_client().get("/admin/v1/api-keys").await.json()["apiKeys"][0].clone();
    assert_eq!((&listed["sub"], &listed["label"]), (&json!("robot"), &json!("nightly")), "{listed}");
    assert_eq!((&listed["scope"], &listed["rate"]), (&json!("a b"), &json!("5/min")), "{listed}");
    for text in ["robot", "nightly", "5/min", "live"] {
        page.shows("#apikeys tbody", text).await;
    }
    // It is nowhere but in its field, and not after the part was left.
    let places = "return [document.documentElement.outerHTML, sessionStorage, localStorage].filter(place => \
                  JSON.stringify(place).includes(input)).length";
    assert_eq!(page.browser.run(places, &json!(key)).await, 0);
    page.go("now").await;
    page.go("apikeys").await;
    page.shows("#apikeys tbody", "nightly").await;
    let shown = "return [...document.querySelectorAll('input')].some(({ value }) => value === input)";
    assert_eq!(page.browser.run(shown, &json!(key)).await, false);
    // What the browser says about the call with the wrong rate.
    let console = page.browser.console().await;
    assert!(console.len() == 1 && console[0].contains("400 (Bad Request)"), "{console:?}");
}

#[tokio::test]
async fn a_key_is_revoked_if_its_subject_is_typed() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, ROUTE);
    let (key, id) = gateway.issue_key(&json!({ "sub": "robot", "label": "<b>nightly</b>" })).await;
    let (other, other_id) = gateway.issue_key(&json!({ "sub": ".." })).await;
    let mut socket = streams::open(&gateway, &key).await;
    let page = Page::signed_in(&gateway, &admin_token(&gateway)).await;
    page.go("apikeys").await;
    page.shows("#apikeys", &other_id).await;
    page.go("apikeys?subject=robot").await;
    page.shows("#apikeys", "<b>nightly</b>").await;
    page.until("one key", "return !document.querySelector('#apikeys').innerText.includes(input)", &json!(other_id))
        .await;
    page.click("#apikeys tbody button").await;
    page.shows("#confirm", "Revoke the API key of robot").await;
    let disabled = "return document.querySelector('#confirm-yes').disabled";
    for (typed, expected) in [("", true), ("robo", true), ("robot", false)] {
        page.enter("#confirm-typed", typed).await;
        assert_eq!(page.browser.run(disabled, &Value::Null).await, expected, "{typed:?}");
    }
    page.click("#confirm-no").await;
    assert_eq!(gateway.client().bearer(&key).get("/").await.status, 200, "nothing has changed yet");
    page.click("#apikeys tbody button").await;
    page.enter("#confirm-typed", "robot").await;
    page.click("#confirm-yes").await;
    assert_eq!(streams::close_frame(&mut socket).await, streams::revoked());
    page.shows("#apikeys-done", "is revoked").await;
    page.shows("#apikeys tbody", "revoked").await;
    assert_eq!(gateway.client().bearer(&key).get("/").await.status, 401);
    page.go("logins").await;
    page.shows("#ended", "an API key of").await;
    page.shows("#ended", &id).await;
    page.go("apikeys?subject=..").await;
    page.shows("#apikeys", &other_id).await;
    page.click("#apikeys tbody button").await;
    page.enter("#confirm-typed", "..").await;
    page.click("#confirm-yes").await;
    page.shows("#apikeys-done", "is revoked").await;
    assert_eq!(gateway.client().bearer(&other).get("/").await.status, 401);
    assert_eq!(page.browser.console().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_role_view_sees_keys_and_no_form() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream, ROUTE);
    for number in 0..60 {
        gateway.issue_key(&json!({ "sub": "robot", "label": format!("number {number}") })).await;
    }
    for (token, expected) in [(VIEWER, json!([false, 0])), (&*admin_token(&gateway), json!([true, 50]))] {
        let page = Page::signed_in(&gateway, token).await;
        page.go("apikeys").await;
        page.shows("#apikeys", "number").await;
        let script = "return [document.querySelector('#issue').checkVisibility(), \
                      document.querySelectorAll('#apikeys tbody button').length]";
        assert_eq!(page.browser.run(script, &Value::Null).await, expected);
        page.click("#apikeys .row button").await;
        let rows = "return document.querySelectorAll('#apikeys tbody tr').length === 60";
        page.until("all keys", rows, &Value::Null).await;
        let focused = "return document.activeElement.closest('tr') === document.querySelectorAll('#apikeys tr')[51]";
        page.until("the first new key has the focus", focused, &Value::Null).await;
    }
}
