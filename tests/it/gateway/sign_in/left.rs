//! The browser leaves while the provider is asked.

use serde_json::json;

use super::refresh::KEYS;
use super::unused::revoked;
use super::{APP, CALLBACK, everything, gateway, provider};
use crate::support::Upstream;
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_ok;

#[tokio::test]
async fn the_tokens_of_a_browser_that_left_are_revoked() {
    for (keys, token) in [(KEYS, "refresh_token"), ("scopes = [\"openid\", \"email\"]", "access_token")] {
        let (provider, upstream) = (provider::start(json!({})), Upstream::start());
        let gateway = gateway(&upstream, &everything(&provider.issuer, keys)).await;
        let mut alice = Visitor::of(&gateway);
        let back = alice.navigate_until(&format!("{APP}/orders"), CALLBACK).await;
        provider.control("/faults", &json!([{ "path": "/token", "delay_ms": 1_000 }])).await;
        let (mut browser, url) = (alice.clone(), back.clone());
        let loading = tokio::spawn(async move { browser.load(&url).await });
        eventually_ok("the provider is asked", async || match provider.log("fault").await.len() {
            1 => Ok(()),
            count => Err(count.to_string()),
        })
        .await;
        loading.abort();
        let issued = eventually_ok("the provider issues tokens", async || {
            let calls = provider.log("token").await;
            calls.first().map(|call| call["body"][token].clone()).ok_or_else(String::new)
        })
        .await;
        assert!(issued.is_string(), "{token}");
        assert_eq!(revoked(&provider).await, issued);
        // The user sees nothing of it.
        provider.control("/faults", &json!([])).await;
        assert_eq!(alice.load(&back).await.header("location"), Some("https://app.example/orders"));
        assert_eq!(alice.navigate(&format!("{APP}/orders")).await.status, 200, "{:#?}", alice.way);
    }
}
