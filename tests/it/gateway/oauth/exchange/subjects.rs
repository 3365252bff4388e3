//! Subject tokens that are not acceptable.

use bearward::tokens::jwt::Algorithm;
use serde_json::{Value, json};

use super::super::assert_error;
use super::{ACCESS_TOKEN, ID_TOKEN, Parties, SHOP, access_token, revoke};
use crate::support::Upstream;
use crate::support::tokens::{EXTERNAL_ISSUER, Mint};

#[tokio::test]
async fn an_unacceptable_subject_token_is_invalid_request() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "");
    let now = parties.now();
    let own = parties.gateway.issue("alice", "a").await;
    let (key, _) = parties.gateway.issue_key(&json!({ "subject": "alice" })).await;
    let typed = |typ: Value| {
        let mut header = parties.login.header();
        header["typ"] = typ;
        let mut claims = parties.login.claims(now);
        claims["aud"] = json!(SHOP);
        parties.login.sign(&header, &claims)
    };
    let stranger = Mint::new(Algorithm::ES256);
    let forged = stranger.sign(&parties.login.header(), &parties.login.claims(now));
    let subjects = [
        ("for the gateway, and not for the shop", parties.subject(json!({ "aud": "https://api.example" }))),
        ("for another service", parties.subject(json!({ "aud": "https://other.example" }))),
        ("for no service", parties.subject(json!({ "aud": null }))),
        ("expired", parties.subject(json!({ "iat": now - 600, "exp": now - 60 }))),
        ("at its end", parties.subject(json!({ "exp": now }))),
        ("not valid yet", parties.subject(json!({ "nbf": now + 60 }))),
        ("too long", parties.subject(json!({ "exp": now + 100_000 }))),
        ("without sub", parties.subject(json!({ "sub": null }))),
        ("without iat", parties.subject(json!({ "iat": null }))),
        ("bound to a key", parties.subject(json!({ "cnf": { "jkt": stranger.kid } }))),
        ("bound to a certificate", parties.subject(json!({ "cnf": { "x5t#S256": stranger.kid } }))),
        ("bound to what cannot be read", parties.subject(json!({ "cnf": { "jkt": "x" } }))),
        ("for another actor", parties.subject(json!({ "may_act": { "client_id": "other" } }))),
        ("of an unknown issuer", parties.subject(json!({ "iss": "https://unknown.example" }))),
        ("that names the gateway as its issuer", parties.subject(json!({ "iss": "https://gateway.example" }))),
        ("an ID token", typed(json!("JWT"))),
        ("a logout token", typed(json!("logout+jwt"))),
        ("with the kid of another key", forged),
        ("of the gateway itself", own.access.clone()),
        ("a refresh token", own.refresh.clone()),
        ("an API key", key),
        ("the assertion of the client", parties.client.assertion(now)),
        ("no token", "x".to_owned()),
    ];
    for (what, subject) in &subjects {
        let response = parties.exchange(subject, &[]).await;
        assert_eq!(response.status, 400, "{what}: {response:?}");
        assert_error(&response, 400, "invalid_request");
    }
    let lines = parties.gateway.log_lines(subjects.len()).await;
    assert!(lines.iter().all(|line| line["reason"] == "subject_token"), "{lines:?}");
    access_token(&parties.exchange(&parties.subject(json!({ "may_act": { "client_id": "ci" } })), &[]).await);
    assert_eq!(parties.gateway.status_of(&own.access).await, 200);
}

#[tokio::test]
async fn a_revoked_token_is_not_exchanged() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "");
    let subject = |jti: &str, sid: &str| parties.subject(json!({ "jti": jti, "sid": sid }));
    let (by_jti, by_session) = (subject("1", "s1"), subject("2", "s2"));
    revoke(&parties.gateway, json!({ "jti": "1" })).await;
    revoke(&parties.gateway, json!({ "session": "s2" })).await;
    for revoked in [&by_jti, &by_session] {
        assert_error(&parties.exchange(revoked, &[]).await, 400, "invalid_request");
    }
    let other = subject("3", "s1");
    access_token(&parties.exchange(&other, &[]).await);
    revoke(&parties.gateway, json!({ "sub": "bob" })).await;
    assert_error(&parties.exchange(&other, &[]).await, 400, "invalid_request");
}

/// An ID token is exchanged only by the client that it was issued to.
#[tokio::test]
async fn a_foreign_id_token_is_for_its_client_only() {
    let upstream = Upstream::start();
    let rule = |audience: &str| {
        format!(
            "[[oauth.exchange]]\nissuer = \"{EXTERNAL_ISSUER}\"\nclients = [\"ci\"]\ntoken_types = [\"id_token\"]\n\
             subject_prefix = \"login|\"\nscopes = [\"a\"]\nlimit_to_subject = false\n{audience}"
        )
    };
    let exchanged = async |parties: &Parties, claims: Value| {
        let mut all = parties.login.claims(parties.now());
        all.as_object_mut().expect("an object").extend(claims.as_object().expect("an object").clone());
        all["scope"].take();
        let header = json!({ "alg": "ES256", "kid": parties.login.kid });
        let mut members = all.as_object().expect("an object").clone();
        members.retain(|_, value| !value.is_null());
        let id_token = parties.login.sign(&header, &members.into());
        parties.exchange_as(ID_TOKEN, &id_token, &[]).await
    };
    let same = Parties::with(&upstream, &rule(""));
    assert_eq!(exchanged(&same, json!({ "aud": "ci" })).await.json()["scope"], "a");
    for claims in [
        json!({ "aud": "other" }),
        json!({ "aud": ["ci", "other"], "azp": "ci" }),
        json!({ "aud": "ci", "azp": "other" }),
        json!({ "aud": "https://api.example" }),
        json!({ "aud": "ci", "events": {} }),
    ] {
        assert_error(&exchanged(&same, claims).await, 400, "invalid_request");
    }
    let named = Parties::with(&upstream, &rule("audience = [\"app at the issuer\"]\n"));
    access_token(&exchanged(&named, json!({ "aud": "app at the issuer" })).await);
    assert_error(&exchanged(&named, json!({ "aud": "ci" })).await, 400, "invalid_request");
    let access = named.subject(json!({ "aud": "app at the issuer" }));
    assert_error(&named.exchange_as(ID_TOKEN, &access, &[]).await, 400, "invalid_request");
    assert_error(&named.exchange_as(ACCESS_TOKEN, &access, &[]).await, 400, "invalid_request");
}
