//! Stories that need control over name resolution and over the clock.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::health::CheckError;
use super::*;
use crate::protocols::http::body::Body;
use crate::telemetry::access_log::Attempts;
use crate::telemetry::metrics::WorkerMetrics;

/// Responds to every request with its number, and counts its open connections.
struct Backend {
    address: SocketAddr,
    open: Arc<AtomicUsize>,
}

impl Backend {
    async fn start(number: usize) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let open = Arc::new(AtomicUsize::new(0));
        let counts = open.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let counts = counts.clone();
                counts.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut read = [0; 4096];
                    while stream.read(&mut read).await.is_ok_and(|len| len > 0) {
                        let response = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}");
                        stream.write_all(response.as_bytes()).await.expect("the gateway reads");
                    }
                    counts.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Backend { address, open }
    }

    async fn has_open(&self, count: usize) {
        for _ in 0..1000 {
            if self.open.load(Ordering::SeqCst) == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{} connections are open, not {count}", self.open.load(Ordering::SeqCst));
    }
}

fn settings(hosts: &[&str]) -> UpstreamSettings {
    let second = Duration::from_secs(1);
    let server = |host: &&str| ServerSettings { tls: false, host: (*host).to_owned(), port: 80 };
    UpstreamSettings {
        name: "backend".into(),
        servers: hosts.iter().map(server).collect(),
        weights: Vec::new(),
        protocol: Protocol::Http1,
        balance: Balance::RoundRobin,
        tls: UpstreamTlsSettings::default(),
        idle_timeout: second * 60,
        max_connection_age: second * 60,
        dns_refresh_interval: second * 60,
        max_concurrent_requests: 10,
        reserve_percent: 25,
        connect_timeout: second,
        response_timeout: second,
        preserve_host: true,
        rewrite_redirects: true,
        proxy_protocol: None,
        retry_budget_percent: 20,
        health_check: None,
        ejection: EjectionSettings {
            consecutive_failures: 1,
            base_time: second,
            max_time: second * 60,
            slow_start: second * 60,
        },
    }
}

async fn send(upstream: &Upstream) -> Result<UpstreamResponse, Failure> {
    let mut request = Request::get("/").header("host", "a").body(Body::empty()).expect("a request");
    let (metrics, current, attempts) =
        (WorkerMetrics::default(), CurrentServer::default(), Attempts::begin(None, Instant::now()));
    let counts = Counts { metrics: &metrics, attempts: &attempts };
    upstream.send(0, counts, Ipv4Addr::LOCALHOST.into(), None, &current, &mut request).await
}

async fn get(upstream: &Upstream) -> String {
    let (response, connection) = send(upstream).await.expect("a response");
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    connection.release(Instant::now());
    String::from_utf8_lossy(&body).into_owned()
}

#[tokio::test]
async fn connections_to_an_address_that_was_removed_are_closed() {
    let old = Backend::start(1).await;
    let new = Backend::start(2).await;
    let upstream = Upstream::new(settings(&["backend.test"]), 1, None).expect("an upstream");
    let server = &upstream.servers[0];
    let addresses = &server.connector.addresses;
    assert!(addresses.update(vec![old.address]));
    assert_eq!((get(&upstream).await, get(&upstream).await), ("1".into(), "1".into()));
    old.has_open(1).await;
    assert!(addresses.update(vec![new.address]));
    server.close_expired(Instant::now());
    old.has_open(0).await;
    assert_eq!(get(&upstream).await, "2");
    new.has_open(1).await;
    // Another address does not close the connection.
    assert!(addresses.update(vec![new.address, old.address]));
    server.close_expired(Instant::now());
    assert_eq!(get(&upstream).await, "2", "over the pooled connection");
    new.has_open(1).await;
}

#[tokio::test]
async fn a_connection_in_use_is_closed_if_its_address_was_removed() {
    let old = Backend::start(1).await;
    let new = Backend::start(2).await;
    let upstream = Upstream::new(settings(&["backend.test"]), 1, None).expect("an upstream");
    let addresses = &upstream.servers[0].connector.addresses;
    addresses.update(vec![old.address]);
    let (response, connection) = send(&upstream).await.expect("a response");
    addresses.update(vec![new.address]);
    assert_eq!(&response.into_body().collect().await.expect("a body").to_bytes()[..], b"1");
    connection.release(Instant::now());
    old.has_open(0).await;
    assert_eq!(get(&upstream).await, "2");
}

#[tokio::test]
async fn the_state_of_a_server_outlives_its_configuration() {
    let backend = Backend::start(1).await;
    let first = Upstream::new(settings(&["a.test", "b.test"]), 1, None).expect("an upstream");
    first.servers[1].connector.addresses.update(vec![backend.address]);
    let current = CurrentServer::default();
    current.set(1, 0);
    first.count_failure(&current, "refused");
    assert_eq!(first.report()[1].state, "ejected");
    let next = Upstream::new(settings(&["b.test", "c.test"]), 1, Some(&first)).expect("an upstream");
    let report = next.report();
    assert_eq!(
        (report[0].state, report[0].ejections, report[0].addresses.as_slice()),
        ("ejected", 1, &[backend.address][..])
    );
    assert_eq!((report[1].state, report[1].addresses.len()), ("in", 0));
}

/// A reload can fail after its upstreams were created. Then the current configuration must go on unchanged.
#[tokio::test]
async fn failed_checks_are_forgotten_when_checks_end_and_not_before() {
    let health_check = HealthCheckSettings {
        path: "/".into(),
        interval: Duration::from_secs(60),
        timeout: Duration::from_secs(1),
        healthy_threshold: 1,
        unhealthy_threshold: 1,
        status: Vec::new(),
    };
    let checked = UpstreamSettings { health_check: Some(health_check.clone()), ..settings(&["a.test", "b.test"]) };
    let first = Upstream::new(checked, 1, None).expect("an upstream");
    let state = &first.servers[0].state;
    let failed = Err(CheckError::Timeout(health_check.timeout));
    state.record_check(failed, &health_check, &first.settings.ejection, Instant::now());
    let next = Arc::new(Upstream::new(settings(&["a.test", "b.test"]), 1, Some(&first)).expect("an upstream"));
    assert_eq!(first.report()[0].state, "unhealthy");
    let task = tokio::spawn(maintain(next.clone()));
    while next.report()[0].state == "unhealthy" {
        tokio::task::yield_now().await;
    }
    task.abort();
}

#[tokio::test]
async fn a_connection_older_than_its_maximum_age_is_closed() {
    let backend = Backend::start(1).await;
    let settings = UpstreamSettings { max_connection_age: Duration::from_millis(50), ..settings(&["backend.test"]) };
    let upstream = Upstream::new(settings, 1, None).expect("an upstream");
    upstream.servers[0].connector.addresses.update(vec![backend.address]);
    get(&upstream).await;
    backend.has_open(1).await;
    upstream.servers[0].close_expired(Instant::now() + Duration::from_millis(100));
    backend.has_open(0).await;
}

/// A request that waited when its server was ejected can time out long after the server's return.
#[tokio::test]
async fn a_request_from_before_an_ejection_does_not_eject_again() {
    let upstream = Upstream::new(settings(&["a.test", "b.test"]), 1, None).expect("an upstream");
    let early = CurrentServer::default();
    let late = CurrentServer::default();
    early.set(1, 0);
    upstream.count_failure(&early, "no response");
    upstream.servers[1].state.advance(&upstream.settings.ejection, Instant::now() + Duration::from_secs(1));
    assert_eq!(upstream.report()[1].state, "returning");
    upstream.count_failure(&early, "no response");
    assert_eq!(upstream.report()[1].state, "returning");
    late.set(1, 1);
    upstream.count_failure(&late, "no response");
    assert_eq!((upstream.report()[1].state, upstream.report()[1].ejections), ("ejected", 2));
}

#[tokio::test]
async fn a_returning_server_gets_more_only_if_others_are_full() {
    let backend = Backend::start(1).await;
    let settings = UpstreamSettings { max_concurrent_requests: 1, ..settings(&["a.test", "b.test"]) };
    let upstream = Upstream::new(settings, 1, None).expect("an upstream");
    upstream.servers[0].connector.addresses.update(vec![backend.address]);
    let picked = || (0..1000).filter(|ticket| upstream.pick(0, *ticket, None, 0) == Some(1)).count();
    assert_eq!(picked(), 500);
    let current = CurrentServer::default();
    current.set(1, 0);
    upstream.count_failure(&current, "refused");
    let (_, connection) = send(&upstream).await.expect("a response of the other server, which is full now");
    assert_eq!(picked(), 0, "it is ejected");
    upstream.servers[1].state.advance(&upstream.settings.ejection, Instant::now() + Duration::from_secs(1));
    assert_eq!(picked(), 1000);
    connection.release(Instant::now());
    assert!((1..100).contains(&picked()), "{}", picked());
}
