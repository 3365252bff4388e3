//! Sessions in PostgreSQL, as clients see them: through one gateway, through two, and while the server is away.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{assert_open, close_frame, open, revoked, within_a_second};
use crate::gateway::provider_events::{Signer, push, transmitter};
use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::replicas::{copy_roots, folder, gateway, store_keys, two_gateways};
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, TestResponse, TokenPair, Upstream};

async fn refreshed(gateway: &Gateway, pair: &TokenPair) -> TokenPair {
    let response = gateway.refresh(&pair.access, &pair.refresh).await;
    assert_eq!(response.status, 200, "{response:?}");
    TokenPair::from_json(&response.json())
}

async fn listed(gateway: &Gateway, subject: &str) -> Vec<Value> {
    let page = gateway.admin_client().get(&format!("/admin/v1/subjects/{subject}/tokens")).await.json();
    page["tokens"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn sessions_are_kept_over_a_restart() {
    let upstream = Upstream::start();
    let running = gateway(&upstream, &store_keys(), &folder(), &Arc::new(ManualClock::new()));
    let (alice, bob) = (running.issue("alice", "").await, running.issue("bob", "").await);
    let next = refreshed(&running, &alice).await;
    assert_eq!(running.status_of(&next.access).await, 200);
    assert_eq!(running.revoke(&bob.access, &bob.token_id).await.status, 200);
    assert_eq!(running.status_of(&bob.access).await, 401, "the gateway that revoked it enforces it at once");
    assert_eq!(listed(&running, "alice").await.len(), 1);

    let running = running.restart();
    assert_eq!(running.status_of(&next.access).await, 200);
    assert_eq!(running.status_of(&bob.access).await, 401, "revocations are loaded at the start");
    running.refresh(&bob.access, &bob.refresh).await.assert_rejected(400, "invalid_grant");
    let last = refreshed(&running, &next).await;
    assert_eq!(last.token_id, alice.token_id);
    assert_eq!(running.admin_client().delete("/admin/v1/subjects/alice/tokens").await.status, 200);
    assert_eq!(running.status_of(&last.access).await, 401);
    running.drain_and_check_log();
}

#[tokio::test]
async fn a_token_is_refreshed_once_by_two_gateways() {
    let upstream = Upstream::start();
    let gateways = two_gateways(&upstream);
    let mut pair = gateways[0].issue("alice", "").await;
    for _ in 0..3 {
        let refreshes = (0..32).map(|tab| gateways[tab % 2].refresh(&pair.access, &pair.refresh));
        let mut children = HashSet::new();
        for response in join_all(refreshes).await {
            assert_eq!(response.status, 200, "{response:?}");
            let child = TokenPair::from_json(&response.json());
            children.insert(child.refresh.clone());
            pair = child;
        }
        assert_eq!(children.len(), 1, "all tabs get the same refresh token");
        for gateway in &gateways {
            assert_eq!(gateway.status_of(&pair.access).await, 200, "both know the key that signed it");
        }
    }
    let shown = listed(&gateways[1], "alice").await;
    assert_eq!(shown.len(), 1);
}

/// A refresh reads the database, so it does not depend on what a gateway has heard.
#[tokio::test]
async fn a_logout_through_one_gateway_ends_refreshes_of_the_other() {
    let upstream = Upstream::start();
    let [here, there] = two_gateways(&upstream);
    let (alice, bob) = (here.issue("alice", "").await, here.issue("bob", "").await);
    assert_eq!(there.revoke(&alice.access, &alice.token_id).await.status, 200);
    assert_eq!(here.refresh(&alice.access, &alice.refresh).await.status.as_u16() / 100, 4);
    assert_eq!(here.status_of(&alice.access).await, 401, "the failed refresh has told it");
    assert_eq!(here.admin_client().delete("/admin/v1/subjects/bob/tokens").await.status, 200);
    assert_eq!(there.refresh(&bob.access, &bob.refresh).await.status.as_u16() / 100, 4);
    refreshed(&there, &here.issue("carol", "").await).await;
}

/// The other gateway knows the tokens, so that only the news of the revocation stops them.
#[tokio::test]
async fn a_revocation_through_one_gateway_reaches_the_other() {
    let upstream = Upstream::start();
    let [here, there] = two_gateways(&upstream);
    let (alice, bob) = (here.issue("alice", "").await, here.issue("bob", "").await);
    for pair in [&alice, &bob] {
        assert_eq!((here.status_of(&pair.access).await, there.status_of(&pair.access).await), (200, 200));
    }
    assert_eq!(here.revoke(&alice.access, &alice.token_id).await.status, 200);
    assert_eq!(here.admin_client().delete("/admin/v1/subjects/bob/tokens").await.status, 200);
    for pair in [&alice, &bob] {
        assert_eq!(here.status_of(&pair.access).await, 401, "at once");
        eventually_ok("the other gateway rejects the token", async || match there.status_of(&pair.access).await {
            401 => Ok(()),
            status => Err(status.to_string()),
        })
        .await;
    }
    let there = there.restart();
    for pair in [&alice, &bob] {
        assert_eq!(there.status_of(&pair.access).await, 401, "after a restart");
    }
}

#[track_caller]
fn unavailable(response: &TestResponse) {
    response.assert_rejected(503, "temporarily_unavailable");
    let wait: u64 = response.header("retry-after").and_then(|wait| wait.parse().ok()).expect("seconds");
    assert!(wait >= 1, "{response:?}");
}

#[tokio::test]
async fn calls_wait_for_the_server_and_known_tokens_do_not() {
    let upstream = Upstream::start();
    let mut server = PostgresServer::start_with(&["fsync=off"], "trust");
    let running = gateway(&upstream, &server.store_keys(), &folder(), &Arc::new(ManualClock::new()));
    let (alice, bob) = (running.issue("alice", "").await, running.issue("bob", "").await);
    for pair in [&alice, &bob] {
        assert_eq!(running.status_of(&pair.access).await, 200);
    }

    server.kill();
    let carol = json!({ "sub": "carol" });
    let (refreshed, ended, issued, ready) = tokio::join!(
        running.refresh(&alice.access, &alice.refresh),
        running.revoke(&bob.access, &bob.token_id),
        running.request_tokens(&carol),
        async { running.admin_client().get("/readyz").await },
    );
    for response in [&refreshed, &ended, &issued] {
        unavailable(response);
    }
    assert_eq!(ready.status, 503, "{ready:?}");
    assert!(ready.json()["reason"].as_str().is_some_and(|reason| reason.contains("PostgreSQL")), "{ready:?}");
    for pair in [&alice, &bob] {
        assert_eq!(running.status_of(&pair.access).await, 200, "known tokens are served");
    }

    server.restart();
    let next = eventually_ok("a refresh succeeds by itself", async || {
        match running.refresh(&alice.access, &alice.refresh).await {
            response if response.status == 200 => Ok(TokenPair::from_json(&response.json())),
            response => Err(format!("{response:?}")),
        }
    })
    .await;
    assert_eq!(
        TokenPair::from_json(&running.refresh(&alice.access, &alice.refresh).await.json()).refresh,
        next.refresh
    );
    assert_eq!(running.revoke(&bob.access, &bob.token_id).await.status, 200);
    assert_eq!(running.status_of(&bob.access).await, 401);
    eventually_ok("the gateway is ready", async || {
        let response = running.admin_client().get("/readyz").await;
        if response.status == 200 { Ok(()) } else { Err(format!("{response:?}")) }
    })
    .await;
    running.drain_and_check_log();
}

/// The confirmation takes another connection to the database than the refresh.
#[tokio::test]
async fn a_spent_token_is_rejected_as_soon_as_its_child_was_used() {
    let (upstream, clock) = (Upstream::start(), Arc::new(ManualClock::new()));
    let running = gateway(&upstream, &store_keys(), &folder(), &clock);
    for round in 0..30 {
        let parent = running.issue(&format!("user-{round}"), "").await;
        let child = refreshed(&running, &parent).await;
        clock.advance(Duration::from_secs(11));
        assert_eq!(running.status_of(&child.access).await, 200);
        let late = running.refresh(&parent.access, &parent.refresh).await;
        late.assert_rejected(400, "invalid_grant");
    }
}

#[tokio::test]
async fn an_api_key_revoked_through_one_gateway_ends_at_the_other() {
    let upstream = Upstream::start();
    let keys = format!("{}[[route]]\npath = \"/\"\napi_keys = true\n", store_keys());
    let (clock, folders) = (Arc::new(ManualClock::new()), [folder(), folder()]);
    let here = gateway(&upstream, &keys, &folders[0], &clock);
    copy_roots(folders[0].path(), folders[1].path());
    let there = gateway(&upstream, &keys, &folders[1], &clock);
    let issued = here.admin_client().post("/admin/v1/api-keys", &json!({ "sub": "robot" })).await.json();
    let key = issued["apiKey"].as_str().expect("text");
    assert_eq!((here.status_of(key).await, there.status_of(key).await), (200, 200), "good at both at once");
    let path = format!("/admin/v1/api-keys/{}", issued["keyId"].as_str().expect("text"));
    assert_eq!(here.admin_client().delete(&path).await.status, 200);
    assert_eq!(here.status_of(key).await, 401);
    eventually_ok("the other gateway has heard of it", async || match there.status_of(key).await {
        401 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    assert_eq!(there.admin_client().get("/admin/v1/api-keys").await.json()["apiKeys"][0]["state"], "revoked");
}

/// A provider reports to one gateway, and the user has a WebSocket through the other one.
#[tokio::test]
async fn a_report_to_one_gateway_ends_a_stream_at_the_other_within_a_second() {
    let (signer, upstream) = (Signer::start(), Upstream::start());
    let (keys, clock) = (store_keys(), Arc::new(ManualClock::new()));
    let folders = [transmitter::folder(), transmitter::folder()].map(Arc::new);
    let text = || {
        let more = format!("[store]\n{keys}\n{}", transmitter::sections(&signer, "path = \"/events/corp\""));
        Gateway::config_text(&upstream.address.to_string(), &more)
    };
    let here = Gateway::in_folder(text(), folders[0].clone(), clock.clone());
    copy_roots(folders[0].path(), folders[1].path());
    let there = Gateway::in_folder(text(), folders[1].clone(), clock.clone());
    for round in 0..3 {
        let sid = format!("s{round}");
        let alice = signer.access_token(here.now_secs(), "alice", Some(&sid));
        let mut socket = open(&there, &alice).await;
        assert_open(&mut socket).await;
        let subject = transmitter::session(&sid);
        let token = transmitter::event(&signer, &here, &subject, &json!({}));
        eventually_ok("the gateway has the transmitter's keys", async || {
            let elsewhere = transmitter::event(&signer, &here, &transmitter::session("none"), &json!({}));
            let response = push(&here, &elsewhere).await;
            if response.status == 202 { Ok(()) } else { Err(response.text()) }
        })
        .await;
        within_a_second(async {
            assert_eq!(push(&here, &token).await.status, 202);
            assert_eq!(close_frame(&mut socket).await, revoked());
        })
        .await;
        assert_eq!(there.status_of(&alice).await, 401);
        // The transmitter may repeat an event at another gateway.
        assert_eq!(push(&there, &token).await.status, 202);
    }
    let repeated = "bearward_provider_reports_total{source=\"corp\",kind=\"session-revoked\",outcome=\"repeated\"}";
    assert_eq!(there.metric(repeated).await, 3.0);
}
