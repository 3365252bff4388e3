//! A second provider of others, Debian's `glewlwyd`.

use http::Method;
use serde_json::json;

use super::{APP, CALLBACK, CLIENT, SIGNED_OUT, everything, gateway};
use crate::support::glewlwyd::{Glewlwyd, Registration, USER};
use crate::support::visitor::{Visitor, parameter};
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream};

/// Its logout tokens are of an earlier draft: without `exp`, and of the type `JWT`.
const KEYS: &str =
    "algorithms = [\"ES256\"]\nclient_auth = \"client_secret_post\"\nlogout_typ = \"lax\"\nclaims = [\"email\"]";

async fn start() -> (Glewlwyd, Upstream, Gateway) {
    let (provider, upstream) = (Glewlwyd::start().await, Upstream::start());
    let identity = "[[identity.claim]]\npointer = \"/email\"\nheader = \"X-Auth-Email\"\n";
    let gateway = gateway(&upstream, &format!("{}{identity}", everything(&provider.issuer, KEYS))).await;
    let backchannel = format!("http://{}/oauth2/backchannel_logout/main", gateway.address());
    let registration = Registration {
        client_id: CLIENT,
        secret: super::SECRET,
        redirect_uri: CALLBACK,
        signed_out: SIGNED_OUT,
        backchannel: &backchannel,
    };
    provider.register(&registration).await;
    (provider, upstream, gateway)
}

/// The page of the provider is a program for browsers. This does what that does.
async fn sign_in(provider: &Glewlwyd, alice: &mut Visitor) {
    let page = alice.navigate_until(&format!("{APP}/orders"), &provider.login_page()).await;
    let back = parameter(&page, "callback_url").expect("where the page goes on");
    let json = [("content-type", "application/json")];
    for (method, path, body) in [
        (Method::POST, "/api/auth/", json!({ "username": USER.0, "password": USER.1 })),
        (Method::PUT, "/api/auth/grant/gateway", json!({ "scope": "openid" })),
    ] {
        let response = alice.send(method, &format!("{}{path}", provider.url), &json, &body.to_string()).await;
        assert_eq!(response.status, 200, "{path}: {response:?}");
    }
    let page = alice.navigate(&format!("{back}&g_continue")).await;
    assert_eq!(page.status, 200, "{:#?} {page:?}", alice.way);
}

#[tokio::test]
async fn a_user_signs_in_and_out_at_a_second_provider() {
    let (provider, upstream, gateway) = start().await;
    let mut alice = Visitor::of(&gateway);
    sign_in(&provider, &mut alice).await;
    let seen = upstream.only_request();
    assert_eq!((seen.target(), seen.header("x-auth-email")), ("/orders".to_owned(), Some("alice@ours.example")));
    let subject = seen.header("x-auth-subject").expect("a subject");
    assert!(subject.starts_with("main|") && subject.len() > 20, "{subject}");
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);

    let ended = alice.submit(&format!("{APP}/oauth2/sign_out"), "").await;
    let location = ended.header("location").expect("a redirect").to_owned();
    let page = alice.load(&location).await;
    let page = page.header("location").expect("the page of the provider").to_owned();
    assert!(page.starts_with(&provider.login_page()), "{page}");
    assert_eq!(parameter(&page, "callback_url").as_deref(), Some(SIGNED_OUT));
    assert_eq!(alice.session(), None);
}

#[tokio::test]
async fn a_session_that_ends_at_a_second_provider_ends_here() {
    let (provider, _upstream, gateway) = start().await;
    let mut alice = Visitor::of(&gateway);
    sign_in(&provider, &mut alice).await;
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    let session = alice.cookie(&provider.url, "OIDC_SESSION").expect("a session at the provider").to_owned();
    // As the page of the sign-out there does. Another thread there tells the gateway.
    let path = format!("{}/api/oidc/session/{session}", provider.url);
    let mut browser = alice.clone();
    assert_eq!(browser.send(Method::DELETE, &path, &[], "").await.status, 200);
    eventually_ok("the session ends here", async || match alice.fetch(&format!("{APP}/")).await.status.as_u16() {
        401 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
}
