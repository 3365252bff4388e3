//! A row that is locked by hand: only the calls for its session wait.

use std::process::Child;
use std::time::Instant;

use futures_util::future::join_all;

use crate::support::postgres::{PostgresServer, USER};
use crate::support::wait::eventually_ok;
use crate::support::{Gateway, TestResponse, TokenPair, Upstream};

const OTHERS: usize = 20;

/// A transaction that locks a row until this is dropped.
struct Lock<'a> {
    shell: Child,
    id: &'a str,
}

impl<'a> Lock<'a> {
    async fn of(server: &PostgresServer, schema: &str, pair: &'a TokenPair) -> Lock<'a> {
        let (id, row) = (&pair.token_id, format!("from {schema}.families where id = '{}' for update", pair.token_id));
        let shell = server.open_transaction(USER, &format!("set application_name = '{id}'; select 1 {row}"));
        eventually_ok("the row is locked", async || {
            let free = server.sql(USER, &format!("select 1 {row} skip locked"));
            free.is_empty().then_some(()).ok_or(free)
        })
        .await;
        Lock { shell, id }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        PostgresServer::shared().terminate_connections(self.id);
        let _ = self.shell.wait();
    }
}

/// Calls for a session that is locked and for others at the same time, then for the same one without the lock.
async fn call_beside(
    gateway: &Gateway,
    schema: &str,
    subject: &str,
    call: impl AsyncFn(&Gateway, &TokenPair) -> TestResponse,
) {
    let mut others = Vec::new();
    for _ in 0..OTHERS {
        others.push(gateway.issue(subject, "").await);
    }
    let locked = gateway.issue(subject, "").await;
    let lock = Lock::of(PostgresServer::shared(), schema, &locked).await;
    let began = Instant::now();
    let timed = async |pair| (call(gateway, pair).await.status.as_u16(), began.elapsed());
    let (waiting, quick) = tokio::join!(timed(&locked), join_all(others.iter().map(timed)));
    assert_eq!(waiting.0, 503, "its row is locked");
    // The locked row keeps its call until the statement gives up. No other call waits so long.
    assert!(quick.iter().all(|(status, after)| *status == 200 && *after < waiting.1), "{waiting:?} {quick:?}");
    drop(lock);
    eventually_ok("the call works without the lock", async || {
        let response = call(gateway, &locked).await;
        (response.status == 200).then_some(()).ok_or(format!("{response:?}"))
    })
    .await;
}

#[tokio::test]
async fn a_locked_row_delays_only_the_calls_for_its_session() {
    let (server, upstream) = (PostgresServer::shared(), Upstream::start());
    let schema = server.schema();
    let keys = format!("postgres = \"{}\"\nschema = \"{schema}\"\npool = 2\n", server.url());
    let config = format!("[store]\n{keys}[limits]\nsessions_per_subject = {}\n", OTHERS + 1);
    let gateway = Gateway::with_config(&upstream, &config);
    let refresh = async |gateway: &Gateway, pair: &TokenPair| gateway.refresh(&pair.access, &pair.refresh).await;
    call_beside(&gateway, &schema, "alice", refresh).await;
    let caller = gateway.issue("admin", "token:revoke").await;
    let revoke = async |gateway: &Gateway, pair: &TokenPair| gateway.revoke(&caller.access, &pair.token_id).await;
    call_beside(&gateway, &schema, "bob", revoke).await;
}
