//! The page that a user comes back to, whatever its URL.

use http::Method;
use serde_json::json;

use super::liar::{Liar, Lies};
use super::lies::raw;
use super::{APP, everything, gateway};
use crate::support::Upstream;
use crate::support::visitor::Visitor;

/// A URL of this length, without the origin.
fn of_length(length: usize) -> String {
    let start = "/orders?filter=";
    format!("{start}{}", "a".repeat(length - start.len()))
}

#[tokio::test]
async fn a_user_comes_back_to_a_long_url() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
    for length in [2_048, 2_049, 3_000, 4_096, 5_120] {
        let url = format!("{APP}{}", of_length(length));
        let mut alice = Visitor::of(&gateway);
        let out = alice.navigate_until(&url, &liar.issuer).await;
        // What browsers keep (RFC 6265 section 6.1).
        let sizes = alice.attempts().into_iter().map(|(name, value)| name.len() + value.len()).collect::<Vec<_>>();
        assert!(sizes.iter().all(|size| *size <= 4_096) && sizes.iter().sum::<usize>() < 8_192, "{length}: {sizes:?}");
        let back = alice.load(&liar.agree(&out)).await;
        assert_eq!((back.status.as_u16(), back.header("location")), (303, Some(&*url)), "{length}");
        assert!(alice.attempts().is_empty(), "{length}: {:?}", alice.names());
        assert_eq!(alice.load(&url).await.status, 200, "{length}");
        assert_eq!(upstream.seen().pop().expect("a request").target(), of_length(length));
    }
    // What no cookies can have leads to the same page at least.
    for target in [of_length(5_121), of_length(8_000), format!("/orders?{}", "\"".repeat(2_715))] {
        let mut alice = Visitor::of(&gateway);
        let link = format!("{APP}/oauth2/sign_in/main?return={}", encoded(&target));
        let out = alice.navigate_until(&link, &liar.issuer).await;
        let back = came_back(&liar, &out, &mut alice).await;
        assert_eq!(back.as_deref(), Some("https://app.example/orders"), "{} bytes", target.len());
    }
}

fn encoded(target: &str) -> String {
    // Only what a query must not have, so that the link stays short.
    target.replace('%', "%25").replace('"', "%22").replace('&', "%26").replace('+', "%2B").replace('\\', "%5C")
}

async fn came_back(liar: &Liar, out: &str, alice: &mut Visitor) -> Option<String> {
    let back = alice.load(&liar.agree(out)).await;
    back.header("location").map(str::to_owned)
}

/// Tabs with long URLs: the newest one wins, and no request becomes too large.
#[tokio::test]
async fn a_long_url_makes_room_for_itself() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
    let mut alice = Visitor::of(&gateway);
    alice.set("of_the_application", &"x".repeat(2_000));
    let mut out = String::new();
    for length in [1_000, 5_120, 5_119] {
        out = alice.navigate_until(&format!("{APP}{}", of_length(length)), &liar.issuer).await;
        let size: usize = alice.attempts().iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(size < 8_192, "{size} bytes");
    }
    let back = alice.load(&liar.agree(&out)).await;
    assert_eq!(back.header("location"), Some(&*format!("{APP}{}", of_length(5_119))));
}

/// A request that is large by itself: its attempt leaves room for the next one, which can be as large and more.
#[tokio::test]
async fn an_attempt_makes_no_later_request_too_large() {
    let liar = Liar::start(&json!({}));
    let upstream = Upstream::start();
    let page = of_length(5_000);
    let referer = format!("{APP}{}", of_length(5_001));
    let smallest = "[limits]\nrequest_header_size = \"8KiB\"\n";
    for (limits, fields) in [("", &[("referer", referer.as_str())][..]), (smallest, &[])] {
        let gateway = gateway(&upstream, &format!("{}{limits}", everything(&liar.issuer, ""))).await;
        let page_load = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        let fields = [&page_load, fields].concat();
        let mut alice = Visitor::of(&gateway);
        let begun = alice.send(Method::GET, &format!("{APP}{page}"), &fields, "").await;
        assert_eq!(begun.status, 302, "{begun:?}");
        // Another tab, while the user is at the provider. The application has a cookie of its own meanwhile.
        alice.set("of_the_application", &"x".repeat(if limits.is_empty() { 2_000 } else { 500 }));
        assert_eq!(alice.send(Method::GET, &format!("{APP}{page}"), &fields, "").await.status, 302, "{limits}");
        let out = begun.header("location").expect("a redirect").to_owned();
        let back = alice.load(&liar.agree(&out)).await;
        assert_eq!((back.status.as_u16(), back.header("location")), (303, Some("https://app.example/orders")));
    }
}

#[tokio::test]
async fn a_user_comes_back_to_a_form_that_the_route_allows() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let route = "[[route]]\npath = \"/files/\"\nsign_in = \"main\"\n\
                 paths = [\"encoded_slash\", \"semicolon\", \"double_slash\"]\n";
    let gateway = gateway(&upstream, &format!("{}{route}", everything(&liar.issuer, ""))).await;
    for target in [
        "/files/group%2Fname?a=b",
        "/files/a;jsessionid=1/b",
        "/files//bucket//key",
        "/files/x?path=C:\\temp",
        "/orders?q=a\\b&x=//y",
    ] {
        // By the page itself, and by a link.
        let link = format!("/oauth2/sign_in/main?return={}", encoded(target));
        for url in [target, &link] {
            let mut alice = Visitor::of(&gateway);
            let out = alice.navigate_until(&format!("{APP}{url}"), &liar.issuer).await;
            let back = came_back(&liar, &out, &mut alice).await;
            assert_eq!(back, Some(format!("{APP}{target}")), "{url}");
        }
        let mut alice = Visitor::of(&gateway);
        assert_eq!(liar.sign_in(&mut alice, |back| back).await.status, 303);
        assert_eq!(alice.load(&format!("{APP}{target}")).await.status, 200, "{target}");
    }
    for target in ["/files/../x", "/files/%2e%2e/x", "/orders/a%2Fb", "//files/x", "/files/a%5Cb", "/%6fauth2/sign_out"]
    {
        let mut alice = Visitor::of(&gateway);
        let link = format!("{APP}/oauth2/sign_in/main?return={}", encoded(target));
        let out = alice.navigate_until(&link, &liar.issuer).await;
        assert_eq!(came_back(&liar, &out, &mut alice).await.as_deref(), Some("https://app.example/"), "{target}");
    }
}

#[tokio::test]
async fn a_sign_in_that_failed_does_not_lose_the_page() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
    liar.tell(raw("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"));
    let mut alice = Visitor::of(&gateway);
    let out = alice.navigate_until(&format!("{APP}/orders/7?a=%22x"), &liar.issuer).await;
    let page = alice.load(&liar.agree(&out)).await;
    assert_eq!(page.status, 503);
    let text = page.text();
    let link = text.split("href=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link").to_owned();
    assert_eq!(link, "/oauth2/sign_in/main?return=%2Forders%2F7%3Fa%3D%2522x", "{text}");
    liar.tell(Lies::default());
    let out = alice.navigate_until(&format!("{APP}{link}"), &liar.issuer).await;
    let back = came_back(&liar, &out, &mut alice).await;
    assert_eq!(back.as_deref(), Some("https://app.example/orders/7?a=%22x"));
}
