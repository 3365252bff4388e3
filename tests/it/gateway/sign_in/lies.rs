//! A provider that lies, and attackers between it and the browser.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::liar::{Liar, Lies, Signature};
use super::{APP, everything, gateway};
use crate::gateway::provider_events::{Signer, push, transmitter};
use crate::support::Upstream;
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_within;
use crate::support::wire::TIMEOUT;

pub(super) fn claims(changes: Value) -> Lies {
    Lies { claims: map(changes), ..Lies::default() }
}

pub(super) fn response(changes: Value) -> Lies {
    Lies { response: map(changes), ..Lies::default() }
}

pub(super) fn map(changes: Value) -> BTreeMap<&'static str, Value> {
    let object = changes.as_object().expect("an object").clone();
    object.into_iter().map(|(name, value)| (&*name.leak(), value)).collect()
}

#[tokio::test]
async fn each_lie_of_a_provider_ends_the_sign_in() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
    let now = gateway.now_secs();
    let header = |changes: Value| Lies { header: map(changes), ..Lies::default() };
    let signed = |signature| Lies { signature, ..Lies::default() };
    for (what, lies, status) in [
        ("an old nonce", claims(json!({ "nonce": "of another attempt" })), 400),
        ("no nonce", claims(json!({ "nonce": null })), 400),
        ("another audience", claims(json!({ "aud": "other" })), 400),
        ("a further audience", claims(json!({ "aud": ["gateway", "other"], "azp": "gateway" })), 400),
        ("another azp", claims(json!({ "azp": "other" })), 400),
        ("another issuer", claims(json!({ "iss": "https://evil.example" })), 400),
        ("an expired token", claims(json!({ "exp": now - 120 })), 400),
        ("a token of tomorrow", claims(json!({ "iat": now + 86_400 })), 400),
        ("a logout token", claims(json!({ "events": {} })), 400),
        ("no sub", claims(json!({ "sub": null })), 400),
        ("a wrong at_hash", claims(json!({ "at_hash": "77QmUPtjPfzWtF2AnpK9RQ" })), 400),
        ("typ of a logout token", header(json!({ "typ": "logout+jwt" })), 400),
        ("typ of an access token", header(json!({ "typ": "at+jwt" })), 400),
        ("alg of another family", header(json!({ "alg": "ES256" })), 400),
        ("no signature", signed(Signature::None), 400),
        ("HMAC with the public key", signed(Signature::PublicKeyAsSecret), 400),
        ("the key of another", signed(Signature::OtherKey), 400),
        ("no id_token", response(json!({ "id_token": null })), 400),
        ("an id_token that is none", response(json!({ "id_token": "x" })), 400),
        ("no access token", response(json!({ "access_token": null })), 400),
        ("another token type", response(json!({ "token_type": "DPoP" })), 400),
        ("a scope that is a number", response(json!({ "scope": 5 })), 400),
        ("HTML with status 200", raw("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\n{}"), 400),
        ("an array", raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"), 400),
        (
            "an error with status 200",
            raw(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 25\r\n\r\n{\"error\":\"invalid_grant\"}",
            ),
            400,
        ),
        (
            "invalid_grant",
            raw(
                "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 25\r\n\r\n{\"error\":\"invalid_grant\"}",
            ),
            400,
        ),
        ("a redirect", raw("HTTP/1.1 307 Temporary Redirect\r\nLocation: /token2\r\nContent-Length: 0\r\n\r\n"), 400),
        ("a failure", raw("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"), 503),
        ("a response that ends early", raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Len"), 503),
    ] {
        liar.tell(lies);
        let mut visitor = Visitor::of(&gateway);
        let page = liar.sign_in(&mut visitor, |back| back).await;
        assert_eq!(page.status.as_u16(), status, "{what}: {page:?}");
        assert_eq!((visitor.session(), visitor.attempts().len()), (None, 0), "{what}");
        assert!(page.header("content-security-policy").is_some(), "{what}: a page: {page:?}");
    }
    for is_compressed in [false, true] {
        liar.tell(Lies { is_compressed, ..Lies::default() });
        let mut visitor = Visitor::of(&gateway);
        let page = liar.sign_in(&mut visitor, |back| back).await;
        assert_eq!((page.status.as_u16(), page.header("location")), (303, Some("https://app.example/orders")));
        assert!(visitor.session().is_some(), "the truth is accepted");
    }
    assert_eq!(upstream.seen().len(), 0, "nothing went to the backend");
}

pub(super) fn raw(response: &'static str) -> Lies {
    Lies { raw: Some(response), ..Lies::default() }
}

/// The attack mixes two providers up: the code of one goes to the other.
#[tokio::test]
async fn the_issuer_is_checked_before_the_code_is_sent() {
    for announced in [true, false] {
        let metadata = json!({ "authorization_response_iss_parameter_supported": announced });
        let (liar, upstream) = (Liar::start(&metadata), Upstream::start());
        let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
        for (parameter, good) in [
            (format!("&iss={}", liar.issuer), true),
            ("&iss=https%3A%2F%2Fevil.example".to_owned(), false),
            (format!("&iss={}/", liar.issuer), false),
            (format!("&iss={0}&iss={0}", liar.issuer), false),
            ("&iss=".to_owned(), !announced),
            (String::new(), !announced),
        ] {
            let before = liar.exchanges().len();
            let mut visitor = Visitor::of(&gateway);
            let page = liar.sign_in(&mut visitor, |back| format!("{back}{parameter}")).await;
            assert_eq!(page.status.as_u16(), if good { 303 } else { 400 }, "{announced} {parameter}: {page:?}");
            assert_eq!(liar.exchanges().len() - before, usize::from(good), "{announced} {parameter}");
        }
    }
}

#[tokio::test]
async fn userinfo_must_be_of_the_same_user() {
    let (liar, upstream) = (Liar::start(&json!({ "userinfo_endpoint": "ISSUER/userinfo" })), Upstream::start());
    let keys = "groups = [\"staff\"]";
    let gateway = gateway(&upstream, &everything(&liar.issuer, keys)).await;
    let says = |userinfo: Value| Lies { userinfo: Some(userinfo), ..Lies::default() };
    for (lies, status) in [
        (says(json!({ "sub": "alice", "groups": ["staff"] })), 303),
        (says(json!({ "sub": "bob", "groups": ["staff"] })), 400),
        (says(json!({ "groups": ["staff"] })), 400),
        (says(json!(["staff"])), 400),
        (says(json!({ "sub": "alice", "groups": ["other"] })), 403),
        (says(json!({ "sub": "alice", "_claim_names": { "groups": "x" } })), 403),
        // What is signed counts.
        (Lies { claims: map(json!({ "groups": [] })), ..says(json!({ "sub": "alice", "groups": ["staff"] })) }, 403),
    ] {
        liar.tell(lies);
        let page = liar.sign_in(&mut Visitor::of(&gateway), |back| back).await;
        assert_eq!(page.status.as_u16(), status, "{page:?}");
    }
    eventually_within(TIMEOUT, "the line of the log", async || match gateway.file("access.log") {
        log if log.contains("groups_unknown") => Ok(()),
        log => Err(log),
    })
    .await;
}

#[tokio::test]
async fn a_provider_cannot_grant_what_was_not_asked_for() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
    liar.tell(response(json!({ "scope": "openid token:revoke admin" })));
    let mut visitor = Visitor::of(&gateway);
    assert_eq!(liar.sign_in(&mut visitor, |back| back).await.status, 303);
    assert_eq!(visitor.fetch(&format!("{APP}/")).await.status, 200);
    assert_eq!(upstream.only_request().header("x-auth-scope"), Some("openid"));
}

/// A user can remove `max_age` from the URL of the provider. A date in the future would pass for as long.
#[tokio::test]
async fn the_time_of_a_fresh_authentication_is_not_in_the_future() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let keys = "authorization_parameters = [\"max_age=300\"]";
    let gateway = gateway(&upstream, &everything(&liar.issuer, keys)).await;
    let now = gateway.now_secs();
    for (auth_time, status) in [(now, 303), (now + 3_600, 400), (now + 30, 303), (now - 3_600, 400)] {
        liar.tell(claims(json!({ "auth_time": auth_time })));
        let page = liar.sign_in(&mut Visitor::of(&gateway), |back| back).await;
        assert_eq!(page.status.as_u16(), status, "{auth_time} at {now}: {page:?}");
    }
}

#[tokio::test]
async fn a_lifetime_can_have_any_form_of_a_number() {
    let (liar, upstream) = (Liar::start(&json!({})), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
    for (expires_in, status) in [
        (json!("600"), 303),
        (json!(600.0), 303),
        (json!(null), 303),
        (json!(-600), 400),
        (json!("soon"), 400),
        (json!([600]), 400),
    ] {
        liar.tell(response(json!({ "expires_in": expires_in })));
        let page = liar.sign_in(&mut Visitor::of(&gateway), |back| back).await;
        assert_eq!(page.status.as_u16(), status, "{expires_in}: {page:?}");
    }
}

/// The provider has issued tokens, and the gateway can use none of them.
#[tokio::test]
async fn a_refresh_token_beside_something_unusable_is_revoked() {
    let (liar, upstream) = (Liar::start(&json!({ "revocation_endpoint": "ISSUER/revoke" })), Upstream::start());
    let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
    let with = |token: &str, changes: Value| {
        let mut lies = response(changes);
        lies.response.insert("refresh_token", token.into());
        lies
    };
    let created = "201 Created\r\nContent-Type: application/json";
    for (token, lies) in [
        ("first", with("first", json!({ "token_type": null }))),
        ("second", with("second", json!({ "id_token": "" }))),
        ("third", Lies { head: Some(created), ..with("third", json!({})) }),
    ] {
        liar.tell(lies);
        assert_eq!(liar.sign_in(&mut Visitor::of(&gateway), |back| back).await.status, 400);
        eventually_within(TIMEOUT, "the token is revoked", async || match liar.revoked() {
            revoked if revoked.iter().any(|revoked| revoked == token) => Ok(()),
            revoked => Err(format!("{revoked:?}")),
        })
        .await;
    }
}

/// The provider reports the end of a session, or of an account, while its user is on the way back to the gateway.
#[tokio::test]
async fn a_login_that_was_ended_before_its_callback_is_none() {
    let (liar, upstream, signer) = (Liar::start(&json!({})), Upstream::start(), Signer::start());
    let stream = format!("path = \"/events/corp\"\nsubject_issuers = [\"{}\"]", liar.issuer);
    let sections = transmitter::sections(&signer, &stream);
    let gateway = gateway(&upstream, &format!("{}{sections}", everything(&liar.issuer, ""))).await;
    let now = gateway.now_secs();
    let report = async |subject: &Value, events: Value| {
        eventually_within(TIMEOUT, "the event is accepted", async || {
            let event = transmitter::event(&signer, &gateway, subject, &json!({ "events": events }));
            let response = push(&gateway, &event).await;
            if response.status == 202 { Ok(()) } else { Err(response.text()) }
        })
        .await;
    };
    let signs_in = async |lies: Lies| {
        liar.tell(lies);
        let mut alice = Visitor::of(&gateway);
        let status = liar.sign_in(&mut alice, |back| back).await.status.as_u16();
        assert_eq!(alice.session().is_some(), status == 303, "{status}");
        status
    };
    report(&transmitter::session("s1"), json!({ transmitter::SESSION_REVOKED: {} })).await;
    assert_eq!(signs_in(claims(json!({ "sid": "s1" }))).await, 400);
    assert_eq!(signs_in(claims(json!({ "sid": "s2" }))).await, 303);
    let disabled = "https://schemas.openid.net/secevent/risc/event-type/account-disabled";
    let alice = json!({ "format": "iss_sub", "iss": liar.issuer, "sub": "alice" });
    report(&alice, json!({ disabled: { "event_timestamp": now } })).await;
    for (issued, status) in [(now - 1, 400), (now, 400), (now + 1, 303)] {
        assert_eq!(signs_in(claims(json!({ "sid": "s3", "iat": issued }))).await, status, "{issued} at {now}");
    }
}
