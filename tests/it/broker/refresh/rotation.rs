//! The rotation table, row by row, on a clock that is moved by hand.

use std::time::Duration;

use bearward::tokens::family::revocation::Revoked;
use serde_json::json;

use super::{DAY, HOUR, MILLISECOND, listed, pair_of, refreshed};
use crate::support::gateway::ISSUER;
use crate::support::{Gateway, TestResponse, TokenPair, Upstream};

const GRACE: Duration = Duration::from_secs(10);
const AFTER_GRACE: Duration = Duration::from_millis(10_001);

/// A login, and every pair that it was given: generation 1 first.
struct Login<'g> {
    gateway: &'g Gateway,
    pairs: Vec<TokenPair>,
}

impl<'g> Login<'g> {
    async fn new(gateway: &'g Gateway) -> Login<'g> {
        Login { gateway, pairs: vec![gateway.issue("alice", "").await] }
    }

    async fn in_generation(gateway: &'g Gateway, generation: usize) -> Login<'g> {
        let mut login = Login::new(gateway).await;
        while login.pairs.len() < generation {
            login.pairs.push(refreshed(gateway, login.newest()).await);
        }
        login
    }

    fn newest(&self) -> &TokenPair {
        self.pairs.last().expect("it started with one")
    }

    /// Presents the refresh token of a generation, with the newest access token.
    async fn present(&self, generation: usize) -> TestResponse {
        self.gateway.refresh(&self.newest().access, &self.pairs[generation - 1].refresh).await
    }

    /// Asserts that the family is dead: no token of it is good for anything any more.
    async fn is_dead(&self) {
        for pair in &self.pairs {
            assert_eq!(self.gateway.status_of(&pair.access).await, 401);
            self.gateway.refresh(&pair.access, &pair.refresh).await.assert_rejected(400, "invalid_grant");
        }
        assert_eq!(listed(self.gateway, self.newest(), "alice").await["state"], "revoked");
    }

    /// Asserts that nothing happened to the family: its newest token still rotates.
    async fn lives_on(&self) {
        assert_eq!(self.gateway.status_of(&self.newest().access).await, 200);
        let next = pair_of(&self.present(self.pairs.len()).await);
        assert!(self.pairs.iter().all(|pair| pair.refresh != next.refresh), "it rotated");
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// A new generation.
    Rotated,
    /// The newest generation again, byte for byte, with a fresh access token.
    TheChildAgain,
    Conflict,
    /// Refused, and the family is dead.
    Reuse,
}

/// Of which generation an access token was used before the refresh.
const NONE: Option<usize> = None;

/// A family in generation c; which access token was used; how long after c was made; the generation p that is presented.
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
        // p = c - 1, within the grace
        (2, NONE, now, 1, TheChildAgain),
        (2, Some(2), now, 1, TheChildAgain),
        (3, NONE, GRACE, 2, TheChildAgain),
        (3, Some(3), GRACE, 2, TheChildAgain),
        // p = c - 1, later: was the child's access token seen?
        (2, NONE, AFTER_GRACE, 1, TheChildAgain),
        (3, NONE, AFTER_GRACE, 2, TheChildAgain),
        (3, Some(2), AFTER_GRACE, 2, TheChildAgain),
        (3, Some(2), 6 * DAY, 2, TheChildAgain),
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
        let login = Login::in_generation(&gateway, c).await;
        if let Some(generation) = used {
            assert_eq!(gateway.status_of(&login.pairs[generation - 1].access).await, 200);
        }
        gateway.advance(after);
        let response = login.present(p).await;
        match outcome {
            Rotated => {
                let next = pair_of(&response);
                assert!(login.pairs.iter().all(|pair| pair.refresh != next.refresh));
                assert_eq!(gateway.status_of(&next.access).await, 200);
            }
            TheChildAgain => {
                let again = pair_of(&response);
                assert_eq!(again.refresh, login.newest().refresh);
                assert_ne!(again.access, login.newest().access);
                assert_eq!(gateway.status_of(&again.access).await, 200);
                let next = pair_of(&gateway.refresh(&again.access, &again.refresh).await);
                assert_ne!(next.refresh, again.refresh, "and the child rotates");
            }
            Conflict => {
                response.assert_rejected(409, "refresh_conflict");
                assert_eq!(response.header("retry-after"), Some("1"));
                login.lives_on().await;
            }
            Reuse => {
                response.assert_rejected(400, "invalid_grant");
                login.is_dead().await;
            }
        }
    }
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_retry_does_not_stretch_the_grace() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let login = Login::in_generation(&gateway, 2).await;
    assert_eq!(gateway.status_of(&login.newest().access).await, 200);
    for _ in 0..2 {
        gateway.advance(GRACE / 2);
        assert_eq!(pair_of(&login.present(1).await).refresh, login.newest().refresh);
    }
    gateway.advance(MILLISECOND);
    login.present(1).await.assert_rejected(400, "invalid_grant");
    login.is_dead().await;
}

#[tokio::test]
async fn a_reuse_is_remembered_through_a_restart_and_its_reason_is_in_the_log() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let login = Login::in_generation(&gateway, 2).await;
    let neighbour = gateway.issue("alice", "").await;
    assert_eq!(gateway.status_of(&login.newest().access).await, 200);
    gateway.advance(AFTER_GRACE);
    login.present(1).await.assert_rejected(400, "invalid_grant");
    let lines = gateway.log_lines(3).await;
    let line = lines.iter().find(|line| line["status"] == 400).expect("a line for each request");
    assert_eq!(
        (&line["reason"], &line["token_id"]),
        (&"grant_reused".into(), &login.newest().token_id.as_str().into())
    );

    let pairs = login.pairs.clone();
    let gateway = gateway.restart();
    Login { gateway: &gateway, pairs }.is_dead().await;
    assert_eq!(gateway.status_of(&neighbour.access).await, 200, "another login of hers is not touched");
    refreshed(&gateway, &neighbour).await;
    gateway.drain_and_check_log();
}

#[tokio::test]
async fn a_login_that_is_not_refreshed_for_the_idle_limit_is_dead() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    gateway.advance(7 * DAY - MILLISECOND);
    let next = refreshed(&gateway, &pair).await;
    gateway.advance(7 * DAY);
    gateway.refresh(&next.access, &next.refresh).await.assert_rejected(400, "invalid_grant");
}

#[tokio::test]
async fn thirty_days_after_the_login_refreshing_does_not_help() {
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
    assert_eq!(response.json()["expiresAt"], login + 30 * 86_400, "no access token outlives its login");
    gateway.advance(MILLISECOND);
    gateway.refresh(&last.access, &last.refresh).await.assert_rejected(400, "invalid_grant");
}

#[tokio::test]
async fn a_shorter_idle_limit_of_one_login_stays_with_it_through_rotation() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let kiosk = TokenPair::from_json(&gateway.request_tokens(&json!({ "sub": "alice", "idle": 3_600 })).await.json());
    gateway.advance(HOUR - MILLISECOND);
    let next = refreshed(&gateway, &kiosk).await;
    gateway.advance(HOUR);
    gateway.refresh(&next.access, &next.refresh).await.assert_rejected(400, "invalid_grant");
}

#[tokio::test]
async fn a_login_that_is_not_younger_than_its_subjects_watermark_is_dead() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let (old, other) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let now = bearward::types::clock::UnixTime::from_secs(gateway.now_secs());
    let everything_of_alice = Revoked::Subject { issuer: ISSUER.into(), subject: "alice".into(), not_after: now };
    gateway.running().broker.store.revoke(everything_of_alice, now.into()).await.expect("the store works");

    assert_eq!(gateway.status_of(&old.access).await, 401);
    gateway.refresh(&old.access, &old.refresh).await.assert_rejected(400, "invalid_grant");
    refreshed(&gateway, &other).await;
    let new = gateway.issue("alice", "").await;
    assert_eq!(gateway.status_of(&new.access).await, 200, "a login in the same second works");
    refreshed(&gateway, &new).await;
}

/// A backup was restored, or a disk lost what it had acknowledged.
#[tokio::test]
async fn a_token_that_is_newer_than_the_store_is_refused_and_the_login_is_not_ended() {
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
    assert_eq!(refreshed(&gateway, &first).await.refresh, second.refresh, "the same token, derived again");
}
