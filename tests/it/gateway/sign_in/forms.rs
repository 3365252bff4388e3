//! Forms that a browser sends without a session.

use http::Method;
use serde_json::json;

use super::liar::Liar;
use super::{APP, everything, gateway};
use crate::support::visitor::Visitor;
use crate::support::{TestResponse, Upstream};

async fn submit(visitor: &mut Visitor, fields: &[(&str, &str)]) -> TestResponse {
    let form = [("origin", APP), ("content-type", "application/x-www-form-urlencoded")];
    // More than is read of a body that nothing wants.
    let body = format!("text={}", "x".repeat(100_000));
    visitor.send(Method::POST, &format!("{APP}/orders"), &[&form, fields].concat(), &body).await
}

/// A redirect would lose what the user has written, and a script's JSON is no page.
#[tokio::test]
async fn a_form_without_a_session_gets_a_page_and_no_redirect() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
    let navigate = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    for (referer, expected) in [
        ("https://app.example/orders/7?a=1&b=%22", "%2Forders%2F7%3Fa%3D1%26b%3D%2522"),
        ("https://app.example/", "%2F"),
        ("https://app.example", "%2F"),
        ("https://evil.example/x", "%2F"),
        ("https://app.example.evil.example/x", "%2F"),
        ("https://app.example//evil.example", "%2F"),
        ("https://app.example/\\evil.example", "%2F"),
        ("https://app.example/oauth2/sign_out", "%2F"),
    ] {
        let mut alice = Visitor::of(&gateway);
        let page = submit(&mut alice, &[&navigate[..], &[("referer", referer)]].concat()).await;
        assert_eq!(page.status, 401, "{page:?}");
        for (name, value) in [
            ("content-type", Some("text/html; charset=utf-8")),
            ("cache-control", Some("no-store")),
            ("www-authenticate", Some("Bearer realm=\"bearward\"")),
            ("location", None),
        ] {
            assert_eq!(page.header(name), value, "{name}");
        }
        let link = format!("href=\"/oauth2/sign_in/main?return={expected}\"");
        assert!(page.text().contains(&link) && alice.names().is_empty(), "{referer}: {page:?}");
    }
    // The user signs in, and is back at the form.
    let mut alice = Visitor::of(&gateway);
    let link = format!("{APP}/oauth2/sign_in/main?return=%2Forders%2F7%3Fa%3D1");
    let back = liar.agree(&alice.navigate_until(&link, &liar.issuer).await);
    assert_eq!(alice.load(&back).await.header("location"), Some("https://app.example/orders/7?a=1"));
    assert_eq!(submit(&mut alice, &navigate).await.status, 200);
    assert_eq!(upstream.only_request().body.len(), 100_005, "each form is sent once, by the user");
    let line = gateway.log_line(|line| line["status"] == 401 && line["method"] == "POST").await;
    assert_eq!(line["reason"], "no_token");
}

/// The user would sign in, and then see a 405.
#[tokio::test]
async fn a_method_that_the_route_does_not_have_begins_no_sign_in() {
    let liar = Liar::start(&json!({}));
    let upstream = Upstream::start();
    let routes = "[[route]]\npath = \"/hook\"\nmethods = [\"POST\"]\nsign_in = \"main\"\n\
                  [[route]]\npath = \"/list\"\nmethods = [\"GET\"]\nsign_in = \"main\"\n";
    let gateway = gateway(&upstream, &format!("{}{routes}", everything(&liar.issuer, ""))).await;
    let form = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"), ("origin", APP)];
    let mut alice = Visitor::of(&gateway);
    for response in
        [alice.load(&format!("{APP}/hook")).await, alice.send(Method::POST, &format!("{APP}/list"), &form, "a=b").await]
    {
        response.assert_rejected(401, "unauthorized");
        assert_eq!((response.header("location"), response.json().get("login_url")), (None, None), "{response:?}");
        assert!(response.header("www-authenticate").is_some() && alice.names().is_empty(), "{response:?}");
    }
    // Other methods of the same routes do, and a user with a session learns which there are.
    assert_eq!(alice.load(&format!("{APP}/list")).await.status, 302);
    assert_eq!(liar.sign_in(&mut alice, |back| back).await.status, 303);
    let response = alice.load(&format!("{APP}/hook")).await;
    assert_eq!((response.status.as_u16(), response.header("allow")), (405, Some("POST")));
}

#[tokio::test]
async fn a_script_gets_json_for_its_post() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
    for fields in [
        &[("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")][..],
        &[("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")],
        &[("accept", "text/html"), ("x-requested-with", "XMLHttpRequest")],
        &[("accept", "application/json")],
        &[("accept", "text/html"), ("authorization", "Bearer x")],
    ] {
        let rejected = submit(&mut Visitor::of(&gateway), fields).await;
        assert_eq!(rejected.status, 401, "{fields:?}");
        assert_eq!(rejected.json()["login_url"], "https://app.example/oauth2/sign_in/main", "{fields:?}");
    }
}
