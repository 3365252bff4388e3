//! Tokens that a client gets for a token of another issuer.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::super::{assert_error, post};
use super::{ACCESS_TOKEN, GRANT, Parties, SHOP, access_token, exchange_by};
use crate::gateway::oauth::clients::TYPE;
use crate::support::Upstream;
use crate::support::tokens::claims_of;

/// The audience of the subject token is that of the rule, and not of the gateway: it is no Bearer here.
#[tokio::test]
async fn a_token_for_another_audience_becomes_one_of_ours() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "claims = [\"email\"]\n");
    let subject = parties.subject(json!({ "exp": parties.now() + 100, "email": "bob@x", "groups": ["g"] }));
    assert_eq!(parties.gateway.status_of(&subject).await, 401);
    let response = parties.exchange(&subject, &[]).await;
    let access = access_token(&response);
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let claims = claims_of(&access);
    let lifetime = claims["exp"].as_u64().expect("a number") - parties.now();
    assert!(lifetime <= 100, "not longer than the subject token");
    let expected = json!({
        "access_token": access, "issued_token_type": ACCESS_TOKEN, "token_type": "Bearer", "expires_in": lifetime,
        "scope": "a",
    });
    assert_eq!(response.json(), expected, "the scopes of both the rule and the subject token");
    for (name, value) in [("sub", "login|bob"), ("client_id", "ci"), ("aud", "https://api.example"), ("email", "bob@x")]
    {
        assert_eq!(claims[name], value, "{name}");
    }
    assert_eq!(claims.get("groups"), None, "only the claims that the rule names");
    assert_eq!(parties.gateway.status_of(&access).await, 200);
    assert_eq!(upstream.only_request().header("x-auth-subject"), Some("login|bob"));
    let log = parties.gateway.log_text(3).await;
    assert!(!log.contains(&subject) && !log.contains(&access), "{log}");
}

#[tokio::test]
async fn without_a_refresh_token_all_ends_with_the_subject_token() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "");
    let subject = parties.subject(json!({ "exp": parties.now() + 60 }));
    let access = access_token(&parties.exchange(&subject, &[]).await);
    parties.gateway.advance(Duration::from_secs(55));
    let again = access_token(&parties.exchange(&subject, &[]).await);
    parties.gateway.advance(Duration::from_secs(11));
    assert_eq!((parties.gateway.status_of(&access).await, parties.gateway.status_of(&again).await), (401, 401));
    assert_error(&parties.exchange(&subject, &[]).await, 400, "invalid_request");
}

#[tokio::test]
async fn a_rule_can_give_a_session_that_refreshes() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "refresh_token = true\n");
    let subject = parties.subject(json!({ "exp": parties.now() + 60 }));
    let response = parties.exchange(&subject, &[]).await;
    access_token(&response);
    let refresh = response.json()["refresh_token"].as_str().expect("a token").to_owned();
    parties.gateway.advance(Duration::from_secs(3_600));
    let form = [("grant_type", "refresh_token"), ("refresh_token", refresh.as_str())];
    let without = [&form[..], &[("client_id", "ci")]].concat();
    assert_error(&post(parties.gateway.client(), "/oauth/token", &without).await, 401, "invalid_client");
    let assertion = parties.client.assertion(parties.now());
    let with = [&form[..], &[("client_assertion_type", TYPE), ("client_assertion", &assertion)]].concat();
    let next = access_token(&post(parties.gateway.client(), "/oauth/token", &with).await);
    assert_eq!(parties.gateway.status_of(&next).await, 200, "longer than the subject token lives");
    assert_eq!(claims_of(&next)["scope"], "a");
}

#[tokio::test]
async fn an_exchange_never_widens_a_scope() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "");
    let subject = parties.subject(json!({}));
    assert_eq!(parties.exchange(&subject, &[("scope", "a")]).await.json()["scope"], "a");
    for scope in ["b", "c", "a c", "token:revoke"] {
        assert_error(&parties.exchange(&subject, &[("scope", scope)]).await, 400, "invalid_scope");
    }
    let without = access_token(&parties.exchange(&parties.subject(json!({ "scope": null })), &[]).await);
    assert_eq!(claims_of(&without).get("scope"), None);
    let free = Parties::start(&upstream, "limit_to_subject = false\n");
    assert_eq!(free.exchange(&free.subject(json!({})), &[]).await.json()["scope"], "a c");
}

#[tokio::test]
async fn what_the_gateway_cannot_issue_is_rejected() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "");
    let subject = parties.subject(json!({}));
    access_token(&parties.exchange(&subject, &[("audience", "https://api.example")]).await);
    for (parameter, error) in [
        (("audience", SHOP), "invalid_target"),
        (("resource", "https://other.example"), "invalid_target"),
        (("requested_token_type", "urn:ietf:params:oauth:token-type:refresh_token"), "invalid_request"),
        (("requested_token_type", "urn:ietf:params:oauth:token-type:id_token"), "invalid_request"),
        (("actor_token", "x"), "invalid_request"),
        (("actor_token_type", ACCESS_TOKEN), "invalid_request"),
    ] {
        assert_error(&parties.exchange(&subject, &[parameter]).await, 400, error);
    }
    access_token(&parties.exchange(&subject, &[("requested_token_type", ACCESS_TOKEN)]).await);
    let assertion = parties.client.assertion(parties.now());
    let twice = exchange_by(&parties.gateway, ACCESS_TOKEN, &subject, Some(&assertion), &[("subject_token", "x")]);
    assert_error(&twice.await, 400, "invalid_request");
    for kind in ["urn:ietf:params:oauth:token-type:saml2", "urn:ietf:params:oauth:token-type:refresh_token", "jwt", ""]
    {
        assert_error(&parties.exchange_as(kind, &subject, &[]).await, 400, "invalid_request");
    }
}

/// What the gateway puts before it does not count (OpenID Connect Core section 2).
#[tokio::test]
async fn a_subject_of_255_bytes_is_exchanged() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "");
    for length in [249, 255] {
        let response = parties.exchange(&parties.subject(json!({ "sub": "s".repeat(length) })), &[]).await;
        let subject = format!("login|{}", "s".repeat(length));
        assert_eq!(claims_of(&access_token(&response))["sub"], subject, "{length}");
    }
    let response = parties.exchange(&parties.subject(json!({ "sub": "s".repeat(256) })), &[]).await;
    assert_error(&response, 400, "invalid_request");
}

#[tokio::test]
async fn only_the_clients_of_a_rule_use_it() {
    let upstream = Upstream::start();
    let other = "[[oauth.client]]\nclient_id = \"other\"\njwks_file = \"ci.json\"\nalgorithms = [\"ES256\"]\n";
    let parties = Parties::start(&upstream, other);
    let subject = parties.subject(json!({}));
    for more in [&[][..], &[("client_id", "app")], &[("client_id", "ci")]] {
        let response = exchange_by(&parties.gateway, ACCESS_TOKEN, &subject, None, more).await;
        assert_error(&response, 401, "invalid_client");
    }
    let assertion = parties.client.with_claims(parties.now(), json!({ "iss": "other", "sub": "other" }));
    let response = exchange_by(&parties.gateway, ACCESS_TOKEN, &subject, Some(&assertion), &[]).await;
    assert_error(&response, 400, "unauthorized_client");
}

/// As for workloads of a CI system, which have a token and no key.
#[tokio::test]
async fn a_rule_for_any_client_needs_only_the_subject_token() {
    let upstream = Upstream::start();
    let rule = "[[oauth.exchange]]\nissuer = \"https://login.example\"\nclients = \"any\"\n\
        audience = [\"https://shop.example\"]\nsubject_prefix = \"\"\nscopes = [\"a\"]\nsingle_use = true\n\
        [[oauth.exchange.claim]]\npointer = \"/repository\"\nequals = \"shop/orders\"\n";
    let parties = Parties::with(&upstream, rule);
    let by_any = async |claims| exchange_by(&parties.gateway, ACCESS_TOKEN, &parties.subject(claims), None, &[]).await;
    let good = json!({ "repository": "shop/orders", "jti": "1" });
    let access = access_token(&by_any(good.clone()).await);
    assert_eq!(claims_of(&access)["sub"], "bob");
    assert_eq!(parties.gateway.status_of(&access).await, 200);
    for claims in [good, json!({ "repository": "shop/other", "jti": "2" }), json!({ "jti": "3" })] {
        assert_error(&by_any(claims).await, 400, "invalid_request");
    }
    let without_jti = json!({ "repository": "shop/orders" });
    assert_error(&by_any(without_jti).await, 400, "invalid_request");
    let named = json!({ "repository": "shop/orders", "jti": "4", "sub": "client|ci" });
    assert_error(&by_any(named).await, 400, "invalid_request");
}

#[tokio::test]
async fn a_subject_token_for_single_use_is_exchanged_once() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "single_use = true\n");
    let subject = parties.subject(json!({ "jti": "once" }));
    let responses = join_all((0..16).map(|_| parties.exchange(&subject, &[]))).await;
    let statuses: Vec<u16> = responses.iter().map(|response| response.status.as_u16()).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 400).count(), 15, "{statuses:?}");
    let same_name = parties.subject(json!({ "jti": "once", "scope": "a" }));
    assert_error(&parties.exchange(&same_name, &[]).await, 400, "invalid_request");
    access_token(&parties.exchange(&parties.subject(json!({ "jti": "other" })), &[]).await);
}

#[tokio::test]
async fn the_metadata_name_the_grant() {
    let upstream = Upstream::start();
    let parties = Parties::start(&upstream, "");
    let metadata = parties.gateway.client().get("/.well-known/oauth-authorization-server").await.json();
    assert_eq!(metadata["grant_types_supported"], json!(["refresh_token", GRANT]));
    let none = super::super::gateway(&upstream);
    assert_error(&exchange_by(&none, ACCESS_TOKEN, "x", None, &[]).await, 400, "unsupported_grant_type");
}
