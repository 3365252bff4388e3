//! Faults of gateways.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::super::cluster::{Cluster, MAX_STALENESS, Setup};
use super::super::fault_proxy::Fault;
use super::super::load::{Volume, lock};
use super::super::survive::{Expected, PATIENCE, SLACK, STEADY, Scene, VOLUME, survive, survive_in, survive_on};
use crate::support::postgres::PostgresServer;
use crate::support::repetitions::repetitions;

#[test]
fn no_revocation_is_missed_without_a_fault() {
    let mut server = PostgresServer::start();
    let volume = Volume { families: 10, tokens: repetitions(2_000), revokers: 16, pause: 0, races: 4 };
    let mut cluster = Cluster::start(&server, Setup::default());
    survive_on("no fault", &mut cluster, &mut server, (volume, Expected::default()), |_| {});
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_killed_replica_loses_nothing() {
    survive("a killed replica", &mut PostgresServer::start(), |scene| {
        scene.moment(80);
        let replica = scene.any_replica();
        scene.cluster.replicas[replica].kill();
        scene.tell(format!("replica {replica} is killed"));
        scene.moment(60);
        scene.cluster.replicas[replica].restart();
        scene.tell(format!("replica {replica} listens again"));
    });
}

/// When the replica goes on, it does not hear from its database yet, so that only its own clock can tell it that it has
/// missed revocations.
fn a_stopped_replica(case: &str, least: Duration, most: Duration) {
    let mut server = PostgresServer::start();
    let mut cluster = Cluster::start(&server, Setup::default());
    survive_on(case, &mut cluster, &mut server, (STEADY, Expected::default()), |scene| {
        let replica = scene.any_replica();
        let before = scene.moment_without(replica, 80);
        scene.cluster.replicas[replica].signal("STOP");
        scene.tell(format!("replica {replica} is stopped"));
        scene.miss(before, least, most);
        // These wait for it, so that it answers them first.
        let missed: Vec<usize> = {
            let revocations = lock(&scene.load.history().revocations);
            revocations.iter().skip(before).map(|revocation| revocation.token).collect()
        };
        scene.load.start_probes(replica, &missed);
        scene.tell(format!("{} tokens that were revoked meanwhile are on their way to it", missed.len()));
        sleep(Duration::from_millis(200));
        scene.cluster.replicas[replica].proxy.set(Fault::BlackHole);
        scene.cluster.replicas[replica].signal("CONT");
        scene.tell(format!("replica {replica} goes on"));
        scene.assert_fenced(replica, before);
        scene.cluster.replicas[replica].proxy.set(Fault::None);
        scene.load.spare(None);
        scene.tell(format!("replica {replica} hears from its database"));
    });
}

#[test]
fn a_stopped_replica_does_not_serve_revoked_tokens() {
    a_stopped_replica("a stopped replica", MAX_STALENESS + SLACK * 2, MAX_STALENESS + SLACK * 4);
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_replica_that_stops_for_long_rejects_first() {
    a_stopped_replica("a replica that stops for long", MAX_STALENESS * 2, MAX_STALENESS * 4);
}

#[test]
#[ignore = "tests/chaos runs it"]
fn wrong_clocks_change_nothing() {
    let setup = Setup { clocks: &[0, 3, -3], ..Setup::default() };
    survive_in("wrong clocks", &mut PostgresServer::start(), setup, |scene| {
        for _ in 0..4 {
            scene.moment(80);
        }
    });
}

/// `fault` makes a replica silent, and gets its number. Revocations are answered nevertheless, when that replica
/// rejects every token; and then no replica accepts a revoked one, at no time.
fn strict(case: &str, fault: fn(&mut Scene<'_>, usize), mend: fn(&mut Scene<'_>, usize)) {
    let mut server = PostgresServer::start();
    let mut cluster = Cluster::start(&server, Setup { store: "strict = true", ..Setup::default() });
    let volume = Volume { tokens: 120, ..VOLUME };
    let expected = Expected { patience: Duration::ZERO };
    survive_on(case, &mut cluster, &mut server, (volume, expected), |scene| {
        scene.moment(30);
        let replica = scene.any_replica();
        fault(scene, replica);
        scene.tell(format!("replica {replica} is silent"));
        // More than the revocations that were in flight.
        let (count, began) = (scene.load.revoked() + 3 * volume.revokers, Instant::now());
        scene.load.wait_until_revoked(count, PATIENCE);
        let waited = began.elapsed();
        scene.tell(format!("{count} revocations were acknowledged, after {waited:?}"));
        // The others cannot know earlier that it rejects every token. A heartbeat may be half a second old.
        assert!(waited > MAX_STALENESS - Duration::from_secs(1), "{waited:?}: no revocation waited for it");
        mend(scene, replica);
        scene.tell(format!("replica {replica} is back"));
    });
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_strict_revocation_holds_when_a_replica_is_cut_off() {
    strict(
        "strict, a replica is cut off",
        |scene, replica| scene.cluster.replicas[replica].proxy.set(Fault::BlackHole),
        |scene, replica| scene.cluster.replicas[replica].proxy.set(Fault::None),
    );
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_strict_revocation_holds_when_a_replica_is_stopped() {
    strict(
        "strict, a replica is stopped",
        |scene, replica| scene.cluster.replicas[replica].signal("STOP"),
        |scene, replica| scene.cluster.replicas[replica].signal("CONT"),
    );
}
