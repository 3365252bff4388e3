//! With a provider of others, npm's `oidc-provider`.

use serde_json::{Value, json};

use super::{APP, CALLBACK, CLIENT, SECRET, SIGNED_OUT, everything, gateway, provider};
use crate::gateway::streams::{Socket, assert_open, close_frame, open_with, revoked, within_a_second};
use crate::support::tokens::claims_of;
use crate::support::visitor::{Visitor, parameter};
use crate::support::wait::eventually_within;
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, OidcProvider, Upstream};

fn client() -> Value {
    json!({
        "client_id": CLIENT, "client_secret": SECRET, "redirect_uris": [CALLBACK],
        "post_logout_redirect_uris": [SIGNED_OUT],
        "grant_types": ["authorization_code", "refresh_token"], "scope": "openid profile email offline_access groups",
    })
}

pub(super) fn start(more: Value) -> OidcProvider {
    let mut settings = json!({
        "account": "alice",
        "accounts": {
            "alice": { "email": "alice@ours.example", "email_verified": true, "groups": ["staff"] },
            "bob": { "email": "bob@other.example", "email_verified": true },
        },
        "clients": [client()],
        "scopes": ["openid", "profile", "email", "offline_access", "groups"],
    });
    for (name, value) in more.as_object().expect("an object") {
        settings[name] = value.clone();
    }
    OidcProvider::start(&settings)
}

#[tokio::test]
async fn a_user_signs_in_and_comes_back_to_where_it_was() {
    let (provider, upstream) = (start(json!({})), Upstream::start());
    let identity = "[[identity.claim]]\npointer = \"/email\"\nheader = \"X-Auth-Email\"\n";
    let gateway = gateway(&upstream, &format!("{}{identity}", everything(&provider.issuer, ""))).await;
    let mut alice = Visitor::of(&gateway);
    let page = alice.navigate(&format!("{APP}/orders/7?a=1&b=%2F")).await;
    assert_eq!(page.status, 200, "{:#?} {page:?}", alice.way);
    let seen = upstream.only_request();
    assert_eq!(seen.target(), "/orders/7?a=1&b=%2F");
    assert_eq!(seen.header("x-auth-subject"), Some("main|alice"));
    assert_eq!(seen.header("x-auth-email"), Some("alice@ours.example"));
    assert_eq!((seen.header("cookie"), seen.header("authorization")), (None, None));
    // What went to the provider.
    let started = alice.way.iter().find(|url| url.starts_with(&provider.issuer)).expect("a redirect to the provider");
    for (name, expected) in [
        ("response_type", "code"),
        ("client_id", CLIENT),
        ("redirect_uri", CALLBACK),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(parameter(started, name).as_deref(), Some(expected));
    }
    // What is left in the browser.
    assert_eq!(alice.names(), ["__Host-bearward", "__Host-bw-starts"]);
    assert_eq!(alice.fetch(&format!("{APP}/again")).await.status, 200);
    assert_eq!(provider.log("token").await.len(), 1);
}

#[tokio::test]
async fn a_fetch_without_a_login_gets_401() {
    let (provider, upstream) = (start(json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&provider.issuer, "")).await;
    let mut alice = Visitor::of(&gateway);
    let rejected = alice.fetch(&format!("{APP}/api")).await;
    rejected.assert_rejected(401, "unauthorized");
    assert_eq!(rejected.json()["login_url"], "https://app.example/oauth2/sign_in/main");
    assert!(alice.names().is_empty() && rejected.header("location").is_none());
    // The page follows the link.
    let page =
        alice.navigate(&format!("{}?return=/orders%3Fa", rejected.json()["login_url"].as_str().expect("a URL"))).await;
    assert_eq!((page.status.as_u16(), upstream.only_request().target()), (200, "/orders?a".to_owned()));
    assert_eq!(alice.fetch(&format!("{APP}/api")).await.status, 200);
}

#[tokio::test]
async fn a_user_signs_out_here_and_at_the_provider() {
    let scopes =
        "scopes = [\"openid\", \"email\", \"offline_access\"]\nauthorization_parameters = [\"prompt=consent\"]";
    let (provider, upstream) = (start(json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&provider.issuer, scopes)).await;
    let mut alice = Visitor::of(&gateway);
    assert_eq!(alice.navigate(&format!("{APP}/")).await.status, 200);
    let handle = alice.session().expect("a session").to_owned();
    let page = alice.load(&format!("{APP}/oauth2/sign_out")).await;
    assert!(page.status == 200 && page.text().contains("<button>"), "{page:?}");
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200, "the page alone changes nothing");
    let ended = alice.submit(&format!("{APP}/oauth2/sign_out"), "").await;
    assert_eq!(ended.status, 303);
    let location = ended.header("location").expect("a redirect").to_owned();
    assert!(location.starts_with(&provider.issuer), "{location}");
    assert_eq!(parameter(&location, "post_logout_redirect_uri").as_deref(), Some(SIGNED_OUT));
    assert_eq!(claims_of(&parameter(&location, "id_token_hint").expect("a hint"))["sub"], "alice");
    assert_eq!(alice.session(), None);
    alice.set("__Host-bearward", &handle);
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    eventually_within(TIMEOUT, "the refresh token is revoked", async || match provider.log("revocation").await.len() {
        0 => Err("no call".to_owned()),
        _ => Ok(()),
    })
    .await;
}

#[tokio::test]
async fn a_backend_gets_a_token_of_its_own() {
    let (provider_at, upstream) = (start(json!({})), Upstream::start());
    let route = "[[route]]\npath = \"/\"\nsign_in = \"main\"\ntoken = \"replace\"\n\
                 token_audience = [\"https://orders.internal\"]\n";
    let more = format!("{}[sign_in]\nexternal_urls = [\"{APP}\"]\n{route}", provider("main", &provider_at.issuer, ""));
    let gateway = gateway(&upstream, &more).await;
    let mut alice = Visitor::of(&gateway);
    assert_eq!(alice.navigate(&format!("{APP}/")).await.status, 200);
    let seen = upstream.only_request();
    let token = seen.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).expect("a token");
    let claims = claims_of(token);
    assert_eq!((&claims["sub"], &claims["aud"]), (&json!("main|alice"), &json!("https://orders.internal")));
    assert_eq!(claims["email"], "alice@ours.example");
}

#[tokio::test]
async fn only_users_of_the_domain_and_the_group_may_sign_in() {
    for (keys, account, status) in [
        ("email_domains = [\"ours.example\"]", "alice", 200),
        ("email_domains = [\"ours.example\"]", "bob", 403),
        ("groups = [\"staff\"]\nscopes = [\"openid\", \"groups\"]", "alice", 200),
        ("groups = [\"staff\"]\nscopes = [\"openid\", \"groups\"]", "bob", 403),
    ] {
        let claims = json!({ "email": ["email", "email_verified"], "groups": ["groups"], "openid": ["sub"] });
        let (provider, upstream) = (start(json!({ "account": account, "claims": claims })), Upstream::start());
        let gateway = gateway(&upstream, &everything(&provider.issuer, keys)).await;
        let mut visitor = Visitor::of(&gateway);
        let page = visitor.navigate(&format!("{APP}/")).await;
        assert_eq!(page.status.as_u16(), status, "{keys} {account}: {page:?}");
        assert_eq!(visitor.session().is_some(), status == 200);
    }
}

/// All users may sign in, and some of them may use a part of the site.
#[tokio::test]
async fn the_groups_of_a_user_are_for_the_rules_of_a_route() {
    let claims = json!({ "groups": ["groups"], "openid": ["sub"] });
    let (at, upstream) = (start(json!({ "claims": claims })), Upstream::start());
    let keys = "scopes = [\"openid\", \"groups\"]\nclaims = [\"groups\"]";
    let admin = "[[route]]\npath = \"/admin/\"\nsign_in = \"main\"\n[[route.claim]]\npointer = \"/groups\"\ncontains = \"staff\"\n";
    let gateway = gateway(&upstream, &format!("{}{admin}", everything(&at.issuer, keys))).await;
    for (account, status) in [("alice", 200), ("bob", 403)] {
        at.control("/account", &json!({ "account": account })).await;
        let mut visitor = Visitor::of(&gateway);
        assert_eq!(visitor.navigate(&format!("{APP}/")).await.status, 200, "{account}: {:#?}", visitor.way);
        assert_eq!(visitor.fetch(&format!("{APP}/admin/x")).await.status.as_u16(), status, "{account}");
        // A page load is not sent to the provider: it would come back with the same groups.
        assert_eq!(visitor.load(&format!("{APP}/admin/x")).await.status.as_u16(), status, "{account}");
    }
}

#[tokio::test]
async fn a_user_who_declines_sees_a_page() {
    let (provider, upstream) = (start(json!({ "account": "deny" })), Upstream::start());
    let gateway = gateway(&upstream, &everything(&provider.issuer, "")).await;
    let mut visitor = Visitor::of(&gateway);
    let page = visitor.navigate(&format!("{APP}/")).await;
    assert_eq!(page.status, 403, "{page:?}");
    assert!(page.text().contains("<p>The sign-in was declined.<p><a href=\"/oauth2/sign_in/main\">"), "{page:?}");
    assert!(visitor.session().is_none());
    assert!(visitor.attempts().is_empty());
}

/// The browser has only a cookie. An administrator ends the session at the provider, which reports it.
#[tokio::test]
async fn the_websocket_of_a_browser_closes_when_its_session_ends_at_the_provider() {
    let (provider, upstream) = (start(json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&provider.issuer, "")).await;
    let mut client = client();
    client["backchannel_logout_uri"] = format!("http://{}/oauth2/backchannel_logout/main", gateway.address()).into();
    client["backchannel_logout_session_required"] = true.into();
    provider.control("/clients", &client).await;
    let mut alice = Visitor::of(&gateway);
    assert_eq!(alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", alice.way);
    provider.control("/account", &json!({ "account": "bob" })).await;
    let mut bob = Visitor::of(&gateway);
    assert_eq!(bob.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", bob.way);
    let [mut of_alice, mut of_bob] = [socket_of(&gateway, &alice).await, socket_of(&gateway, &bob).await];
    assert_open(&mut of_alice).await;
    within_a_second(async {
        provider.control("/end", &json!({ "account": "alice" })).await;
        assert_eq!(close_frame(&mut of_alice).await, revoked());
    })
    .await;
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    assert_open(&mut of_bob).await;
    let ended = gateway.admin_client().get("/admin/v1/tokens/ended?reason=provider").await.json();
    let session = ended["ended"].as_array().and_then(|list| list.iter().find(|entry| entry["what"] == "session"));
    let session = session.unwrap_or_else(|| panic!("{ended}"));
    assert_eq!((&session["provider"], &session["sub"]), (&json!("main"), &json!("main|alice")));
    assert_eq!(session["issuer"], provider.issuer);
    let events = gateway.audit_events(4).await;
    let event = events.iter().find(|event| event["event"] == "token.revoked").expect("an event");
    assert_eq!((&event["reason"], &event["provider"]), (&json!("provider"), &json!("main")), "{event}");
}

async fn socket_of(gateway: &Gateway, visitor: &Visitor) -> Socket {
    let cookie = format!("__Host-bearward={}", visitor.session().expect("a session"));
    open_with(gateway, "app.example", &[("cookie", &cookie), ("origin", APP)]).await
}
