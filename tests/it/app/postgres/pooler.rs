//! A gateway behind a real PgBouncer, in transaction mode and in session mode.

use std::sync::Arc;

use super::{copy_roots, folder, gateway, start_error, text};
use crate::support::clock::ManualClock;
use crate::support::pooler::{IGNORES_SETTINGS, Pooler};
use crate::support::ports::free_port;
use crate::support::postgres::PostgresServer;
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, TokenPair, Upstream};

fn server_with_role() -> PostgresServer {
    let server = PostgresServer::start_with(&["fsync=off", "max_connections=60"], "trust");
    Pooler::set_role(&server, "bearward");
    server
}

#[tokio::test]
async fn gateways_work_through_a_pooler_without_prepared_statements() {
    let (upstream, server, clock) = (Upstream::start(), server_with_role(), Arc::new(ManualClock::new()));
    let bouncer = Pooler::start(&server, "bearward");
    let keys = format!("postgres = \"{}\"\nprepared = false\n", bouncer.url());
    let folders = [folder(), folder()];
    let one = gateway(&upstream, &keys, &folders[0], &clock);
    copy_roots(folders[0].path(), folders[1].path());
    let two = gateway(&upstream, &keys, &folders[1], &clock);
    let mut pair = one.issue("alice", "").await;
    for gateway in [&two, &one, &two, &one] {
        let refreshed = gateway.refresh(&pair.access, &pair.refresh).await;
        assert_eq!(refreshed.status, 200, "{refreshed:?}");
        pair = TokenPair::from_json(&refreshed.json());
        assert_eq!(gateway.status_of(&pair.access).await, 200);
    }
    let many = (0..40).map(|number| [&one, &two][number % 2].refresh(&pair.access, &pair.refresh));
    let children: Vec<_> = futures_util::future::join_all(many).await;
    assert!(children.iter().all(|response| response.status == 200), "{children:?}");
    assert_eq!(one.revoke(&pair.access, &pair.token_id).await.status, 200);
    eventually_ok("the other gateway hears of it by polling", async || match two.status_of(&pair.access).await {
        401 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    let idle = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
    assert_eq!(server.sql("postgres", idle), "0");
    // The pooler restarts: all connections are lost.
    let port = bouncer.port;
    drop(bouncer);
    let _again = Pooler::start_with(&server, IGNORES_SETTINGS, port);
    for gateway in [&one, &two] {
        eventually_ok("it works again by itself", async || refreshes(gateway).await).await;
    }
}

async fn refreshes(gateway: &Gateway) -> Result<(), String> {
    let issued = gateway.request_tokens(&serde_json::json!({ "sub": "bob" })).await;
    if issued.status != 201 {
        return Err(format!("{issued:?}"));
    }
    let pair = TokenPair::from_json(&issued.json());
    let refreshed = gateway.refresh(&pair.access, &pair.refresh).await;
    (refreshed.status == 200).then_some(()).ok_or(format!("{refreshed:?}"))
}

/// Two gateways would give the same name to different statements.
#[tokio::test]
async fn a_pooler_that_mixes_up_prepared_statements_is_rejected() {
    let (upstream, server) = (Upstream::start(), server_with_role());
    let bouncer = Pooler::start(&server, "bearward");
    let keys = format!("postgres = \"{}\"\n", bouncer.url());
    let error = start_error(&text(&upstream, &keys), folder().path());
    assert!(error.contains("set store.prepared = false"), "{error}");
}

#[tokio::test]
async fn a_pooler_that_rejects_or_loses_settings_is_named() {
    let (upstream, server) = (Upstream::start(), PostgresServer::start_with(&["fsync=off"], "trust"));
    let keys = |bouncer: &Pooler| format!("postgres = \"{}\"\nprepared = false\n", bouncer.url());
    let rejects = Pooler::start_with(&server, "", free_port());
    let error = start_error(&text(&upstream, &keys(&rejects)), folder().path());
    assert!(error.contains("\"connection poolers\" in deploy/replicas.md"), "{error}\n{}", rejects.log());
    let loses = Pooler::start_with(&server, IGNORES_SETTINGS, free_port());
    let error = start_error(&text(&upstream, &keys(&loses)), folder().path());
    assert!(error.contains("ALTER ROLE … SET search_path = bearward"), "{error}");
}

/// A gateway cannot tell the two modes apart. Another one in the same pooler has connections of its own.
#[tokio::test]
async fn a_pooler_in_session_mode_needs_the_same_settings() {
    let upstream = Upstream::start();
    let server = server_with_role();
    let clock = Arc::new(ManualClock::new());
    let settings = format!("pool_mode = session\ndefault_pool_size = 20\n{IGNORES_SETTINGS}");
    let bouncer = Pooler::start_with(&server, &settings, free_port());
    let url = format!("postgres = \"{}\"\n", bouncer.url());
    let error = start_error(&text(&upstream, &url), folder().path());
    assert!(error.contains("set store.prepared = false"), "{error}");
    let keys = format!("{url}prepared = false\n");
    let folders = [folder(), folder()];
    let one = gateway(&upstream, &keys, &folders[0], &clock);
    copy_roots(folders[0].path(), folders[1].path());
    let two = gateway(&upstream, &keys, &folders[1], &clock);
    let pair = one.issue("alice", "").await;
    let refreshed = two.refresh(&pair.access, &pair.refresh).await;
    assert_eq!(refreshed.status, 200, "{refreshed:?}");
    assert_eq!(one.revoke(&pair.access, &pair.token_id).await.status, 200);
    eventually_ok("the other gateway hears of it", async || match two.status_of(&pair.access).await {
        401 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
}
