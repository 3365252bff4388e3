//! Two gateways on one PostgreSQL: a browser is at one now and at the other then.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::refresh::{KEYS, at_once, refreshes};
use super::{APP, CALLBACK, everything, folder, is_ready, provider};
use crate::support::clock::ManualClock;
use crate::support::postgres::{PostgresServer, USER};
use crate::support::visitor::Visitor;
use crate::support::wait::{eventually, eventually_ok, eventually_within};
use crate::support::{Gateway, OidcProvider, Upstream};

struct Replicas {
    provider: OidcProvider,
    _upstream: Upstream,
    gateways: [Gateway; 2],
    alice: Visitor,
    /// In PostgreSQL.
    schema: String,
}

impl Replicas {
    /// `more`: settings of the provider.
    async fn start(more: Value) -> Replicas {
        let (provider, upstream) = (provider::start(more), Upstream::start());
        let store = PostgresServer::shared().store_keys();
        let schema = store.split('"').nth_back(1).expect("the schema").to_owned();
        let more = format!("[store]\n{store}\n{}", everything(&provider.issuer, KEYS));
        let text = Gateway::config_text(&upstream.address.to_string(), &more);
        let clock = Arc::new(ManualClock::new());
        let folders = [folder(), folder()];
        let start = |number: usize| Gateway::in_folder(text.clone(), folders[number].clone(), clock.clone());
        let first = start(0);
        let secret = |number: usize| folders[number].path().join("bearward.secret");
        std::fs::copy(secret(0), secret(1)).expect("copied");
        let gateways = [first, start(1)];
        for gateway in &gateways {
            is_ready(gateway.address()).await;
        }
        let alice = Visitor::of(&gateways[0]);
        Replicas { provider, _upstream: upstream, gateways, alice, schema }
    }

    /// The browser at this gateway.
    fn at(&self, number: usize) -> Visitor {
        let mut visitor = self.alice.clone();
        visitor.move_to(&self.gateways[number]);
        visitor
    }

    async fn sign_in(&mut self) {
        assert_eq!(self.alice.navigate(&format!("{APP}/")).await.status, 200, "{:#?}", self.alice.way);
    }
}

#[tokio::test]
async fn the_callback_can_come_to_the_other_gateway() {
    let mut both = Replicas::start(json!({})).await;
    let back = both.alice.navigate_until(&format!("{APP}/orders"), CALLBACK).await;
    both.alice.move_to(&both.gateways[1]);
    let page = both.alice.load(&back).await;
    assert_eq!((page.status.as_u16(), page.header("location")), (303, Some("https://app.example/orders")));
    for number in [0, 1] {
        assert_eq!(both.at(number).fetch(&format!("{APP}/")).await.status, 200, "{number}");
    }
}

#[tokio::test]
async fn two_callbacks_at_two_gateways_send_one_code() {
    let mut both = Replicas::start(json!({})).await;
    let back = both.alice.navigate_until(&format!("{APP}/orders"), CALLBACK).await;
    let (mut one, mut other) = (both.at(0), both.at(1));
    let (first, second) = tokio::join!(one.load(&back), other.load(&back));
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (303, 303));
    assert_eq!(both.provider.log("token").await.len(), 1);
    assert!(one.session().is_some() != other.session().is_some());
}

/// The access token lives 4 s, and the provider takes a second for each refresh. Its refresh tokens rotate, and a
/// second use of one ends all.
#[tokio::test]
async fn fifty_requests_at_two_gateways_refresh_once() {
    let more = json!({ "configuration": { "rotateRefreshToken": true }, "ttl": { "AccessToken": 4 } });
    let mut both = Replicas::start(more).await;
    both.sign_in().await;
    both.provider.control("/faults", &json!([{ "path": "/token", "delay_ms": 1_000 }])).await;
    let (one, other) = (both.at(0), both.at(1));
    let found = eventually_within(Duration::from_secs(60), "some refreshes", async || {
        both.gateways[0].advance(Duration::from_secs(1));
        let (first, second) = tokio::join!(at_once(&one, 25), at_once(&other, 25));
        assert_eq!([first, second].concat(), vec![200; 50]);
        let found = refreshes(&both.provider).await;
        if found.len() > 3 { Ok(found) } else { Err(found.len().to_string()) }
    })
    .await;
    let statuses: Vec<_> = found.iter().map(|call| call["status"].clone()).collect();
    assert_eq!(statuses, vec![json!(200); found.len()], "no refresh token was used twice");
}

#[tokio::test]
async fn a_sign_out_at_one_gateway_ends_the_session_at_the_other() {
    let mut both = Replicas::start(json!({})).await;
    both.sign_in().await;
    let (mut here, mut there) = (both.at(0), both.at(1));
    assert_eq!(there.fetch(&format!("{APP}/")).await.status, 200);
    assert_eq!(here.submit(&format!("{APP}/oauth2/sign_out"), "").await.status, 303);
    eventually_ok("the session ends there", async || match there.fetch(&format!("{APP}/")).await.status.as_u16() {
        401 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    eventually_ok("the refresh token is revoked once", async || match both.provider.log("revocation").await.len() {
        1 => Ok(()),
        count => Err(count.to_string()),
    })
    .await;
}

/// As if the gateway had been stopped for longer than its lease after it had asked the provider.
#[tokio::test]
async fn a_gateway_that_lost_its_lease_ends_no_session() {
    let rotates = json!({ "configuration": { "rotateRefreshToken": true }, "ttl": { "AccessToken": 4 } });
    let mut both = Replicas::start(rotates).await;
    both.sign_in().await;
    // What the first of both gets, after the other one has spent the refresh token.
    let rejected = json!({ "error": "invalid_grant" }).to_string();
    let headers = json!({ "content-type": "application/json" });
    let fault = json!({ "path": "/token", "delay_ms": 3_000, "status": 400, "headers": headers, "body": rejected });
    let mut faults = json!([fault]);
    faults[0]["times"] = json!(1);
    both.provider.control("/faults", &faults).await;
    both.gateways[0].advance(Duration::from_secs(5));
    let sql = |text: &str| PostgresServer::shared().sql(USER, &format!("set search_path to {}; {text}", both.schema));
    let mut one = both.at(0);
    let first = tokio::spawn(async move { one.fetch(&format!("{APP}/")).await.status });
    let held = "select count(*) from provider_logins where held_until > 1";
    eventually("the first gateway asks the provider", || sql(held).ends_with('1')).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    sql("update provider_logins set held_until = 1");
    assert_eq!(both.at(1).fetch(&format!("{APP}/")).await.status, 200);
    first.await.expect("no panic");
    for number in [0, 1] {
        assert_eq!(both.at(number).fetch(&format!("{APP}/")).await.status, 200, "{number}");
    }
}
