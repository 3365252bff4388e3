//! Gateways with different lifetimes on one database, as while an operator changes the configuration of one after the
//! other.

use std::sync::Arc;
use std::time::Duration;

use bearward::store::{FamilyStore, RevocationStore, RevokeOutcome, RevokedBy, StoreOptions, StoreUpkeep};
use bearward::tokens::family::revocation::Revoked;

use super::{open, try_open};
use crate::support::given::*;
use crate::support::postgres::PostgresServer;

const LONGER: Duration = Duration::from_secs(100_000);

/// The older gateway has read its settings long ago.
#[tokio::test]
async fn a_gateway_revokes_the_longer_tokens_of_another_one() {
    let (server, schema) = (PostgresServer::shared(), PostgresServer::shared().schema());
    let older = open(&schema);
    let family = issued(&older, "alice", LOGIN).await;
    let expired = LOGIN + LIFETIMES.idle;
    let revoke = |at| older.revoke_family(family.id, RevokedBy::Admin, at);
    let after_last_token = expired + LONGEST_LIFE;
    let outcome = revoke(after_last_token.into()).await.expect("the store works");
    assert_eq!(outcome, RevokeOutcome::AlreadyEnded, "no token of it can be valid");

    let settings = StoreOptions { longest_life: LONGER, ..settings() };
    let newer = try_open(server, &schema, settings, Arc::new(|_, _| {})).expect("the store opens");
    let outcome = revoke(after_last_token.into()).await.expect("the store works");
    assert_eq!(outcome, RevokeOutcome::Revoked, "one that the other gateway issued can");
    let jti = Revoked::Token { issuer: "https://login.example".into(), jti: "1".into() };
    older.revoke(jti, LOGIN.into()).await.expect("the store works");
    let log = newer.revocations_since(0).await.expect("the store works");
    let kept: Vec<_> = log.iter().map(|entry| entry.until).collect();
    assert_eq!(kept, [after_last_token + LONGER, LOGIN + LONGER]);

    // The newer one is gone, and the older configuration comes back: its tokens are still out there.
    drop(newer);
    let restarted = open(&schema);
    let jti = Revoked::Token { issuer: "https://login.example".into(), jti: "2".into() };
    restarted.revoke(jti, LOGIN.into()).await.expect("the store works");
    let log = restarted.revocations_since(2).await.expect("the store works");
    assert_eq!(log[0].until, LOGIN + LONGER);
    assert_eq!(restarted.sweep(LOGIN + LONGEST_LIFE * 2, 100).await.expect("the store works"), 0);
}
