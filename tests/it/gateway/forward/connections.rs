//! Connections to backends are kept and used again, and a request is sent twice only where nothing can be done twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::{Method, Request};
use tokio::sync::Notify;

use crate::support::session::{self, Session};
use crate::support::wire::PATIENCE;
use crate::support::{Gateway, Scripted, Upstream};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn one_connection_serves_request_after_request() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "");
    let mut session = Session::http1(gateway.address()).await;
    for path in ["/", "/status/204", "/drip", "/large/100000", "/trailers", "/headers"] {
        for _ in 0..3 {
            let answer = session.send(Request::get(path).body(session::empty()).expect("a request")).await;
            session::text(answer.into_body()).await;
        }
    }
    assert_eq!(upstream.connections(), 1, "for 18 requests one after the other");
}

#[tokio::test]
async fn requests_beside_each_other_share_one_http2_connection_and_take_as_many_of_http1_as_they_are() {
    for (upstream, protocol, most) in [(Upstream::start(), "http1", 8), (Upstream::start_http2(), "h2", 1)] {
        let gateway = Gateway::open(upstream.address, &format!("protocol = \"{protocol}\""));
        let session = Session::http2(gateway.address()).await;
        for _ in 0..10 {
            let requests = (0..8).map(|_| Request::get("/drip").body(session::empty()).expect("a request"));
            let sent: Vec<_> = requests.map(|request| tokio::spawn(session.sender().send(request))).collect();
            for answer in sent {
                let answer = answer.await.expect("no panic").expect("an answer");
                assert_eq!(session::text(answer.into_body()).await, "one two three");
            }
        }
        let opened = upstream.connections();
        assert!(opened <= most, "{protocol}: {opened} connections for 80 requests, 8 at once");
    }
}

#[tokio::test]
async fn no_more_connections_than_allowed_are_opened() {
    let upstream = Upstream::start();
    let gateway = Gateway::open(upstream.address, "max_concurrent_requests = 2");
    let session = Session::http2(gateway.address()).await;
    let requests = (0..6).map(|_| Request::get("/drip").body(session::empty()).expect("a request"));
    let sent: Vec<_> = requests.map(|request| tokio::spawn(session.sender().send(request))).collect();
    for answer in sent {
        let answer = answer.await.expect("no panic").expect("an answer");
        assert_eq!(session::text(answer.into_body()).await, "one two three");
    }
    assert!(upstream.connections() <= 2, "{}", upstream.connections());
}

/// Backends close what is idle for too long. The gateway does so before, and not only when it needs a connection.
#[tokio::test]
async fn connections_that_nobody_needs_any_more_are_closed() {
    let backend = Scripted::start(|mut wire, _| async move {
        while wire.try_hear_until("\r\n\r\n").await.is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            wire.say(OK).await;
        }
    });
    let text = Gateway::open_text(backend.address, "idle_timeout = \"300ms\"");
    let gateway = Gateway::from_text(text.replace("workers = 2", "workers = 1"));
    let mut session = Session::http2(gateway.address()).await;
    let at_once: Vec<_> = (0..5)
        .map(|_| tokio::spawn(session.sender().send(Request::get("/").body(session::empty()).expect("a request"))))
        .collect();
    for answer in at_once {
        session::text(answer.await.expect("no panic").expect("an answer").into_body()).await;
    }
    assert_eq!((backend.connections(), backend.ended()), (5, 0));
    // From now on, one at a time is enough.
    let began = Instant::now();
    while backend.ended() < 4 {
        let answer = session.send(Request::get("/").body(session::empty()).expect("a request")).await;
        session::text(answer.into_body()).await;
        assert!(began.elapsed() < PATIENCE, "{} of 4 are closed", backend.ended());
    }
    assert_eq!(backend.connections(), 5);
}

#[tokio::test]
async fn a_backend_that_closes_idle_connections_costs_no_request() {
    let closed = Arc::new(Notify::new());
    let closes = closed.clone();
    let backend = Scripted::start(move |mut wire, _| {
        let closes = closes.clone();
        async move {
            wire.hear_until("\r\n\r\n").await;
            wire.say(OK).await;
            drop(wire);
            closes.notify_one();
        }
    });
    let gateway = Gateway::open(backend.address, "");
    for method in [Method::GET, Method::POST, Method::GET, Method::POST] {
        assert_eq!(gateway.client().send(method, "/", Default::default()).await.status, 200);
        closed.notified().await;
    }
    assert_eq!(backend.connections(), 4);
}

/// Only a connection that lay idle for a while is expected to be closed under a request.
const LAIN_IDLE: Duration = Duration::from_millis(600);

/// Of so many requests, one after the other over one connection to the gateway, with a pause after each.
async fn statuses(gateway: &Gateway, method: Method, requests: u32, pause: Duration) -> Vec<u16> {
    let mut session = Session::http1(gateway.address()).await;
    let mut statuses = Vec::new();
    for _ in 0..requests {
        let request = Request::builder().method(&method).uri("/").body(session::empty()).expect("a request");
        let answer = session.send(request).await;
        statuses.push(answer.status().as_u16());
        session::text(answer.into_body()).await;
        tokio::time::sleep(pause).await;
    }
    statuses
}

/// The connection is closed in the moment that the second request is on its way: it may have been seen, or not.
struct Trap {
    backend: Scripted,
    /// How often each method arrived.
    gets: Arc<AtomicUsize>,
    posts: Arc<AtomicUsize>,
}

impl Trap {
    fn set() -> Trap {
        let (gets, posts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (get, post) = (gets.clone(), posts.clone());
        let backend = Scripted::start(move |mut wire, number| {
            let (get, post) = (get.clone(), post.clone());
            async move {
                let mut served = 0;
                while let Some(head) = wire.try_hear_until("\r\n\r\n").await {
                    if head.starts_with("GET") { &get } else { &post }.fetch_add(1, Ordering::SeqCst);
                    served += 1;
                    if number == 0 && served == 2 {
                        return;
                    }
                    wire.say(OK).await;
                }
            }
        });
        Trap { backend, gets, posts }
    }
}

#[tokio::test]
async fn a_get_is_sent_again_if_its_pooled_connection_dies_without_an_answer() {
    let trap = Trap::set();
    let gateway = Gateway::open(trap.backend.address, "");
    assert_eq!(statuses(&gateway, Method::GET, 2, LAIN_IDLE).await, [200, 200]);
    assert_eq!(trap.gets.load(Ordering::SeqCst), 3, "the first, the lost one, and its second try");
}

/// A connection that was used a moment ago is expected to serve, until the backend has shown that it may not.
#[tokio::test]
async fn a_backend_that_closes_fresh_connections_under_requests_costs_one_get_and_no_more() {
    let backend = Scripted::start(|mut wire, _| async move {
        wire.hear_until("\r\n\r\n").await;
        wire.say(OK).await;
        wire.try_hear_until("\r\n\r\n").await;
    });
    let gateway = Gateway::open(backend.address, "");
    let statuses = statuses(&gateway, Method::GET, 8, Duration::ZERO).await;
    assert_eq!(statuses, [200, 502, 200, 200, 200, 200, 200, 200]);
}

#[tokio::test]
async fn a_post_is_never_sent_again() {
    let trap = Trap::set();
    let gateway = Gateway::open(trap.backend.address, "");
    assert_eq!(statuses(&gateway, Method::POST, 2, LAIN_IDLE).await, [200, 502]);
    assert_eq!(trap.posts.load(Ordering::SeqCst), 2);
}
