//! The rotation table, row by row.

use std::time::Duration;

use bearward::tokens::family::revocation::Revoked;
use serde_json::json;

use super::{DAY, HOUR, MILLISECOND, listed, pair_of, refreshed};
use crate::support::gateway::ISSUER;
use crate::support::{Gateway, TestResponse, TokenPair, Upstream};

const GRACE: Duration = Duration::from_secs(10);
const AFTER_GRACE: Duration = Duration::from_millis(10_001);

/// A session and all its token pairs, from generation 1.
struct Session<'g> {
    gateway: &'g Gateway,
    pairs: Vec<TokenPair>,
}

impl<'g> Session<'g> {
    async fn new(gateway: &'g Gateway) -> Session<'g> {
        Session { gateway, pairs: vec![gateway.issue("alice", "").await] }
    }

    async fn in_generation(gateway: &'g Gateway, generation: usize) -> Session<'g> {
        let mut session = Session::new(gateway).await;
        while session.pairs.len() < generation {
            session.pairs.push(refreshed(gateway, session.newest()).await);
        }
        session
    }

    fn newest(&self) -> &TokenPair {
        self.pairs.last().expect("there is at least one")
    }

    /// Refreshes with the refresh token of a generation and the newest access token.
    async fn present(&self, generation: usize) -> TestResponse {
        self.gateway.refresh(&self.newest().access, &self.pairs[generation - 1].refresh).await
    }

    /// Asserts that the session is revoked: none of its tokens is accepted.
    async fn assert_revoked(&self) {
        for pair in &self.pairs {
            assert_eq!(self.gateway.status_of(&pair.access).await, 401);
            self.gateway.refresh(&pair.access, &pair.refresh).await.assert_rejected(400, "invalid_grant");
        }
        assert_eq!(listed(self.gateway, self.newest(), "alice").await["state"], "revoked");
    }

    /// Asserts that the session is live: its newest refresh token rotates.
    async fn assert_live(&self) {
        assert_eq!(self.gateway.status_of(&self.newest().access).await, 200);
        let next = pair_of(&self.present(self.pairs.len()).await);
        assert!(self.pairs.iter().all(|pair| pair.refresh != next.refresh), "the token rotated");
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// A new generation.
    Rotated,
    /// The refresh token of the newest generation again, with a new access token.
    Repeated,
    Conflict,
    /// Rejected, and the session is revoked.
    Reuse,
}

/// No access token was used before the refresh.
const NONE: Option<usize> = None;

/// The columns: the current generation c, the generation of the access token that was used, the time since c was
/// issued, the generation p of the refresh, and the outcome.
#[tokio::test]
async fn every_row_of_the_rotation_table() {
    use Outcome::*;
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let now = Duration::ZERO;
    for (row, (c, used, after, p, outcome)) in [
        // p = c
        (1, NONE, now, 1, Rotated),
        (1, Some(1), now, 1, Rotated),
        (1, Some(1), AFTER_GRACE, 1, Rotated),
        (3, NONE, now, 3, Rotated),
        (3, Some(3), 6 * DAY, 3, Rotated),
        // p = c - 1, within the grace period
        (2, NONE, now, 1, Repeated),
        (2, Some(2), now, 1, Repeated),
        (3, NONE, GRACE, 2, Repeated),
        (3, Some(3), GRACE, 2, Repeated),
        // p = c - 1, after the grace period: the outcome depends on whether the access token of c was used.
        (2, NONE, AFTER_GRACE, 1, Repeated),
        (3, NONE, AFTER_GRACE, 2, Repeated),
        (3, Some(2), AFTER_GRACE, 2, Repeated),
        (3, Some(2), 6 * DAY, 2, Repeated),
        (2, Some(2), AFTER_GRACE, 1, Reuse),
        (3, Some(3), AFTER_GRACE, 2, Reuse),
        (3, Some(3), 6 * DAY, 2, Reuse),
        // p < c - 1
        (3, NONE, now, 1, Conflict),
        (3, NONE, GRACE, 1, Conflict),
        (3, Some(3), GRACE, 1, Conflict),
        (4, Some(4), GRACE, 1, Conflict),
        (3, NONE, AFTER_GRACE, 1, Reuse),
        (3, Some(3), AFTER_GRACE, 1, Reuse),
        (4, NONE, AFTER_GRACE, 1, Reuse),
        (4, NONE, AFTER_GRACE, 2, Reuse),
    ]
    .into_iter()
    .enumerate()
    {
        eprintln!("row {row}: c = {c}, used {used:?}, {after:?} later, p = {p}: {outcome:?}");
        let session = Session::in_generation(&gateway, c).await;
        if let Some(generation) = used {
            assert_eq!(gateway.status_of(&session.pairs[generation - 1].access).await, 200);
        }
        gateway.advance(after);
        let response = session.present(p).await;
        match outcome {
            Rotated => {
                let next = pair_of(&response);
                assert!(session.pairs.iter().all(|pair| pair.refresh != next.refresh));
                assert_eq!(gateway.status_of(&next.access).await, 200);
            }
            Repeated => {
                let again = pair_of(&response);
                assert_eq!(again.refresh, session.newest().refresh);
                assert_ne!(again.access, session.newest().access);
                assert_eq!(gateway.status_of(&again.access).await, 200);
                let next = pair_of(&gateway.refresh(&again.access, &again.refresh).await);
                assert_ne!(next.refresh, again.refresh, "the repeated token rotates");
            }
            Conflict => {
                response.assert_rejected(409, "refresh_conflict");
                assert_eq!(response.header("retry-after"), None, "a retry after the grace period is reuse");
                session.assert_live().await;
            }
            Reuse => {
                response.assert_rejected(400, "invalid_grant");
                session.assert_revoked().await;
            }
        }
    }
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_retry_does_not_extend_the_grace_period() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let session = Session::in_generation(&gateway, 2).await;
    assert_eq!(gateway.status_of(&session.newest().access).await, 200);
    for _ in 0..2 {
        gateway.advance(GRACE / 2);
        assert_eq!(pair_of(&session.present(1).await).refresh, session.newest().refresh);
    }
    gateway.advance(MILLISECOND);
    session.present(1).await.assert_rejected(400, "invalid_grant");
    session.assert_revoked().await;
}

#[tokio::test]
async fn a_detected_reuse_survives_a_restart_and_is_logged() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let session = Session::in_generation(&gateway, 2).await;
    let neighbour = gateway.issue("alice", "").await;
    assert_eq!(gateway.status_of(&session.newest().access).await, 200);
    gateway.advance(AFTER_GRACE);
    session.present(1).await.assert_rejected(400, "invalid_grant");
    let lines = gateway.log_lines(3).await;
    let line = lines.iter().find(|line| line["status"] == 400).expect("a line for each request");
    assert_eq!(
        (&line["reason"], &line["token_id"]),
        (&"grant_reused".into(), &session.newest().token_id.as_str().into())
    );

    let pairs = session.pairs.clone();
    let gateway = gateway.restart();
    Session { gateway: &gateway, pairs }.assert_revoked().await;
    assert_eq!(gateway.status_of(&neighbour.access).await, 200, "another session of the user is not affected");
    refreshed(&gateway, &neighbour).await;
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_session_ends_after_the_idle_limit_without_a_refresh() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    gateway.advance(7 * DAY - MILLISECOND);
    let next = refreshed(&gateway, &pair).await;
    gateway.advance(7 * DAY);
    gateway.refresh(&next.access, &next.refresh).await.assert_rejected(400, "invalid_grant");
}

#[tokio::test]
async fn a_session_ends_at_the_absolute_limit_despite_refreshes() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let login = gateway.now_secs();
    let mut pair = gateway.issue("alice", "").await;
    for _ in 0..4 {
        gateway.advance(6 * DAY);
        pair = refreshed(&gateway, &pair).await;
    }
    gateway.advance(6 * DAY - MILLISECOND);
    let response = gateway.refresh(&pair.access, &pair.refresh).await;
    let last = pair_of(&response);
    assert_eq!(response.json()["expiresAt"], login + 30 * 86_400, "no access token outlives its session");
    gateway.advance(MILLISECOND);
    gateway.refresh(&last.access, &last.refresh).await.assert_rejected(400, "invalid_grant");
}

#[tokio::test]
async fn an_idle_limit_of_one_session_is_kept_by_rotation() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let kiosk = TokenPair::from_json(&gateway.request_tokens(&json!({ "sub": "alice", "idle": 3_600 })).await.json());
    gateway.advance(HOUR - MILLISECOND);
    let next = refreshed(&gateway, &kiosk).await;
    gateway.advance(HOUR);
    gateway.refresh(&next.access, &next.refresh).await.assert_rejected(400, "invalid_grant");
}

#[tokio::test]
async fn a_session_older_than_the_watermark_of_its_subject_is_dead() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (old, other) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let now = bearward::types::clock::UnixTime::from_secs(gateway.now_secs());
    let everything_of_alice = Revoked::Subject { issuer: ISSUER.into(), subject: "alice".into(), not_after: now };
    gateway.running().broker.store.revoke(everything_of_alice, now.into()).await.expect("the store works");

    assert_eq!(gateway.status_of(&old.access).await, 401);
    gateway.refresh(&old.access, &old.refresh).await.assert_rejected(400, "invalid_grant");
    refreshed(&gateway, &other).await;
    gateway.advance(MILLISECOND);
    let new = gateway.issue("alice", "").await;
    assert_eq!(gateway.status_of(&new.access).await, 200, "a login in the same second is valid");
    refreshed(&gateway, &new).await;
}

/// The store is older than the token, for example after a backup was restored.
#[tokio::test]
async fn a_token_newer_than_the_store_is_rejected_without_revocation() {
    let upstream = Upstream::start();
    let mut gateway = Gateway::start(&upstream);
    let first = gateway.issue("alice", "").await;
    gateway.drain();
    let database = gateway.path().join("bearward.db");
    let backup = gateway.path().join("backup.db");
    std::fs::copy(&database, &backup).expect("copied");

    let mut gateway = gateway.restart();
    let second = refreshed(&gateway, &first).await;
    let third = refreshed(&gateway, &second).await;
    gateway.drain();
    std::fs::copy(&backup, &database).expect("copied");

    let gateway = gateway.restart();
    gateway.refresh(&third.access, &third.refresh).await.assert_rejected(400, "invalid_grant");
    let lines = gateway.log_lines(3).await;
    assert!(lines.iter().any(|line| line["reason"] == "grant_ahead"), "{lines:?}");
    assert_eq!(
        refreshed(&gateway, &first).await.refresh,
        second.refresh,
        "the same token as before the backup was restored"
    );
}
