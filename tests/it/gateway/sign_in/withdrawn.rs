//! UserInfo has stated claims, and does not state them at a refresh: it refuses, fails, or is gone. No rule decides by
//! what it has stated before.

use serde_json::{Value, json};

use super::liar::Lies;
use super::lies::{claims, map, response};
use super::renewed::{EMAIL, GROUPS, Story, without_id_token};
use super::user_info::{REFUSALS, metadata};

/// Only UserInfo states the groups.
fn states(groups: &[&str]) -> Lies {
    Lies { userinfo: Some(json!({ "sub": "alice", "groups": groups })), ..Lies::default() }
}

fn refuses(raw: &'static str, has_id_token: bool) -> Lies {
    let changes = if has_id_token { json!({}) } else { json!({ "id_token": null }) };
    Lies { raw_userinfo: Some(raw), ..response(changes) }
}

/// As an administrator of the provider takes the group away, and UserInfo with it.
#[tokio::test]
async fn a_group_ends_with_the_userinfo_that_stated_it() {
    let refusals = REFUSALS.map(|raw| (raw, false));
    for (raw, has_id_token) in refusals.into_iter().chain([(REFUSALS[0], true)]) {
        let mut story = Story::begin(metadata(), GROUPS, "", states(&["staff"])).await;
        assert_eq!(story.refreshed(states(&["staff"])).await, 200);
        // It lives on for `max_staleness`.
        for status in [200, 200, 503] {
            assert_eq!(story.refreshed(refuses(raw, has_id_token)).await, status, "{raw} {has_id_token}");
        }
        assert_eq!(story.refreshed(states(&["staff"])).await, 200, "{raw}");
        assert_eq!(story.refreshed(states(&["guests"])).await, 401, "{raw}");
    }
}

/// The document of the provider changes.
#[tokio::test]
async fn a_group_ends_with_an_endpoint_that_is_gone() {
    for endpoint in [json!(null), json!("/userinfo"), json!(5), json!("ftp://login.example/me")] {
        let keys = format!("{GROUPS}\nmax_staleness = \"0s\"");
        let story = Story::begin(metadata(), &keys, "", states(&["staff"])).await;
        story.liar.announce(&json!({ "userinfo_endpoint": endpoint }));
        let mut story = story.restarted().await;
        assert_eq!(story.refreshed(without_id_token(Value::Null)).await, 503, "{endpoint}");
        story.liar.announce(&metadata());
        let mut story = story.restarted().await;
        assert_eq!(story.refreshed(states(&["staff"])).await, 200, "{endpoint}");
    }
}

/// The ID token has stated all that the rules need, and UserInfo nothing.
#[tokio::test]
async fn a_session_goes_on_without_a_userinfo_that_has_stated_nothing() {
    let keys = "email_domains = [\"ours.example\"]";
    let fails = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    let failing = || refuses(fails, false);
    let says_nothing = Lies { userinfo: Some(json!({ "sub": "alice" })), ..Lies::default() };
    let never_worked = Lies { raw_userinfo: Some(fails), ..Lies::default() };
    for first in [says_nothing, never_worked] {
        let mut story = Story::begin(metadata(), keys, "", first).await;
        for _ in 0..4 {
            assert_eq!(story.refreshed(failing()).await, 200);
        }
    }
}

const STAFF: &str = "[[route]]\npath = \"/staff/\"\nsign_in = \"main\"\n\
                     [[route.claim]]\npointer = \"/groups\"\ncontains = \"staff\"\n";

/// Without such a rule, the session goes on, as one that begins now. The routes have rules of their own.
#[tokio::test]
async fn a_session_goes_on_without_what_userinfo_refuses() {
    let keys = "claims = [\"email\", \"groups\"]";
    let failure = "HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\n\r\n";
    let mut story = Story::begin(metadata(), keys, &format!("{EMAIL}{STAFF}"), states(&["staff"])).await;
    assert_eq!(story.status("/staff/").await, 200);
    // A failure says nothing of the groups: the next refresh may.
    assert_eq!(story.refreshed(refuses(failure, false)).await, 200);
    assert_eq!(story.status("/staff/").await, 200);
    assert_eq!(story.refreshed(refuses(REFUSALS[0], false)).await, 200);
    assert_eq!(story.email().as_deref(), Some("alice@ours.example"), "of the ID token");
    assert_eq!(story.status("/staff/").await, 403);
    // Nothing is left of UserInfo.
    for _ in 0..3 {
        assert_eq!(story.refreshed(refuses(failure, false)).await, 200);
    }
    assert_eq!(story.refreshed(states(&["staff"])).await, 200);
    assert_eq!(story.status("/staff/").await, 200);
}

/// What the ID token has stated needs no UserInfo.
#[tokio::test]
async fn a_group_of_the_id_token_outlives_userinfo() {
    let of_token =
        Lies { userinfo: Some(json!({ "sub": "alice", "name": "n" })), ..claims(json!({ "groups": ["staff"] })) };
    let mut story = Story::begin(metadata(), GROUPS, EMAIL, of_token).await;
    for _ in 0..3 {
        assert_eq!(story.refreshed(refuses(REFUSALS[1], false)).await, 200);
    }
    let lost = Lies { claims: map(json!({ "groups": ["guests"] })), ..refuses(REFUSALS[1], true) };
    assert_eq!(story.refreshed(lost).await, 401);
}
