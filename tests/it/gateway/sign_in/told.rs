//! The provider learns of each session that has ended here.

use std::time::Duration;

use bearward::admin::SecretSource;
use bearward::app;
use rusqlite::Connection;
use serde_json::json;

use super::liar::{Liar, Lies};
use super::lies::{claims, map};
use super::refresh::{signed_in, signed_in_with};
use super::unused::revoked;
use super::{APP, everything, gateway, is_ready, journal};
use crate::support::postgres::PostgresServer;
use crate::support::visitor::Visitor;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream, secrets};

/// As the operator restarts the gateway within seconds of a sign-out: it had no time to tell the provider. The first
/// thing that the next start does is a sweep. `store`: the section `[store]`.
async fn a_sign_out_just_before_a_restart_reaches_the_provider(store: &str) {
    let (provider, _upstream, gateway, mut alice) = signed_in_with(store, "").await;
    let issued = provider.log("token").await.remove(0)["body"]["refresh_token"].clone();
    assert_eq!(alice.submit(&format!("{APP}/oauth2/sign_out"), "").await.status, 303);
    let gateway = gateway.restart();
    is_ready(gateway.address()).await;
    // The first look may have been before the metadata of the provider was known.
    gateway.advance(Duration::from_secs(60));
    assert_eq!(revoked(&provider).await, issued);
}

#[tokio::test]
async fn a_sign_out_just_before_a_restart_reaches_the_provider_with_sqlite() {
    a_sign_out_just_before_a_restart_reaches_the_provider("").await;
}

#[tokio::test]
async fn a_sign_out_just_before_a_restart_reaches_the_provider_with_postgresql() {
    let store = format!("[store]\n{}\n", PostgresServer::shared().store_keys());
    a_sign_out_just_before_a_restart_reaches_the_provider(&store).await;
}

/// The number of logins in the store.
fn logins(gateway: &Gateway) -> i64 {
    let database = Connection::open(gateway.path().join("bearward.db")).expect("it opens");
    database.query_row("select count(*) from provider_logins", [], |row| row.get(0)).expect("a number")
}

/// A configuration without the provider, for example in the middle of an update, does not make the gateway forget.
#[tokio::test]
async fn a_login_outlives_the_removal_of_its_provider() {
    let (provider, _upstream, gateway, mut alice) = signed_in("").await;
    let issued = provider.log("token").await.remove(0)["body"]["refresh_token"].clone();
    provider.control("/faults", &json!([{ "path": "/token/revocation", "status": 503 }])).await;
    assert_eq!(alice.submit(&format!("{APP}/oauth2/sign_out"), "").await.status, 303);
    let gateway = gateway.restart_with(|text| text.replace("\"main\"", "\"renamed\""));
    provider.control("/faults", &json!([])).await;
    gateway.advance(Duration::from_secs(61));
    // A sweep at the start of this gateway has seen it. No provider of its configuration has the name.
    assert_eq!(logins(&gateway), 1, "the login is there");
    let gateway = gateway.restart_with(|text| text.replace("\"renamed\"", "\"main\""));
    is_ready(gateway.address()).await;
    gateway.advance(Duration::from_secs(61));
    assert_eq!(revoked(&provider).await, issued);
}

/// Waits until the gateway has tried to tell the provider of the only login, or has deleted it.
async fn is_tried(gateway: &Gateway) {
    let path = gateway.path().join("bearward.db");
    let untried = "select count(*) from provider_logins where ended_at is null";
    eventually_ok("the provider was to be told", async || {
        let database = Connection::open(&path).expect("it opens");
        match database.query_row(untried, [], |row| row.get::<_, i64>(0)).expect("a number") {
            0 => Ok(()),
            count => Err(count.to_string()),
        }
    })
    .await;
}

/// Alice has a session, with a refresh token of this provider.
async fn signed_in_at(liar: &Liar, gateway: &Gateway) -> Visitor {
    let later = gateway.now_secs() + 36_000;
    liar.tell(Lies { response: map(json!({ "refresh_token": "a-refresh-token" })), ..claims(json!({ "exp": later })) });
    let mut alice = Visitor::of(gateway);
    assert_eq!(liar.sign_in(&mut alice, |back| back).await.status, 303);
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    alice
}

async fn sign_out(alice: &mut Visitor) {
    assert_eq!(alice.submit(&format!("{APP}/oauth2/sign_out"), "").await.status, 303);
}

/// The gateway starts again. The last attempt was more than a minute ago.
async fn restarted(gateway: Gateway, edit: impl FnOnce(String) -> String) -> Gateway {
    let gateway = gateway.restart_with(edit);
    is_ready(gateway.address()).await;
    gateway.advance(Duration::from_secs(61));
    gateway
}

async fn is_revoked(liar: &Liar) {
    eventually_ok("the refresh token is revoked", async || match liar.revoked() {
        revoked if revoked == ["a-refresh-token"] => Ok(()),
        revoked => Err(format!("{revoked:?}")),
    })
    .await;
}

/// As the operator corrects a mistake in the configuration a little later.
#[tokio::test]
async fn a_login_outlives_another_issuer_of_its_provider() {
    let metadata = json!({ "revocation_endpoint": "ISSUER/revoke" });
    let (old, new, upstream) = (Liar::start(&metadata), Liar::start(&metadata), Upstream::start());
    let gateway = gateway(&upstream, &everything(&old.issuer, "")).await;
    let mut alice = signed_in_at(&old, &gateway).await;
    let gateway = restarted(gateway, |text| text.replace(&old.issuer, &new.issuer)).await;
    alice.move_to(&gateway);
    sign_out(&mut alice).await;
    is_tried(&gateway).await;
    let gateway = restarted(gateway, |text| text.replace(&new.issuer, &old.issuer)).await;
    is_revoked(&old).await;
    assert_eq!((new.exchanges().len(), new.revoked().len()), (0, 0));
    eventually_ok("the login is forgotten", async || match logins(&gateway) {
        0 => Ok(()),
        count => Err(count.to_string()),
    })
    .await;
}

#[tokio::test]
async fn a_login_outlives_the_loss_of_its_root_secret() {
    let unusable = json!({ "revocation_endpoint": "/revoke" });
    let (liar, upstream, start) = (Liar::start(&unusable), Upstream::start(), secrets::capture_log());
    let text = everything(&liar.issuer, "").replace("\"main\"", "\"unopened\"");
    let gateway = gateway(&upstream, &text).await;
    let mut alice = signed_in_at(&liar, &gateway).await;
    sign_out(&mut alice).await;
    is_tried(&gateway).await;
    let file = gateway.path().join("bearward.secret");
    app::add_root(&SecretSource::File(file.clone())).expect("added");
    let gateway = restarted(gateway, |text| text).await;
    liar.announce(&json!({ "revocation_endpoint": "ISSUER/revoke" }));
    let both = std::fs::read_to_string(&file).expect("read");
    std::fs::write(&file, both.lines().last().expect("the newest")).expect("written");
    let gateway = restarted(gateway, |text| text).await;
    eventually_ok("it is tried", async || {
        let lines = journal(start, "unopened");
        let missing = lines.iter().filter(|line| line.contains("root secret is missing"));
        if missing.count() == 1 { Ok(()) } else { Err(format!("{lines:?}")) }
    })
    .await;
    assert_eq!(logins(&gateway), 1, "the login is there");
    std::fs::write(&file, both).expect("written");
    let _gateway = restarted(gateway, |text| text).await;
    is_revoked(&liar).await;
}

#[tokio::test]
async fn a_login_outlives_an_endpoint_that_cannot_be_used() {
    for unusable in [json!("/revoke"), json!(""), json!(["ISSUER/revoke"]), json!("ftp://login.example/revoke")] {
        let liar = Liar::start(&json!({ "revocation_endpoint": unusable }));
        let upstream = Upstream::start();
        let gateway = gateway(&upstream, &everything(&liar.issuer, "")).await;
        let mut alice = signed_in_at(&liar, &gateway).await;
        sign_out(&mut alice).await;
        is_tried(&gateway).await;
        // The provider corrects its document.
        liar.announce(&json!({ "revocation_endpoint": "ISSUER/revoke" }));
        let _gateway = restarted(gateway, |text| text).await;
        is_revoked(&liar).await;
    }
}

/// The provider failed on Friday, and the gateway was stopped over the weekend.
#[tokio::test]
async fn a_login_outlives_days_without_a_gateway() {
    let (provider, _upstream, gateway, mut alice) = signed_in("").await;
    let issued = provider.log("token").await.remove(0)["body"]["refresh_token"].clone();
    provider.control("/faults", &json!([{ "path": "/token/revocation", "status": 503 }])).await;
    sign_out(&mut alice).await;
    is_tried(&gateway).await;
    gateway.advance(Duration::from_hours(64));
    // The provider still fails when it starts: the first sweep comes before the token can be revoked.
    let gateway = restarted(gateway, |text| text).await;
    let labels = "provider=\"main\",call=\"revocation\",outcome=\"failed\"";
    eventually_ok("it is tried again", async || {
        match gateway.metric(&format!("bearward_provider_calls_total{{{labels}}}")).await {
            0.0 => Err("no call".to_owned()),
            _ => Ok(()),
        }
    })
    .await;
    assert_eq!(logins(&gateway), 1, "the login is there");
    provider.control("/faults", &json!([])).await;
    gateway.advance(Duration::from_secs(61));
    assert_eq!(revoked(&provider).await, issued);
}
