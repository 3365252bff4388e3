//! Faults of the network between gateways and their database.

use std::thread::sleep;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::json;

use super::super::cluster::{Cluster, MAX_STALENESS, Replica, Setup};
use super::super::fault_proxy::Fault;
use super::super::survive::{Expected, SLACK, STEADY, Scene, VOLUME, survive, survive_on};
use super::super::target::Target;
use crate::support::pooler::Pooler;
use crate::support::postgres::PostgresServer;
use crate::support::tokens::EXTERNAL_ISSUER;

fn a_network_fault(case: &str, fault: Fault, least: u64, most: u64) {
    survive(case, &mut PostgresServer::start(), |scene| {
        scene.moment(80);
        let replica = scene.any_replica();
        scene.cluster.replicas[replica].proxy.set(fault);
        scene.tell(format!("{fault:?} between replica {replica} and the database"));
        scene.last(Duration::from_millis(least), Duration::from_millis(most));
        scene.cluster.replicas[replica].proxy.set(Fault::None);
        scene.tell("the network works again");
    });
}

#[test]
fn lost_responses_of_the_database_are_resolved() {
    a_network_fault("lost responses", Fault::SwallowResponses, 1_000, 4_000);
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_slow_network_delays_only_its_replica() {
    a_network_fault("a slow network", Fault::Delay(Duration::from_millis(50)), 3_000, 6_000);
}

/// The clients of a replica reach it, and it does not reach its database. `change`: whether it is cut off from now on.
fn cut_off(case: &str, setup: Setup<'_>, change: fn(&Replica, bool)) {
    let mut server = PostgresServer::start();
    let mut cluster = Cluster::start(&server, setup);
    survive_on(case, &mut cluster, &mut server, (STEADY, Expected::default()), |scene| {
        let replica = if setup.has_network { 0 } else { scene.any_replica() };
        let before = scene.moment_without(replica, 80);
        change(&scene.cluster.replicas[replica], true);
        scene.tell(format!("replica {replica} is cut off from its database"));
        scene.miss(before, MAX_STALENESS + SLACK * 2, Duration::from_secs(7));
        scene.assert_fenced(replica, before);
        change(&scene.cluster.replicas[replica], false);
        scene.load.spare(None);
        scene.tell("the network works again");
    });
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_replica_without_its_database_heals_alone() {
    cut_off("a black hole", Setup::default(), |replica, is_cut| {
        replica.proxy.set(if is_cut { Fault::BlackHole } else { Fault::None });
    });
}

/// Packets get lost in the kernel. Neither side sees a reset or an end of its connections.
#[test]
#[ignore = "tests/chaos runs it"]
fn a_replica_with_a_cut_cable_heals_alone() {
    let setup = Setup { has_network: true, ..Setup::default() };
    cut_off("a cut cable", setup, |replica, is_cut| {
        let network = replica.network.as_ref().expect("it has one");
        if is_cut { network.cut() } else { network.mend() }
    });
}

#[test]
#[ignore = "tests/chaos runs it"]
fn connections_that_are_reset_all_the_time_make_progress() {
    survive("resets", &mut PostgresServer::start(), |scene| {
        scene.moment(40);
        let replica = scene.any_replica();
        scene.tell(format!("connections of replica {replica} are reset, fifty times"));
        for _ in 0..50 {
            scene.cluster.replicas[replica].proxy.reset();
            let pause = scene.story.random().millis(200);
            sleep(pause);
        }
        let open = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
        assert_eq!(scene.server.sql("postgres", open), "0", "a transaction is open");
    });
}

/// Number of measured revocations, and how many of them at the same time.
const MEASURED: usize = 100;
const AT_ONCE: usize = 4;

/// What was measured, sorted.
struct Lags {
    /// From the response to a revocation to the first rejection by another replica.
    lags: Vec<Duration>,
    /// Of single requests to that replica.
    requests: Vec<Duration>,
}

fn measure_lags(scene: &mut Scene<'_>) -> Lags {
    let tokens: Vec<(String, String)> = (0..MEASURED).map(|n| scene.cluster.foreign_token(1_000_000 + n)).collect();
    let [here, there] = [0, 1].map(|replica| scene.load.target(replica));
    let parts = scene.load.run(async move {
        let parts = tokens.chunks(MEASURED.div_ceil(AT_ONCE));
        join_all(parts.map(|part| lags_of(part, &here, &there))).await
    });
    let (mut lags, mut requests) = (Vec::new(), Vec::new());
    for part in parts {
        lags.extend(part.lags);
        requests.extend(part.requests);
    }
    lags.sort();
    requests.sort();
    let slow = p99(&requests);
    scene.tell(format!("lag: median {:?}, p99 {:?}; one request: p99 {slow:?}", median(&lags), p99(&lags)));
    Lags { lags, requests }
}

fn median(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

fn p99(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() * 99 / 100 - 1]
}

async fn lags_of(tokens: &[(String, String)], here: &Target, there: &Target) -> Lags {
    let mut measured = Lags { lags: Vec::new(), requests: Vec::new() };
    for (jti, token) in tokens {
        assert_eq!(there.get(token).await, Some(StatusCode::OK));
        assert_eq!(here.revoke(json!({ "jti": jti, "issuer": EXTERNAL_ISSUER })).await, Some(StatusCode::OK));
        let began = Instant::now();
        loop {
            let sent = Instant::now();
            let status = there.get(token).await;
            measured.requests.push(sent.elapsed());
            if status != Some(StatusCode::OK) {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "it never gets there");
        }
        measured.lags.push(began.elapsed());
    }
    measured
}

/// Four polls per second are enough for 400 ms. A machine with other work adds the time of the poll and of a request.
fn assert_polling_is_enough(measured: &Lags) {
    let Lags { lags, requests } = measured;
    let most = Duration::from_millis(400);
    assert!(p99(lags) < most + 2 * p99(requests), "{lags:?}");
    assert!(median(lags) < most + 2 * median(requests), "{lags:?}");
    assert!(median(lags) > Duration::from_millis(40), "there were notifications: {lags:?}");
}

#[test]
#[ignore = "tests/chaos runs it"]
fn without_notifications_polling_is_enough() {
    survive("no notifications", &mut PostgresServer::start(), |scene| {
        scene.moment(40);
        for replica in &scene.cluster.replicas {
            replica.proxy.set(Fault::NoNotifications);
        }
        scene.tell("notifications are lost");
        assert_polling_is_enough(&measure_lags(scene));
    });
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_pooler_between_changes_nothing() {
    let mut server = PostgresServer::start();
    let schema = server.schema();
    let pooler = Pooler::start(&server, &schema);
    let setup = Setup { store: "prepared = false", pooler: Some(pooler.port), ..Setup::default() };
    let mut cluster = Cluster::start_in(&server, &schema, setup);
    survive_on("a pooler", &mut cluster, &mut server, (VOLUME, Expected::default()), |scene| {
        scene.moment(80);
        assert_polling_is_enough(&measure_lags(scene));
    });
}
