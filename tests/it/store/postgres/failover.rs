//! Several servers in one URL, of which one is the primary; and commits that a standby has not confirmed.

use std::thread;
use std::time::{Duration, Instant};

use bearward::store::postgres::Database;
use bearward::store::{FamilyStore, StoreUpkeep};
use bearward::tokens::family::rotation::Rotation;

use super::following::{Follower, now, sql};
use super::{database, open_at};
use crate::support::given::*;
use crate::support::postgres::{PostgresServer, REPLICATED, USER};
use crate::support::wait::{eventually_ok, eventually_within};
use crate::support::{Gateway, TokenPair, Upstream};

fn replicated() -> (PostgresServer, PostgresServer) {
    let settings: Vec<&str> = REPLICATED.iter().copied().chain(["fsync=off", "max_connections=60"]).collect();
    let primary = PostgresServer::start_with(&settings, "trust");
    let standby = primary.standby(primary.port);
    primary.wait_for_standby_at_commits();
    (primary, standby)
}

/// No proxy, no address that moves: the gateway itself looks for the server that accepts writes.
#[tokio::test]
async fn the_gateway_finds_the_new_primary_by_itself() {
    let upstream = Upstream::start();
    let (mut primary, standby) = replicated();
    // The standby is the first one, so that the order does not help.
    let url = format!(
        "postgres://{USER}@127.0.0.1:{},127.0.0.1:{}/{USER}?sslmode=disable&target_session_attrs=read-write",
        standby.port, primary.port
    );
    let gateway = Gateway::with_config(&upstream, &format!("[store]\npostgres = \"{url}\"\n"));
    let (alice, bob) = (gateway.issue("alice", "").await, gateway.issue("bob", "").await);
    let child = TokenPair::from_json(&gateway.refresh(&alice.access, &alice.refresh).await.json());
    assert_eq!(gateway.revoke(&bob.access, &bob.token_id).await.status, 200);
    primary.kill();
    let refused = gateway.refresh(&child.access, &child.refresh).await;
    assert_eq!(refused.status, 503, "a standby decides nothing: {refused:?}");
    assert_eq!(gateway.status_of(&child.access).await, 200, "a known token goes on to work");
    thread::scope(|scope| scope.spawn(|| standby.promote()).join()).expect("promoted");
    let next = eventually_within(Duration::from_secs(20), "the refresh works", async || {
        match gateway.refresh(&child.access, &child.refresh).await {
            response if response.status == 200 => Ok(TokenPair::from_json(&response.json())),
            response => Err(format!("{response:?}")),
        }
    })
    .await;
    assert_eq!(gateway.status_of(&next.access).await, 200);
    assert_eq!(gateway.status_of(&bob.access).await, 401, "nothing was lost");
    gateway.refresh(&bob.access, &bob.refresh).await.assert_rejected(400, "invalid_grant");
    assert_eq!(gateway.metric("bearward_store_forked_total").await, 0.0);
    eventually_ok("the gateway is ready", async || {
        let ready = gateway.admin_client().get("/readyz").await;
        (ready.status == 200).then_some(()).ok_or(ready.text())
    })
    .await;
}

/// The database at both servers, and a gateway that looks for a promotion each second.
fn two_servers(first: &PostgresServer, second: &PostgresServer, schema: &str, replica: &str) -> Database {
    let url = format!("postgres://{USER}@127.0.0.1:{},127.0.0.1:{}/{USER}?sslmode=disable", first.port, second.port);
    let mut database = Database { replica: replica.into(), ..database(&url, schema) };
    database.settings.max_staleness = Duration::from_secs(4);
    database
}

/// As with Patroni without a watchdog: its agent has died, and the server that was the primary goes on. Commits there
/// wait for a standby that does not come back.
#[tokio::test]
async fn the_gateway_leaves_a_primary_that_waits_for_the_new_one() {
    let (primary, standby) = replicated();
    let schema = primary.schema();
    let store = Follower::open_with(two_servers(&primary, &standby, &schema, "a")).store;
    let family = issued(&store, "alice", now()).await;
    standby.promote();
    let refreshed = eventually_within(Duration::from_secs(20), "a refresh works", async || {
        store.rotate(token(&family, 1), at(now()), now().into()).await.map_err(|error| error.message)
    })
    .await;
    let (Rotation::Rotated(child) | Rotation::Replayed(child)) = refreshed else { panic!("{refreshed:?}") };
    let stored = standby.sql(USER, &format!("select generation from {schema}.families"));
    assert_eq!(stored, child.generation.to_string());
}

/// Without a synchronous standby, the server that was the primary also accepts changes.
#[tokio::test]
async fn no_gateway_stays_at_a_server_that_was_the_primary() {
    let primary = PostgresServer::start_with(REPLICATED, "trust");
    let standby = primary.standby(primary.port);
    let schema = primary.schema();
    let stays = Follower::open_with(two_servers(&primary, &standby, &schema, "a"));
    let what = stays.revoke("before").await;
    let written = primary.sql(USER, "select pg_current_wal_lsn()");
    let has_replayed = format!("select pg_last_wal_replay_lsn() >= '{written}'");
    eventually_ok("the standby has it", async || {
        let has_it = standby.sql(USER, &has_replayed);
        (has_it == "t").then_some(()).ok_or(has_it)
    })
    .await;
    standby.promote();
    // The order does not help.
    let comes = Follower::open_with(two_servers(&primary, &standby, &schema, "b"));
    comes.store.freshness().expect("shared").loaded().await;
    assert!(comes.enforces(&what) && comes.count(|counts| &counts.forks) == 0);
    let at_new = "select count(*) from pg_stat_activity where application_name = 'bearward/b' and state is not null";
    assert_ne!(standby.sql("postgres", at_new), "0", "it starts at the new primary");
    let after = comes.revoke("after").await;
    eventually_within(Duration::from_secs(10), "the other gateway enforces it", async || {
        stays.enforces(&after).then_some(()).ok_or(String::new())
    })
    .await;
    let lists = sql(&primary, &schema, "select count(*) from revocations where name = 'after'");
    assert_eq!(lists, "0", "no gateway writes to the old one");
}

/// An operator cancels what waits for the standby. The server then reports success with a warning, and the change is
/// visible, but a failover would lose it.
#[tokio::test]
async fn a_commit_without_its_standby_is_not_acknowledged() {
    let (primary, standby) = replicated();
    let schema = primary.schema();
    drop(open_at(&primary.url(), &schema));
    let mut patient = database(&primary.url(), &schema);
    patient.settings.timeout = Duration::from_secs(3);
    let follower = Follower::open_with(patient);
    let store = &follower.store;
    let family = issued(store, "alice", LOGIN).await;
    standby.signal_all("STOP");
    let refresh = store.rotate(token(&family, 1), at(LOGIN), LOGIN.into());
    let cancel = "select count(pg_cancel_backend(pid)) from pg_stat_activity
        where wait_event = 'SyncRep' and application_name like 'bearward/%'";
    let (mut cancelled, began) = (0, Instant::now());
    let visible = format!("select generation from {schema}.families");
    // Each attempt is cancelled, so that the change is visible soon.
    while primary.sql(USER, &visible) != "2" || cancelled == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "nothing waits for the standby");
        cancelled += primary.sql("postgres", cancel).parse::<usize>().expect("a number");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let outcome = refresh.await;
    assert!(outcome.is_err(), "it was acknowledged, and the standby lacks it: {outcome:?}");
    standby.signal_all("CONT");
    let again = eventually_within(Duration::from_secs(20), "the store works again", async || {
        let refreshed = store.rotate(token(&family, 1), at(LOGIN), LOGIN.into()).await;
        refreshed.map_err(|error| error.message)
    })
    .await;
    let (Rotation::Replayed(child) | Rotation::Rotated(child)) = again else { panic!("{again:?}") };
    assert_eq!(child.generation, 2, "it is the same child");
    let read = || standby.sql(USER, &visible);
    eventually_ok("the standby has it", async || (read() == "2").then_some(()).ok_or(read())).await;
}
