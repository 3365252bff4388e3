//! The provider learns of each session that has ended here.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;

use super::refresh::signed_in;
use super::unused::revoked;
use super::{APP, is_ready};
use crate::support::Gateway;

/// As the operator restarts the gateway within seconds of a sign-out: it had no time to tell the provider. The first
/// thing that the next start does is a sweep.
#[tokio::test]
async fn a_sign_out_just_before_a_restart_reaches_the_provider() {
    let (provider, _upstream, gateway, mut alice) = signed_in("").await;
    let issued = provider.log("token").await.remove(0)["body"]["refresh_token"].clone();
    assert_eq!(alice.submit(&format!("{APP}/oauth2/sign_out"), "").await.status, 303);
    let gateway = gateway.restart();
    is_ready(gateway.address()).await;
    // The first look may have been before the metadata of the provider was known.
    gateway.advance(Duration::from_secs(60));
    assert_eq!(revoked(&provider).await, issued);
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
