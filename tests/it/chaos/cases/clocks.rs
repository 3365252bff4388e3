//! Clocks that change while two tabs of one browser refresh: the first tab refreshes at one gateway and uses its new
//! token at another one, and then the second tab presents the old token there.

use std::thread::sleep;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::cluster::{Cluster, Setup};
use super::super::fault_proxy::Fault;
use super::super::load::Background;
use super::super::story::Story;
use super::super::target::Target;
use super::database::{fail_over, replicated};
use crate::support::postgres::PostgresServer;
use crate::support::tokens::EXTERNAL_ISSUER;
use crate::support::{TokenPair, preload};

const SESSIONS: usize = 20;
const SECOND: Duration = Duration::from_secs(1);
const HALF_A_SECOND: i64 = 500;

/// Two gateways on one database, with these keys of `[tokens]`.
fn two(tokens: &str) -> Setup<'_> {
    Setup { clocks: &[0, 0], tokens, ..Setup::default() }
}

/// A session of which the first tab has refreshed, and used its new token.
pub(super) struct Tabs {
    pub(super) parent: TokenPair,
    pub(super) child: TokenPair,
}

impl Tabs {
    /// Refreshes at `one`, and uses the new access token at `other`, which confirms it.
    pub(super) async fn open(one: &Target, other: &Target, number: usize) -> Tabs {
        let parent = one.login(&format!("tabs-{number}")).await.expect("the gateway works");
        let refreshed = one.refresh(&parent).await.expect("a response");
        assert_eq!(refreshed.0, StatusCode::OK, "{}", refreshed.1);
        let child = TokenPair::from_json(&refreshed.1);
        assert_eq!(other.get(&child.access).await, Some(StatusCode::OK));
        Tabs { parent, child }
    }

    /// The second tab presents the old token at this gateway. Returns true if it gets the new one.
    async fn repeat(&self, at: &Target) -> bool {
        let repeated = at.refresh(&self.parent).await.expect("a response");
        repeated.0 == StatusCode::OK && TokenPair::from_json(&repeated.1).refresh == self.child.refresh
    }

    /// Returns true if the session goes on.
    pub(super) async fn lives(&self, at: &Target) -> bool {
        at.refresh(&self.child).await.is_some_and(|(status, _)| status == StatusCode::OK)
    }
}

/// Both tabs of many sessions, one after the other. Returns how many sessions the second tab has ended.
async fn count_ended(one: Target, other: Target) -> usize {
    let mut ended = 0;
    for number in 0..SESSIONS {
        let tabs = Tabs::open(&one, &other, number).await;
        ended += usize::from(!tabs.repeat(&other).await);
    }
    ended
}

/// Both tabs, the first one at either gateway.
fn assert_none_ends(background: &Background, cluster: &Cluster) {
    for [one, other] in [[0, 1], [1, 0]] {
        let targets = [one, other].map(|replica: usize| cluster.replicas[replica].target());
        let [first, second] = targets;
        let ended = background.run(count_ended(first, second));
        assert_eq!(ended, 0, "of {SESSIONS} sessions that refreshed at {one} and at {other}");
    }
}

/// Refreshes one session again and again, so that the gateway reads its clock.
async fn refresh_for(target: Target, span: Duration) {
    let (began, mut pair) = (Instant::now(), target.login("busy").await.expect("the gateway works"));
    while began.elapsed() < span {
        let (status, body) = target.refresh(&pair).await.expect("a response");
        assert_eq!(status, StatusCode::OK, "{body}");
        pair = TokenPair::from_json(&body);
    }
}

/// Waits until each gateway has measured that the clock of the database is this far ahead of its own.
fn wait_for_offset(background: &Background, cluster: &Cluster, seconds: f64) {
    for replica in &cluster.replicas {
        background.run(wait_for_offset_of(replica.target(), seconds));
    }
}

async fn wait_for_offset_of(target: Target, seconds: f64) {
    let began = Instant::now();
    while (target.metric("bearward_store_clock_offset_seconds").await - seconds).abs() > 0.1 {
        assert!(began.elapsed() < Duration::from_secs(20), "a gateway does not measure its clock");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(super) fn server_with_clock() -> PostgresServer {
    let folder = TempDir::new().expect("a folder");
    preload::compile("clock", folder.path());
    PostgresServer::start_with_clock(&folder.path().join("clock.so"))
}

#[test]
fn a_gateway_with_a_clock_that_was_ahead_ends_no_session() {
    let server = PostgresServer::start();
    let background = Background::start();
    let cluster = Cluster::start(&server, two(""));
    cluster.replicas[0].set_clock(HALF_A_SECOND);
    background.run(refresh_for(cluster.replicas[0].target(), SECOND));
    cluster.replicas[0].set_clock(0);
    wait_for_offset(&background, &cluster, 0.0);
    assert_none_ends(&background, &cluster);
}

#[test]
fn a_gateway_that_started_slowly_ends_no_session() {
    let server = PostgresServer::start();
    let background = Background::start();
    let mut cluster = Cluster::start(&server, two(""));
    cluster.replicas[0].kill();
    cluster.replicas[0].proxy.set(Fault::DelayRequests(Duration::from_millis(100)));
    cluster.replicas[0].restart();
    cluster.replicas[0].proxy.set(Fault::None);
    cluster.wait_until_ready();
    assert_none_ends(&background, &cluster);
}

/// The gateway that restarts knows only the new clock.
#[test]
#[ignore = "tests/chaos runs it"]
fn a_late_clock_after_a_failover_ends_no_session() {
    let (mut primary, standby, _replication) = replicated(-1);
    primary.wait_for_standby_at_commits();
    let story = Story::begin("a late clock and a restart");
    let background = Background::start();
    let mut cluster = Cluster::start(&primary, two(""));
    background.run(refresh_for(cluster.replicas[0].target(), SECOND));
    fail_over(&story, &cluster, &mut primary, standby);
    cluster.replicas[1].kill();
    cluster.replicas[1].restart();
    cluster.wait_until_ready();
    assert_none_ends(&background, &cluster);
    let steps = background.run(steps(cluster.replicas[0].target()));
    assert!(steps > 0.0, "the gateway that knew the old clock has not noticed");
}

async fn steps(target: Target) -> f64 {
    target.metric("bearward_store_clock_set_back_total").await
}

/// The first tab refreshes while the clock is ahead, and the second one after it was corrected.
#[test]
fn a_database_with_a_clock_that_was_ahead_ends_no_session() {
    let server = server_with_clock();
    let background = Background::start();
    let cluster = Cluster::start(&server, two(""));
    let [one, other] = [0, 1].map(|replica: usize| cluster.replicas[replica].target());
    server.set_clock(1_000);
    background.run(refresh_for(one.clone(), SECOND));
    let tabs: Vec<Tabs> = (0..SESSIONS)
        .map(|number| {
            let [one, other] = [one.clone(), other.clone()];
            background.run(async move { Tabs::open(&one, &other, number).await })
        })
        .collect();
    server.set_clock(0);
    wait_for_offset(&background, &cluster, 0.0);
    for tabs in tabs {
        let other = other.clone();
        assert!(background.run(async move { tabs.repeat(&other).await }), "a session has ended");
    }
    assert_none_ends(&background, &cluster);
    let found: f64 =
        [0, 1].into_iter().map(|replica: usize| background.run(steps(cluster.replicas[replica].target()))).sum();
    assert!(found > 0.0, "no gateway has noticed that the clock was set back");
}

/// The session is refreshed a second before the clock is set back, so that the clock shows half of the time since.
#[test]
fn a_late_clock_prolongs_no_grace() {
    let server = server_with_clock();
    let background = Background::start();
    let cluster = Cluster::start(&server, two("refresh_grace = \"2s\""));
    let [one, other] = [0, 1].map(|replica: usize| cluster.replicas[replica].target());
    let [first, second] = [one, other.clone()];
    let began = Instant::now();
    let tabs = background.run(async move { Tabs::open(&first, &second, 0).await });
    server.set_clock(-1_500);
    wait_for_offset(&background, &cluster, -1.5);
    sleep(Duration::from_millis(2_500).saturating_sub(began.elapsed()));
    let ended = background.run(async move { !tabs.repeat(&other).await && !tabs.lives(&other).await });
    assert!(ended, "the old token was accepted after the grace period");
}

/// For a poll after its clock was set right, the gateway is ahead of the database by what it had to correct before.
#[test]
fn a_login_at_a_gateway_that_is_ahead_prolongs_no_grace() {
    let server = PostgresServer::start();
    let background = Background::start();
    let cluster = Cluster::start(&server, two("refresh_grace = \"2s\""));
    let [one, other] = [0, 1].map(|replica: usize| cluster.replicas[replica].target());
    cluster.replicas[0].set_clock(-4_000);
    background.run(wait_for_offset_of(one.clone(), 4.0));
    cluster.replicas[0].set_clock(0);
    let second = other.clone();
    let tabs = background.run(async move { Tabs::open(&one, &second, 0).await });
    sleep(Duration::from_millis(2_500));
    let ended = background.run(async move { !tabs.repeat(&other).await && !tabs.lives(&other).await });
    assert!(ended, "the old token was accepted after the grace period");
}

/// A step of the clock is no pause: the gateway does not doubt how old a request is.
#[test]
fn a_gateway_that_is_set_forward_finds_a_used_token_at_once() {
    let server = PostgresServer::start();
    let background = Background::start();
    let cluster = Cluster::start(&server, two("refresh_grace = \"1s\""));
    let [one, other] = [0, 1].map(|replica: usize| cluster.replicas[replica].target());
    let second = other.clone();
    let tabs = background.run(async move { Tabs::open(&one, &second, 0).await });
    sleep(Duration::from_millis(1_500));
    cluster.replicas[1].set_clock(14_000);
    background.run(wait_for_offset_of(other.clone(), -14.0));
    let used = background.run(async move { other.refresh(&tabs.parent).await.expect("a response") });
    assert_eq!(used.0, StatusCode::BAD_REQUEST, "{}", used.1);
}

/// A token of another issuer. Its last look-up at this gateway was good.
fn good_token(background: &Background, cluster: &Cluster) -> (String, String) {
    let (jti, token) = cluster.foreign_token(1);
    let one = cluster.replicas[0].target();
    let sent = token.clone();
    assert_eq!(background.run(async move { one.get(&sent).await }), Some(StatusCode::OK));
    (jti, token)
}

/// Waits until this gateway rejects the token.
async fn rejects(target: Target, token: String) {
    let began = Instant::now();
    while target.get(&token).await != Some(StatusCode::UNAUTHORIZED) {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "a token is accepted although its revocation was acknowledged"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Revokes at the first gateway while its clock is wrong by this many milliseconds.
fn at_a_wrong_clock(background: &Background, cluster: &Cluster, wrong: i64, what: Value) {
    let one = cluster.replicas[0].target();
    cluster.replicas[0].set_clock(wrong);
    let status = background.run(async move { one.revoke(what).await });
    cluster.replicas[0].set_clock(0);
    assert_eq!(status, Some(StatusCode::OK));
    wait_for_offset(background, cluster, 0.0);
}

const HOUR: i64 = 3_600_000;

/// Tokens of other issuers are compared with the watermark by their `iat` alone.
#[test]
fn a_revocation_at_a_gateway_that_is_behind_covers_all_earlier_tokens() {
    let server = PostgresServer::start();
    let background = Background::start();
    let cluster = Cluster::start(&server, two(""));
    let (_, token) = good_token(&background, &cluster);
    at_a_wrong_clock(&background, &cluster, -HOUR, json!({ "sub": "bob", "issuer": EXTERNAL_ISSUER }));
    for replica in &cluster.replicas {
        background.run(rejects(replica.target(), token.clone()));
    }
}

#[test]
fn a_revocation_at_a_gateway_that_is_ahead_rejects_no_later_login() {
    let server = PostgresServer::start();
    let background = Background::start();
    let cluster = Cluster::start(&server, two(""));
    at_a_wrong_clock(&background, &cluster, HOUR, json!({ "sub": "alice" }));
    for replica in &cluster.replicas {
        let target = replica.target();
        let login = background.run(async move { target.login("alice").await });
        assert!(login.is_ok(), "a login after the revocation");
    }
}

/// Marks that have expired keep the sweep busy, so that it runs in this very second.
#[test]
#[ignore = "tests/chaos runs it"]
fn gateways_that_are_ahead_for_a_moment_sweep_no_revocation_in_force() {
    const BACKLOG: usize = 400_000;
    let server = PostgresServer::start();
    let background = Background::start();
    let mut cluster = Cluster::start(&server, two(""));
    let expired = "(extract(epoch from clock_timestamp()) * 1000)::bigint - 3600000";
    cluster.sql(
        &server,
        &format!(
            "insert into marks (id, kind, value, until, tag, seen)
                select decode(md5(n::text) || md5(n::text), 'hex'), 'proof', decode(md5(n::text), 'hex'), {expired},
                    decode(md5(n::text), 'hex'), 0
                from generate_series(1, {BACKLOG}) n"
        ),
    );
    let (jti, token) = good_token(&background, &cluster);
    at_a_wrong_clock(&background, &cluster, 0, json!({ "jti": jti, "issuer": EXTERNAL_ISSUER }));
    let left = || cluster.sql(&server, "select count(*) from marks").parse::<usize>().expect("a number");
    let began = Instant::now();
    while left() > BACKLOG - 10_000 {
        assert!(began.elapsed() < Duration::from_secs(100), "no gateway sweeps");
        sleep(Duration::from_millis(200));
    }
    // The token lives for a day.
    cluster.replicas.iter().for_each(|replica| replica.set_clock(30 * HOUR));
    let before = left();
    while left() == before {
        sleep(Duration::from_millis(50));
    }
    sleep(Duration::from_millis(600));
    cluster.replicas.iter().for_each(|replica| replica.set_clock(0));
    wait_for_offset(&background, &cluster, 0.0);
    assert_eq!(cluster.sql(&server, "select count(*) from revocations"), "1");
    // It knows only what the database has.
    cluster.replicas[1].kill();
    cluster.replicas[1].restart();
    cluster.wait_until_ready();
    background.run(rejects(cluster.replicas[1].target(), token));
}
