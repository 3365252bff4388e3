//! From the first request of a client to its tokens.

use bearward::protocols::http::parameters;
use serde_json::json;

use super::{CALLBACK, Front, MCP, NOTES, OAUTH, Page, authorize, fetched};
use crate::gateway::oauth::post;
use crate::gateway::sign_in::liar::Lies;
use crate::support::tokens::claims_of;
use crate::support::visitor::{APP, Visitor, parameter};

#[tokio::test]
async fn a_client_gets_tokens_for_a_user_who_signs_in_and_agrees() {
    let mut front = Front::start().await;
    let page = front.consent_page(&authorize(&[])).await;
    for shown in ["spa", "client.example", MCP, "alice@ours.example", "Allow", "Do not allow"] {
        assert!(page.html.contains(shown), "{shown} in {}", page.html);
    }
    let answer = front.decide(&page, "allow").await;
    assert!(answer.starts_with(&format!("{CALLBACK}?code=bwc1_")), "{answer}");
    assert_eq!(parameter(&answer, "state").as_deref(), Some("of the client"));
    assert_eq!(parameter(&answer, "iss").as_deref(), Some(APP), "RFC 9207");
    let code = parameter(&answer, "code").expect("a code");
    let response = front.redeem(&code, &[]).await;
    assert_eq!(response.status, 200, "{}", response.text());
    let tokens = response.json();
    assert_eq!(tokens["token_type"], "Bearer");
    let claims = claims_of(tokens["access_token"].as_str().expect("a token"));
    assert_eq!(claims["aud"], MCP);
    assert_eq!(claims["client_id"], "spa");
    assert_eq!(claims["sub"], "main|alice");
    assert_eq!(claims["email"], "alice@ours.example");
    for (path, status) in [("/mcp", 200), ("/notes", 401), ("/orders", 401)] {
        assert_eq!(front.status(path, &tokens["access_token"]).await, status, "{path}");
    }
    let form = [
        ("grant_type", "refresh_token"),
        ("refresh_token", tokens["refresh_token"].as_str().expect("a token")),
        ("client_id", "spa"),
    ];
    let refreshed = post(front.gateway.client().host("app.example"), "/oauth/token", &form).await;
    assert_eq!(refreshed.status, 200, "{}", refreshed.text());
}

#[tokio::test]
async fn a_session_of_the_browser_is_used_and_the_user_is_asked_anyway() {
    let mut front = Front::start().await;
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    let response = front.alice.navigate(&authorize(&[])).await;
    let page = Page::of(&response);
    assert!(!front.alice.way.iter().any(|url| url.starts_with(&front.liar.issuer)), "{:?}", front.alice.way);
    let answer = front.decide(&page, "allow").await;
    assert_eq!(front.redeem(&parameter(&answer, "code").expect("a code"), &[]).await.status, 200);
}

/// A backend that asks for a fresh sign-in is not told that of the code.
#[tokio::test]
async fn a_token_tells_when_the_user_has_signed_in() {
    let mut front = Front::start().await;
    let signed_in = front.gateway.now_secs();
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    front.gateway.clock.advance(std::time::Duration::from_mins(5));
    let page = Page::of(&front.alice.navigate(&authorize(&[])).await);
    let answer = front.decide(&page, "allow").await;
    let tokens = front.redeem(&parameter(&answer, "code").expect("a code"), &[]).await.json();
    let claims = claims_of(tokens["access_token"].as_str().expect("a token"));
    assert_eq!(claims["auth_time"], signed_in, "{claims}");
    assert_eq!(claims["auth_time_ms"], (signed_in + 300) * 1_000, "watermarks are compared with it");
}

#[tokio::test]
async fn a_new_sign_in_is_made_where_the_client_wants_one() {
    let mut front = Front::start().await;
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    front.gateway.clock.advance(std::time::Duration::from_secs(60));
    for (changed, needs_sign_in) in
        [(("prompt", "login"), true), (("max_age", "30"), true), (("max_age", "3600"), false)]
    {
        let (name, value) = changed;
        let response = front.alice.load(&authorize(&[changed])).await;
        let consent = response.header("location").expect("the consent page").to_owned();
        let next = front.alice.load(&consent).await;
        assert_eq!(next.status == 302, needs_sign_in, "{changed:?}");
        // Otherwise the provider would sign the user in without a question.
        let told = next.header("location").and_then(|out| parameter(out, name));
        assert_eq!(told.as_deref(), needs_sign_in.then_some(value), "{changed:?}");
    }
    // Not the fourth sign-in within a minute. The new session is new enough.
    front.gateway.clock.advance(std::time::Duration::from_secs(61));
    // With max_age, a provider must say when the user has authenticated (Core section 2).
    let now = front.gateway.now_secs();
    front.liar.tell(Lies { claims: [("auth_time", json!(now))].into(), ..Lies::default() });
    let page = front.consent_page(&authorize(&[("max_age", "0")])).await;
    front.decide(&page, "allow").await;
}

/// OpenID Connect Core section 3.1.2.1: the provider may use them.
#[tokio::test]
async fn hints_of_the_client_reach_the_provider_and_nothing_else_does() {
    let mut front = Front::start().await;
    let hints = [("login_hint", "alice@ours.example"), ("ui_locales", "de en")];
    let asked = authorize(&[&hints[..], &[("acr_values", "high"), ("nonce", "n"), ("id_token_hint", "x")]].concat());
    let out = front.alice.navigate_until(&asked, &front.liar.issuer).await;
    for (name, value) in hints {
        assert_eq!(parameter(&out, name).as_deref(), Some(value), "{out}");
    }
    assert!(parameter(&out, "acr_values").is_none() && parameter(&out, "id_token_hint").is_none(), "{out}");
    assert_ne!(parameter(&out, "nonce").as_deref(), Some("n"), "{out}");
    let long = authorize(&[("login_hint", &*"a".repeat(129))]);
    let out = Visitor::of(&front.gateway).navigate_until(&long, &front.liar.issuer).await;
    assert_eq!(parameter(&out, "login_hint"), None, "{out}");
}

#[tokio::test]
async fn the_operator_decides_before_the_client_what_the_provider_gets() {
    let set = "authorization_parameters = [\"login_hint=ours.example\", \"prompt=consent\"]\n";
    let mut front = Front::with(&format!("{set}{OAUTH}")).await;
    let asked = authorize(&[("login_hint", "mallory"), ("prompt", "login"), ("ui_locales", "de")]);
    let out = front.alice.navigate_until(&asked, &front.liar.issuer).await;
    let sent = parameters::read(out.split_once('?').expect("a query").1).expect("no parameter is repeated");
    assert_eq!((&*sent["login_hint"], &*sent["ui_locales"]), ("ours.example", "de"), "{out}");
}

/// OpenID Connect Core section 3.1.2.6; hostile case 21.
#[tokio::test]
async fn a_client_can_ask_without_the_user() {
    let mut front = Front::start().await;
    let silent = authorize(&[("prompt", "none")]);
    let error = |url: &str| parameter(url, "error");
    let answer = front.alice.navigate_until(&silent, CALLBACK).await;
    assert_eq!(error(&answer).as_deref(), Some("login_required"));
    assert_eq!(front.liar.sign_in(&mut front.alice, |back| back).await.status, 303);
    let answer = front.alice.navigate_until(&silent, CALLBACK).await;
    assert_eq!(error(&answer).as_deref(), Some("consent_required"));
    let trusted = authorize(&[("prompt", "none"), ("client_id", "trusted")]);
    let answer = front.alice.navigate_until(&trusted, CALLBACK).await;
    assert_eq!(error(&answer), None);
    let code = parameter(&answer, "code").expect("a code");
    assert_eq!(front.redeem(&code, &[("client_id", "trusted")]).await.status, 200);
}

#[tokio::test]
async fn a_client_never_gets_a_scope_that_its_user_does_not_have() {
    let mut front = Front::start().await;
    let url = authorize(&[("resource", NOTES), ("scope", "notes:read notes:write")]);
    let page = front.consent_page(&url).await;
    assert!(page.html.contains("Read your notes") && !page.html.contains("Change your notes"), "{}", page.html);
    let answer = front.decide(&page, "allow").await;
    let tokens = front.redeem(&parameter(&answer, "code").expect("a code"), &[]).await.json();
    assert_eq!(tokens["scope"], "notes:read");
    assert_eq!(front.status("/notes", &tokens["access_token"]).await, 200);
    // With the claim that the rule asks for.
    front.liar.tell(Lies { claims: [("groups", json!(["staff"]))].into(), ..Lies::default() });
    front.alice = Visitor::of(&front.gateway);
    let code = front.code(&url).await;
    assert_eq!(front.redeem(&code, &[]).await.json()["scope"], "notes:read notes:write");
}

/// RFC 8252 section 7.3.
#[tokio::test]
async fn a_program_of_the_device_gets_its_code_at_any_port() {
    let mut front = Front::start().await;
    let callback = "http://127.0.0.1:7777/callback";
    let request = [("client_id", "cli"), ("redirect_uri", callback), ("resource", NOTES)];
    let page = front.consent_page(&authorize(&request)).await;
    assert!(page.html.contains("a program on this device"), "{}", page.html);
    let answer = front.decide(&page, "allow").await;
    assert!(answer.starts_with(&format!("{callback}?")), "{answer}");
    let code = parameter(&answer, "code").expect("a code");
    let tokens = front.redeem(&code, &[("client_id", "cli"), ("redirect_uri", callback)]).await;
    assert_eq!(tokens.json()["scope"], "notes:read");
}

#[tokio::test]
async fn the_metadata_name_what_there_is() {
    let front = Front::start().await;
    let metadata = fetched(&front, &format!("{APP}/.well-known/oauth-authorization-server")).await.json();
    for (name, expected) in [
        ("issuer", json!(APP)),
        ("authorization_endpoint", json!(format!("{APP}/oauth/authorize"))),
        ("token_endpoint", json!(format!("{APP}/oauth/token"))),
        ("revocation_endpoint", json!(format!("{APP}/oauth/revoke"))),
        ("response_types_supported", json!(["code"])),
        ("response_modes_supported", json!(["query"])),
        ("code_challenge_methods_supported", json!(["S256"])),
        ("authorization_response_iss_parameter_supported", json!(true)),
        ("grant_types_supported", json!(["authorization_code", "refresh_token"])),
        ("token_endpoint_auth_methods_supported", json!(["none"])),
        ("scopes_supported", json!(["notes:read", "notes:write"])),
        ("registration_endpoint", json!(null)),
    ] {
        assert_eq!(metadata[name], expected, "{name}");
    }
}

#[tokio::test]
async fn the_front_is_off_by_default() {
    let off =
        OAUTH.replace("sign_in = \"main\"\n[[oauth.scope]]", "token_endpoint = \"/oauth/token\"\n[[oauth.scope]]");
    let off = off.split("[[oauth.client]]").next().expect("text").to_owned()
        + "[[route]]\npath = \"/orders\"\nsign_in = \"main\"\n[sign_in]\nexternal_urls = [\"https://app.example\"]\n";
    let front = Front::with(&off).await;
    for path in ["/oauth/authorize", "/oauth/consent", "/oauth/register"] {
        assert_eq!(fetched(&front, &format!("{APP}{path}")).await.status, 404, "{path}");
    }
    let metadata = fetched(&front, &format!("{APP}/.well-known/oauth-authorization-server")).await.json();
    assert_eq!(metadata["authorization_endpoint"], json!(null));
}

/// One provider and one resource.
#[tokio::test]
async fn fifteen_lines_are_enough() {
    let mut front = Front::with(
        "[oauth]\nsign_in = \"main\"\nresource = \"https://app.example/mcp\"\nregistration = [\"https\"]\n",
    )
    .await;
    let body = json!({ "redirect_uris": [CALLBACK], "client_name": "Notes" });
    let registered = front.gateway.client().host("app.example").post("/oauth/register", &body).await;
    let id = registered.json()["client_id"].as_str().expect("an id").to_owned();
    let page = front.consent_page(&authorize(&[("client_id", &id)])).await;
    let answer = front.decide(&page, "allow").await;
    let code = parameter(&answer, "code").expect("a code");
    let tokens = front.redeem(&code, &[("client_id", &id)]).await.json();
    assert_eq!(front.status("/mcp", &tokens["access_token"]).await, 200);
    // The tokens of own logins do not change.
    let own = front.gateway.issue("bob", "").await;
    assert_eq!(claims_of(&own.access)["aud"], "https://api.example");
}
