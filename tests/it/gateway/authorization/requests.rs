//! What is wrong with a request, and who learns of it.

use super::{CALLBACK, CHALLENGE, Front, NOTES, authorize, fetched};
use crate::support::visitor::{APP, parameter};

/// OAuth 2.1 section 4.1.2.1: until the redirect URI is known to be that of the client, there is no redirect. Hostile
/// cases 1 to 8 and 14.
#[tokio::test]
async fn no_browser_is_sent_where_no_client_has_registered() {
    let front = Front::start().await;
    for changed in [
        [("client_id", "unknown")],
        [("client_id", "")],
        [("client_id", "bwd1_forged")],
        [("redirect_uri", "")],
        [("redirect_uri", "https://evil.example/callback")],
        [("redirect_uri", "https://client.example/callback/")],
        [("redirect_uri", "https://client.example/Callback")],
        [("redirect_uri", "https://client.example/callback?a=b")],
        [("redirect_uri", "https://client.example:8443/callback")],
        [("redirect_uri", "https://client.example@evil.example/callback")],
        [("redirect_uri", "javascript:alert(1)")],
        [("redirect_uri", "http://127.0.0.1/callback")],
        [("request_uri", "https://evil.example/request")],
        [("state", "with\u{7}control")],
    ] {
        let response = fetched(&front, &authorize(&changed)).await;
        assert_eq!(response.status, 400, "{changed:?}");
        assert_eq!(response.header("location"), None, "{changed:?}");
        assert_eq!(response.header("set-cookie"), None, "{changed:?}");
        assert!(response.header("content-type").is_some_and(|kind| kind.starts_with("text/html")), "{changed:?}");
    }
    for twice in ["client_id=spa", "redirect_uri=x", "state=a"] {
        let response = fetched(&front, &format!("{}&{twice}", authorize(&[]))).await;
        assert_eq!((response.status.as_u16(), response.header("location")), (400, None), "{twice}");
    }
    let long = authorize(&[("login_hint", &"a".repeat(8_100))]);
    assert!([400, 414].contains(&fetched(&front, &long).await.status.as_u16()));
}

/// RFC 9207 section 2: each answer names the issuer. Hostile cases 11 to 14, 18 and 89.
#[tokio::test]
async fn the_client_learns_what_is_wrong_with_its_request() {
    let front = Front::start().await;
    for (changed, error) in [
        (("response_type", "token"), "unsupported_response_type"),
        (("response_type", ""), "invalid_request"),
        (("response_mode", "fragment"), "invalid_request"),
        (("code_challenge", ""), "invalid_request"),
        (("code_challenge", &CHALLENGE[1..]), "invalid_request"),
        (("code_challenge_method", "plain"), "invalid_request"),
        (("code_challenge_method", ""), "invalid_request"),
        (("request", "eyJhbGciOiJub25lIn0.e30."), "request_not_supported"),
        (("resource", "https://evil.example/mcp"), "invalid_target"),
        (("scope", "unknown"), "invalid_scope"),
        (("prompt", "none login"), "invalid_request"),
        (("dpop_jkt", "short"), "invalid_request"),
    ] {
        let response = fetched(&front, &authorize(&[changed])).await;
        assert_eq!(response.status, 303, "{changed:?}");
        let location = response.header("location").expect("a redirect");
        assert!(location.starts_with(&format!("{CALLBACK}?")), "{changed:?} {location}");
        assert_eq!(parameter(location, "error").as_deref(), Some(error), "{changed:?}");
        assert_eq!(parameter(location, "state").as_deref(), Some("of the client"), "{changed:?}");
        assert_eq!(parameter(location, "iss").as_deref(), Some(APP), "{changed:?}");
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert_eq!(response.header("referrer-policy"), Some("no-referrer"));
    }
}

#[tokio::test]
async fn a_program_may_fetch_the_endpoint_before_the_browser() {
    let mut front = Front::start().await;
    let url = authorize(&[]);
    for _ in 0..3 {
        assert_eq!(fetched(&front, &url).await.status, 303);
    }
    let code = front.code(&url).await;
    assert_eq!(front.redeem(&code, &[]).await.status, 200);
}

#[tokio::test]
async fn a_request_can_be_a_form() {
    let mut front = Front::start().await;
    let url = authorize(&[("resource", NOTES)]);
    let (endpoint, query) = url.split_once('?').expect("a query");
    let response = front.alice.submit(endpoint, query).await;
    assert_eq!(response.status, 303);
    let consent = response.header("location").expect("the consent page").to_owned();
    let page = front.consent_page(&consent).await;
    assert!(page.html.contains(NOTES));
}

#[tokio::test]
async fn only_the_host_of_the_issuer_answers() {
    let front = Front::start().await;
    let path = authorize(&[]).replace(APP, "");
    let response = front.gateway.client().host("other.example").get(&path).await;
    assert_eq!((response.status.as_u16(), response.header("location")), (400, None));
}

#[tokio::test]
async fn the_endpoint_has_no_other_method() {
    let front = Front::start().await;
    let client = || front.gateway.client().host("app.example");
    for method in ["HEAD", "PUT", "DELETE"] {
        let method = http::Method::from_bytes(method.as_bytes()).expect("a method");
        for path in ["/oauth/authorize", "/oauth/consent"] {
            let response = client().send(method.clone(), path, "".into()).await;
            assert_eq!((response.status.as_u16(), response.header("allow")), (405, Some("GET, POST")), "{method}");
        }
    }
}
