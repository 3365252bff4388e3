//! Two gateways on one PostgreSQL.

use std::sync::Arc;

use bearward::tokens::jwt::Algorithm;
use futures_util::future::join_all;
use serde_json::json;
use tempfile::TempDir;

use super::{ACCESS_TOKEN, PARTIES, RULE, SHOP, access_token, exchange_by, revoke, write_keys};
use crate::gateway::oauth::clients::MachineKey;
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::tokens::Mint;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream};

#[tokio::test]
async fn two_gateways_exchange_a_token_once_and_end_it_together() {
    let (upstream, clock) = (Upstream::start(), Arc::new(ManualClock::new()));
    let (login, client) = (Mint::new(Algorithm::ES256), MachineKey::new());
    let store = PostgresServer::shared().store_keys();
    let rules = format!("[store]\n{store}\n{PARTIES}{RULE}single_use = true\n");
    let text = Gateway::config_text(&upstream.address.to_string(), &rules);
    let folders = [0, 1].map(|_| Arc::new(TempDir::new().expect("a folder")));
    let start = |folder: &Arc<TempDir>| {
        write_keys(folder, &login, &client);
        Gateway::in_folder(text.clone(), folder.clone(), clock.clone())
    };
    let first = start(&folders[0]);
    std::fs::copy(folders[0].path().join("bearward.secret"), folders[1].path().join("bearward.secret"))
        .expect("copied");
    let gateways = [first, start(&folders[1])];
    let now = gateways[0].now_secs();
    let subject = login.with_claims(now, json!({ "aud": SHOP, "jti": "once", "sid": "s1" }));
    let calls = (0..12).map(|call| {
        let (gateway, subject, assertion) = (&gateways[call % 2], &subject, client.assertion(now));
        async move { exchange_by(gateway, ACCESS_TOKEN, subject, Some(&assertion), &[]).await }
    });
    let responses = join_all(calls).await;
    let granted: Vec<_> = responses.iter().filter(|response| response.status == 200).collect();
    assert_eq!(granted.len(), 1, "{responses:?}");
    let access = access_token(granted[0]);
    let becomes = async |gateway: &Gateway, expected: u16| {
        eventually_ok(&format!("the status becomes {expected}"), async || match gateway.status_of(&access).await {
            status if status == expected => Ok(()),
            status => Err(status.to_string()),
        })
        .await;
    };
    becomes(&gateways[0], 200).await;
    becomes(&gateways[1], 200).await;
    revoke(&gateways[0], json!({ "session": "s1" })).await;
    assert_eq!(gateways[0].status_of(&access).await, 401);
    becomes(&gateways[1], 401).await;
}
