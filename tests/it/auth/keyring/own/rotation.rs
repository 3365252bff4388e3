//! A key is published, signs, retires and is deleted, and no request fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::support::TokenPair;
use crate::support::client::KeepAliveClient;
use crate::support::tokens::claims_of;
use crate::support::wait::eventually;

async fn refreshed(gateway: &Gateway, pair: &TokenPair) -> TokenPair {
    let response = gateway.refresh(&pair.access, &pair.refresh).await;
    assert_eq!(response.status, 200, "{response:?}");
    TokenPair::from_json(&response.json())
}

/// The 90 days of a key with the default settings.
#[tokio::test]
async fn keys_rotate_on_schedule() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let first = kid_of(&gateway.issue("alice", "").await.access);
    assert_eq!(published(&gateway).await, [&*first]);

    gateway.advance(DAY * 89 - Duration::from_millis(1));
    // Longer than the interval at which the gateway checks its clock. A rotation would happen in this time.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(states(&listed(&gateway.admin_client()).await), ["active"], "a millisecond before the next key");
    gateway.advance(Duration::from_millis(1));
    let keys = wait_for_states(&gateway, &["pending", "active"]).await;
    let second = keys[0]["kid"].as_str().expect("text").to_owned();
    assert_eq!(published(&gateway).await, [second.clone(), first.clone()], "a day before it signs");
    let pair = gateway.issue("alice", "").await;
    assert_eq!(kid_of(&pair.access), first);

    gateway.advance(DAY);
    wait_for_states(&gateway, &["active", "retired"]).await;
    let next = refreshed(&gateway, &pair).await;
    assert_eq!(kid_of(&next.access), second);
    assert_eq!(published(&gateway).await, [second.clone(), first.clone()], "its last tokens are still valid");

    // 15 minutes of an access token, a clock skew of 5 seconds, and a minute for requests in flight.
    gateway.advance(MINUTE * 17);
    wait_for_states(&gateway, &["active", "refresh-only"]).await;
    wait_for_published(&gateway, &[&second]).await;
    let late = refreshed(&gateway, &TokenPair { refresh: next.refresh, ..pair.clone() }).await;
    assert_eq!(gateway.status_of(&late.access).await, 200);

    gateway.advance(DAY * 7);
    wait_for_states(&gateway, &["active"]).await;
    gateway.refresh(&pair.access, &late.refresh).await.assert_rejected(401, "invalid_token");
}

/// A token that was signed with a retired key after its last regular token had expired must be forged.
#[tokio::test]
async fn a_retired_key_is_accepted_for_refreshes_only() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let old = gateway.running().broker.keyring.keys().own().signing.clone();
    let signed = |gateway: &Gateway| {
        let mut claims = claims_of(&pair.access);
        (claims["iat"], claims["exp"]) = (gateway.now_secs().into(), (gateway.now_secs() + 600).into());
        old.sign(claims.as_object().expect("an object")).expect("signed")
    };
    assert_eq!(rotate_now(&gateway.admin_client()).await.status, 200);
    let early = signed(&gateway);
    assert_eq!((gateway.status_of(&early).await, gateway.status_of(&pair.access).await), (200, 200));

    gateway.advance(MINUTE * 17);
    wait_for_published(&gateway, &[&gateway.running().broker.keyring.keys().own().signing.kid]).await;
    assert_eq!(states(&listed(&gateway.admin_client()).await), ["active", "refresh-only"]);
    let late = signed(&gateway);
    gateway.client().bearer(&late).get("/").await.assert_rejected(401, "invalid_token");
    gateway.wait_for_metric("rejections_total{reason=\"unknown_key\"}", 1).await;
    assert_eq!(gateway.refresh(&late, &pair.refresh).await.status, 200);
}

/// Requests and refreshes on several connections during 30 rotations.
#[tokio::test]
async fn a_rotation_under_load_causes_no_401() {
    const CLIENTS: usize = 6;
    const ROTATIONS: usize = 30;
    let upstream = Upstream::start();
    let gateway = gateway_with_tokens(&upstream, "refresh_grace = \"0s\"");
    let (done, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut pair = gateway.issue(&format!("user-{number}"), "").await;
        let (address, client) = (gateway.address(), gateway.client());
        let (done, requests) = (done.clone(), requests.clone());
        clients.push(tokio::spawn(async move {
            // Two connections, which can belong to different workers. Each refresh opens a third one.
            let mut connections = [KeepAliveClient::open(address).await, KeepAliveClient::open(address).await];
            let mut kids = vec![kid_of(&pair.access)];
            while !done.load(Ordering::Relaxed) {
                for connection in &mut connections {
                    assert_eq!(connection.status_of(&pair.access).await, 200);
                }
                let body = json!({ "refreshToken": pair.refresh });
                let response = client.clone().bearer(&pair.access).post("/user/refresh", &body).await;
                assert_eq!(response.status, 200, "{response:?}");
                let next = TokenPair::from_json(&response.json());
                for access in [&next.access, &pair.access] {
                    assert_eq!(connections[0].status_of(access).await, 200, "the new token and the one before");
                }
                kids.push(kid_of(&next.access));
                pair = next;
                requests.fetch_add(5, Ordering::Relaxed);
            }
            kids.dedup();
            kids.len()
        }));
    }
    let admin = gateway.admin_client();
    for number in 0..ROTATIONS {
        let before = requests.load(Ordering::Relaxed);
        // Every second key is published before it signs.
        if number % 2 == 0 {
            assert_eq!(admin.post("/admin/v1/keys/rotate", &json!({})).await.status, 200);
        }
        let response = rotate_now(&admin).await;
        assert_eq!(response.status, 200, "{response:?}");
        eventually("the clients send 10 requests", || {
            requests.load(Ordering::Relaxed) >= before + 10 || clients.iter().any(|client| client.is_finished())
        })
        .await;
    }
    done.store(true, Ordering::Relaxed);
    let mut seen = 0;
    for client in clients {
        seen += client.await.expect("no request was rejected");
    }
    assert!(seen > ROTATIONS, "the clients received tokens of {seen} keys");
    let keys = listed(&admin).await;
    assert_eq!((keys.len(), count(&keys, "active"), count(&keys, "retired")), (ROTATIONS + 1, 1, ROTATIONS));
}

#[tokio::test]
async fn a_manual_rotation_publishes_the_next_key_first() {
    let upstream = Upstream::start();
    let gateway = gateway_with_tokens(&upstream, "key_ahead = \"1h\"");
    let admin = gateway.admin_client();
    let rotate = async || admin.post("/admin/v1/keys/rotate", &json!({})).await.json();
    let response = rotate().await;
    assert_eq!(states(response["keys"].as_array().expect("a list")), ["pending", "active"]);
    assert_eq!(rotate().await, response, "a second call creates no third key");
    let next = response["keys"][0]["kid"].as_str().expect("text").to_owned();
    assert_ne!(kid_of(&gateway.issue("alice", "").await.access), next);
    gateway.advance(MINUTE * 60);
    wait_for_states(&gateway, &["active", "retired"]).await;
    assert_eq!(kid_of(&gateway.issue("alice", "").await.access), next);
}

#[tokio::test]
async fn the_number_of_signing_keys_is_limited() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let admin = gateway.admin_client();
    for _ in 1..64 {
        assert_eq!(rotate_now(&admin).await.status, 200);
    }
    let response = rotate_now(&admin).await;
    response.assert_rejected(429, "rate_limited");
    let active = listed(&admin).await.into_iter().find(|key| key["state"] == "active").expect("an active key");
    let revoke = format!("/admin/v1/keys/{}/revoke", active["kid"].as_str().expect("text"));
    assert_eq!(admin.post(&revoke, &json!({})).await.status, 200, "a revocation has no limit");
}

#[tokio::test]
async fn the_age_of_the_signing_key_is_a_metric() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    gateway.advance(DAY);
    let metric = async |name: &str| {
        let page = gateway.admin_client().get("/metrics").await.text();
        let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}: {page}"));
        line.trim().parse::<f64>().expect("a number")
    };
    let (age, next) = ("bearward_signing_key_age_seconds ", "bearward_signing_key_rotation_seconds ");
    assert_eq!((metric(age).await, metric(next).await), (86_400.0, 89.0 * 86_400.0));
    assert_eq!(rotate_now(&gateway.admin_client()).await.status, 200);
    assert_eq!((metric(age).await, metric(next).await), (0.0, 90.0 * 86_400.0));
    assert_eq!(gateway.admin_client().post("/admin/v1/keys/rotate", &json!({})).await.status, 200);
    assert_eq!(metric(next).await, 86_400.0, "the next key is published already");
}
