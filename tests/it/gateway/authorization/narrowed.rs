//! A client asks for less, or for more, than its user has granted (RFC 6749 section 6, RFC 8707 section 2.2).

use serde_json::json;

use super::{Front, MCP, NOTES, OAUTH, authorize};
use crate::gateway::oauth::post;
use crate::gateway::sign_in::liar::Lies;
use crate::support::tokens::{claims_of, forged_refresh};
use crate::support::visitor::{APP, parameter};

const SPA: (&str, &str) = ("client_id", "spa");

/// A front with a user who can grant all scopes.
async fn front(more: &str) -> Front {
    let front = Front::with(more).await;
    front.liar.tell(Lies { claims: [("groups", json!(["staff"]))].into(), ..Lies::default() });
    front
}

/// Hostile case 69. Codex, oidc-client-ts and authlib send the scope with each refresh, Codex with `offline_access`.
#[tokio::test]
async fn a_refresh_can_ask_for_less_and_never_for_more() {
    let mut front = front(OAUTH).await;
    let code = front.code(&authorize(&[("resource", NOTES)])).await;
    let mut tokens = front.redeem(&code, &[]).await.json();
    assert_eq!(tokens["scope"], "notes:read notes:write");
    let rejected = [
        (("scope", "notes:read notes:admin"), "invalid_scope"),
        (("scope", "token:revoke"), "invalid_scope"),
        (("resource", MCP), "invalid_target"),
        (("resource", "https://evil.example/"), "invalid_target"),
        (("client_id", "cli"), "invalid_grant"),
    ];
    for (changed, error) in rejected {
        let more = if changed.0 == "client_id" { vec![changed] } else { vec![SPA, changed] };
        front.refresh_for(&tokens, &more).await.assert_rejected(400, error);
    }
    for (wanted, scope) in [
        (("scope", "notes:read"), "notes:read"),
        (("scope", "notes:write notes:read offline_access"), "notes:read notes:write"),
        (("resource", NOTES), "notes:read notes:write"),
        (("scope", ""), "notes:read notes:write"),
    ] {
        let response = front.refresh_for(&tokens, &[SPA, wanted]).await;
        assert_eq!(response.status, 200, "{wanted:?}: {}", response.text());
        tokens = response.json();
        assert_eq!(tokens["scope"], scope, "{wanted:?}");
        let claims = claims_of(tokens["access_token"].as_str().expect("a token"));
        assert_eq!((&claims["scope"], &claims["aud"]), (&json!(scope), &json!(NOTES)), "{wanted:?}");
        assert_eq!(front.status("/notes", &tokens["access_token"]).await, 200, "{wanted:?}");
    }
}

/// A spent token tells nothing of what was granted, and ends the session.
#[tokio::test]
async fn a_wrong_scope_hides_no_theft() {
    let mut front = front(OAUTH).await;
    let code = front.code(&authorize(&[("resource", NOTES)])).await;
    let first = front.redeem(&code, &[]).await.json();
    let second = front.refresh(&first, "spa").await.json();
    assert_eq!(front.status("/notes", &second["access_token"]).await, 200);
    front.gateway.clock.advance(std::time::Duration::from_mins(2));
    let wrong = ("scope", "notes:admin");
    front.refresh_for(&first, &[SPA, wrong]).await.assert_rejected(400, "invalid_grant");
    assert_eq!(front.status("/notes", &second["access_token"]).await, 401, "the session has ended");
}

/// The scope of a token that another key has signed is not compared: the answer would say what a session has.
#[tokio::test]
async fn a_forged_token_learns_nothing_of_the_session() {
    let mut front = front(OAUTH).await;
    let code = front.code(&authorize(&[("resource", NOTES)])).await;
    let tokens = front.redeem(&code, &[]).await.json();
    let sid = claims_of(tokens["access_token"].as_str().expect("a token"))["sid"].as_str().expect("an id").to_owned();
    let forged = json!({ "refresh_token": forged_refresh(&sid) });
    for more in [("scope", "notes:read"), ("scope", "notes:admin"), ("resource", MCP), ("resource", NOTES)] {
        front.refresh_for(&forged, &[SPA, more]).await.assert_rejected(400, "invalid_grant");
    }
    assert_eq!(front.refresh(&tokens, "spa").await.status, 200, "the session goes on");
}

#[tokio::test]
async fn a_refresh_for_one_of_two_resources_is_good_at_that_one_alone() {
    let mut front = front(OAUTH).await;
    let url = format!("{}&resource={}", authorize(&[("resource", MCP)]), NOTES.replace(':', "%3A"));
    let code = front.code(&url).await;
    let mut tokens = front.redeem(&code, &[]).await.json();
    for (resource, statuses) in [(MCP, [200, 401]), (NOTES, [401, 200]), ("", [200, 200])] {
        let response = front.refresh_for(&tokens, &[SPA, ("resource", resource)]).await;
        assert_eq!(response.status, 200, "{}", response.text());
        tokens = response.json();
        for (path, status) in ["/mcp", "/notes"].into_iter().zip(statuses) {
            assert_eq!(front.status(path, &tokens["access_token"]).await, status, "{resource} at {path}");
        }
    }
}

/// Libraries that parse the URL of a resource send it with a slash, and with its host in lower case.
#[tokio::test]
async fn a_resource_that_is_a_whole_host_is_named_with_or_without_the_slash() {
    let oauth = OAUTH.replacen("[oauth]", &format!("[oauth]\nresource = \"{APP}\""), 1);
    let mut front = front(&oauth).await;
    for asked in [APP, "https://app.example/", "HTTPS://APP.example"] {
        let page = if asked == APP {
            front.consent_page(&authorize(&[("resource", asked)])).await
        } else {
            super::Page::of(&front.alice.navigate(&authorize(&[("resource", asked)])).await)
        };
        let answer = front.decide(&page, "allow").await;
        let code = parameter(&answer, "code").expect("a code");
        let tokens = front.redeem(&code, &[("resource", asked)]).await;
        assert_eq!(tokens.status, 200, "{asked}: {}", tokens.text());
        let claims = claims_of(tokens.json()["access_token"].as_str().expect("a token"));
        assert_eq!(claims["aud"], APP, "as the operator wrote it");
        let refreshed = front.refresh_for(&tokens.json(), &[SPA, ("resource", asked)]).await;
        assert_eq!(refreshed.status, 200, "{asked}: {}", refreshed.text());
        assert_eq!(front.status("/orders", &refreshed.json()["access_token"]).await, 200, "{asked}");
    }
}

/// A session that no client asked for has no resource of its own.
#[tokio::test]
async fn the_refresh_of_an_ordinary_session_can_name_what_it_is_good_for() {
    let front = front(OAUTH).await;
    let pair = front.gateway.issue("bob", "orders:read b").await;
    let mut refresh = pair.refresh;
    for (more, status) in [
        (("resource", "https://evil.example"), 400),
        (("resource", NOTES), 400),
        (("scope", "c"), 400),
        (("scope", "b"), 200),
        (("resource", "https://api.example"), 200),
    ] {
        let form = [("grant_type", "refresh_token"), ("refresh_token", &*refresh), more];
        let response = post(front.gateway.client().host("app.example"), "/oauth/token", &form).await;
        assert_eq!(response.status, status, "{more:?}: {}", response.text());
        if status == 200 {
            refresh = response.json()["refresh_token"].as_str().expect("a token").to_owned();
        }
    }
}
