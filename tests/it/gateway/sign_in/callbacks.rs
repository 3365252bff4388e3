//! Callbacks with codes that no provider has issued.

use std::sync::Arc;

use http::Method;
use serde_json::json;

use super::liar::{Liar, Lies};
use super::lies::raw;
use super::{APP, CALLBACK, everything, folder, is_ready};
use crate::gateway::oauth::post;
use crate::support::clock::ManualClock;
use crate::support::visitor::Visitor;
use crate::support::wait::{eventually, eventually_ok};
use crate::support::{Gateway, Upstream};

const OAUTH: &str = "[oauth]\nrevocation_endpoint = \"/oauth/revoke\"\n";
pub const INVALID_GRANT: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 25\r\n\r\n\
                             {\"error\":\"invalid_grant\"}";

async fn start(liar: &Liar, upstream: &Upstream) -> Gateway {
    let text = Gateway::config_text(&upstream.address.to_string(), &everything(&liar.issuer, OAUTH));
    let text = text.replace("failures = 0", "failures = 3");
    let gateway = Gateway::in_folder(text, folder(), Arc::new(ManualClock::new()));
    is_ready(gateway.address()).await;
    gateway
}

#[tokio::test]
async fn invented_codes_count_against_their_address() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let gateway = start(&liar, &upstream).await;
    liar.tell(raw(INVALID_GRANT));
    for _ in 0..3 {
        let page = liar.sign_in(&mut Visitor::of(&gateway), |back| back).await;
        assert_eq!(page.status, 400, "{page:?}");
    }
    let page = liar.sign_in(&mut Visitor::of(&gateway), |back| back).await;
    assert_eq!((page.status.as_u16(), page.header("retry-after")), (429, Some("20")), "{page:?}");
    assert_eq!(liar.exchanges().len(), 3, "the provider is not asked");
    let line = gateway.log_line(|line| line["reason"] == "failures_limited").await;
    assert_eq!(line["status"], 429);
    // It may try again after some time.
    liar.tell(Lies::default());
    gateway.advance(std::time::Duration::from_secs(21));
    assert_eq!(liar.sign_in(&mut Visitor::of(&gateway), |back| back).await.status, 303);
}

/// A client that guesses does not wait for the response of the provider.
#[tokio::test]
async fn a_code_counts_until_the_provider_has_accepted_it() {
    let liar = Liar::start(&json!({}));
    let upstream = Upstream::start();
    let gateway = start(&liar, &upstream).await;
    for (response, again) in [(Lies::default(), 303), (raw(INVALID_GRANT), 429)] {
        liar.tell(response);
        liar.hold(true);
        let before = liar.exchanges().len();
        for number in 1..=3 {
            let mut visitor = Visitor::of(&gateway);
            let out = visitor.navigate_until(&format!("{APP}/orders"), &liar.issuer).await;
            let back = liar.agree(&out);
            let loading = tokio::spawn(async move { visitor.load(&back).await });
            eventually("the provider is asked", || liar.exchanges().len() == before + number).await;
            loading.abort();
        }
        let page = liar.sign_in(&mut Visitor::of(&gateway), |back| back).await;
        assert_eq!((page.status.as_u16(), liar.exchanges().len()), (429, before + 3), "{page:?}");
        liar.hold(false);
        eventually_ok("the provider has responded", async || {
            let page = liar.sign_in(&mut Visitor::of(&gateway), |back| back).await;
            if page.status == again { Ok(()) } else { Err(page.status.to_string()) }
        })
        .await;
        gateway.advance(std::time::Duration::from_mins(2));
    }
}

/// Any page can make the browsers of an office send these: by images, by frames, and by a window that it navigates.
#[tokio::test]
async fn callbacks_without_an_attempt_block_no_sign_in() {
    let liar = Liar::start(&json!({}));
    let upstream = Upstream::start();
    let gateway = start(&liar, &upstream).await;
    let state = "s".repeat(43);
    let invented = format!("{CALLBACK}?code=invented&state={state}");
    let image = [("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image"), ("sec-fetch-site", "cross-site")];
    let frame = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe"), ("sec-fetch-site", "cross-site")];
    let page = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"), ("sec-fetch-site", "cross-site")];
    for _ in 0..4 {
        for fields in [image, frame, page] {
            for url in [&invented, CALLBACK, &format!("{CALLBACK}?state=x")] {
                let mut visitor = Visitor::of(&gateway);
                assert_eq!(visitor.send(Method::GET, url, &fields, "").await.status, 400, "{url} {fields:?}");
            }
        }
    }
    assert_eq!(liar.sign_in(&mut Visitor::of(&gateway), |back| back).await.status, 303);
    assert_eq!(liar.exchanges().len(), 1);
    // Calls on tokens share the count.
    let form = [("token", "x")];
    assert_eq!(post(gateway.client(), "/oauth/revoke", &form).await.status, 200);
}

/// A browser that adds the cookie of an attempt to the request of a script: the provider is not asked.
#[tokio::test]
async fn only_a_page_load_is_a_callback() {
    let liar = Liar::start(&json!({}));
    let upstream = Upstream::start();
    let gateway = start(&liar, &upstream).await;
    let mut alice = Visitor::of(&gateway);
    let out = alice.navigate_until(&format!("{APP}/orders"), &liar.issuer).await;
    let back = liar.agree(&out);
    for _ in 0..4 {
        alice.fetch(&back).await.assert_rejected(400, "invalid_request");
    }
    assert_eq!(liar.exchanges().len(), 0);
    assert_eq!(alice.load(&back).await.status, 303, "the attempt goes on");
}

/// Nothing of it is a guess, and many users can share an address.
#[tokio::test]
async fn users_who_decline_or_may_not_sign_in_count_nothing() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let gateway = start(&liar, &upstream).await;
    for _ in 0..5 {
        let declined = |back: String| back.replace("code=a-code", "error=access_denied");
        assert_eq!(liar.sign_in(&mut Visitor::of(&gateway), declined).await.status, 403);
        let unavailable = |back: String| back.replace("code=a-code", "error=server_error");
        assert_eq!(liar.sign_in(&mut Visitor::of(&gateway), unavailable).await.status, 503);
    }
    let mut alice = Visitor::of(&gateway);
    assert_eq!(liar.sign_in(&mut alice, |back| back).await.status, 303);
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
}
