//! What only HTTP/2 backends can do wrong.

use http::Request;

use crate::support::session::{self, Session};
use crate::support::{Gateway, Upstream};

#[tokio::test]
async fn a_backend_that_goes_away_and_comes_back_costs_no_request_after_it_is_back() {
    let upstream = Upstream::start_http2();
    let address = upstream.address;
    let gateway = Gateway::open(address, "protocol = \"h2\"");
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    drop(upstream);
    // Its connections end with it; until then somebody may still be heard.
    while gateway.client().get("/").await.status != 502 {}
    let upstream = Upstream::http2_at(address);
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    assert_eq!(upstream.seen().len(), 4);
}

/// A graceful end tells which requests it no longer takes: these are sent again, on a new connection.
#[tokio::test]
async fn a_backend_that_says_goaway_again_and_again_costs_no_request() {
    let upstream = Upstream::start_http2();
    let gateway = Gateway::open(upstream.address, "protocol = \"h2\"");
    for _ in 0..20 {
        let answer = gateway.client().get("/goaway").await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert!(upstream.connections() > 1);
}

/// One connection carries all of a worker's requests: clients that do not read must not use up its window.
#[tokio::test]
async fn clients_that_do_not_read_hold_up_nobody_else() {
    let upstream = Upstream::start_http2();
    let gateway = Gateway::open(upstream.address, "protocol = \"h2\"\n[limits]\nstreams = 200");
    let mut lazy = Vec::new();
    for _ in 0..20 {
        let mut session = Session::http1(gateway.address()).await;
        let request = Request::get("/large/100000000").body(session::empty()).expect("a request");
        let body = session.send(request).await.into_body();
        lazy.push((session, body));
    }
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/large/100000").await.body.len(), 100_000);
    }
}
