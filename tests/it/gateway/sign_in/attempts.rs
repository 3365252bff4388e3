//! Attempts: of another browser, used twice, too old, forged, too many. And where they lead to.

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::liar::Liar;
use super::{APP, everything, gateway, provider};
use crate::support::tokens::with_another_character;
use crate::support::visitor::{Visitor, parameter};
use crate::support::{Gateway, TestResponse, Upstream};

async fn start() -> (Liar, Upstream, Gateway) {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
    (liar, upstream, gateway)
}

/// The browser begins again, or, without any cookie, gets a page.
fn begins_again(response: &TestResponse) -> bool {
    response.status == 303 && response.header("location") == Some("https://app.example/oauth2/sign_in/main")
}

/// Login CSRF: the victim would be logged in as the attacker.
#[tokio::test]
async fn the_state_of_another_browser_is_worth_nothing() {
    let (liar, _upstream, gateway) = start().await;
    let (mut attacker, mut victim) = (Visitor::of(&gateway), Visitor::of(&gateway));
    let out = attacker.navigate_until(&format!("{APP}/"), &liar.issuer).await;
    let back = liar.agree(&out);
    let page = victim.load(&back).await;
    assert_eq!((page.status.as_u16(), victim.names().len()), (400, 0), "{page:?}");
    victim.navigate_until(&format!("{APP}/"), &liar.issuer).await;
    let page = victim.load(&back).await;
    assert!(begins_again(&page), "{page:?}");
    assert_eq!((victim.session(), liar.exchanges().len()), (None, 0), "no code was sent");
    let (name, value) = attacker.attempts().remove(0);
    for (name, value) in [
        (name.clone(), with_another_character(&value, 9)),
        (name.clone(), String::from("AAAA")),
        // Of another attempt of the victim, under the name of this one.
        (name, victim.attempts()[0].1.clone()),
    ] {
        victim.set(&name, &value);
        assert!(begins_again(&victim.load(&back).await));
    }
    assert_eq!(liar.exchanges().len(), 0, "no code was sent");
    assert_eq!(attacker.load(&back).await.status, 303, "the attacker itself can sign in");
    assert!(attacker.session().is_some());
}

#[tokio::test]
async fn a_callback_is_used_once() {
    let (liar, _upstream, gateway) = start().await;
    let mut alice = Visitor::of(&gateway);
    let out = alice.navigate_until(&format!("{APP}/orders"), &liar.issuer).await;
    let back = liar.agree(&out);
    let attempt = alice.attempts().remove(0);
    assert_eq!(alice.load(&back).await.status, 303);
    let handle = alice.session().expect("a session").to_owned();
    // The back button, with and without the cookie of the attempt.
    let again = alice.load(&back).await;
    assert_eq!((again.status.as_u16(), again.header("location")), (303, Some("https://app.example/")));
    alice.set(&attempt.0, &attempt.1);
    let again = alice.load(&back).await;
    assert_eq!((again.status.as_u16(), again.header("location")), (303, Some("https://app.example/orders")));
    assert_eq!((liar.exchanges().len(), alice.session()), (1, Some(&*handle)));
    // Also in a browser without the login.
    let mut thief = Visitor::of(&gateway);
    thief.set(&attempt.0, &attempt.1);
    assert_eq!(thief.load(&back).await.status, 303);
    assert_eq!((liar.exchanges().len(), thief.session()), (1, None));
}

#[tokio::test]
async fn two_callbacks_at_once_send_one_code() {
    let (liar, _upstream, gateway) = start().await;
    let mut one = Visitor::of(&gateway);
    let out = one.navigate_until(&format!("{APP}/orders"), &liar.issuer).await;
    let back = liar.agree(&out);
    let mut other = Visitor::of(&gateway);
    one.attempts().iter().for_each(|(name, value)| other.set(name, value));
    let (first, second) = tokio::join!(one.load(&back), other.load(&back));
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (303, 303));
    assert_eq!(liar.exchanges().len(), 1);
    assert!(one.session().is_some() != other.session().is_some());
}

/// As after a start of the browser, which loads all its tabs again.
#[tokio::test]
async fn each_tab_comes_back_to_its_own_page() {
    let (liar, upstream, gateway) = start().await;
    let mut alice = Visitor::of(&gateway);
    let mut tabs = Vec::new();
    for page in ["/orders?a=1", "/bills", "/stock"] {
        let url = format!("{APP}{page}");
        tabs.push((url.clone(), alice.navigate_until(&url, &liar.issuer).await));
    }
    assert_eq!(alice.attempts().len(), 3);
    // The user begins with the last one. Each sign-in replaces the session of the one before.
    for (url, out) in tabs.iter().rev() {
        let back = alice.load(&liar.agree(out)).await;
        assert_eq!((back.status.as_u16(), back.header("location")), (303, Some(&**url)), "{back:?}");
        assert_eq!(alice.load(url).await.status, 200);
    }
    assert_eq!((alice.attempts().len(), liar.exchanges().len(), upstream.seen().len()), (0, 3, 3));
}

#[tokio::test]
async fn an_attempt_ends_after_ten_minutes() {
    for (age, is_good) in [(600, true), (601, false)] {
        let (liar, _upstream, gateway) = start().await;
        let mut alice = Visitor::of(&gateway);
        // The ID token is of the real time.
        let back = liar.agree(&alice.navigate_until(&format!("{APP}/"), &liar.issuer).await);
        gateway.advance(Duration::from_secs(age));
        let page = alice.load(&back).await;
        assert_eq!(begins_again(&page), !is_good, "{age}: {page:?}");
        assert_eq!(liar.exchanges().len(), usize::from(is_good), "{age}");
    }
}

#[tokio::test]
async fn an_attempt_belongs_to_its_provider() {
    let (one, two, upstream) = (Liar::start(&json!({})), Liar::start(&json!({})), Upstream::start());
    let more = format!(
        "{}{}[sign_in]\nexternal_urls = [\"{APP}\"]\n[[route]]\npath = \"/\"\nsign_in = \"main\"\n\
         [[route]]\npath = \"/other/\"\nsign_in = \"other\"\n",
        provider("main", &one.issuer, ""),
        provider("other", &two.issuer, "")
    );
    let gateway = gateway(&upstream, &more).await;
    let mut alice = Visitor::of(&gateway);
    let out = alice.navigate_until(&format!("{APP}/"), &one.issuer).await;
    let back = one.agree(&out).replace("/callback/main", "/callback/other");
    let page = alice.load(&back).await;
    assert_eq!(page.header("location"), Some("https://app.example/oauth2/sign_in/other"), "{page:?}");
    assert_eq!((one.exchanges().len(), two.exchanges().len()), (0, 0));
    // Two providers with equal `sub` are two users, and a login at one is none at the other.
    assert_eq!(alice.load(&one.agree(&out)).await.status, 303);
    let first = alice.session().expect("a session").to_owned();
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    alice.fetch(&format!("{APP}/other/")).await.assert_rejected(401, "invalid_token");
    let out = alice.navigate_until(&format!("{APP}/other/x"), &two.issuer).await;
    assert_eq!(alice.load(&two.agree(&out)).await.status, 303);
    assert_eq!(alice.fetch(&format!("{APP}/other/")).await.status, 200);
    let subjects: Vec<_> =
        upstream.seen().iter().map(|seen| seen.header("x-auth-subject").map(str::to_owned)).collect();
    assert_eq!(subjects, [Some("main|alice".to_owned()), Some("other|alice".to_owned())]);
    alice.set("__Host-bearward", &first);
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
}

#[tokio::test]
async fn a_callback_that_can_be_read_in_two_ways_is_rejected() {
    let (liar, _upstream, gateway) = start().await;
    let mut alice = Visitor::of(&gateway);
    let out = alice.navigate_until(&format!("{APP}/"), &liar.issuer).await;
    let back = liar.agree(&out);
    let state = parameter(&out, "state").expect("a state");
    for url in [
        format!("{back}&state={state}"),
        format!("{back}&code=another"),
        format!("{back}&error=access_denied"),
        format!("{APP}/oauth2/callback/main?code=a"),
        format!("{APP}/oauth2/callback/main?error=server_error&iss=x"),
        format!("{APP}/oauth2/callback/main"),
        format!("{back}{}", "x".repeat(5_000)),
    ] {
        assert_eq!(alice.load(&url).await.status, 400, "{url}");
    }
    assert_eq!((alice.attempts().len(), liar.exchanges().len()), (1, 0), "the attempt lives");
    let posted = alice.send(Method::POST, &back, &[("origin", APP)], "").await;
    assert_eq!(posted.status, 405);
    assert_eq!(alice.load(&back).await.status, 303);
}

#[tokio::test]
async fn no_request_leads_a_browser_to_another_site() {
    let (liar, _upstream, gateway) = start().await;
    for target in [
        "//evil.example",
        "/%5cevil.example",
        "/\\evil.example",
        "https://evil.example/",
        "http:evil.example",
        "/%09/evil.example",
        "/a/..//evil.example",
        "javascript:alert(1)",
        "/oauth2/sign_out",
        "/oauth2/callback/main",
        "/x%0d%0aSet-Cookie:%20a=b",
        "",
    ] {
        let mut alice = Visitor::of(&gateway);
        let target = bearward::protocols::http::parameters::encode(target);
        let link = format!("{APP}/oauth2/sign_in/main?return={target}");
        let out = alice.navigate_until(&link, &liar.issuer).await;
        let page = alice.load(&liar.agree(&out)).await;
        assert_eq!(page.header("location"), Some("https://app.example/"), "{target}");
    }
    // By the path of the request itself, which the gateway rejects before.
    for path in ["//evil.example", "/%5cevil.example", "/a/%2e%2e//evil.example"] {
        assert_eq!(Visitor::of(&gateway).load(&format!("{APP}{path}")).await.status, 400, "{path}");
    }
    // Nothing else of the link counts.
    let link = format!("{APP}/oauth2/sign_in/main?prompt=none&scope=admin&redirect_uri=https%3A%2F%2Fevil.example");
    let out = Visitor::of(&gateway).navigate_until(&link, &liar.issuer).await;
    assert_eq!(parameter(&out, "redirect_uri").as_deref(), Some("https://app.example/oauth2/callback/main"));
    assert_eq!((parameter(&out, "scope").as_deref(), parameter(&out, "prompt")), (Some("openid profile email"), None));
}

#[tokio::test]
async fn a_forged_host_starts_no_sign_in() {
    let (_liar, _upstream, gateway) = start().await;
    for host in ["evil.example", "app.example.evil.example", "app.example:8443"] {
        let fields = [("accept", "text/html"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        let mut client = gateway.client().host(host).header("x-forwarded-host", "app.example");
        for (name, value) in fields {
            client = client.header(name, value);
        }
        let rejected = client.get("/").await;
        rejected.assert_rejected(401, "unauthorized");
        assert!(rejected.json().get("login_url").is_none() && rejected.header("set-cookie").is_none(), "{host}");
    }
}

#[tokio::test]
async fn a_browser_that_goes_in_a_circle_gets_a_page() {
    let (liar, _upstream, gateway) = start().await;
    let mut alice = Visitor::of(&gateway);
    for _ in 0..3 {
        assert_eq!(alice.load(&format!("{APP}/")).await.status, 302);
    }
    let page = alice.load(&format!("{APP}/")).await;
    assert_eq!((page.status.as_u16(), page.header("retry-after")), (429, Some("61")), "{page:?}");
    assert_eq!(alice.attempts().len(), 3);
    gateway.advance(Duration::from_secs(61));
    alice.navigate_until(&format!("{APP}/"), &liar.issuer).await;
    alice.navigate_until(&format!("{APP}/"), &liar.issuer).await;
    assert_eq!(alice.attempts().len(), 4, "the oldest one made room");
}

/// A page of another site leads the browser to long URLs, so that its cookies make every request too large.
#[tokio::test]
async fn attempts_leave_room_for_the_cookies_of_the_application() {
    let (_liar, _upstream, gateway) = start().await;
    let mut alice = Visitor::of(&gateway);
    alice.set("of_the_application", &"x".repeat(6_000));
    for round in 0..8 {
        let response = alice.load(&format!("{APP}/{}", "a".repeat(2_047))).await;
        assert_eq!(response.status, 302, "{round}");
        gateway.advance(Duration::from_secs(31));
    }
    let size: usize = alice.attempts().iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(size < 8_192, "{size} bytes");
}

#[tokio::test]
async fn only_a_page_load_begins_a_sign_in() {
    let (_liar, _upstream, gateway) = start().await;
    let navigate = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    for (method, fields) in [
        (Method::GET, vec![("sec-fetch-mode", "cors"), ("accept", "text/html")]),
        (Method::GET, vec![("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")]),
        (Method::GET, [navigate.to_vec(), vec![("sec-purpose", "prefetch")]].concat()),
        (Method::GET, vec![("accept", "*/*")]),
        (Method::GET, vec![("accept", "text/html"), ("x-requested-with", "XMLHttpRequest")]),
        (Method::GET, [navigate.to_vec(), vec![("authorization", "Bearer x")]].concat()),
        (Method::POST, navigate.to_vec()),
    ] {
        let mut visitor = Visitor::of(&gateway);
        for path in ["/", "/oauth2/sign_in/main"] {
            if path != "/" && (method == Method::POST || fields.iter().any(|(name, _)| *name == "authorization")) {
                continue;
            }
            let response = visitor.send(method.clone(), &format!("{APP}{path}"), &fields, "").await;
            assert_eq!(response.status, 401, "{path} {fields:?}: {response:?}");
        }
        assert!(visitor.names().is_empty(), "{fields:?}");
    }
}
