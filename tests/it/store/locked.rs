//! Another process holds the database for long: requests go on, calls get 503, and nothing that was acknowledged is
//! lost.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::repetitions::repetitions;
use crate::support::sqlite_shell::Shell;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, TestResponse, TokenPair, Upstream};

/// How long the database is locked, in seconds. Six times `timeouts.store`: with 30 s, that has its default.
const LOCKED: usize = 3;
const STORE_TIMEOUTS: u32 = 6;

#[track_caller]
fn assert_unavailable(response: &TestResponse) {
    response.assert_rejected(503, "temporarily_unavailable");
    let wait: u64 = response.header("retry-after").and_then(|wait| wait.parse().ok()).expect("seconds");
    assert!(wait >= 1, "{response:?}");
}

/// By hand: `BEARWARD_ROUNDS=30 cargo test --test programs a_database_locked -- --nocapture`.
#[tokio::test]
async fn a_database_locked_for_long_loses_nothing() {
    let upstream = Upstream::start();
    let locked = Duration::from_secs(repetitions(LOCKED) as u64);
    let more = format!("[timeouts]\nstore = \"{}ms\"\n", (locked / STORE_TIMEOUTS).as_millis());
    let gateway = Gateway::with_config(&upstream, &more);
    let (alice, bob, carol) =
        (gateway.issue("alice", "").await, gateway.issue("bob", "").await, gateway.issue("carol", "").await);
    assert_eq!(gateway.revoke(&carol.access, &carol.token_id).await.status, 200);
    for pair in [&alice, &bob] {
        assert_eq!(gateway.status_of(&pair.access).await, 200);
    }

    let shell = Shell::lock(&gateway);
    let (began, mut calls) = (Instant::now(), 0);
    while began.elapsed() < locked {
        let (refreshed, ended) =
            tokio::join!(gateway.refresh(&alice.access, &alice.refresh), gateway.revoke(&bob.access, &bob.token_id),);
        assert_unavailable(&refreshed);
        assert_unavailable(&ended);
        for pair in [&alice, &bob] {
            assert_eq!(gateway.status_of(&pair.access).await, 200, "known tokens are served");
        }
        assert_eq!(gateway.status_of(&carol.access).await, 401, "revoked tokens stay revoked");
        calls += 1;
    }
    assert!(calls >= 3, "{calls} rounds");
    eprintln!("{calls} rounds of calls while the database was locked for {locked:?}");
    shell.release();

    let body = json!({ "refreshToken": alice.refresh });
    let next = eventually_ok("a refresh succeeds by itself", async || {
        match gateway.client().bearer(&alice.access).post("/user/refresh", &body).await {
            response if response.status == 200 => Ok(TokenPair::from_json(&response.json())),
            response => Err(format!("{response:?}")),
        }
    })
    .await;
    // An operation that timed out may be done later. Then the token of this call is revoked already.
    let ended = gateway.revoke(&bob.access, &bob.token_id).await;
    assert!([200, 401].contains(&ended.status.as_u16()), "{ended:?}");
    assert_eq!(gateway.status_of(&bob.access).await, 401);
    let again = TokenPair::from_json(&gateway.refresh(&alice.access, &alice.refresh).await.json());
    assert_eq!(again.refresh, next.refresh);

    let gateway = gateway.restart();
    assert_eq!(gateway.status_of(&next.access).await, 200);
    for revoked in [&bob, &carol] {
        assert_eq!(gateway.status_of(&revoked.access).await, 401, "after a restart");
    }
    assert_eq!(gateway.refresh(&next.access, &next.refresh).await.status, 200);
}
