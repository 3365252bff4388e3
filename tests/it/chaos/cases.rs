//! The faults.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::Duration;

use super::checkers::{gapless, no_missed_revocation, one_child_per_parent};
use super::cluster::{Cluster, MAX_STALENESS};
use super::fault_proxy::{Fault, FaultProxy};
use super::load::{Load, Volume, lock};
use crate::support::postgres::{PostgresServer, REPLICATED};
use crate::support::repetitions::repetitions;

/// Time for a request in flight when staleness begins, and for the clock of the machine under load.
const SLACK: Duration = Duration::from_millis(500);

/// How long the load may take for all its revocations, faults included.
const PATIENCE: Duration = Duration::from_secs(120);

const VOLUME: Volume = Volume { families: 10, tokens: 300, revokers: 4 };

/// Runs the load on three replicas while `fault` runs, and checks what must hold after every fault. Returns how many
/// forks of the log they found.
fn survive(
    server: &mut PostgresServer,
    volume: Volume,
    fault: impl FnOnce(&mut Cluster, &mut PostgresServer),
) -> usize {
    let cluster = Cluster::start(server, 3, "");
    survive_on(cluster, server, volume, fault)
}

fn survive_on(
    mut cluster: Cluster,
    server: &mut PostgresServer,
    volume: Volume,
    fault: impl FnOnce(&mut Cluster, &mut PostgresServer),
) -> usize {
    let mut load = Load::start(&cluster, volume);
    fault(&mut cluster, server);
    load.wait_until_all_are_revoked(PATIENCE);
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
    cluster.forks().iter().filter(|forks| **forks > 0.0).count()
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

/// A primary, and a standby behind a proxy of its own.
fn replicated() -> (PostgresServer, PostgresServer, FaultProxy) {
    let primary = PostgresServer::start_with(REPLICATED, "trust");
    let replication = FaultProxy::start(local(primary.port));
    let standby = primary.standby(replication.address.port());
    (primary, standby, replication)
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// The primary is gone for good, and its address moves to the standby.
fn fail_over(cluster: &Cluster, primary: &mut PostgresServer, standby: PostgresServer) {
    primary.kill();
    standby.promote();
    for replica in &cluster.replicas {
        replica.proxy.move_to(local(standby.port));
    }
    // From here on, the checkers read the new primary.
    *primary = standby;
}

/// Case 10.
#[test]
#[ignore = "tests/chaos runs it"]
fn a_promoted_synchronous_standby_has_everything() {
    let (mut primary, standby, _replication) = replicated();
    primary.wait_for_standby_at_commits();
    let forks = survive(&mut primary, VOLUME, |cluster, server| {
        sleep(Duration::from_secs(1));
        fail_over(cluster, server, standby);
    });
    assert_eq!(forks, 0, "nothing was lost, so the log must not look like a fork");
}

/// Case 11. Commits that were acknowledged are lost, and their numbers in the log are used again.
#[test]
fn every_replica_finds_that_a_standby_lacks_revocations() {
    let (mut primary, standby, replication) = replicated();
    let mut cluster = Cluster::start(&primary, 3, "");
    let mut load = Load::start(&cluster, VOLUME);
    sleep(Duration::from_millis(500));
    replication.set(Fault::BlackHole);
    let before = load.revoked();
    load.wait_until_revoked(before + 30, PATIENCE);
    fail_over(&cluster, &mut primary, standby);
    load.wait_until_all_are_revoked(PATIENCE);
    cluster.wait_until_ready();
    let history = load.stop();
    let patience = MAX_STALENESS + SLACK;
    let violations = no_missed_revocation(&lock(&history.revocations), &lock(&history.probes), patience);
    assert!(violations.is_empty(), "{} violations: {:#?}", violations.len(), violations.first());
    assert_eq!(load.accepted_at_the_end(), 0, "a token that was rejected is accepted again");
    assert!(cluster.forks().iter().all(|forks| *forks >= 1.0), "a replica has not found the fork");
    // The lost revocations were written again: a replica that reads only the new primary knows them too.
    cluster.replicas[2].kill();
    cluster.replicas[2].restart();
    cluster.wait_until_ready();
    assert_eq!(load.accepted_at_the_end(), 0, "a revocation was not written again");
}

/// Case 12.
#[test]
#[ignore = "tests/chaos runs it"]
fn wrong_clocks_change_nothing() {
    let mut server = PostgresServer::start();
    let cluster = Cluster::start_with_clocks(&server, &[0, 3, -3]);
    survive_on(cluster, &mut server, VOLUME, |_, _| sleep(Duration::from_secs(5)));
}

/// Case 16. A follower that waits for the oldest transaction of the cluster would stop here.
#[test]
#[ignore = "tests/chaos runs it"]
fn an_open_transaction_elsewhere_delays_nothing() {
    let mut server = PostgresServer::start();
    server.sql("postgres", "create database other");
    let mut open = server.open_transaction("other", "create table waiting (id int)");
    survive(&mut server, VOLUME, |_, _| {});
    let _ = open.kill();
    let _ = open.wait();
}
