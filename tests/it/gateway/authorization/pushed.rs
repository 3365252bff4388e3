//! Pushed authorization requests (RFC 9126).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::{CALLBACK, CHALLENGE, Front, MCP, OAUTH, Page, authorize, fetched};
use crate::gateway::oauth::post;
use crate::support::TestResponse;
use crate::support::visitor::{APP, parameter};

/// Pushes a good request of the client `spa`, with these parameters changed. An empty value takes one away.
async fn push(front: &Front, changed: &[(&str, &str)]) -> TestResponse {
    let mut form = BTreeMap::from([
        ("response_type", "code"),
        ("client_id", "spa"),
        ("redirect_uri", CALLBACK),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("state", "of-the-client"),
    ]);
    form.extend(changed.iter().copied());
    let form: Vec<_> = form.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    post(front.gateway.client().host("app.example"), "/oauth/par", &form).await
}

async fn request_uri(front: &Front) -> String {
    let response = push(front, &[]).await;
    assert_eq!(response.status, 201, "{}", response.text());
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let answer = response.json();
    assert_eq!(answer["expires_in"], 90);
    answer["request_uri"].as_str().expect("a URI").to_owned()
}

fn with(request_uri: &str, client_id: &str) -> String {
    format!("{APP}/oauth/authorize?client_id={client_id}&request_uri={request_uri}")
}

#[tokio::test]
async fn a_pushed_request_is_granted() {
    let mut front = Front::start().await;
    let uri = request_uri(&front).await;
    // No other parameter counts.
    let page = front.consent_page(&format!("{}&state=forged&scope=notes%3Awrite", with(&uri, "spa"))).await;
    let answer = front.decide(&page, "allow").await;
    assert_eq!(parameter(&answer, "state").as_deref(), Some("of-the-client"));
    let code = parameter(&answer, "code").expect("a code");
    assert_eq!(front.redeem(&code, &[]).await.status, 200);
}

#[tokio::test]
async fn the_provider_gets_the_hints_of_a_pushed_request_and_none_of_the_browser() {
    let mut front = Front::start().await;
    let response = push(&front, &[("login_hint", "alice"), ("ui_locales", "de")]).await;
    let uri = response.json()["request_uri"].as_str().expect("a URI").to_owned();
    let forged = format!("{}&login_hint=mallory", with(&uri, "spa"));
    let out = front.alice.navigate_until(&forged, &front.liar.issuer).await;
    assert_eq!(parameter(&out, "login_hint").as_deref(), Some("alice"));
    assert_eq!(parameter(&out, "ui_locales").as_deref(), Some("de"));
}

/// A program may load it before the browser does, and a user may reload it. One session comes of it.
#[tokio::test]
async fn a_pushed_request_is_loaded_often_and_becomes_one_session() {
    let mut front = Front::start().await;
    let uri = request_uri(&front).await;
    assert_eq!(fetched(&front, &with(&uri, "spa")).await.status, 303);
    let first = front.code(&with(&uri, "spa")).await;
    let page = Page::of(&front.alice.navigate(&with(&uri, "spa")).await);
    let answer = front.decide(&page, "allow").await;
    let second = parameter(&answer, "code").expect("a code");
    assert_eq!(front.redeem(&second, &[]).await.status, 200);
    assert_eq!(front.redeem(&first, &[]).await.json()["error"], "invalid_grant");
}

/// Hostile cases 14 and 15.
#[tokio::test]
async fn a_request_uri_is_good_for_its_client_and_its_time() {
    let front = Front::start().await;
    let uri = request_uri(&front).await;
    let (start, last) = uri.split_at(uri.len() - 1);
    let changed = format!("{start}{}", if last == "A" { "B" } else { "A" });
    for (uri, client) in [
        (&*uri, "cli"),
        (&changed, "spa"),
        ("https://evil.example/x", "spa"),
        ("urn:ietf:params:oauth:request_uri:x", "spa"),
        ("", "spa"),
    ] {
        let response = fetched(&front, &with(uri, client)).await;
        assert_eq!(response.status, 400, "{uri} {client}");
        assert_eq!(response.header("location"), None);
    }
    front.gateway.clock.advance(Duration::from_secs(91));
    assert_eq!(fetched(&front, &with(&uri, "spa")).await.status, 400, "older than 90 seconds");
}

#[tokio::test]
async fn a_client_learns_at_once_what_is_wrong_with_its_request() {
    let front = Front::start().await;
    let bound = "x".repeat(43);
    for (changed, status, error) in [
        (("redirect_uri", "https://evil.example/callback"), 400, "invalid_request"),
        (("client_id", "stranger"), 401, "invalid_client"),
        (("client_id", ""), 400, "invalid_request"),
        (("resource", "https://other.example/"), 400, "invalid_target"),
        (("code_challenge_method", "plain"), 400, "invalid_request"),
        (("response_type", "token"), 400, "unsupported_response_type"),
        (("request", "eyJ"), 400, "request_not_supported"),
        (("request_uri", "urn:ietf:params:oauth:request_uri:x"), 400, "invalid_request"),
        (("client_secret", "secret"), 401, "invalid_client"),
        (("dpop_jkt", &*bound), 201, ""),
        (("dpop_jkt", "short"), 400, "invalid_request"),
    ] {
        let response = push(&front, &[changed]).await;
        assert_eq!(response.status, status, "{changed:?}: {}", response.text());
        if !error.is_empty() {
            assert_eq!(response.json()["error"], error, "{changed:?}");
        }
    }
}

#[tokio::test]
async fn requests_must_be_pushed_where_the_operator_says_so() {
    let all = OAUTH.replacen("sign_in = \"main\"", "sign_in = \"main\"\nrequire_par = true", 1);
    let one = OAUTH.replacen("consent = \"never\"", "consent = \"never\"\nrequire_par = true", 1);
    for (oauth, client, is_required) in [(&all, "spa", true), (&one, "trusted", true), (&one, "spa", false)] {
        let front = Front::with(oauth).await;
        let response = fetched(&front, &authorize(&[("client_id", client)])).await;
        let location = response.header("location").expect("a redirect");
        assert_eq!(parameter(location, "error").as_deref() == Some("invalid_request"), is_required, "{location}");
        let pushed = push(&front, &[("client_id", client)]).await;
        assert_eq!(pushed.status, 201, "{}", pushed.text());
        let metadata = fetched(&front, &format!("{APP}/.well-known/oauth-authorization-server")).await.json();
        let endpoint = json!(format!("{APP}/oauth/par"));
        assert_eq!(metadata["pushed_authorization_request_endpoint"], endpoint);
        assert_eq!(metadata["require_pushed_authorization_requests"], json!(oauth == &all));
    }
}

/// Each resource is a parameter of its own (RFC 8707 section 2).
#[tokio::test]
async fn a_client_redeems_a_code_for_several_resources() {
    let mut front = Front::start().await;
    let url = format!("{}&resource={MCP}&resource={}", authorize(&[]), super::NOTES);
    let code = front.code(&url).await;
    let form = format!(
        "grant_type=authorization_code&client_id=spa&code={code}&code_verifier={}&resource={MCP}&resource={}",
        super::VERIFIER,
        super::NOTES
    );
    let client = front.gateway.client().host("app.example");
    let client = client.header("content-type", "application/x-www-form-urlencoded");
    let response = client.send(http::Method::POST, "/oauth/token", form.into()).await;
    assert_eq!(response.status, 200, "{}", response.text());
    let claims = crate::support::tokens::claims_of(response.json()["access_token"].as_str().expect("a token"));
    assert_eq!(claims["aud"], json!([MCP, super::NOTES]));
}
