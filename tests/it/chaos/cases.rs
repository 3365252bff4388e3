//! The faults.

use std::thread::sleep;
use std::time::Duration;

use super::checkers::{gapless, no_missed_revocation, one_child_per_parent};
use super::cluster::{Cluster, MAX_STALENESS};
use super::fault_proxy::Fault;
use super::load::{Load, Volume, lock};
use crate::support::postgres::PostgresServer;
use crate::support::repetitions::repetitions;

/// Time for a request in flight when staleness begins, and for the clock of the machine under load.
const SLACK: Duration = Duration::from_millis(500);

const VOLUME: Volume = Volume { families: 10, tokens: 300, revokers: 4 };

/// Runs the load while `fault` runs, and checks what must hold after every fault.
fn survive(server: &mut PostgresServer, volume: Volume, fault: impl FnOnce(&mut Cluster, &mut PostgresServer)) {
    let mut cluster = Cluster::start(server, 3, "");
    let mut load = Load::start(&cluster, volume);
    fault(&mut cluster, server);
    load.wait_until_all_are_revoked(Duration::from_secs(120));
    cluster.wait_until_ready();
    let history = load.stop();
    let accepted = load.accepted_at_the_end();

    let (refreshes, revocations) = (lock(&history.refreshes), lock(&history.revocations));
    let mut violations = one_child_per_parent(&refreshes, &cluster.generations(server));
    violations.extend(no_missed_revocation(&revocations, &lock(&history.probes), MAX_STALENESS + SLACK));
    violations.extend(gapless(&cluster.log(server), revocations.len()));
    let shown: Vec<_> = violations.iter().take(10).collect();
    assert!(violations.is_empty(), "{} violations: {shown:#?}", violations.len());
    assert_eq!(accepted, 0, "revoked tokens were accepted at the end");
    assert_eq!(cluster.audit_events("refresh.reuse_detected"), 0, "honest clients repeated their tokens");
    assert!(refreshes.len() > volume.families, "the load did nothing");
}

/// Case 1.
#[test]
fn no_revocation_is_missed_without_a_fault() {
    let mut server = PostgresServer::start();
    let volume = Volume { families: 10, tokens: repetitions(2_000), revokers: 16 };
    survive(&mut server, volume, |_, _| {});
}

/// Case 2.
#[test]
#[ignore = "tests/chaos runs it"]
fn a_killed_replica_loses_nothing() {
    let mut server = PostgresServer::start();
    survive(&mut server, VOLUME, |cluster, _| {
        sleep(Duration::from_secs(1));
        cluster.replicas[1].kill();
        sleep(Duration::from_secs(1));
        cluster.replicas[1].restart();
    });
}

/// Case 3, and case 4 with a longer stop.
fn a_stopped_replica(stopped: Duration) {
    let mut server = PostgresServer::start();
    survive(&mut server, VOLUME, |cluster, _| {
        sleep(Duration::from_millis(500));
        cluster.replicas[1].signal("STOP");
        sleep(stopped);
        cluster.replicas[1].signal("CONT");
    });
}

#[test]
fn a_stopped_replica_does_not_serve_revoked_tokens() {
    a_stopped_replica(Duration::from_secs(3));
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_replica_that_stops_for_long_rejects_first() {
    a_stopped_replica(MAX_STALENESS * 3);
}

/// Cases 5 to 8: faults of the network between one replica and the database.
fn a_network_fault(fault: Fault, lasts: Duration) {
    let mut server = PostgresServer::start();
    survive(&mut server, VOLUME, |cluster, _| {
        sleep(Duration::from_millis(500));
        cluster.replicas[0].proxy.set(fault);
        sleep(lasts);
        cluster.replicas[0].proxy.set(Fault::None);
    });
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_replica_without_its_database_heals_alone() {
    a_network_fault(Fault::BlackHole, Duration::from_secs(5));
}

#[test]
fn lost_responses_of_the_database_are_resolved() {
    a_network_fault(Fault::SwallowResponses, Duration::from_secs(3));
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_slow_network_delays_only_its_replica() {
    a_network_fault(Fault::Delay(Duration::from_millis(50)), Duration::from_secs(5));
}

#[test]
#[ignore = "tests/chaos runs it"]
fn connections_that_are_reset_all_the_time_make_progress() {
    let mut server = PostgresServer::start();
    survive(&mut server, VOLUME, |cluster, server| {
        for _ in 0..50 {
            cluster.replicas[0].proxy.reset();
            sleep(Duration::from_millis(100));
        }
        let open = "select count(*) from pg_stat_activity where state like 'idle in transaction%'";
        assert_eq!(server.sql("postgres", open), "0", "a transaction is open");
    });
}

/// Case 9.
#[test]
fn a_killed_database_loses_nothing_that_was_acknowledged() {
    let mut server = PostgresServer::start();
    survive(&mut server, VOLUME, |_, server| {
        sleep(Duration::from_secs(1));
        server.kill();
        server.restart();
    });
}
