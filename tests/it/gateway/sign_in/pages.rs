//! A real browser: only it shows which cookies it sends, and after which redirects.

use serde_json::{Value, json};

use super::{APP, everything, gateway};
use crate::support::wait::eventually_within;
use crate::support::wire::TIMEOUT;
use crate::support::{Browser, Gateway, Upstream};

async fn open(gateway: &Gateway) -> Browser {
    Browser::open(&[("app.example", gateway.tls_address())], &[&gateway.certificate()], &[]).await
}

/// The page that the browser shows in the end.
async fn shows(browser: &Browser, url: &str) {
    eventually_within(TIMEOUT, url, async || {
        let shown = browser.run("return location.href", &Value::Null).await;
        if shown == url { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_browser_signs_in_comes_back_and_signs_out() {
    let (at, upstream) = (super::provider::start(json!({})), Upstream::start());
    let more = format!("{}[[route]]\npath = \"/open\"\npublic = true\n", everything(&at.issuer, ""));
    let gateway = gateway(&upstream, &more).await;
    let browser = open(&gateway).await;
    let page = format!("{APP}/orders?x=1");
    browser.go(&page).await;
    shows(&browser, &page).await;
    let script = "const response = await fetch('/api'); return [response.status, document.cookie]";
    assert_eq!(browser.run(script, &Value::Null).await, json!([200, ""]));
    // Another page load, from a link of another site: Lax sends the cookie.
    browser.go(&format!("{APP}/more")).await;
    shows(&browser, &format!("{APP}/more")).await;
    assert_eq!(at.log("token").await.len(), 1, "one sign-in for all");
    browser.go(&format!("{APP}/oauth2/sign_out")).await;
    browser.run("document.querySelector('button').click()", &Value::Null).await;
    // The provider asks as well.
    let confirm = "const button = document.querySelector('button[name=logout], button[type=submit]'); \
                   if (location.host !== 'app.example' && button) button.click(); return location.href";
    eventually_within(TIMEOUT, "the browser is back", async || {
        let shown = browser.run(confirm, &Value::Null).await;
        if shown == "https://app.example/oauth2/signed_out" { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
    // The page of the gateway may load nothing.
    browser.go(&format!("{APP}/open")).await;
    let script = "const response = await fetch('/api'); return [response.status, (await response.json()).login_url]";
    assert_eq!(browser.run(script, &Value::Null).await, json!([401, "https://app.example/oauth2/sign_in/main"]));
}

/// Browsers keep at most 4,096 bytes in one cookie, and percent-encode less than one would think.
#[tokio::test]
async fn a_browser_comes_back_to_a_long_url() {
    let (at, upstream) = (super::provider::start(json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&at.issuer, "")).await;
    let browser = open(&gateway).await;
    let page = format!("{APP}/orders?q=a\\b|{{c}}&filter={}", "x".repeat(5_000));
    browser.go(&page).await;
    shows(&browser, &page).await;
    assert!(upstream.seen().iter().any(|seen| format!("{APP}{}", seen.target()) == page));
}

/// It could replace the login by its own, so that the user works for the attacker.
#[tokio::test]
async fn a_sister_domain_cannot_set_the_cookie() {
    let (at, upstream) = (super::provider::start(json!({})), Upstream::start());
    let more = format!("{}[[route]]\npath = \"/open\"\npublic = true\n", everything(&at.issuer, ""));
    let gateway = gateway(&upstream, &more).await;
    let hosts = [("app.example", gateway.tls_address()), ("evil.app.example", gateway.tls_address())];
    let browser = Browser::open(&hosts, &[&gateway.certificate()], &[]).await;
    let page = format!("{APP}/orders");
    browser.go(&page).await;
    shows(&browser, &page).await;
    let sessions = async || {
        let all = browser.devtools("Network.getAllCookies", &json!({})).await;
        let all = all["cookies"].as_array().expect("a list").clone();
        let named = all.into_iter().filter(|cookie| cookie["name"] == "__Host-bearward");
        named.map(|cookie| (cookie["domain"].clone(), cookie["value"].clone())).collect::<Vec<_>>()
    };
    let before = sessions().await;
    assert_eq!((before.len(), &before[0].0), (1, &json!("app.example")));
    browser.go("https://evil.app.example/open").await;
    let script = "for (const name of ['__Host-bearward', 'bearward']) \
                  document.cookie = `${name}=forged; Path=/; Secure; Domain=app.example`; return document.cookie";
    assert_eq!(browser.run(script, &Value::Null).await, "bearward=forged");
    assert_eq!(sessions().await, before);
    browser.go(&page).await;
    shows(&browser, &page).await;
    assert_eq!(at.log("token").await.len(), 1, "the look-alike ends nothing");
}

/// Tabs that were open when the session ended: only the page that the user loads goes to the provider.
#[tokio::test]
async fn fifty_fetches_without_a_login_begin_no_sign_in() {
    let (at, upstream) = (super::provider::start(json!({})), Upstream::start());
    let more = format!("{}[[route]]\npath = \"/open\"\npublic = true\n", everything(&at.issuer, ""));
    let gateway = gateway(&upstream, &more).await;
    let browser = open(&gateway).await;
    browser.go(&format!("{APP}/open")).await;
    let script = "const all = Array.from({ length: 50 }, (_, number) => fetch(`/api/${number}`)); \
                  return (await Promise.all(all)).map(response => response.status)";
    assert_eq!(browser.run(script, &Value::Null).await, json!(vec![401; 50]));
    let cookies = browser.devtools("Network.getAllCookies", &json!({})).await;
    assert_eq!(cookies["cookies"], json!([]));
}
