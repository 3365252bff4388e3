//! How often a client may ask, and how it is told.

use std::time::{Duration, Instant};

use crate::support::frames::{self, GOAWAY, HEADERS};
use crate::support::{Gateway, HonestClient, TestResponse, Upstream, Wire};

#[track_caller]
fn told(answer: &TestResponse, policy: &str, left: &str) {
    assert_eq!(answer.header("ratelimit-policy"), Some(policy), "{answer:?}");
    assert_eq!(answer.header("ratelimit"), Some(left), "{answer:?}");
}

#[tokio::test]
async fn a_subject_has_so_many_requests_and_another_has_its_own() {
    let upstream = Upstream::start();
    let routes = "[[route]]\npath = \"/\"\n[[route]]\npath = \"/orders/\"\n\
                  [[route.rate]]\nper = \"subject\"\nrequests = 6\nwindow = \"1m\"\nburst = 3\nname = \"orders\"\n";
    let gateway = Gateway::with_config(&upstream, routes);
    let (mallory, honest) = (gateway.issue("mallory", "").await, gateway.issue("alice", "").await);
    let more_of_mallory = gateway.issue("mallory", "").await;
    // Over all workers, whatever connection it comes by, and with any of the subject's tokens.
    for (token, left) in [(&mallory, "r=2;t=10"), (&more_of_mallory, "r=1;t=20"), (&mallory, "r=0;t=30")] {
        let answer = gateway.client().bearer(&token.access).get("/orders/").await;
        assert_eq!(answer.status, 200);
        told(&answer, "\"orders\";q=6;w=60", &format!("\"orders\";{left}"));
    }
    let reached = upstream.seen().len();
    for client in gateway.clients() {
        let refused = client.bearer(&more_of_mallory.access).get("/orders/").await;
        refused.assert_rejected(429, "rate_limited");
        assert_eq!(refused.header("retry-after"), Some("10"));
        told(&refused, "\"orders\";q=6;w=60", "\"orders\";r=0;t=30");
    }
    assert_eq!(upstream.seen().len(), reached, "no backend is bothered with what is refused");
    assert_eq!(gateway.client().bearer(&honest.access).get("/orders/").await.status, 200);
    let elsewhere = gateway.client().bearer(&mallory.access).get("/").await;
    assert_eq!((elsewhere.status.as_u16(), elsewhere.header("ratelimit")), (200, None), "another route has no limit");
    assert_eq!(gateway.refresh(&mallory.access, &mallory.refresh).await.status, 200, "calls on tokens have [throttle]");
    gateway.wait_for_metric("rejections_total{reason=\"quota_exceeded\"}", 4).await;
    let refused = gateway.log_lines(9).await.into_iter().find(|line| line["reason"] == "quota_exceeded");
    assert_eq!(refused.expect("it is in the log")["detail"], "rate orders");

    gateway.advance(Duration::from_secs(10));
    let again = gateway.client().bearer(&mallory.access).get("/orders/").await;
    assert_eq!(again.status, 200);
    told(&again, "\"orders\";q=6;w=60", "\"orders\";r=0;t=30");
}

/// Whoever is not let in must not ask for ever either.
#[tokio::test]
async fn an_address_has_so_many_requests_also_without_a_token() {
    let upstream = Upstream::start();
    let more = "[forwarding]\ntrusted = [\"127.0.0.1\"]\n[[rate]]\nper = \"address\"\nrequests = 5\nwindow = \"10s\"\n";
    let gateway = Gateway::with_config(&upstream, more);
    let pair = gateway.issue("alice", "").await;
    let from = |address: &str| gateway.client().header("x-forwarded-for", address);
    for _ in 0..5 {
        from("192.0.2.66").get("/").await.assert_rejected(401, "unauthorized");
    }
    let refused = from("192.0.2.66").get("/").await;
    refused.assert_rejected(429, "rate_limited");
    told(&refused, "\"address\";q=5;w=10", "\"address\";r=0;t=10");
    from("192.0.2.66").bearer(&pair.access).get("/").await.assert_rejected(429, "rate_limited");
    assert_eq!(from("192.0.2.7").bearer(&pair.access).get("/").await.status, 200);
    assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200);
}

/// Far over its rate, as fast as it is refused. The honest client has the same rate, and keeps it; of a rate that is everybody's
/// it can have nothing, so it asks for something else.
#[tokio::test]
async fn whoever_keeps_to_the_rate_is_served_beside_whoever_does_not() {
    for (per, path) in [("address", "/"), ("subject", "/"), ("route", "/orders/")] {
        let upstream = Upstream::start();
        let rate = format!("[[route.rate]]\nper = \"{per}\"\nrequests = 100\nwindow = \"1h\"\n");
        let routes = format!("[[route]]\npath = \"{path}\"\n{rate}[limits]\nretry_delay = \"0s\"\n");
        let rest = if path == "/" { "" } else { "[[route]]\npath = \"/\"\n" };
        let text = Gateway::config_text(&upstream.address.to_string(), &format!("{routes}{rest}"));
        let gateway = Gateway::from_text(text.replace("workers = 2", "workers = 1"));
        let (mallory, alice) = (gateway.issue("mallory", "").await, gateway.issue("alice", "").await);
        let mut honest = HonestClient::connect(&gateway).await.bearer(&alice.access);
        let mut attacker = Wire::connect(gateway.address()).await;
        let asks = format!("GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n", mallory.access);
        attacker.send(asks.repeat(100)).await;
        for _ in 0..100 {
            assert_eq!(attacker.read_response().await.status, 200, "per {per}");
        }
        let attack = async || {
            attacker.send(asks.repeat(20)).await;
            for _ in 0..20 {
                let refused = attacker.read_response().await;
                assert_eq!((refused.status, refused.header("retry-after")), (429, Some("36")), "per {per}");
                let left = format!("\"{per}\";r=0;t=3600");
                assert_eq!(refused.header("ratelimit"), Some(&*left));
            }
        };
        honest.assert_served_during(attack).await;
        assert_eq!(upstream.seen().len(), 100, "per {per}");
    }
}

#[tokio::test]
async fn several_limits_hold_at_once_and_an_upstreams_own_stay() {
    let upstream = Upstream::start();
    let more = "[[rate]]\nper = \"address\"\nrequests = 100\n[[route]]\npath = \"/\"\npublic = true\n\
                [[route.rate]]\nper = \"route\"\nrequests = 2\nwindow = \"1h\"\n";
    let gateway = Gateway::with_config(&upstream, more);
    let policies = "\"address\";q=100;w=60, \"route\";q=2;w=3600";
    for (status, left) in [(200, "r=99;t=1, \"route\";r=1;t=1800"), (200, "r=98;t=2, \"route\";r=0;t=3600")] {
        let answer = gateway.client().get("/").await;
        assert_eq!(answer.status, status);
        told(&answer, policies, &format!("\"address\";{left}"));
    }
    let refused = gateway.client().get("/").await;
    refused.assert_rejected(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), Some("1800"));
    told(&refused, policies, "\"address\";r=97;t=2, \"route\";r=0;t=3600");
}

/// Who asks as fast as it is refused, on HTTP/1.1 and HTTP/2 alike, is refused ever more slowly; nobody else is.
#[tokio::test]
async fn whoever_asks_on_after_many_429_waits_for_the_next() {
    const MANY: u32 = 15;
    let upstream = Upstream::start();
    let rate =
        "[limits]\nretry_delay = \"50ms\"\n[[rate]]\nper = \"address\"\nrequests = 60\nwindow = \"1h\"\nburst = 1\n";
    let gateway = Gateway::public(upstream.address, rate);
    let (attacker, honest) = ([127, 0, 0, 66].into(), [127, 0, 0, 7].into());
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut first = Wire::connect_from(attacker, gateway.address()).await;
    first.send(get).await;
    assert_eq!(first.read_response().await.status, 200);

    let mut held = Wire::connect_from(attacker, gateway.address()).await;
    let began = Instant::now();
    held.send(get.repeat(10 + MANY as usize)).await;
    let flood = async {
        for _ in 0..10 + MANY {
            assert_eq!(held.read_response().await.status, 429);
        }
    };
    let neighbour = async {
        let mut neighbour = Wire::connect_from(honest, gateway.address()).await;
        neighbour.send(get).await;
        assert_eq!(neighbour.read_response().await.status, 200);
    };
    tokio::join!(flood, neighbour);
    assert!(began.elapsed() >= MANY * Duration::from_millis(50), "{:?}", began.elapsed());
    // Another connection of that address begins anew, and so does this one with a success.
    first.send(get).await;
    assert_eq!(first.read_response().await.status, 429);
    gateway.advance(Duration::from_mins(1));
    held.send(get).await;
    assert_eq!(held.read_response().await.status, 200);

    let mut session = Wire::connect_from(attacker, gateway.address()).await;
    let began = Instant::now();
    session.send(frames::connection_preface()).await;
    for number in 0..11 {
        session.send(frames::get(2 * number + 1, "/")).await;
        let answer = frames::next(&mut session, &[HEADERS, GOAWAY]).await;
        assert_eq!((answer.kind, answer.stream), (HEADERS, 2 * number + 1));
    }
    assert!(began.elapsed() >= Duration::from_millis(50), "{:?}", began.elapsed());
}

/// What a backend says of limits of its own is its own affair, and a proxy's connection has the requests of many.
#[tokio::test]
async fn nobody_waits_for_a_backends_429_or_behind_a_trusted_proxy() {
    let upstream = Upstream::start();
    let delay = "[limits]\nretry_delay = \"10s\"\n";
    let gateway = Gateway::public(upstream.address, delay);
    let mut client = Wire::connect(gateway.address()).await;
    client.send("GET /status/429 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(20)).await;
    for _ in 0..20 {
        assert_eq!(client.read_response().await.status, 429);
    }
    let rate = "[forwarding]\ntrusted = [\"127.0.0.1\"]\n[[rate]]\nper = \"address\"\nrequests = 1\nwindow = \"1h\"\n";
    let gateway = Gateway::public(upstream.address, &format!("{delay}{rate}"));
    let mut client = Wire::connect(gateway.address()).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.66\r\n\r\n".repeat(21)).await;
    assert_eq!(client.read_response().await.status, 200);
    for _ in 0..20 {
        assert_eq!(client.read_response().await.status, 429);
    }
}

#[tokio::test]
async fn without_a_limit_nobody_is_told_of_one() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let answer = gateway.client().get("/").await;
    assert_eq!((answer.header("ratelimit"), answer.header("ratelimit-policy")), (None, None));
}
