//! Faults of the database.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use http::StatusCode;
use tempfile::TempDir;

use super::super::cluster::{Cluster, MAX_STALENESS, Setup};
use super::super::fault_proxy::{Fault, FaultProxy};
use super::super::load::Load;
use super::super::story::Story;
use super::super::survive::{
    Expected, PATIENCE, SLACK, Scene, VOLUME, conclude, local, revocations_hold, survive, survive_on,
};
use crate::support::postgres::{PostgresServer, REPLICATED, USER};
use crate::support::{TokenPair, preload};

#[test]
fn a_killed_database_loses_nothing_that_was_acknowledged() {
    survive("a killed database", &mut PostgresServer::start(), |scene| {
        for _ in 0..2 {
            scene.moment(80);
            scene.server.kill();
            scene.tell("the database is killed");
            let pause = scene.story.random().millis(1_000);
            sleep(pause);
            scene.server.restart();
            scene.tell("the database works again");
        }
    });
}

/// A primary, and a standby behind a proxy of its own. `ahead`: the clock of the standby.
pub(super) fn replicated(ahead: i32) -> (PostgresServer, PostgresServer, FaultProxy) {
    let primary = PostgresServer::start_with(REPLICATED, "trust");
    let replication = FaultProxy::start(local(primary.port));
    let via = replication.address.port();
    let folder = TempDir::new().expect("a folder");
    preload::compile("clock", folder.path());
    let standby = primary.standby_with_clock(via, &folder.path().join("clock.so"), ahead);
    (primary, standby, replication)
}

/// The primary is gone for good, and its address moves to the standby.
pub(super) fn fail_over(story: &Story, cluster: &Cluster, primary: &mut PostgresServer, standby: PostgresServer) {
    primary.kill();
    story.tell("the primary is killed");
    standby.promote();
    for replica in &cluster.replicas {
        replica.proxy.move_to(local(standby.port));
    }
    story.tell("the standby is the primary");
    // From here on, the checkers read the new primary.
    *primary = standby;
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_promoted_synchronous_standby_has_everything() {
    let (mut primary, standby, _replication) = replicated(0);
    primary.wait_for_standby_at_commits();
    let mut cluster = Cluster::start(&primary, Setup::default());
    let expected = (VOLUME, Expected::default());
    survive_on("a synchronous standby", &mut cluster, &mut primary, expected, |scene| {
        scene.moment(160);
        fail_over(scene.story, scene.cluster, scene.server, standby);
    });
    assert!(cluster.forks().iter().all(|forks| *forks == 0.0), "nothing was lost, so it must not look like a fork");
}

/// Commits that were acknowledged are lost, and their numbers in the log are used again.
#[test]
fn every_replica_finds_that_a_standby_lacks_revocations() {
    let (mut primary, standby, replication) = replicated(0);
    let mut cluster = Cluster::start(&primary, Setup::default());
    let mut story = Story::begin("an asynchronous standby");
    let mut load = Load::start(&cluster, VOLUME, &story);
    load.wait_until_revoked(story.between(10, 60), PATIENCE);
    replication.set(Fault::BlackHole);
    story.tell("the standby lags");
    let lost = story.between(20, 60);
    load.wait_until_revoked(load.revoked() + lost, PATIENCE);
    fail_over(&story, &cluster, &mut primary, standby);
    load.wait_until_all_are_revoked(PATIENCE);
    cluster.wait_until_ready();
    let history = load.stop();
    let patience = MAX_STALENESS + SLACK;
    load.use_old_tokens_at_the_end(patience);
    conclude(&story, &history, revocations_hold(&history, patience));
    assert_eq!(load.accepted_at_the_end(patience), 0, "a token that was rejected is accepted again");
    assert!(cluster.forks().iter().all(|forks| *forks >= 1.0), "a replica has not found the fork");
    // The lost revocations were written again: a replica that reads only the new primary knows them too.
    cluster.replicas[2].kill();
    cluster.replicas[2].restart();
    cluster.wait_until_ready();
    assert_eq!(load.accepted_at_the_end(patience), 0, "a revocation was not written again");
    load.use_old_tokens_at_the_end(patience);
    conclude(&story, &history, revocations_hold(&history, patience));
}

/// By the clock of the new primary, the newest sessions of before begin in the future. "Log out everywhere" ends them
/// nevertheless, and a refresh of before is no reuse.
#[test]
#[ignore = "tests/chaos runs it"]
fn a_new_primary_with_a_late_clock_saves_no_session() {
    // Less than what makes a gateway unready.
    const AHEAD: i32 = -4;
    let (mut primary, standby, _replication) = replicated(AHEAD);
    primary.wait_for_standby_at_commits();
    let mut cluster = Cluster::start(&primary, Setup::default());
    let expected = (VOLUME, Expected::default());
    survive_on("a late clock", &mut cluster, &mut primary, expected, |scene| {
        scene.moment(80);
        let replica = scene.any_replica();
        let began = Instant::now();
        let sessions: Vec<_> = (0..4).map(|n| scene.load.log_in(replica, &format!("traveller-{n}")).0).collect();
        fail_over(scene.story, scene.cluster, scene.server, standby);
        for of_one in sessions {
            let replica = scene.any_replica();
            scene.load.log_out(replica, of_one);
        }
        scene.tell("the sessions of before are logged out");
        let dated = "select count(*) from subjects s join families f on f.subject = s.subject
            where s.subject like 'traveller-%' and f.created_at > s.not_after";
        let count = scene.cluster.sql(scene.server, dated);
        scene.tell(format!("{count} of them began in the future"));
        // On a machine with other work, the new clock may have caught up.
        assert!(count != "0" || began.elapsed() > Duration::from_secs(3), "no session began in the future");
        scene.moment(40);
    });
}

/// A follower that waits for the oldest transaction of the cluster would stop here.
#[test]
#[ignore = "tests/chaos runs it"]
fn an_open_transaction_elsewhere_delays_nothing() {
    let mut server = PostgresServer::start();
    server.sql("postgres", "create database other");
    let mut open = server.open_transaction("other", "create table waiting (id int)");
    survive("an open transaction elsewhere", &mut server, |scene| scene.moment(80));
    let _ = open.kill();
    let _ = open.wait();
}

/// A session for requests while the database does not work. No client of the history uses it.
fn bystander(scene: &Scene<'_>) -> TokenPair {
    let (_, pair) = scene.load.log_in(0, "bystander");
    for replica in 0..scene.cluster.replicas.len() {
        assert_eq!(status(scene, replica, &pair), Some(StatusCode::OK));
    }
    pair
}

fn status(scene: &Scene<'_>, replica: usize, pair: &TokenPair) -> Option<StatusCode> {
    let (target, token) = (scene.load.target(replica), pair.access.clone());
    scene.load.run(async move { target.get(&token).await })
}

/// A refresh is answered with 503 and with the time after which to try again.
fn assert_unavailable(scene: &Scene<'_>, replica: usize, pair: &TokenPair) {
    let (target, pair) = (scene.load.target(replica), pair.clone());
    let response = scene.load.run(async move { target.refresh_response(&pair).await }).expect("a response");
    let wait = response.headers().get("retry-after").and_then(|wait| wait.to_str().ok()?.parse::<u64>().ok());
    assert!(response.status() == StatusCode::SERVICE_UNAVAILABLE && wait.is_some_and(|wait| wait > 0), "{response:?}");
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_stopped_database_is_survived() {
    survive("a stopped database", &mut PostgresServer::start(), |scene| {
        let pair = bystander(scene);
        scene.moment(80);
        scene.server.signal_all("STOP");
        let stopped = Instant::now();
        scene.tell("the database is stopped");
        for replica in 0..scene.cluster.replicas.len() {
            let status = status(scene, replica, &pair);
            let is_early = stopped.elapsed() < MAX_STALENESS - SLACK;
            assert!(!is_early || status == Some(StatusCode::OK), "a known token goes on: {status:?}");
        }
        let replica = scene.any_replica();
        assert_unavailable(scene, replica, &pair);
        scene.tell(format!("replica {replica} answers a refresh with 503"));
        scene.last(Duration::ZERO, Duration::from_secs(3));
        assert_eq!(status(scene, replica, &pair), Some(StatusCode::SERVICE_UNAVAILABLE), "it is stale");
        scene.server.signal_all("CONT");
        scene.tell("the database goes on");
    });
}

/// Ends the session that holds the locks.
const END: &str = "select pg_terminate_backend(pid) from pg_stat_activity where query like '%pg_sleep(3600)%'
    and pid <> pg_backend_pid()";

/// As a careless administrator does. Reading goes on, and so do known tokens, for however long it lasts.
#[test]
#[ignore = "tests/chaos runs it"]
fn locked_tables_stop_no_known_token() {
    survive("locked tables", &mut PostgresServer::start(), |scene| {
        let pair = bystander(scene);
        scene.moment(80);
        let schema = &scene.cluster.schema;
        let lock = format!("lock table {schema}.families, {schema}.revocations, {schema}.meta in exclusive mode");
        let mut session = scene.server.open_transaction(USER, &lock);
        let is_locked =
            "select count(*) from pg_locks where mode = 'ExclusiveLock' and locktype = 'relation' and granted";
        let deadline = Instant::now() + PATIENCE;
        while scene.server.sql(USER, is_locked) != "3" {
            assert!(Instant::now() < deadline, "the tables are not locked");
        }
        scene.tell("the tables are locked");
        let locked = Instant::now();
        let lasts = MAX_STALENESS + Duration::from_secs(1) + scene.story.random().millis(4_000);
        let mut rounds = 0;
        while locked.elapsed() < lasts {
            assert_unavailable(scene, rounds % 3, &pair);
            for replica in 0..3 {
                assert_eq!(status(scene, replica, &pair), Some(StatusCode::OK), "a known token goes on");
            }
            rounds += 1;
        }
        scene.server.sql("postgres", END);
        let _ = session.wait();
        scene.tell(format!("the locks are gone, after {rounds} refreshes that got 503"));
    });
}

/// Writes until the disk is full. Removing the file makes room.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("created");
    let piece = vec![1; 64 * 1024];
    while file.write_all(&piece).is_ok() {}
    while file.write_all(&[1]).is_ok() {}
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_full_disk_leaves_nothing_half_done() {
    let mut server = PostgresServer::start_on_disk("160m");
    survive("a full disk", &mut server, |scene| {
        let filler = scene.server.folder.join("data/filler");
        let pair = bystander(scene);
        scene.moment(80);
        fill(&filler);
        scene.tell("the disk of the database is full");
        let (began, mut attempts) = (Instant::now(), 0);
        let mut current = pair;
        loop {
            assert!(began.elapsed() < PATIENCE, "a full disk stops nothing");
            let (target, before) = (scene.load.target(attempts % 3), current.clone());
            match scene.load.run(async move { target.refresh(&before).await }) {
                Some((StatusCode::OK, body)) => current = TokenPair::from_json(&body),
                Some((StatusCode::SERVICE_UNAVAILABLE, _)) => break,
                other => panic!("{other:?}"),
            }
            attempts += 1;
        }
        scene.tell(format!("a refresh got 503, after {attempts} others"));
        scene.last(Duration::ZERO, Duration::from_secs(4));
        let said = fs::read_to_string(scene.server.folder.join("log")).expect("the log of the server");
        assert!(said.contains("No space left on device"), "the disk was not full: {said}");
        fs::remove_file(&filler).expect("removed");
        // Without room for its log, the server ends itself. Its supervisor starts it again.
        let was_running = scene.server.psql("postgres", "select 1").status.success();
        if !was_running {
            scene.server.kill();
            scene.server.restart();
        }
        scene.tell(if was_running {
            "there is room again"
        } else {
            "there is room again, and the server is restarted"
        });
    });
}
