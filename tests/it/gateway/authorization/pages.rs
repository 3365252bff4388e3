//! The pages in a real browser: it sends a form, and axe-core looks at it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Front, NOTES, OAUTH, authorize};
use crate::support::visitor::{APP, parameter};
use crate::support::wait::eventually_within;
use crate::support::wire::TIMEOUT;
use crate::support::{Browser, source};

/// What axe-core finds on the page that the browser shows.
async fn violations(browser: &Browser) -> Value {
    let axe = source::read("target/browser/node_modules/axe-core/axe.min.js");
    browser.run(&axe, &Value::Null).await;
    let script = "const { violations } = await axe.run(document); return violations.map((one) => [one.id, one.help])";
    browser.run(script, &Value::Null).await
}

/// Writes a picture of the page for deploy/authorize.md, if `BEARWARD_WRITE` is set.
async fn picture(browser: &Browser, name: &str) {
    if std::env::var_os("BEARWARD_WRITE").is_none() {
        return;
    }
    let taken = browser.devtools("Page.captureScreenshot", &json!({ "format": "png" })).await;
    let png = STANDARD.decode(taken["data"].as_str().expect("text")).expect("base64");
    let file = source::root().join(format!("deploy/screenshots/{name}.png"));
    std::fs::write(file, png).expect("written");
}

/// Waits until the browser shows a page with this heading.
pub(super) async fn shows(browser: &Browser, heading: &str) {
    eventually_within(TIMEOUT, heading, async || {
        let shown = browser.run("return document.querySelector('h1')?.textContent ?? ''", &Value::Null).await;
        if shown == heading { Ok(()) } else { Err(shown.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_user_agrees_by_keyboard_and_axe_finds_nothing() {
    let text = "text = \"Read your notes\"\n";
    let mut front = Front::with(&OAUTH.replace(text, &format!("{text}optional = true\n"))).await;
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    let session = front.alice.session().expect("a session").to_owned();
    let hosts = [("app.example", front.gateway.tls_address()), ("client.example", front.gateway.tls_address())];
    let browser = Browser::open(&hosts, &[&front.gateway.certificate()], &[]).await;
    browser.go(&format!("{APP}/oauth2/signed_out")).await;
    let cookie = json!({ "name": "__Host-bearward", "value": session, "url": APP, "path": "/", "secure": true });
    browser.devtools("Network.setCookie", &cookie).await;
    browser.go(&authorize(&[("resource", NOTES)])).await;
    shows(&browser, "Allow spa?").await;
    let wide = json!({ "width": 640, "height": 790, "deviceScaleFactor": 1, "mobile": false });
    browser.devtools("Emulation.setDeviceMetricsOverride", &wide).await;
    for scheme in ["light", "dark"] {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.devtools("Emulation.setEmulatedMedia", &features).await;
        assert_eq!(violations(&browser).await, json!([]), "{scheme}");
        picture(&browser, &format!("consent-{scheme}")).await;
    }
    let narrow = json!({ "width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true });
    browser.devtools("Emulation.setDeviceMetricsOverride", &narrow).await;
    let fits = "return document.documentElement.scrollWidth <= document.documentElement.clientWidth";
    assert_eq!(browser.run(fits, &Value::Null).await, json!(true), "nothing is wider than the page");
    picture(&browser, "consent-narrow").await;
    // The first button by keyboard. The client is a page of the gateway's address without a route.
    browser.run("document.querySelector('button[value=allow]').focus()", &Value::Null).await;
    browser.press("\u{e007}").await;
    eventually_within(TIMEOUT, "the client has a code", async || {
        let shown = browser.run("return location.href", &Value::Null).await.to_string();
        if shown.contains("client.example/callback?code=bwc1_") { Ok(()) } else { Err(shown) }
    })
    .await;
    let answer = browser.run("return location.href", &Value::Null).await;
    let code = parameter(answer.as_str().expect("text"), "code").expect("a code");
    assert_eq!(front.redeem(&code, &[]).await.json()["scope"], "notes:read", "the box was checked");
    browser.go(&format!("{APP}/oauth/grants")).await;
    shows(&browser, "Applications with access").await;
    assert_eq!(violations(&browser).await, json!([]));
    picture(&browser, "grants").await;
}
