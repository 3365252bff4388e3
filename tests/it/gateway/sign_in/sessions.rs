//! The cookie of a login: look-alikes, other sites, its end.

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::liar::Liar;
use super::{APP, everything, gateway};
use crate::support::tokens::with_another_character;
use crate::support::visitor::Visitor;
use crate::support::{Gateway, Upstream};

async fn signed_in() -> (Liar, Upstream, Gateway, Visitor) {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
    let mut alice = Visitor::of(&gateway);
    assert_eq!(liar.sign_in(&mut alice, |back| back).await.status, 303);
    (liar, upstream, gateway, alice)
}

/// RFC 9110 section 9.3.2. The steps of a sign-in have no HEAD: a program that looks at links must not use a code up.
#[tokio::test]
async fn the_pages_of_the_gateway_have_head() {
    let (_liar, _upstream, gateway, alice) = signed_in().await;
    let cookie = format!("__Host-bearward={}", alice.session().expect("a session"));
    let client = || gateway.client().host("app.example").header("cookie", &cookie);
    for path in ["/oauth2/sign_out", "/oauth2/signed_out"] {
        let got = client().get(path).await;
        let head = client().send(Method::HEAD, path, "".into()).await;
        assert_eq!((got.status.as_u16(), head.status.as_u16(), head.text()), (200, 200, String::new()), "{path}");
        assert_eq!(head.header("content-type"), got.header("content-type"), "{path}");
    }
    for path in ["/oauth2/sign_in/main", "/oauth2/callback/main"] {
        let head = client().send(Method::HEAD, path, "".into()).await;
        assert_eq!((head.status.as_u16(), head.header("allow")), (405, Some("GET")), "{path}");
    }
    assert_eq!(client().get("/").await.status, 200, "the session goes on");
}

#[tokio::test]
async fn only_the_handle_itself_opens_a_login() {
    let (_liar, upstream, gateway, alice) = signed_in().await;
    let handle = alice.session().expect("a session").to_owned();
    let changed = with_another_character(&handle, handle.len() - 1);
    for cookies in [
        format!("__Host-bearward={changed}"),
        format!("__host-bearward={handle}"),
        format!("bearward={handle}"),
        format!("__Host-bearward2={handle}"),
        format!("\"__Host-bearward\"={handle}"),
        format!("__Host%2Dbearward={handle}"),
        "__Host-bearward=".to_owned(),
        "__Host-bearward=x".to_owned(),
    ] {
        let client = gateway.client().host("app.example").header("cookie", &cookies);
        assert_eq!(client.get("/").await.status, 401, "{cookies}");
    }
    let client = || gateway.client().host("app.example");
    // A sister domain may have set one in an older browser.
    let good = client().header("cookie", &format!("__Host-bearward=x; a=1; __Host-bearward={handle}")).get("/").await;
    assert_eq!(good.status, 200);
    assert_eq!(upstream.only_request().header("cookie"), Some("a=1"));
    let garbage = "x".repeat(9_000);
    let good =
        client().header("cookie", &format!("__Host-bearward={garbage}; __Host-bearward={handle}")).get("/").await;
    assert_eq!(good.status, 200, "one that is larger than a token");
    // Elsewhere it is no token.
    client().bearer(&handle).get("/").await.assert_rejected(401, "invalid_token");
    let two = client().header("cookie", &format!("__Host-bearward={handle}")).bearer("x").get("/").await;
    two.assert_rejected(400, "invalid_request");
}

#[tokio::test]
async fn another_site_changes_nothing_with_the_cookie() {
    let (_liar, upstream, _gateway, mut alice) = signed_in().await;
    for (method, path) in [(Method::POST, "/orders"), (Method::DELETE, "/orders/1"), (Method::POST, "/oauth2/sign_out")]
    {
        for fields in [&[("origin", "https://evil.example")][..], &[], &[("origin", "null")]] {
            let rejected = alice.send(method.clone(), &format!("{APP}{path}"), fields, "").await;
            rejected.assert_rejected(403, "forbidden");
        }
    }
    assert_eq!(upstream.seen().len(), 0);
    let good = alice.send(Method::POST, &format!("{APP}/orders"), &[("origin", APP)], "").await;
    assert_eq!(good.status, 200);
}

#[tokio::test]
async fn a_new_login_ends_the_one_before() {
    let (liar, _upstream, _gateway, mut alice) = signed_in().await;
    let first = alice.session().expect("a session").to_owned();
    let out = alice.navigate_until(&format!("{APP}/oauth2/sign_in/main"), &liar.issuer).await;
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200, "the start alone ends nothing");
    assert_eq!(alice.load(&liar.agree(&out)).await.status, 303);
    let second = alice.session().expect("a session").to_owned();
    assert_ne!(first, second);
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    alice.set("__Host-bearward", &first);
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
}

/// The browser may have a session of another user at the provider, for example of the attacker.
#[tokio::test]
async fn a_link_of_another_site_replaces_no_session() {
    let (liar, _upstream, gateway, mut alice) = signed_in().await;
    let link = format!("{APP}/oauth2/sign_in/main?return=%2Forders");
    let site =
        |site: &'static str| [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"), ("sec-fetch-site", site)];
    for foreign in ["cross-site", "same-site"] {
        let page = alice.send(Method::GET, &link, &site(foreign), "").await;
        assert_eq!(
            (page.status.as_u16(), page.header("location")),
            (303, Some("https://app.example/orders")),
            "{foreign}"
        );
        assert!(alice.attempts().is_empty() && page.header("set-cookie").is_none(), "{foreign}");
    }
    // The user can sign in anew, and one without a session can follow the link.
    let mut bob = Visitor::of(&gateway);
    let begun = [
        alice.send(Method::GET, &link, &site("same-origin"), "").await,
        alice.send(Method::GET, &link, &site("none"), "").await,
        bob.send(Method::GET, &link, &site("cross-site"), "").await,
    ];
    for page in begun {
        let location = page.header("location").unwrap_or_default();
        assert!(page.status == 302 && location.starts_with(&liar.issuer), "{page:?}");
    }
}

#[tokio::test]
async fn an_operator_ends_a_login() {
    let (liar, _upstream, gateway, mut alice) = signed_in().await;
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    let id = alice.session().and_then(|handle| handle.split('_').nth(1)).expect("an id").to_owned();
    let revoked = gateway.admin_client().delete(&format!("/admin/v1/tokens/{id}")).await;
    assert!(revoked.status.is_success(), "{revoked:?}");
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    // The browser signs in again.
    alice.navigate_until(&format!("{APP}/"), &liar.issuer).await;
}

#[tokio::test]
async fn a_login_survives_a_restart_and_ends_with_its_time() {
    let (_liar, _upstream, gateway, mut alice) = signed_in().await;
    let gateway = gateway.restart_with(|text| text);
    alice.move_to(&gateway);
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    // Each use lets it live for the idle time more.
    for _ in 0..3 {
        gateway.advance(Duration::from_hours(6 * 24));
        assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    }
    gateway.advance(Duration::from_hours(8 * 24));
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
}

/// Requests move only the idle end. The browser removes the cookie when the session cannot live any longer.
#[tokio::test]
async fn the_cookie_ends_with_the_absolute_lifetime() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let an_hour = "[sign_in]\nabsolute_lifetime = \"1h\"\nidle_lifetime = \"30m\"\n";
    let gateway = gateway(&upstream, &everything(&liar.issuer, "").replace("[sign_in]\n", an_hour)).await;
    let mut alice = Visitor::of(&gateway);
    let back = liar.sign_in(&mut alice, |back| back).await;
    let fields = back.headers.get_all("set-cookie").iter().map(|field| field.to_str().expect("text"));
    let cookie: Vec<_> = fields.filter(|field| field.starts_with("__Host-bearward=")).collect();
    let attributes = cookie.first().and_then(|field| field.split_once("; ")).map(|(_, attributes)| attributes);
    assert_eq!(attributes, Some("Max-Age=3600; Path=/; Secure; HttpOnly; SameSite=Lax"), "{cookie:?}");
    for minutes in [19, 38, 57] {
        gateway.advance(Duration::from_mins(19));
        let response = alice.fetch(&format!("{APP}/")).await;
        assert_eq!(response.status, 200, "after {minutes} minutes: {response:?}");
    }
    gateway.advance(Duration::from_mins(4));
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
}
