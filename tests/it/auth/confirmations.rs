//! The first use of a refreshed token confirms the refresh, also if the store cannot be told at once.

use std::time::Duration;

use crate::support::postgres::PostgresServer;
use crate::support::wait::eventually_within;
use crate::support::{Gateway, TokenPair, Upstream};

/// A stolen parent must not get the pair of its child because the database was away when the child was used.
#[tokio::test]
async fn an_outage_of_the_database_loses_no_confirmation() {
    let mut server = PostgresServer::start();
    let upstream = Upstream::start();
    let more = format!("[store]\n{}\n", server.store_keys());
    let text = Gateway::config_text(&upstream.address.to_string(), &more);
    let gateway = Gateway::from_text(text.replace("[tokens]\n", "[tokens]\nrefresh_grace = \"1s\"\n"));
    let parent = gateway.issue("alice", "").await;
    let refreshed = gateway.refresh(&parent.access, &parent.refresh).await;
    let child = TokenPair::from_json(&refreshed.json());
    assert_eq!(gateway.client().bearer(&child.access).get("/").await.status, 200);
    server.kill();
    // Longer than the gateway waits between two writes, and than the grace.
    tokio::time::sleep(Duration::from_secs(3)).await;
    gateway.advance(Duration::from_secs(3));
    server.restart();
    let status = eventually_within(Duration::from_secs(60), "the store is back", async || {
        match gateway.refresh(&parent.access, &parent.refresh).await.status.as_u16() {
            503 => Err("503".to_owned()),
            status => Ok(status),
        }
    })
    .await;
    assert_eq!(status, 400, "the parent was used again after its child");
}
