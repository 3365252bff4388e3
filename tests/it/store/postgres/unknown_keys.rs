//! A token can reach a gateway before the news of the key that signed it.

use std::process::Child;
use std::time::Duration;

use serde_json::json;

use super::replicas::gateways;
use crate::support::postgres::PostgresServer;
use crate::support::tokens::header_of;
use crate::support::wait::{eventually, eventually_within};
use crate::support::{Gateway, Upstream};

/// No gateway can read the log, so that none hears of another one. The signing keys can be read.
fn without_news(server: &PostgresServer, gateway: &Gateway) -> Child {
    let schema = gateway.configuration().split("schema = \"").nth(1).and_then(|rest| rest.split('"').next());
    let table = format!("{}.revocations", schema.expect("a schema"));
    server.open_transaction("bearward", &format!("lock table {table} in access exclusive mode"))
}

async fn rotate(gateway: &Gateway) {
    let rotated = gateway.admin_client().post("/admin/v1/keys/rotate", &json!({ "now": true })).await;
    assert_eq!(rotated.status, 200, "{rotated:?}");
}

#[tokio::test]
async fn a_key_that_is_news_is_looked_up_before_a_token_is_rejected() {
    let (upstream, server) = (Upstream::start(), PostgresServer::start());
    let [one, two] = gateways(&server, &upstream, "", "");
    let old = two.issue("alice", "").await;
    let mut lock = without_news(&server, &one);
    let is_held = "select count(*) from pg_locks where mode = 'AccessExclusiveLock' and granted
        and relation::regclass::text like '%revocations'";
    eventually("the log is locked", || server.sql("bearward", is_held) == "1").await;
    rotate(&one).await;
    let new = one.issue("alice", "").await;
    assert_ne!(header_of(&new.access)["kid"], header_of(&old.access)["kid"]);
    assert_eq!(two.status_of(&new.access).await, 200, "the first request with the new key");
    rotate(&one).await;
    let newer = one.issue("bob", "").await;
    assert_eq!(two.status_of(&newer.access).await, 503, "the clock stands still, so the gateway does not look again");
    two.advance(Duration::from_millis(20));
    let refreshed = two.refresh(&newer.access, &newer.refresh).await;
    assert_eq!(refreshed.status, 200, "a refresh looks, too: {refreshed:?}");
    lock.kill().expect("it runs");
    lock.wait().expect("it runs");
}

/// It may be the next key of a gateway, so that the client should try again.
#[tokio::test]
async fn an_unknown_key_gets_503_while_the_database_is_away() {
    let (upstream, mut server) = (Upstream::start(), PostgresServer::start());
    let [gateway] = gateways(&server, &upstream, "", "");
    let known = gateway.issue("alice", "").await;
    let other = Gateway::start(&upstream).issue("alice", "").await.access;
    assert_eq!(gateway.status_of(&other).await, 401);
    server.kill();
    eventually_status(&gateway, &other, 503).await;
    assert_eq!(gateway.status_of(&known.access).await, 200);
    server.restart();
    eventually_status(&gateway, &other, 401).await;
}

async fn eventually_status(gateway: &Gateway, access: &str, expected: u16) {
    eventually_within(Duration::from_secs(20), "the status changes", async || {
        // The next look.
        gateway.advance(Duration::from_secs(1));
        match gateway.status_of(access).await {
            status if status == expected => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
}
