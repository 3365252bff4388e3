//! A family ends with the session at the other issuer that it came from.

use std::time::Duration;

use bearward::config::{self, Probe};
use serde_json::{Value, json};

use super::super::{assert_error, post};
use super::{PARTIES, Parties, RULE, access_token, revoke};
use crate::gateway::oauth::clients::TYPE;
use crate::support::tokens::EXTERNAL_ISSUER;
use crate::support::{Gateway, TestResponse, Upstream};

async fn refreshed(parties: &Parties, refresh: &str) -> TestResponse {
    let assertion = parties.client.assertion(parties.now());
    let form = [
        ("grant_type", "refresh_token"),
        ("refresh_token", refresh),
        ("client_assertion_type", TYPE),
        ("client_assertion", &assertion),
    ];
    post(parties.gateway.client(), "/oauth/token", &form).await
}

async fn family(parties: &Parties, claims: Value) -> (String, String) {
    let response = parties.exchange(&parties.subject(claims), &[]).await;
    (access_token(&response), response.json()["refresh_token"].as_str().expect("a token").to_owned())
}

#[tokio::test]
async fn a_revocation_at_the_other_issuer_ends_the_family() {
    let upstream = Upstream::start();
    for (what, ended) in [
        (json!({ "session": "s1" }), [true, false, false]),
        (json!({ "sub": "bob" }), [true, true, false]),
        (json!({ "all": true }), [true, true, true]),
    ] {
        let parties = Parties::start(&upstream, "refresh_token = true\n");
        let of = async |sub: &str, sid: &str| family(&parties, json!({ "sub": sub, "sid": sid })).await;
        let families = [of("bob", "s1").await, of("bob", "s2").await, of("alice", "s3").await];
        let login = parties.gateway.issue("login|bob", "").await;
        revoke(&parties.gateway, what.clone()).await;
        for ((access, refresh), ended) in families.iter().zip(ended) {
            let expected = if ended { 401 } else { 200 };
            assert_eq!(parties.gateway.status_of(access).await, expected, "{what}");
            let response = refreshed(&parties, refresh).await;
            assert_eq!(response.status, if ended { 400 } else { 200 }, "{what}: {response:?}");
        }
        assert_eq!(parties.gateway.status_of(&login.access).await, 200, "{what}: a login here has no such origin");
    }
}

#[tokio::test]
async fn a_later_session_is_not_ended_by_an_earlier_revocation() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "refresh_token = true\n");
    let old = parties.subject(json!({ "sid": "s1" }));
    parties.gateway.advance(Duration::from_secs(2));
    revoke(&parties.gateway, json!({ "sub": "bob" })).await;
    assert_error(&parties.exchange(&old, &[]).await, 400, "invalid_request");
    parties.gateway.advance(Duration::from_secs(2));
    let (access, refresh) = family(&parties, json!({ "sid": "s1" })).await;
    assert_eq!(parties.gateway.status_of(&access).await, 200);
    assert_eq!(refreshed(&parties, &refresh).await.status, 200);
}

#[tokio::test]
async fn an_access_token_alone_ends_with_its_origin_too() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "");
    let access = access_token(&parties.exchange(&parties.subject(json!({ "sid": "s1" })), &[]).await);
    assert_eq!(parties.gateway.status_of(&access).await, 200);
    revoke(&parties.gateway, json!({ "session": "s1" })).await;
    assert_eq!(parties.gateway.status_of(&access).await, 401);
}

#[tokio::test]
async fn a_reload_without_the_rule_says_how_to_end_the_sessions() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "refresh_token = true\n");
    let (_, refresh) = family(&parties, json!({ "sub": "alice" })).await;
    let text = Gateway::config_text(&upstream.address.to_string(), &format!("{PARTIES}{RULE}"));
    let config = config::parse(&text, parties.gateway.path(), Probe::None).expect("a good configuration");
    let warnings = parties.gateway.running().reload(config).expect("it reloads").warnings;
    let command = format!("bearward token revoke --all --issuer {EXTERNAL_ISSUER}");
    assert!(warnings.len() == 1 && warnings[0].ends_with(&command), "{warnings:?}");
    assert_eq!(refreshed(&parties, &refresh).await.status, 200);
}
