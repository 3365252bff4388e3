//! What cannot be told from outside without a resolver of one's own: names that lead elsewhere.

use std::net::Ipv4Addr;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Answers every request with its number, and counts the connections that are open.
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
                        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}");
                        stream.write_all(answer.as_bytes()).await.expect("the gateway reads");
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

fn settings(hosts: &[&str]) -> Settings {
    let second = Duration::from_secs(1);
    let server = |host: &&str| ServerSettings { tls: false, host: (*host).to_owned(), port: 80 };
    Settings {
        name: "backend".into(),
        servers: hosts.iter().map(server).collect(),
        protocol: Protocol::Http1,
        balance: Balance::RoundRobin,
        tls: TlsSettings::default(),
        idle_timeout: second * 60,
        max_connection_age: second * 60,
        dns_refresh_interval: second * 60,
        max_concurrent_requests: 10,
        reserve_percent: 25,
        connect_timeout: second,
        response_timeout: second,
        preserve_host: true,
        proxy_protocol: None,
        retry_budget_percent: 20,
        health_check: None,
        ejection: outlier::Settings {
            consecutive_failures: 1,
            base_time: second,
            max_time: second * 60,
            slow_start: second * 60,
        },
    }
}

async fn send(upstream: &Upstream) -> Result<UpstreamResponse, Failure> {
    let mut request = Request::get("/").header("host", "a").body(Body::empty()).expect("a request");
    let (metrics, whereabouts) = (WorkerMetrics::default(), CurrentServer::default());
    upstream.send(0, &metrics, Ipv4Addr::LOCALHOST.into(), None, &whereabouts, &mut request).await
}

async fn ask(upstream: &Upstream) -> String {
    let (response, lease) = send(upstream).await.expect("an answer");
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    lease.give_back();
    String::from_utf8_lossy(&body).into_owned()
}

#[tokio::test]
async fn a_name_that_leads_elsewhere_is_followed_and_connections_to_where_it_led_are_closed() {
    let (old, new) = (Backend::start(1).await, Backend::start(2).await);
    let upstream = Upstream::new(settings(&["backend.test"]), 1, None).expect("an upstream");
    let server = &upstream.servers[0];
    let addresses = &server.dialer.addresses;
    assert!(addresses.follow(vec![old.address]));
    assert_eq!((ask(&upstream).await, ask(&upstream).await), ("1".into(), "1".into()));
    old.has_open(1).await;
    assert!(addresses.follow(vec![new.address]));
    server.retire(Instant::now());
    old.has_open(0).await;
    assert_eq!(ask(&upstream).await, "2");
    new.has_open(1).await;
    // An address that comes beside it costs no connection.
    assert!(addresses.follow(vec![new.address, old.address]));
    server.retire(Instant::now());
    assert_eq!(ask(&upstream).await, "2", "the pooled connection is still good");
    new.has_open(1).await;
}

#[tokio::test]
async fn a_connection_that_is_in_use_while_its_address_vanishes_is_not_used_again() {
    let (old, new) = (Backend::start(1).await, Backend::start(2).await);
    let upstream = Upstream::new(settings(&["backend.test"]), 1, None).expect("an upstream");
    let addresses = &upstream.servers[0].dialer.addresses;
    addresses.follow(vec![old.address]);
    let (response, lease) = send(&upstream).await.expect("an answer");
    addresses.follow(vec![new.address]);
    assert_eq!(&response.into_body().collect().await.expect("a body").to_bytes()[..], b"1");
    lease.give_back();
    old.has_open(0).await;
    assert_eq!(ask(&upstream).await, "2");
}

#[tokio::test]
async fn what_is_known_about_a_server_outlives_its_configuration() {
    let backend = Backend::start(1).await;
    let first = Upstream::new(settings(&["a.test", "b.test"]), 1, None).expect("an upstream");
    first.servers[1].dialer.addresses.follow(vec![backend.address]);
    let whereabouts = CurrentServer::default();
    whereabouts.set(1, 0);
    first.count_failure(&whereabouts, "refused");
    assert_eq!(first.report()[1].state, "ejected");
    let next = Upstream::new(settings(&["b.test", "c.test"]), 1, Some(&first)).expect("an upstream");
    let report = next.report();
    assert_eq!(
        (report[0].state, report[0].ejections, report[0].addresses.as_slice()),
        ("ejected", 1, &[backend.address][..])
    );
    assert_eq!((report[1].state, report[1].addresses.len()), ("in", 0));
}

/// A reload may be refused after its upstreams were made: then the one in force goes on as it was.
#[tokio::test]
async fn health_is_forgotten_when_nobody_checks_it_any_more_and_not_before() {
    let health = health::Settings {
        path: "/".into(),
        interval: Duration::from_secs(60),
        timeout: Duration::from_secs(1),
        healthy_threshold: 1,
        unhealthy_threshold: 1,
        status: Vec::new(),
    };
    let checked = Settings { health_check: Some(health.clone()), ..settings(&["a.test", "b.test"]) };
    let first = Upstream::new(checked, 1, None).expect("an upstream");
    let standing = &first.servers[0].standing;
    standing.checked(Err("refused".into()), (&health, &first.settings.ejection), Instant::now());
    let next = Arc::new(Upstream::new(settings(&["a.test", "b.test"]), 1, Some(&first)).expect("an upstream"));
    assert_eq!(first.report()[0].state, "unhealthy");
    let in_force = tokio::spawn(look_after(next.clone()));
    while next.report()[0].state == "unhealthy" {
        tokio::task::yield_now().await;
    }
    in_force.abort();
}

#[tokio::test]
async fn a_connection_that_has_served_its_time_takes_no_further_request() {
    let backend = Backend::start(1).await;
    let settings = Settings { max_connection_age: Duration::from_millis(50), ..settings(&["backend.test"]) };
    let upstream = Upstream::new(settings, 1, None).expect("an upstream");
    upstream.servers[0].dialer.addresses.follow(vec![backend.address]);
    ask(&upstream).await;
    backend.has_open(1).await;
    upstream.servers[0].retire(Instant::now() + Duration::from_millis(100));
    backend.has_open(0).await;
}

/// Requests that were already waiting when a server was ejected may lose patience long after its return.
#[tokio::test]
async fn what_began_before_an_ejection_does_not_end_the_return() {
    let upstream = Upstream::new(settings(&["a.test", "b.test"]), 1, None).expect("an upstream");
    let (early, late) = (CurrentServer::default(), CurrentServer::default());
    early.set(1, 0);
    upstream.count_failure(&early, "no answer");
    upstream.servers[1].standing.advance(&upstream.settings.ejection, Instant::now() + Duration::from_secs(1));
    assert_eq!(upstream.report()[1].state, "returning");
    upstream.count_failure(&early, "no answer");
    assert_eq!(upstream.report()[1].state, "returning");
    late.set(1, 1);
    upstream.count_failure(&late, "no answer");
    assert_eq!((upstream.report()[1].state, upstream.report()[1].ejections), ("ejected", 2));
}

#[tokio::test]
async fn who_returns_serves_more_than_its_share_only_if_nobody_else_has_room() {
    let backend = Backend::start(1).await;
    let settings = Settings { max_concurrent_requests: 1, ..settings(&["a.test", "b.test"]) };
    let upstream = Upstream::new(settings, 1, None).expect("an upstream");
    upstream.servers[0].dialer.addresses.follow(vec![backend.address]);
    let picked = || (0..1000).filter(|ticket| upstream.pick(0, *ticket, None, 0) == Some(1)).count();
    assert_eq!(picked(), 500);
    let whereabouts = CurrentServer::default();
    whereabouts.set(1, 0);
    upstream.count_failure(&whereabouts, "refused");
    let (_, lease) = send(&upstream).await.expect("an answer of the other one, which is full now");
    assert_eq!(picked(), 0, "it is out");
    upstream.servers[1].standing.advance(&upstream.settings.ejection, Instant::now() + Duration::from_secs(1));
    assert_eq!(picked(), 1000);
    lease.give_back();
    assert!((1..100).contains(&picked()), "{}", picked());
}
