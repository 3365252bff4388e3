//! A single-page app in a real browser, with `oidc-client-ts`.

use serde_json::{Value, json};

use super::pages::shows;
use super::{Front, NOTES, OAUTH};
use crate::support::visitor::APP;
use crate::support::wait::eventually_within;
use crate::support::wire::TIMEOUT;
use crate::support::{Browser, Site};

const PAGE: &str = "https://client.example/";

/// What each script begins with: two tabs of the app, which share the storage of their origin.
const APPS: &str = r#"
    const settings = {
        authority: "https://app.example", client_id: "spa", redirect_uri: "https://client.example/",
        scope: "notes:read", extraQueryParams: { resource: input }, extraTokenParams: { resource: input },
        userStore: new oidc.WebStorageStateStore({ store: localStorage }), automaticSilentRenew: false,
    };
    const [tab, other] = [new oidc.UserManager(settings), new oidc.UserManager(settings)];
    const call = async (user) => {
        const headers = { Authorization: `Bearer ${user.access_token}` };
        return (await fetch(input, { headers })).status;
    };
"#;

/// With the resource of the app as `input`.
async fn run(browser: &Browser, script: &str) -> Value {
    browser.run(&format!("{APPS}{script}"), &json!(NOTES)).await
}

#[tokio::test]
async fn an_app_with_oidc_client_ts_goes_all_steps_in_two_tabs() {
    let oauth = OAUTH.replace("https://client.example/callback", PAGE);
    let mut front = Front::with(&format!("{oauth}[cors]\norigins = [\"https://client.example\"]\n")).await;
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    let session = front.alice.session().expect("a session").to_owned();
    let site = Site::start().await;
    let hosts = [("app.example", front.gateway.tls_address()), ("client.example", site.address)];
    let browser = Browser::open(&hosts, &[&front.gateway.certificate(), &site.certificate()], &[]).await;
    browser.go(&format!("{APP}/oauth2/signed_out")).await;
    let cookie = json!({ "name": "__Host-bearward", "value": session, "url": APP, "path": "/", "secure": true });
    browser.devtools("Network.setCookie", &cookie).await;
    browser.visit(PAGE).await;
    run(&browser, "setTimeout(() => tab.signinRedirect()); return null").await;
    shows(&browser, "Allow spa?").await;
    browser.run("document.querySelector('button[value=allow]').focus()", &Value::Null).await;
    browser.press("\u{e007}").await;
    eventually_within(TIMEOUT, "the app has a code", async || {
        let shown = browser.run("return document.title + location.href", &Value::Null).await.to_string();
        if shown.contains("ready") && shown.contains("code=bwc1_") { Ok(()) } else { Err(shown) }
    })
    .await;
    let found = run(
        &browser,
        "const user = await tab.signinCallback(); return { status: await call(user), scope: user.scope }",
    )
    .await;
    assert_eq!(found, json!({ "status": 200, "scope": "notes:read" }));
    // Both tabs refresh at once with what they share.
    let found = run(
        &browser,
        "const before = await tab.getUser();
         const users = await Promise.all([tab.signinSilent(), other.signinSilent()]);
         const isNew = users.every(user => user.access_token !== before.access_token);
         return { statuses: await Promise.all(users.map(call)), isNew }",
    )
    .await;
    assert_eq!(found, json!({ "statuses": [200, 200], "isNew": true }));
    let found =
        run(&browser, "const user = await tab.getUser(); await tab.revokeTokens(['refresh_token']); return call(user)")
            .await;
    assert_eq!(found, 401, "the session has ended");
}
