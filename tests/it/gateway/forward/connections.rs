//! The connection pool: reuse, limits, idle connections and retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::{Method, Request};
use tokio::sync::{Barrier, Notify};

use crate::support::connection::{self, HttpConnection};
use crate::support::wire::TIMEOUT;
use crate::support::{Gateway, ScriptedBackend, Upstream};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn sequential_requests_reuse_one_backend_connection() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let mut connection = HttpConnection::http1(gateway.address()).await;
    for path in ["/", "/status/204", "/drip", "/large/100000", "/trailers", "/headers"] {
        for _ in 0..3 {
            let response = connection.send(Request::get(path).body(connection::empty()).expect("a request")).await;
            connection::text(response.into_body()).await;
        }
    }
    assert_eq!(upstream.connections(), 1, "for 18 sequential requests");
}

#[tokio::test]
async fn concurrent_requests_share_one_http2_connection() {
    for (upstream, protocol, max) in [(Upstream::start(), "http1", 8), (Upstream::start_http2(), "h2", 1)] {
        let gateway = Gateway::public(upstream.address, &format!("protocol = \"{protocol}\""));
        let connection = HttpConnection::http2(gateway.address()).await;
        for _ in 0..10 {
            let requests = (0..8).map(|_| Request::get("/drip").body(connection::empty()).expect("a request"));
            let sent: Vec<_> = requests.map(|request| tokio::spawn(connection.sender().send(request))).collect();
            for response in sent {
                let response = response.await.expect("no panic").expect("a response");
                assert_eq!(connection::text(response.into_body()).await, "one two three");
            }
        }
        let opened = upstream.connections();
        assert!(opened <= max, "{protocol}: {opened} connections for 80 requests, 8 at once");
    }
}

#[tokio::test]
async fn max_concurrent_requests_limits_backend_connections() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "max_concurrent_requests = 2");
    let connection = HttpConnection::http2(gateway.address()).await;
    let requests = (0..6).map(|_| Request::get("/drip").body(connection::empty()).expect("a request"));
    let sent: Vec<_> = requests.map(|request| tokio::spawn(connection.sender().send(request))).collect();
    for response in sent {
        let response = response.await.expect("no panic").expect("a response");
        assert_eq!(connection::text(response.into_body()).await, "one two three");
    }
    assert!(upstream.connections() <= 2, "{}", upstream.connections());
}

/// Backends close idle connections. The gateway closes them earlier, and does not wait until it needs a connection.
#[tokio::test]
async fn idle_backend_connections_are_closed() {
    // The backend responds to the first requests when all five have arrived, so that each needs its own connection.
    let all_arrived = Arc::new(Barrier::new(5));
    let backend = ScriptedBackend::start(move |mut wire, _| {
        let all_arrived = all_arrived.clone();
        async move {
            let mut is_first = true;
            while wire.try_read_until("\r\n\r\n").await.is_some() {
                if std::mem::take(&mut is_first) {
                    all_arrived.wait().await;
                }
                wire.send(OK).await;
            }
        }
    });
    let text = Gateway::public_config(backend.address, "idle_timeout = \"300ms\"");
    let gateway = Gateway::from_text(text.replace("workers = 2", "workers = 1"));
    let mut connection = HttpConnection::http2(gateway.address()).await;
    let concurrent: Vec<_> = (0..5)
        .map(|_| {
            tokio::spawn(connection.sender().send(Request::get("/").body(connection::empty()).expect("a request")))
        })
        .collect();
    for response in concurrent {
        connection::text(response.await.expect("no panic").expect("a response").into_body()).await;
    }
    assert_eq!((backend.connections(), backend.ended()), (5, 0));
    // From now on the client sends one request at a time, so four connections stay idle.
    let started = Instant::now();
    while backend.ended() < 4 {
        let response = connection.send(Request::get("/").body(connection::empty()).expect("a request")).await;
        connection::text(response.into_body()).await;
        assert!(started.elapsed() < TIMEOUT, "{} of 4 idle connections are closed", backend.ended());
    }
    assert_eq!(backend.connections(), 5);
}

#[tokio::test]
async fn an_idle_connection_closed_by_the_backend_fails_no_request() {
    let closed = Arc::new(Notify::new());
    let notify = closed.clone();
    let backend = ScriptedBackend::start(move |mut wire, _| {
        let notify = notify.clone();
        async move {
            wire.read_until("\r\n\r\n").await;
            wire.send(OK).await;
            drop(wire);
            notify.notify_one();
        }
    });
    let gateway = Gateway::public(backend.address, "");
    for method in [Method::GET, Method::POST, Method::GET, Method::POST] {
        assert_eq!(gateway.client().send(method, "/", Default::default()).await.status, 200);
        closed.notified().await;
    }
    assert_eq!(backend.connections(), 4);
}

/// Longer than the idle time after which the gateway expects that a backend may have closed a connection.
const IDLE: Duration = Duration::from_millis(600);

/// The statuses of sequential requests over one connection, with a pause after each.
async fn statuses(gateway: &Gateway, method: Method, requests: u32, pause: Duration) -> Vec<u16> {
    let mut connection = HttpConnection::http1(gateway.address()).await;
    let mut statuses = Vec::new();
    for _ in 0..requests {
        let request = Request::builder().method(&method).uri("/").body(connection::empty()).expect("a request");
        let response = connection.send(request).await;
        statuses.push(response.status().as_u16());
        connection::text(response.into_body()).await;
        // Lets the connection to the backend become idle.
        tokio::time::sleep(pause).await;
    }
    statuses
}

/// A backend that closes its first connection when it has read the second request. The gateway cannot know whether the
/// backend has handled it.
struct ClosingBackend {
    backend: ScriptedBackend,
    /// Number of requests of each method.
    gets: Arc<AtomicUsize>,
    posts: Arc<AtomicUsize>,
}

impl ClosingBackend {
    fn start() -> ClosingBackend {
        let (gets, posts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (get, post) = (gets.clone(), posts.clone());
        let backend = ScriptedBackend::start(move |mut wire, number| {
            let (get, post) = (get.clone(), post.clone());
            async move {
                let mut served = 0;
                while let Some(head) = wire.try_read_until("\r\n\r\n").await {
                    if head.starts_with("GET") { &get } else { &post }.fetch_add(1, Ordering::SeqCst);
                    served += 1;
                    if number == 0 && served == 2 {
                        return;
                    }
                    wire.send(OK).await;
                }
            }
        });
        ClosingBackend { backend, gets, posts }
    }
}

#[tokio::test]
async fn a_get_is_retried_if_its_pooled_connection_closes() {
    let closing = ClosingBackend::start();
    let gateway = Gateway::public(closing.backend.address, "");
    assert_eq!(statuses(&gateway, Method::GET, 2, IDLE).await, [200, 200]);
    assert_eq!(closing.gets.load(Ordering::SeqCst), 3, "the first request, the failed one and its retry");
}

/// The gateway trusts a connection that was just used, until the backend has closed one under a request.
#[tokio::test]
async fn a_backend_that_closes_fresh_connections_fails_one_get() {
    let backend = ScriptedBackend::start(|mut wire, _| async move {
        wire.read_until("\r\n\r\n").await;
        wire.send(OK).await;
        wire.try_read_until("\r\n\r\n").await;
    });
    let gateway = Gateway::public(backend.address, "");
    let statuses = statuses(&gateway, Method::GET, 8, Duration::ZERO).await;
    assert_eq!(statuses, [200, 502, 200, 200, 200, 200, 200, 200]);
}

#[tokio::test]
async fn a_post_is_never_retried() {
    let closing = ClosingBackend::start();
    let gateway = Gateway::public(closing.backend.address, "");
    assert_eq!(statuses(&gateway, Method::POST, 2, IDLE).await, [200, 502]);
    assert_eq!(closing.posts.load(Ordering::SeqCst), 2);
}
