//! Compares what the clients remember with the state of the gateway and the audit file.

use std::collections::HashSet;
use std::path::Path;

use http::Method;
use serde_json::{Value, json};

use super::clients::{Call, Entrance, Login, refresh, revoke, send};
use crate::support::TokenPair;
use crate::support::connection::HttpConnection;
use crate::support::wait::eventually_ok;

/// What all rounds checked.
#[derive(Default)]
pub struct Checked {
    pub rotations: usize,
    pub revocations: usize,
    /// Refreshes and logouts in flight when the program was killed.
    pub lost_refreshes: usize,
    pub lost_revocations: usize,
}

/// Compares what the client remembers with the state after the restart, then ends the login.
pub async fn check(mut login: Login, entrance: Entrance) -> (Login, Checked) {
    let mut public = entrance.public().await;
    let mut seen = Checked { rotations: login.pairs.len() - 1, ..Checked::default() };
    let is_unanswered = |call| usize::from(login.unanswered == Some(call));
    seen.lost_refreshes = is_unanswered(Call::Refresh);
    seen.lost_revocations = is_unanswered(Call::Revoke);
    seen.revocations = usize::from(login.revoked);

    let logout_was_durable =
        login.unanswered == Some(Call::Revoke) && status_of(&mut public, login.newest()).await == 401;
    if !login.revoked && !logout_was_durable {
        assert_one_child(&mut public, &mut login).await;
        assert_eq!(expect(revoke(&mut public, login.newest()).await).0, 200);
    }
    login.revoked = true;
    assert_dead(&mut public, &login).await;
    (login, seen)
}

/// The newest token that the client received has one child. It makes no difference whether the client already presented
/// the token before the kill, or how often it presents it. Older tokens are rejected.
pub async fn assert_one_child(public: &mut HttpConnection, login: &mut Login) {
    let newest = login.newest().clone();
    let spent = login.pairs.iter().rev().nth(1).cloned();
    let (status, answer) = expect(refresh(public, &newest, &newest).await);
    assert_eq!(status, 200, "a rotation is lost although the gateway answered it: {answer}");
    let child = TokenPair::from_json(&answer);
    let (status, answer) = expect(refresh(public, &newest, &newest).await);
    assert_eq!((status, TokenPair::from_json(&answer).refresh), (200, child.refresh.clone()), "the same child again");
    if let Some(spent) = spent {
        assert_spent(public, &spent, &child).await;
    }
    let (status, answer) = expect(refresh(public, &child, &child).await);
    assert_eq!(status, 200, "{answer}");
    let grandchild = TokenPair::from_json(&answer);
    assert_spent(public, &newest, &grandchild).await;
    assert_eq!(status_of(public, &grandchild).await, 200);
    login.pairs.extend([child, grandchild]);
}

pub async fn assert_spent(public: &mut HttpConnection, spent: &TokenPair, bearer: &TokenPair) {
    let (status, answer) = expect(refresh(public, spent, bearer).await);
    assert_eq!((status, &answer["error"]), (409, &json!("refresh_conflict")));
}

/// Asserts that every token of the login is rejected.
pub async fn assert_dead(public: &mut HttpConnection, login: &Login) {
    for pair in &login.pairs {
        assert_eq!(status_of(public, pair).await, 401, "{} lives again", pair.token_id);
    }
    let (status, answer) = expect(refresh(public, login.newest(), login.newest()).await);
    assert_eq!((status, &answer["error"]), (400, &json!("invalid_grant")), "{} lives again", login.newest().token_id);
}

pub async fn status_of(public: &mut HttpConnection, pair: &TokenPair) -> u16 {
    expect(send(public, Method::GET, "/", &pair.access, None).await).0
}

pub fn expect(answer: Option<(u16, Value)>) -> (u16, Value) {
    answer.expect("the gateway runs until the check is over")
}

/// Removes the audit file, as logrotate does, and keeps the name, login and generation of each event.
pub fn collect_events(folder: &Path, audited: &mut HashSet<String>) {
    let path = folder.join("audit.jsonl");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        audited.insert(name(&event["event"], &event["token_id"], &event["generation"]));
    }
}

pub fn name(event: &Value, token_id: &Value, generation: &Value) -> String {
    format!("{event} {token_id} {generation}")
}

/// Waits until the audit file has an event for each durable operation.
pub async fn wait_for_audit_events(folder: &Path, audited: &mut HashSet<String>, logins: &[Login]) {
    let expected: Vec<_> = logins.iter().flat_map(events_of).collect();
    assert!(!expected.is_empty(), "no login was checked");
    eventually_ok("each durable operation has an audit event", async || {
        collect_events(folder, audited);
        let missing: Vec<_> = expected.iter().filter(|event| !audited.contains(*event)).collect();
        missing.is_empty().then_some(()).ok_or_else(|| format!("{} events are missing: {missing:?}", missing.len()))
    })
    .await;
}

pub fn events_of(login: &Login) -> Vec<String> {
    let id = json!(login.newest().token_id);
    let rotated = (2..=login.pairs.len()).map(|generation| name(&json!("token.refreshed"), &id, &json!(generation)));
    rotated.chain([name(&json!("token.revoked"), &id, &Value::Null)]).collect()
}

impl Checked {
    pub fn add(&mut self, seen: &Checked) {
        self.rotations += seen.rotations;
        self.revocations += seen.revocations;
        self.lost_refreshes += seen.lost_refreshes;
        self.lost_revocations += seen.lost_revocations;
    }
}
