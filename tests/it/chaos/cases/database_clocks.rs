//! A clock of the database that is wrong for a while: what its gateways do meanwhile must hold when it is right again.

use std::thread::sleep;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};

use super::super::cluster::{Cluster, Setup};
use super::super::fault_proxy::Fault;
use super::super::load::Background;
use super::super::story::Story;
use super::clocks::server_with_clock;
use super::database::{fail_over, replicated};
use crate::support::postgres::PostgresServer;
use crate::support::tokens::EXTERNAL_ISSUER;

const HOUR: i64 = 3_600_000;
/// Longer than any token lives.
const AHEAD: i64 = 30 * HOUR;
const COUNT: &str = "select count(*) from revocations";

fn two() -> Setup<'static> {
    Setup { clocks: &[0, 0], ..Setup::default() }
}

fn revoke(background: &Background, cluster: &Cluster, what: Value) -> Option<StatusCode> {
    let target = cluster.replicas[0].target();
    background.run(async move { target.revoke(what).await })
}

fn get(background: &Background, cluster: &Cluster, number: usize, token: &str) -> Option<StatusCode> {
    let target = cluster.replicas[number].target();
    let token = token.to_owned();
    background.run(async move { target.get(&token).await })
}

/// It would find every revocation over, and a deleted one does not come back.
#[test]
fn a_gateway_that_starts_sweeps_nothing_while_the_database_is_ahead() {
    let server = server_with_clock();
    let background = Background::start();
    let mut cluster = Cluster::start(&server, two());
    let (jti, token) = cluster.foreign_token(1);
    let what = json!({ "jti": jti, "issuer": EXTERNAL_ISSUER });
    assert_eq!(revoke(&background, &cluster, what), Some(StatusCode::OK));
    cluster.replicas[0].kill();
    server.set_clock(AHEAD);
    let program = cluster.replicas[0].start_program();
    // The first sweep is due at once.
    sleep(Duration::from_secs(3));
    assert_eq!(cluster.sql(&server, COUNT), "1");
    server.set_clock(0);
    program.kill();
    cluster.replicas[0].restart();
    cluster.wait_until_ready();
    assert_eq!(get(&background, &cluster, 0, &token), Some(StatusCode::UNAUTHORIZED));
}

/// A gateway that was killed while the database was ahead has left it.
#[test]
fn no_gateway_waits_for_a_lease_that_ends_later_than_any_can() {
    let server = PostgresServer::start();
    let mut cluster = Cluster::start(&server, two());
    cluster.replicas.iter_mut().for_each(|replica| replica.kill());
    let lease = "insert into leases (name, holder, epoch, until)
        values ('write_back', 'dead', 1, (extract(epoch from clock_timestamp()) * 1000)::bigint + 3600000)";
    cluster.sql(&server, lease);
    cluster.replicas.iter_mut().for_each(|replica| replica.restart());
    cluster.wait_until_ready();
}

#[test]
#[ignore = "tests/chaos runs it"]
fn a_strict_revocation_waits_for_no_gateway_that_was_killed_while_the_database_was_ahead() {
    let server = server_with_clock();
    let background = Background::start();
    let mut cluster = Cluster::start(&server, Setup { store: "strict = true", ..two() });
    let token = |jti: &str| json!({ "jti": jti, "issuer": EXTERNAL_ISSUER });
    assert_eq!(revoke(&background, &cluster, token("a")), Some(StatusCode::OK));
    server.set_clock(HOUR);
    // Each gateway renews its row.
    sleep(Duration::from_secs(3));
    cluster.replicas[1].kill();
    server.set_clock(0);
    // A gateway that is gone is waited for until it would reject everything.
    let began = Instant::now();
    while revoke(&background, &cluster, token("b")) != Some(StatusCode::OK) {
        assert!(began.elapsed() < Duration::from_secs(20), "it waits for a gateway that is gone");
    }
}

/// Other issuers date their tokens by clocks of their own.
#[test]
fn a_watermark_covers_what_came_before_it_while_the_database_is_behind() {
    let server = server_with_clock();
    let background = Background::start();
    let cluster = Cluster::start(&server, two());
    // Further behind, no gateway is ready.
    server.set_clock(-4_000);
    sleep(Duration::from_secs(2));
    cluster.wait_until_ready();
    let (_, token) = cluster.foreign_token(1);
    assert_eq!(get(&background, &cluster, 0, &token), Some(StatusCode::OK));
    sleep(Duration::from_secs(1));
    let what = json!({ "sub": "bob", "issuer": EXTERNAL_ISSUER });
    assert_eq!(revoke(&background, &cluster, what), Some(StatusCode::OK));
    sleep(Duration::from_secs(2));
    for number in [0, 1] {
        assert_eq!(get(&background, &cluster, number, &token), Some(StatusCode::UNAUTHORIZED), "{number}");
    }
}

/// A standby takes over that lacks a revocation, and its clock is ahead.
#[test]
#[ignore = "tests/chaos runs it"]
fn what_a_standby_lacks_comes_back_also_if_its_clock_is_ahead() {
    let ahead = i32::try_from(AHEAD / 1_000).expect("some days");
    let (mut primary, standby, replication) = replicated(ahead);
    let mut cluster = Cluster::start(&primary, Setup::default());
    let story = Story::begin("a clock that is ahead after a failover");
    let background = Background::start();
    replication.set(Fault::BlackHole);
    let (jti, token) = cluster.foreign_token(1);
    let what = json!({ "jti": jti, "issuer": EXTERNAL_ISSUER });
    assert_eq!(revoke(&background, &cluster, what), Some(StatusCode::OK));
    // Each gateway knows it.
    sleep(Duration::from_secs(1));
    fail_over(&story, &cluster, &mut primary, standby);
    let began = Instant::now();
    while cluster.sql(&primary, COUNT) != "1" {
        assert!(began.elapsed() < Duration::from_secs(30), "it is not written back");
        sleep(Duration::from_millis(100));
    }
    // The clock is corrected.
    std::fs::remove_file(primary.folder.join("clock.so")).expect("removed");
    primary.kill();
    primary.restart();
    cluster.replicas[2].kill();
    cluster.replicas[2].restart();
    cluster.wait_until_ready();
    assert_eq!(cluster.sql(&primary, COUNT), "1");
    assert_eq!(get(&background, &cluster, 2, &token), Some(StatusCode::UNAUTHORIZED));
}
