//! Endpoints in the discovery document that cannot be used.

use serde_json::json;

use super::liar::Liar;
use super::{APP, SIGNED_OUT, everything, folder, gateway, journal};
use crate::support::clock::ManualClock;
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream, secrets};

#[tokio::test]
async fn an_unusable_optional_endpoint_prevents_no_sign_in() {
    let metadata = json!({
        "end_session_endpoint": "", "revocation_endpoint": "/revoke", "userinfo_endpoint": "ftp://login.example/me",
    });
    let (liar, upstream, start) = (Liar::start(&metadata), Upstream::start(), secrets::capture_log());
    let text = everything(&liar.issuer, "").replace("\"main\"", "\"half-broken\"");
    let gateway = gateway(&upstream, &text).await;
    for _ in 0..2 {
        let mut alice = Visitor::of(&gateway);
        assert_eq!(liar.sign_in(&mut alice, |back| back).await.status, 303);
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
        let ended = alice.submit(&format!("{APP}/oauth2/sign_out"), "").await;
        assert_eq!(ended.header("location"), Some(SIGNED_OUT));
    }
    let lines = journal(start, "half-broken");
    let lines: Vec<_> = lines.iter().filter(|line| line.contains("endpoint")).collect();
    assert_eq!(lines.len(), 1, "{lines:#?}");
    for member in ["end_session_endpoint", "revocation_endpoint", "userinfo_endpoint"] {
        assert!(lines[0].contains(member), "{member}: {lines:?}");
    }
}

#[tokio::test]
async fn an_unusable_endpoint_that_is_needed_is_in_the_journal() {
    let metadata = json!({ "token_endpoint": "/token" });
    let (liar, upstream, start) = (Liar::start(&metadata), Upstream::start(), secrets::capture_log());
    let text = everything(&liar.issuer, "").replace("\"main\"", "\"broken\"");
    let text = Gateway::config_text(&upstream.address.to_string(), &text);
    let gateway = Gateway::in_folder(text, folder(), std::sync::Arc::new(ManualClock::new()));
    let lines = eventually_ok("a line in the journal", async || {
        let page = Visitor::of(&gateway).load(&format!("{APP}/")).await;
        assert_eq!(page.status, 503);
        match journal(start, "broken").iter().filter(|line| line.contains("token_endpoint")).count() {
            0 => Err(page.text()),
            count => Ok(count),
        }
    })
    .await;
    assert_eq!(lines, 1);
}
