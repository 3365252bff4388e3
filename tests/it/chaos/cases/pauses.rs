//! A gateway that is stopped for longer than `tokens.refresh_grace`, with requests on their way to it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use http::StatusCode;

use super::super::cluster::{Cluster, Setup};
use super::super::fault_proxy::Fault;
use super::super::load::Background;
use super::super::target::Target;
use super::clocks::Tabs;
use crate::support::postgres::PostgresServer;

/// Sessions of which the second tab has sent its request before the pause, and as many during it.
const EACH: usize = 20;
const GRACE: Duration = Duration::from_secs(3);
/// Less than a connection to the database may be silent.
const PAUSE: Duration = Duration::from_millis(4_200);

/// A gateway that missed revocations must not reject everything here.
fn setup() -> Setup<'static> {
    Setup {
        clocks: &[0, 0],
        store: "[timeouts]\nstore = \"1s\"",
        tokens: "refresh_grace = \"3s\"",
        max_staleness: Duration::from_secs(30),
        ..Setup::default()
    }
}

async fn open(at: Target, first: usize) -> Vec<Tabs> {
    let mut opened = Vec::new();
    for number in first..first + EACH {
        opened.push(Tabs::open(&at, &at, number).await);
    }
    opened
}

#[test]
fn a_stopped_gateway_ends_no_session() {
    let server = PostgresServer::start();
    let background = Background::start();
    let cluster = Cluster::start(&server, setup());
    let [stopped, other] = [0, 1].map(|replica: usize| cluster.replicas[replica].target());
    let [before, during] = [0, EACH].map(|first| background.run(open(other.clone(), first)));
    let refreshed = Instant::now();
    // Those that wait for the database when the gateway is stopped.
    cluster.replicas[0].proxy.set(Fault::BlackHole);
    let send = |tabs: &[Tabs]| {
        let target = stopped.clone();
        let parents = tabs.iter().map(|tabs| tabs.parent.clone()).collect::<Vec<_>>();
        background.begin(async move {
            let calls = parents.iter().map(|parent| target.refresh(parent));
            futures_util::future::join_all(calls).await
        })
    };
    let early = send(&before);
    sleep(Duration::from_millis(200));
    cluster.replicas[0].signal("STOP");
    cluster.replicas[0].proxy.set(Fault::None);
    let late = send(&during);
    sleep(PAUSE);
    assert!(refreshed.elapsed() > GRACE, "the grace period is over");
    cluster.replicas[0].signal("CONT");
    for answers in [early, late] {
        let statuses: Vec<_> = answers.recv().expect("no panic").into_iter().map(|each| each.map(|it| it.0)).collect();
        let is_allowed = |status: &Option<StatusCode>| {
            matches!(status, None | Some(StatusCode::SERVICE_UNAVAILABLE | StatusCode::OK))
        };
        assert!(statuses.iter().all(is_allowed), "{statuses:?}");
    }
    let all = before.into_iter().chain(during);
    let lives = |tabs: Tabs| {
        let other = other.clone();
        background.run(async move { tabs.lives(&other).await })
    };
    let ended = all.map(lives).filter(|lives| !lives).count();
    assert_eq!(ended, 0, "of {} sessions", 2 * EACH);
    assert_eq!(cluster.audit_events("refresh.reuse_detected"), 0);
}

/// What comes later is judged as ever.
#[test]
fn a_stopped_gateway_finds_a_theft_soon_after() {
    let server = PostgresServer::start();
    let background = Background::start();
    let cluster = Cluster::start(&server, setup());
    let [stopped, other] = [0, 1].map(|replica: usize| cluster.replicas[replica].target());
    let tabs = background.run(open(other, 0));
    cluster.replicas[0].signal("STOP");
    sleep(PAUSE);
    cluster.replicas[0].signal("CONT");
    background.run(async move {
        let began = Instant::now();
        loop {
            match stopped.refresh(&tabs[0].parent).await {
                Some((StatusCode::BAD_REQUEST, body)) => break assert_eq!(body["error"], "invalid_grant", "{body}"),
                Some((StatusCode::SERVICE_UNAVAILABLE, _)) => {}
                other => panic!("{other:?}"),
            }
            assert!(began.elapsed() < Duration::from_secs(20), "a theft is not found");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(!tabs[0].lives(&stopped).await, "the session has ended");
    });
}

/// "Log out everywhere" is answered with 503, and the user logs in again before the database gets it.
#[test]
fn a_late_revocation_ends_no_later_session() {
    let server = PostgresServer::start();
    let background = Background::start();
    let cluster = Cluster::start(&server, setup());
    let [late, other] = [0, 1].map(|replica: usize| cluster.replicas[replica].target());
    let login = |target: &Target| {
        let target = target.clone();
        background.run(async move { target.login("alice").await.expect("the gateway works") })
    };
    let earlier = login(&other);
    cluster.replicas[0].proxy.set(Fault::BlackHole);
    let status = background.run(async move { late.log_out_everywhere("alice").await });
    assert_eq!(status, Some(StatusCode::SERVICE_UNAVAILABLE), "its caller has got an error");
    let later = login(&other);
    cluster.replicas[0].proxy.set(Fault::None);
    background.run(async move {
        let began = Instant::now();
        while other.get(&earlier.access).await != Some(StatusCode::UNAUTHORIZED) {
            assert!(began.elapsed() < Duration::from_secs(20), "the revocation goes on");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(other.get(&later.access).await, Some(StatusCode::OK));
        let (status, body) = other.refresh(&later).await.expect("a response");
        assert_eq!(status, StatusCode::OK, "{body}");
    });
}
