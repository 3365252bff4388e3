//! A graceful stop, or a part of the provider that fails, while a refresh runs: the new refresh token is not lost.

use std::time::Duration;

use serde_json::json;

use super::refresh::{at_once, is_refreshed, refreshes, signed_in};
use super::{APP, is_ready};
use crate::support::wait::eventually_ok;

#[tokio::test]
async fn a_stop_waits_for_the_response_of_the_provider() {
    let (provider, _upstream, gateway, mut alice) = signed_in("").await;
    provider.control("/faults", &json!([{ "path": "/token", "delay_ms": 1_500 }])).await;
    gateway.advance(Duration::from_secs(550));
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200, "it does not wait");
    eventually_ok("the refresh has begun", async || match provider.log("fault").await.len() {
        0 => Err(String::new()),
        _ => Ok(()),
    })
    .await;
    let gateway = gateway.restart();
    provider.control("/faults", &json!([])).await;
    is_ready(gateway.address()).await;
    alice.move_to(&gateway);
    is_refreshed(&provider, 1).await;
    gateway.advance(Duration::from_secs(700));
    assert_eq!(alice.fetch(&format!("{APP}/")).await.status, 200);
    let statuses: Vec<_> = refreshes(&provider).await.iter().map(|call| call["status"].clone()).collect();
    assert_eq!(statuses, [200, 200], "no refresh token was used twice");
}

/// The refresh token has changed already, and the ID token has all that UserInfo had stated.
#[tokio::test]
async fn a_failure_of_userinfo_ends_no_login() {
    let (provider, _upstream, gateway, alice) = signed_in("claims = [\"email\", \"nickname\"]").await;
    provider.control("/faults", &json!([{ "path": "/me", "status": 503 }])).await;
    for round in 1..=3 {
        gateway.advance(Duration::from_secs(700));
        assert_eq!(at_once(&alice, 10).await, vec![200; 10], "{round}");
        is_refreshed(&provider, round).await;
    }
    provider.control("/faults", &json!([])).await;
    gateway.advance(Duration::from_secs(700));
    assert_eq!(at_once(&alice, 10).await, vec![200; 10]);
    let statuses: Vec<_> = refreshes(&provider).await.iter().map(|call| call["status"].clone()).collect();
    assert_eq!(statuses, [200; 4], "no refresh token was used twice");
}

/// The next attempt is soon, and not when a lease ends.
#[tokio::test]
async fn a_failed_refresh_is_repeated_after_seconds() {
    let (provider, _upstream, gateway, alice) = signed_in("").await;
    provider.control("/faults", &json!([{ "path": "/token", "status": 500, "times": 1 }])).await;
    gateway.advance(Duration::from_secs(700));
    assert_eq!(at_once(&alice, 10).await, vec![200; 10]);
    assert_eq!((refreshes(&provider).await.len(), provider.log("fault").await.len()), (0, 1));
    gateway.advance(Duration::from_secs(11));
    assert_eq!(at_once(&alice, 10).await, vec![200; 10]);
    is_refreshed(&provider, 1).await;
}
