//! Faults of what the gateways share: signing keys, tables, events, and the conditions of a start.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::Value;

use super::super::checkers::{Outcome, longest_outage};
use super::super::cluster::{Cluster, Setup, write_secret};
use super::super::collector::Collector;
use super::super::load::{Background, History, lock};
use super::super::story::Story;
use super::super::survive::{Expected, PATIENCE, VOLUME, survive, survive_on};
use super::super::target::Target;
use crate::store::postgres::schema::NEXT;
use crate::support::postgres::{PostgresServer, USER};

const ROTATIONS: usize = 20;

/// Rotates the keys by all replicas at once, and right after that each accepts what each has signed.
#[test]
#[ignore = "tests/chaos runs it"]
fn keys_that_all_replicas_rotate_at_once_are_valid_at_once() {
    survive("keys", &mut PostgresServer::start(), |scene| {
        // One key signs.
        let (mut expected, mut is_pending) = (1, false);
        for round in 0..ROTATIONS {
            let now = scene.story.random().one_in(2);
            // Whichever is first uses the key that waits. If it need not sign yet, one key is enough for all.
            expected += match (now, is_pending) {
                (true, _) => 3 - usize::from(is_pending),
                (false, false) => 1,
                (false, true) => 0,
            };
            is_pending = !now;
            let replicas: Vec<_> = (0..3).map(|replica| scene.load.target(replica)).collect();
            scene.load.run(async move { rotate_and_use(&replicas, now, round).await });
            let count =
                |state: &str| scene.cluster.sql(scene.server, &format!("select count(*) from signing_keys {state}"));
            assert_eq!(count(""), expected.to_string(), "round {round}");
            assert_eq!(count("where activated_at is not null and retired_at is null and revoked_at is null"), "1");
        }
        scene.tell(format!("{expected} keys"));
        let deadline = Instant::now() + PATIENCE;
        let replicas: Vec<_> = (0..3).map(|replica| scene.load.target(replica)).collect();
        loop {
            let all = replicas.clone();
            let known = scene.load.run(async move { join_all(all.iter().map(async |one| one.keys().await)).await });
            if known.iter().all(|keys| keys.len() == expected && *keys == known[0]) {
                return;
            }
            assert!(Instant::now() < deadline, "they know other keys: {known:?}");
        }
    });
}

async fn rotate_and_use(replicas: &[Target], now: bool, round: usize) {
    let rotated = join_all(replicas.iter().map(|target| target.rotate_keys(now))).await;
    assert_eq!(rotated, [Some(StatusCode::OK); 3]);
    for issuer in replicas {
        let pair = issuer.login("signer").await.expect("a login");
        for (number, verifier) in replicas.iter().enumerate() {
            let began = Instant::now();
            let mut status = verifier.get(&pair.access).await;
            // A slow machine makes a replica stale. It must not take the token for a wrong one.
            while status == Some(StatusCode::SERVICE_UNAVAILABLE) && began.elapsed() < PATIENCE {
                status = verifier.get(&pair.access).await;
            }
            assert_eq!(status, Some(StatusCode::OK), "round {round}, at replica {number}");
        }
    }
}

/// Longest time of a refresh.
const SHORT: Duration = Duration::from_secs(1);

#[test]
#[ignore = "tests/chaos runs it"]
fn a_migration_under_load_delays_for_less_than_a_second() {
    survive("a migration", &mut PostgresServer::start(), |scene| {
        scene.moment(80);
        let schema = &scene.cluster.schema;
        let migration = format!("begin; set local lock_timeout = '500ms'; {NEXT} commit");
        let text = format!("set role {USER}; set search_path = {schema}; {migration}");
        let (began, mut attempts) = (Instant::now(), 1);
        // An upgrade that is rejected is tried again by the supervisor.
        while !scene.server.psql(USER, &text).status.success() {
            assert!(began.elapsed() < PATIENCE, "the tables cannot be changed");
            attempts += 1;
        }
        scene.tell(format!("the tables are changed after {:?}, in {attempts} attempts", began.elapsed()));
        scene.moment(40);
        let refreshes: Vec<_> = lock(&scene.load.history().refreshes).clone();
        let since: Vec<_> = refreshes.into_iter().filter(|refresh| refresh.span.ended >= began).collect();
        let outage = longest_outage(&since);
        scene.tell(format!("longest time of a refresh: {outage:?}"));
        assert!(outage < SHORT, "{outage:?}");
        let first = scene.any_replica();
        for turn in 0..3 {
            let replica = (first + turn) % 3;
            scene.cluster.replicas[replica].stop();
            scene.cluster.replicas[replica].restart();
            scene.tell(format!("replica {replica} was replaced"));
        }
    });
}

/// The kill always falls between the delivery and its response: once before the receiver has stored the events, and
/// once after that.
#[test]
#[ignore = "tests/chaos runs it"]
fn a_killed_deliverer_loses_no_event() {
    let (mut server, collector) = (PostgresServer::start(), Collector::start());
    let setup = Setup { collector: Some(collector.address()), ..Setup::default() };
    let mut cluster = Cluster::start(&server, setup);
    let expected = (VOLUME, Expected::default());
    let history = survive_on("a killed deliverer", &mut cluster, &mut server, expected, |scene| {
        scene.moment(80);
        let first = scene.story.random().one_in(2);
        for stores in [first, !first] {
            let killed = collector.hold(stores);
            let pause = scene.story.random().millis(200);
            sleep(pause);
            scene.cluster.replicas[killed].kill();
            let what = if stores { "and are stored" } else { "and are not stored" };
            scene.tell(format!("replica {killed} is killed, its events have arrived {what}"));
            let next = collector.go_on();
            assert_ne!(next, killed, "it was killed");
            scene.tell(format!("replica {next} delivers"));
            scene.cluster.replicas[killed].restart();
        }
    });
    let deadline = Instant::now() + PATIENCE;
    while cluster.sql(&server, "select count(*) from audit") != "0" {
        assert!(Instant::now() < deadline, "events are not delivered");
        sleep(Duration::from_millis(100));
    }
    let delivered = collector.lines();
    assert!(!delivered.contains("\"refresh.reuse_detected\""), "honest clients repeated their tokens");
    let violations = undelivered(&delivered, &history);
    assert!(violations.is_empty(), "{} violations: {:?}", violations.len(), violations.first());
}

/// Each refresh has its event, and those of one session are in order. An event may be there twice.
fn undelivered(delivered: &str, history: &History) -> Vec<String> {
    let mut violations = Vec::new();
    let mut generations: HashMap<String, u64> = HashMap::new();
    for line in delivered.lines() {
        let event: Value = serde_json::from_str(line).expect("a whole line");
        let (name, generation) = (event["event"].as_str(), event["generation"].as_u64());
        let (Some("token.issued" | "token.refreshed"), Some(generation)) = (name, generation) else { continue };
        let newest = generations.entry(event["token_id"].to_string()).or_default();
        if generation > *newest + 1 {
            violations.push(format!("{line}: generation {newest} comes before it"));
        }
        *newest = generation.max(*newest);
    }
    for refresh in lock(&history.refreshes).iter().filter(|refresh| matches!(refresh.outcome, Outcome::Done(_))) {
        let family = Value::from(refresh.family.as_str()).to_string();
        if generations.get(&family).is_none_or(|newest| *newest <= refresh.parent) {
            violations.push(format!("{family}: the refresh of {} has no event", refresh.parent));
        }
    }
    violations
}

/// What it is, how it begins and ends, and what the gateway says.
type Condition<'a> = (&'a str, &'a dyn Fn(), &'a dyn Fn(), &'a str);

/// A gateway of the cluster is restarted under conditions that no gateway may start with. The other one goes on.
#[test]
#[ignore = "tests/chaos runs it"]
fn a_gateway_that_would_be_unsafe_does_not_start() {
    let server = PostgresServer::start();
    let mut cluster = Cluster::start(&server, Setup { clocks: &[0, 0], ..Setup::default() });
    let mut story = Story::begin("unsafe starts");
    cluster.replicas[1].stop();
    let folder = cluster.replicas[1].folder();
    let role = |value: &str| server.sql("postgres", &format!("alter role {USER} set synchronous_commit = {value}"));
    let versions = |sql: &str| cluster.sql(&server, sql);
    let newer = "insert into schema_versions (version, compatible_from, at, by) values (999, 998, 0, '4.5.6')";
    let conditions: [Condition<'_>; 3] = [
        ("a role that does not wait for the disk", &|| drop(role("local")), &|| drop(role("on")), "synchronous_commit"),
        ("another root secret", &|| write_secret(&folder, 'b'), &|| write_secret(&folder, 'a'), "root secret"),
        (
            "tables of a later version",
            &|| drop(versions(newer)),
            &|| drop(versions("delete from schema_versions where version = 999")),
            "needs schema 998",
        ),
    ];
    let first = story.random().below(conditions.len());
    let background = Background::start();
    for turn in 0..conditions.len() {
        let (name, begin, end, reason) = conditions[(first + turn) % conditions.len()];
        begin();
        let (status, _, said) = cluster.replicas[1].start_program().wait();
        let line = said.lines().find(|line| line.contains(reason));
        assert!(!status.success() && line.is_some(), "{name}: {said}");
        story.tell(format!("{name}: {}", line.unwrap_or_default()));
        let target = cluster.replicas[0].target();
        let issued = background.run(async move { target.login("alice").await });
        assert!(issued.is_ok(), "{name}: the other one goes on: {issued:?}");
        end();
    }
    cluster.replicas[1].restart();
    cluster.wait_until_ready();
}
