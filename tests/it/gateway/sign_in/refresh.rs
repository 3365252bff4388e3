//! The refresh at the provider: one for each login, whatever comes at once and whatever the provider does.

use std::time::Duration;

use serde_json::{Value, json};

use super::{APP, everything, gateway};
use crate::gateway::provider_events::{Signer, push, transmitter};
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_within;
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, OidcProvider, Upstream};

pub(super) const KEYS: &str =
    "scopes = [\"openid\", \"email\", \"offline_access\"]\nauthorization_parameters = [\"prompt=consent\"]";

/// The access token lives 600 s. The refresh tokens rotate, and a second use of one ends all.
pub(super) fn provider() -> OidcProvider {
    super::provider::start(json!({
        "configuration": { "rotateRefreshToken": true },
        "ttl": { "AccessToken": 600, "IdToken": 36_000 },
    }))
}

pub(super) async fn signed_in(keys: &str) -> (OidcProvider, Upstream, Gateway, Visitor) {
    signed_in_with("", keys).await
}

/// `store`: the section `[store]`.
pub(super) async fn signed_in_with(store: &str, keys: &str) -> (OidcProvider, Upstream, Gateway, Visitor) {
    let (provider, upstream) = (provider(), Upstream::start());
    let more = everything(&provider.issuer, &format!("{KEYS}\n{keys}"));
    let gateway = gateway(&upstream, &format!("{store}{more}")).await;
    let mut alice = Visitor::of(&gateway);
    assert_eq!(alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", alice.way);
    (provider, upstream, gateway, alice)
}

pub(super) async fn refreshes(provider: &OidcProvider) -> Vec<Value> {
    let calls = provider.log("token").await;
    calls.into_iter().filter(|call| call["params"]["grant_type"] == "refresh_token").collect()
}

/// The statuses of this many requests at once.
pub(super) async fn at_once(alice: &Visitor, number: usize) -> Vec<u16> {
    let one = |mut alice: Visitor| async move { alice.fetch(&format!("{APP}/")).await.status.as_u16() };
    let all: Vec<_> = (0..number).map(|_| tokio::spawn(one(alice.clone()))).collect();
    let mut statuses = Vec::new();
    for response in all {
        statuses.push(response.await.expect("no panic"));
    }
    statuses
}

pub(super) async fn is_refreshed(provider: &OidcProvider, times: usize) {
    eventually_within(TIMEOUT, "the refresh", async || match refreshes(provider).await.len() {
        number if number == times => Ok(()),
        number => Err(number.to_string()),
    })
    .await;
}

#[tokio::test]
async fn fifty_requests_at_expiry_refresh_once() {
    // Before the tokens end, no request waits. After it, all wait for one.
    for age in [550, 700] {
        let (provider, _upstream, gateway, alice) = signed_in("").await;
        gateway.advance(Duration::from_secs(age));
        assert_eq!(at_once(&alice, 50).await, vec![200; 50], "{age}");
        is_refreshed(&provider, 1).await;
        // With the new refresh token, as soon as that is saved.
        eventually_within(TIMEOUT, "another refresh", async || {
            gateway.advance(Duration::from_secs(700));
            assert_eq!(at_once(&alice, 50).await, vec![200; 50], "{age}");
            let number = refreshes(&provider).await.len();
            if number == 2 { Ok(()) } else { Err(number.to_string()) }
        })
        .await;
        let statuses: Vec<_> = refreshes(&provider).await.iter().map(|call| call["status"].clone()).collect();
        assert_eq!(statuses, [200, 200], "no refresh token was used twice");
    }
}

#[tokio::test]
async fn a_login_outlives_a_provider_that_fails() {
    for fault in [json!({ "status": 500 }), json!({ "status": 400, "body": "{\"error\":\"invalid_client\"}" })] {
        let (provider, _upstream, gateway, mut alice) = signed_in("max_staleness = \"5m\"").await;
        let mut fault = fault.clone();
        fault["path"] = json!("/token");
        provider.control("/faults", &json!([fault])).await;
        gateway.advance(Duration::from_secs(700));
        assert_eq!(at_once(&alice, 10).await, vec![200; 10], "{fault}");
        // Still failing when the time is over.
        gateway.advance(Duration::from_secs(300));
        alice.fetch(&format!("{APP}/")).await.assert_rejected(503, "temporarily_unavailable");
        let page = alice.load(&format!("{APP}/")).await;
        assert_eq!((page.status.as_u16(), page.header("content-type")), (503, Some("text/html; charset=utf-8")));
        assert!(page.text().contains("<p>The identity provider is not available."), "{page:?}");
        assert!(alice.session().is_some());
        // It comes back.
        provider.control("/faults", &json!([])).await;
        gateway.advance(Duration::from_secs(600));
        eventually_within(TIMEOUT, "the login lives", async || {
            match alice.fetch(&format!("{APP}/")).await.status.as_u16() {
                200 => Ok(()),
                status => Err(status.to_string()),
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_login_ends_when_the_provider_says_so() {
    let (provider, _upstream, gateway, mut alice) = signed_in("").await;
    provider.control("/end", &json!({ "account": "alice" })).await;
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200, "until the next refresh");
    gateway.advance(Duration::from_secs(700));
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    // And stays ended.
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
    assert_eq!(refreshes(&provider).await.len(), 1);
}

/// Each next ID token has a key that the gateway does not know yet. It asks for the keys of an issuer once in 30 s, and
/// any stranger can make it do so, by a logout token: that must end no login.
#[tokio::test]
async fn a_provider_can_replace_its_keys_at_any_time() {
    let (provider, _upstream, gateway, alice) = signed_in("").await;
    gateway.advance(Duration::from_secs(550));
    for what in ["a sign-in", "a sign-in at once"] {
        provider.control("/rotate", &json!({ "keep": false })).await;
        let mut bob = Visitor::of(&gateway);
        assert_eq!(bob.navigate(&format!("{APP}/")).await.status, 200, "{what}: {:#?}", bob.way);
    }
    provider.control("/rotate", &json!({ "keep": false })).await;
    assert_eq!(at_once(&alice, 10).await, vec![200; 10], "before the tokens end");
    is_refreshed(&provider, 1).await;
    gateway.advance(Duration::from_secs(100));
    assert_eq!(at_once(&alice, 10).await, vec![200; 10], "with the new tokens");
    assert_eq!(refreshes(&provider).await.len(), 1);
}

/// Its key set is behind: the ID token of the refresh has a key that is nowhere.
#[tokio::test]
async fn a_login_outlives_a_key_that_is_not_published_yet() {
    let (provider, _upstream, gateway, alice) = signed_in("").await;
    let published = provider.control("/published", &json!({})).await.to_string();
    provider.control("/rotate", &json!({ "keep": false })).await;
    let headers = json!({ "content-type": "application/json" });
    let behind = json!([{ "path": "/jwks", "status": 200, "headers": headers, "body": published }]);
    provider.control("/faults", &behind).await;
    gateway.advance(Duration::from_secs(700));
    assert_eq!(at_once(&alice, 10).await, vec![200; 10]);
    is_refreshed(&provider, 1).await;
    provider.control("/faults", &json!([])).await;
    gateway.advance(Duration::from_secs(60));
    assert_eq!(at_once(&alice, 10).await, vec![200; 10]);
    let statuses: Vec<_> = refreshes(&provider).await.iter().map(|call| call["status"].clone()).collect();
    assert_eq!(statuses, [200, 200], "no refresh token was used twice");
}

#[tokio::test]
async fn claims_and_rules_are_those_of_the_refresh() {
    let (provider, upstream, gateway, mut alice) = signed_in("email_domains = [\"ours.example\"]").await;
    let claims = json!({ "email": "a2@ours.example", "email_verified": true });
    provider.control("/accounts", &json!({ "name": "alice", "claims": claims })).await;
    gateway.advance(Duration::from_secs(700));
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    assert!(!upstream.seen().is_empty());
    let claims = json!({ "email": "a@evil.example", "email_verified": true });
    provider.control("/accounts", &json!({ "name": "alice", "claims": claims })).await;
    gateway.advance(Duration::from_secs(700));
    alice.fetch(&format!("{APP}/")).await.assert_rejected(401, "invalid_token");
}

/// A security event says that claims have changed: the login is refreshed at once, and not only when its tokens end.
#[tokio::test]
async fn a_change_of_claims_reaches_a_login_at_once() {
    let signer = Signer::start();
    let (provider, upstream) = (provider(), Upstream::start());
    let more = format!("{KEYS}\nemail_domains = [\"ours.example\"]");
    let stream = format!("path = \"/events/corp\"\nsubject_issuers = [\"{}\"]", provider.issuer);
    let gateway = gateway(
        &upstream,
        &format!("{}{}", everything(&provider.issuer, &more), transmitter::sections(&signer, &stream)),
    )
    .await;
    let mut alice = Visitor::of(&gateway);
    assert_eq!(alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", alice.way);
    let claims = json!({ "email": "a@evil.example", "email_verified": true });
    provider.control("/accounts", &json!({ "name": "alice", "claims": claims })).await;
    gateway.advance(Duration::from_secs(60));
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200, "the gateway does not know yet");
    assert_eq!(refreshes(&provider).await.len(), 0);
    let kind = "https://schemas.openid.net/secevent/caep/event-type/token-claims-change";
    let subject = json!({ "format": "iss_sub", "iss": provider.issuer, "sub": "alice" });
    eventually_within(TIMEOUT, "the event is accepted", async || {
        let changes = json!({ "events": { kind: { "claims": { "email": "a@evil.example" } } } });
        let token = transmitter::event(&signer, &gateway, &subject, &changes);
        let response = push(&gateway, &token).await;
        if response.status == 202 { Ok(()) } else { Err(response.text()) }
    })
    .await;
    eventually_within(TIMEOUT, "the login ends", async || {
        gateway.advance(Duration::from_secs(1));
        match alice.fetch(&format!("{APP}/")).await.status.as_u16() {
            401 => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
    assert_eq!(refreshes(&provider).await.len(), 1);
    let listed = gateway.admin_client().get("/admin/v1/tokens/ended?reason=provider").await.json();
    let ended = &listed["ended"][0];
    assert_eq!((&ended["reason"], &ended["provider"]), (&json!("provider"), &json!("main")), "{listed}");
    assert_eq!(ended["issuer"], provider.issuer);
}
