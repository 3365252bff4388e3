//! The log of revocations is locked by hand: only revocations wait for it.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::support::postgres::{PostgresServer, USER};
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, TokenPair, Upstream};

/// Less than a statement waits for a lock.
const SOON: Duration = Duration::from_secs(1);
const SESSIONS: usize = 24;
const ROUNDS: usize = 3;

/// The time from each refresh to its response.
async fn refresh_all(gateway: &Gateway, sessions: &mut [TokenPair]) -> Vec<(u16, Duration)> {
    join_all(sessions.iter_mut().map(async |pair| {
        let began = Instant::now();
        let response = gateway.refresh(&pair.access, &pair.refresh).await;
        if response.status == 200 {
            *pair = TokenPair::from_json(&response.json());
        }
        (response.status.as_u16(), began.elapsed())
    }))
    .await
}

/// Waits until the query returns 1.
async fn is_one(server: &PostgresServer, what: &str, sql: &str) {
    eventually_ok(what, async || {
        let count = server.sql(USER, sql);
        (count == "1").then_some(()).ok_or(count)
    })
    .await;
}

#[tokio::test]
async fn a_locked_log_delays_no_refresh() {
    let server = PostgresServer::start_with(&["fsync=off"], "trust");
    let upstream = Upstream::start();
    let schema = server.schema();
    let gateway =
        Gateway::with_config(&upstream, &format!("[store]\npostgres = \"{}\"\nschema = \"{schema}\"\n", server.url()));
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(gateway.issue("alice", "").await);
    }
    let caller = gateway.issue("admin", "token:revoke").await;
    // Before its first heartbeat, a check of the gateway writes the locked table.
    is_one(&server, "the gateway is listed", &format!("select count(*) from {schema}.replicas")).await;
    for lock in [
        format!("select 1 from {schema}.meta where name = 'revocation_sequence' for update"),
        format!("lock table {schema}.meta in exclusive mode"),
    ] {
        let to_end = [gateway.issue("bob", "").await, gateway.issue("bob", "").await];
        let mut shell = server.open_transaction(USER, &format!("set application_name = 'operator'; {lock}"));
        is_one(&server, "it is locked", "select count(*) from pg_stat_activity where wait_event = 'PgSleep'").await;
        let refresh = async {
            let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
            is_one(&server, "a revocation waits", waiting).await;
            let mut refreshed = Vec::new();
            for _ in 0..ROUNDS {
                assert_eq!(gateway.admin_client().get("/readyz").await.status, 200, "{lock}");
                refreshed.extend(refresh_all(&gateway, &mut sessions).await);
            }
            refreshed
        };
        let end = join_all(to_end.iter().map(|pair| gateway.revoke(&caller.access, &pair.token_id)));
        let (refreshed, ended) = tokio::join!(refresh, end);
        let late = refreshed.iter().filter(|(status, after)| *status != 200 || *after >= SOON).count();
        assert_eq!(late, 0, "{late} of {} refreshes waited, with {lock}: {refreshed:?}", refreshed.len());
        assert!(ended.iter().all(|response| response.status == 503), "{ended:?}");
        server.terminate_connections("operator");
        let _ = shell.wait();
        for pair in &to_end {
            eventually_ok("the revocation works without the lock", async || {
                let response = gateway.revoke(&caller.access, &pair.token_id).await;
                (response.status == 200).then_some(()).ok_or(format!("{response:?}"))
            })
            .await;
        }
    }
}
