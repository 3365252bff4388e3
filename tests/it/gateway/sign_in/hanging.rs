//! A provider that does not respond: after a few calls, most requests do not wait for it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::held::{Held, Hold};
use super::refresh::KEYS;
use super::{APP, CALLBACK, everything, folder, gateway, is_ready, provider};
use crate::support::clock::ManualClock;
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, OidcProvider, Upstream};

struct Story {
    provider: OidcProvider,
    held: Held,
    _upstream: Upstream,
    gateway: Gateway,
}

impl Story {
    /// A call may take a second. The access tokens of the provider live 600 s.
    async fn begin(keys: &str) -> Story {
        let (held, upstream) = (Held::bind(), Upstream::start());
        let issuer = format!("http://{}", held.address);
        let provider = provider::start(json!({ "issuer": issuer, "ttl": { "AccessToken": 600, "IdToken": 36_000 } }));
        held.pass_to(provider.address);
        let keys = format!("{KEYS}\nclient_timeout = \"1s\"\n{keys}");
        let gateway = gateway(&upstream, &everything(&provider.issuer, &keys)).await;
        Story { provider, held, _upstream: upstream, gateway }
    }

    async fn skipped(&self, call: &str) -> f64 {
        let labels = format!("provider=\"main\",call=\"{call}\",outcome=\"skipped\"");
        self.gateway.metric(&format!("bearward_provider_calls_total{{{labels}}}")).await
    }
}

/// The statuses of page loads at the same time.
async fn loaded(browsers: Vec<(Visitor, String)>) -> Vec<u16> {
    let load = |(mut browser, url): (Visitor, String)| async move { browser.load(&url).await.status.as_u16() };
    let all: Vec<_> = browsers.into_iter().map(|browser| tokio::spawn(load(browser))).collect();
    let mut statuses = Vec::new();
    for response in all {
        statuses.push(response.await.expect("no panic"));
    }
    statuses
}

/// Its users come later than the gateway.
#[tokio::test]
async fn a_gateway_starts_before_its_provider() {
    let (held, upstream) = (Held::bind(), Upstream::start());
    let issuer = format!("http://{}", held.address);
    let text = Gateway::config_text(&upstream.address.to_string(), &everything(&issuer, KEYS));
    let gateway = Gateway::in_folder(text, folder(), Arc::new(ManualClock::new()));
    let mut alice = Visitor::of(&gateway);
    let page = alice.load(&format!("{APP}/")).await;
    assert_eq!((page.status.as_u16(), alice.names().len()), (503, 0), "{page:?}");
    assert!(page.text().contains("<p>The identity provider is not available.") && page.text().contains("<a href"));
    let rejected = alice.fetch(&format!("{APP}/")).await;
    rejected.assert_rejected(401, "unauthorized");
    let line = gateway.log_line(|line| line["reason"] == "provider_unavailable").await;
    assert_eq!(line["status"], 503);
    let provider = provider::start(json!({ "issuer": issuer }));
    held.pass_to(provider.address);
    is_ready(gateway.address()).await;
    assert_eq!(alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", alice.way);
}

/// The browser comes back from the provider while the gateway restarts.
#[tokio::test]
async fn a_callback_waits_until_its_gateway_knows_the_provider() {
    let provider = provider::start(json!({}));
    let upstream = Upstream::start();
    let before = gateway(&upstream, &everything(&provider.issuer, KEYS)).await;
    let mut alice = Visitor::of(&before);
    let back = alice.navigate_until(&format!("{APP}/orders"), CALLBACK).await;
    provider.control("/faults", &json!([{ "path": "/.well-known/openid-configuration", "delay_ms": 1_000 }])).await;
    let folder = folder();
    std::fs::copy(before.folder.path().join("bearward.secret"), folder.path().join("bearward.secret")).expect("copied");
    let text = Gateway::config_text(&upstream.address.to_string(), &everything(&provider.issuer, KEYS));
    let after = Gateway::in_folder(text, folder, Arc::new(ManualClock::new()));
    alice.move_to(&after);
    // A new sign-in does not wait.
    assert_eq!(Visitor::of(&after).load(&format!("{APP}/")).await.status, 503);
    let page = alice.load(&back).await;
    assert_eq!((page.status.as_u16(), page.header("location")), (303, Some("https://app.example/orders")));
}

#[tokio::test]
async fn few_sign_ins_wait_for_a_provider_that_hangs() {
    let story = Story::begin("").await;
    let mut browsers = Vec::new();
    for _ in 0..12 {
        let mut browser = Visitor::of(&story.gateway);
        let back = browser.navigate_until(&format!("{APP}/"), CALLBACK).await;
        browsers.push((browser, back));
    }
    story.held.hold(Hold::Requests);
    let others = browsers.split_off(3);
    assert_eq!(loaded(browsers).await, [503; 3]);
    assert_eq!((story.held.reached(), story.skipped("code").await), (3, 0.0));
    assert_eq!(loaded(others).await, [503; 9]);
    assert_eq!((story.held.reached(), story.skipped("code").await), (4, 8.0), "one tried");
    story.held.hold(Hold::Nothing);
    let mut alice = Visitor::of(&story.gateway);
    assert_eq!(alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", alice.way);
    let log = story.gateway.logged();
    let address = story.held.address.to_string();
    let messages = |part: &str| log.lines().filter(|line| line.contains(part) && line.contains(&address)).count();
    assert_eq!(messages("an endpoint of the provider fails"), 1);
    assert_eq!(messages("the endpoint of the provider works again"), 1);
}

#[tokio::test]
async fn few_requests_wait_for_refreshes_at_a_provider_that_hangs() {
    let story = Story::begin("").await;
    let mut browsers = Vec::new();
    for _ in 0..10 {
        let mut browser = Visitor::of(&story.gateway);
        assert_eq!(browser.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", browser.way);
        browsers.push((browser, format!("{APP}/")));
    }
    story.held.hold(Hold::Requests);
    story.gateway.advance(Duration::from_secs(700));
    let others = browsers.split_off(3);
    // Each login lives on for `max_staleness`.
    assert_eq!(loaded(browsers.clone()).await, [200; 3]);
    assert_eq!(loaded(others.clone()).await, [200; 7]);
    assert_eq!((story.held.reached(), story.skipped("refresh").await), (4, 6.0), "one tried");
    story.held.hold(Hold::Nothing);
    story.gateway.advance(Duration::from_secs(30));
    let all = [browsers, others].concat();
    eventually_ok("all logins are refreshed", async || {
        assert_eq!(loaded(all.clone()).await, [200; 10]);
        let calls = story.provider.log("token").await;
        match calls.iter().filter(|call| call["params"]["grant_type"] == "refresh_token").count() {
            10 => Ok(()),
            count => {
                story.gateway.advance(Duration::from_secs(1));
                Err(count.to_string())
            }
        }
    })
    .await;
}

#[tokio::test]
async fn zero_asks_a_provider_that_hangs_each_time() {
    let story = Story::begin("consecutive_timeouts = 0").await;
    let mut browsers = Vec::new();
    for _ in 0..6 {
        let mut browser = Visitor::of(&story.gateway);
        let back = browser.navigate_until(&format!("{APP}/"), CALLBACK).await;
        browsers.push((browser, back));
    }
    story.held.hold(Hold::Requests);
    let others = browsers.split_off(3);
    assert_eq!([loaded(browsers).await, loaded(others).await].concat(), [503; 6]);
    assert_eq!((story.held.reached(), story.skipped("code").await), (6, 0.0));
}
