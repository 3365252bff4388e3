//! A standby takes over that lacks many revocations.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;

use super::super::cluster::{Cluster, Setup};
use super::super::fault_proxy::Fault;
use super::super::load::{Background, lock};
use super::super::story::Story;
use super::super::survive::PATIENCE;
use super::super::target::Target;
use super::database::{fail_over, replicated};
use crate::support::postgres::PostgresServer;
use crate::support::repetitions::repetitions;
use crate::support::tokens::EXTERNAL_ISSUER;

/// What each gateway remembers at most, which is what `tests/chaos` loses.
const MOST: usize = 100_000;
/// Operators that revoke meanwhile.
const REVOKERS: usize = 4;
/// The newest entry of the log that is in force, with all before it.
const SEQUENCE: &str = "bearward_revocation_sequence";
/// How often a gateway has found that the database was rolled back.
const FORKED: &str = "bearward_store_forked_total";
/// Lost tokens that are sent to a gateway that starts.
const SAMPLES: usize = 100;

/// All of them come back, while other revocations are made. A gateway that starts meanwhile accepts none of their
/// tokens.
#[test]
fn many_lost_revocations_come_back() {
    let count = repetitions(5_000).min(MOST);
    let (mut primary, standby, replication) = replicated(0);
    let mut cluster = Cluster::start(&primary, Setup::default());
    let story = Story::begin("many lost revocations");
    let background = Background::start();
    replication.set(Fault::BlackHole);
    story.tell("the standby lags");
    revoke(&cluster, &primary, count);
    until("all are in force", || {
        (0..3).all(|replica| metric(&background, &cluster, replica, SEQUENCE) == count as f64)
    });
    story.tell(format!("{count} revocations are in force"));
    cluster.replicas[2].kill();
    fail_over(&story, &cluster, &mut primary, standby);
    until("it was noticed", || (0..2).all(|replica| metric(&background, &cluster, replica, FORKED) >= 1.0));
    story.tell("two gateways have noticed it");
    let began = Instant::now();
    let revoked = Revoked::start(&background, &cluster);
    cluster.replicas[2].restart();
    story.tell("another one has started");
    let accepted = accepted(&background, &cluster, count);
    until("they are back", || missing(&cluster, &primary, count) == 0);
    let took = began.elapsed();
    let (latencies, failed) = revoked.stop();
    let place = |share: usize| latencies.get(latencies.len() * share / 100).copied().unwrap_or_default();
    story.tell(format!(
        "{count} came back in {took:.1?}; beside them {} revocations: p50 {:.1?}, p99 {:.1?}, {failed} failed",
        latencies.len(),
        place(50),
        place(99),
    ));
    assert_eq!(accepted, 0, "of {SAMPLES} tokens, at a gateway that started meanwhile");
    assert!(failed == 0 && latencies.len() > 10, "{failed} of {} failed", latencies.len());
    let duplicates = cluster.sql(&primary, "select count(*) - count(distinct name) from revocations");
    assert_eq!(duplicates, "0", "each gateway knows them, and one writes each");
    // Not beside all other tests.
    if count == MOST {
        assert!(took < Duration::from_secs(30), "{took:?}");
        assert!(place(99) < Duration::from_millis(200), "{:?}", place(99));
    }
}

/// What other gateways have revoked.
fn revoke(cluster: &Cluster, primary: &PostgresServer, count: usize) {
    let life = "(extract(epoch from clock_timestamp()) * 1000)::bigint";
    let insert = format!(
        "insert into revocations (sequence, kind, issuer, name, at, until, tag)
            select n, 'token', '{EXTERNAL_ISSUER}', 'token-' || n, {life}, {life} + 3600000, decode(md5(n::text), 'hex')
            from generate_series(1, {count}) n;
        update meta set value = {count}, tag = decode(md5('{count}'), 'hex') where name = 'revocation_sequence'"
    );
    cluster.sql(primary, &insert);
}

fn missing(cluster: &Cluster, primary: &PostgresServer, count: usize) -> usize {
    let written = cluster.sql(primary, "select count(*) from revocations where name like 'token-%'");
    count.saturating_sub(written.parse().expect("a number"))
}

fn metric(background: &Background, cluster: &Cluster, replica: usize, name: &'static str) -> f64 {
    let target = cluster.replicas[replica].target();
    background.run(async move { target.metric(name).await })
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(250));
    }
}

/// How many of the lost tokens the gateway accepts that started last.
fn accepted(background: &Background, cluster: &Cluster, count: usize) -> usize {
    let target = cluster.replicas[2].target();
    let numbers = (1..=count).step_by((count / SAMPLES).max(1)).take(SAMPLES);
    let tokens: Vec<String> = numbers.map(|number| cluster.foreign_token(number).1).collect();
    background.run(async move {
        let mut accepted = 0;
        for token in tokens {
            let status = target.get(&token).await;
            accepted += usize::from(status == Some(StatusCode::OK));
            assert_ne!(status, None, "the gateway works");
        }
        accepted
    })
}

/// Revocations that go on until they are stopped.
struct Revoked {
    is_over: Arc<AtomicBool>,
    latencies: Arc<Mutex<Vec<Option<Duration>>>>,
}

impl Revoked {
    fn start(background: &Background, cluster: &Cluster) -> Revoked {
        let revoked = Revoked { is_over: Arc::default(), latencies: Arc::default() };
        for number in 0..REVOKERS {
            let target = cluster.replicas[number % 2].target();
            let is_over = revoked.is_over.clone();
            let latencies = revoked.latencies.clone();
            background.run(async move {
                tokio::spawn(revoke_until_over(target, number, is_over, latencies));
            });
        }
        revoked
    }

    /// How long each took, the shortest first, and how many failed.
    fn stop(self) -> (Vec<Duration>, usize) {
        self.is_over.store(true, Ordering::Release);
        let all = lock(&self.latencies).clone();
        let mut latencies: Vec<Duration> = all.iter().copied().flatten().collect();
        latencies.sort();
        let failed = all.len() - latencies.len();
        (latencies, failed)
    }
}

async fn revoke_until_over(
    target: Target,
    revoker: usize,
    is_over: Arc<AtomicBool>,
    latencies: Arc<Mutex<Vec<Option<Duration>>>>,
) {
    let mut number = 0;
    while !is_over.load(Ordering::Acquire) {
        let began = Instant::now();
        let jti = format!("new-{revoker}-{number}");
        let status = target.revoke(json!({ "jti": jti, "issuer": EXTERNAL_ISSUER })).await;
        lock(&latencies).push((status == Some(StatusCode::OK)).then(|| began.elapsed()));
        number += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
