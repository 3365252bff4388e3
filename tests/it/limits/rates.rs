//! `[[rate]]`: how many requests a client may send, and the headers that report it.

use std::time::{Duration, Instant};

use bearward::tokens::jwt::Algorithm;
use bytes::Bytes;
use http::Method;

use crate::support::frames::{self, GOAWAY, HEADERS};
use crate::support::tokens::Mint;
use crate::support::{Gateway, HonestClient, TestResponse, Upstream, Wire};

#[track_caller]
fn assert_rate_limit(response: &TestResponse, policy: &str, left: &str) {
    assert_eq!(response.header("ratelimit-policy"), Some(policy), "{response:?}");
    assert_eq!(response.header("ratelimit"), Some(left), "{response:?}");
}

#[tokio::test]
async fn each_subject_has_its_own_rate() {
    let upstream = Upstream::start();
    let routes = "[[route]]\npath = \"/\"\n[[route]]\npath = \"/orders/\"\n\
                  [[route.rate]]\nper = \"subject\"\nrequests = 6\nwindow = \"1m\"\nburst = 3\nname = \"orders\"\n";
    let gateway = Gateway::with_config(&upstream, routes);
    let (mallory, honest) = (gateway.issue("mallory", "").await, gateway.issue("alice", "").await);
    let more_of_mallory = gateway.issue("mallory", "").await;
    // The rate is shared by all workers, all connections and all tokens of the subject.
    for (token, left) in [(&mallory, "r=2;t=10"), (&more_of_mallory, "r=1;t=20"), (&mallory, "r=0;t=30")] {
        let response = gateway.client().bearer(&token.access).get("/orders/").await;
        assert_eq!(response.status, 200);
        assert_rate_limit(&response, "\"orders\";q=6;w=60", &format!("\"orders\";{left}"));
    }
    let reached = upstream.seen().len();
    for client in gateway.clients() {
        let rejected = client.bearer(&more_of_mallory.access).get("/orders/").await;
        rejected.assert_rejected(429, "rate_limited");
        assert_eq!(rejected.header("retry-after"), Some("10"));
        assert_rate_limit(&rejected, "\"orders\";q=6;w=60", "\"orders\";r=0;t=30");
    }
    assert_eq!(upstream.seen().len(), reached, "a rejected request reaches no backend");
    assert_eq!(gateway.client().bearer(&honest.access).get("/orders/").await.status, 200);
    let elsewhere = gateway.client().bearer(&mallory.access).get("/").await;
    assert_eq!((elsewhere.status.as_u16(), elsewhere.header("ratelimit")), (200, None), "another route has no limit");
    assert_eq!(
        gateway.refresh(&mallory.access, &mallory.refresh).await.status,
        200,
        "token calls have [throttle] instead"
    );
    gateway.wait_for_metric("rejections_total{reason=\"quota_exceeded\"}", 4).await;
    let rejected = gateway.log_lines(9).await.into_iter().find(|line| line["reason"] == "quota_exceeded");
    assert_eq!(rejected.expect("it is in the log")["detail"], "rate orders");

    gateway.advance(Duration::from_secs(10));
    let again = gateway.client().bearer(&mallory.access).get("/orders/").await;
    assert_eq!(again.status, 200);
    assert_rate_limit(&again, "\"orders\";q=6;w=60", "\"orders\";r=0;t=30");
}

/// Requests that are rejected for their token count, too.
#[tokio::test]
async fn the_rate_of_an_address_applies_without_a_token() {
    let upstream = Upstream::start();
    let more = "[forwarding]\ntrusted = [\"127.0.0.1\"]\n[[rate]]\nper = \"address\"\nrequests = 5\nwindow = \"10s\"\n";
    let gateway = Gateway::with_config(&upstream, more);
    let pair = gateway.issue("alice", "").await;
    let from = |address: &str| gateway.client().header("x-forwarded-for", address);
    for _ in 0..5 {
        from("192.0.2.66").get("/").await.assert_rejected(401, "unauthorized");
    }
    let rejected = from("192.0.2.66").get("/").await;
    rejected.assert_rejected(429, "rate_limited");
    assert_rate_limit(&rejected, "\"address\";q=5;w=10", "\"address\";r=0;t=10");
    from("192.0.2.66").bearer(&pair.access).get("/").await.assert_rejected(429, "rate_limited");
    assert_eq!(from("192.0.2.7").bearer(&pair.access).get("/").await.status, 200);
    assert_eq!(gateway.refresh(&pair.access, &pair.refresh).await.status, 200);
}

/// The attacker repeats its request as fast as it is rejected. The honest client has the same rate and stays below it.
/// A rate per route is used up for all clients, so there the honest client requests another route.
#[tokio::test]
async fn a_client_within_its_rate_is_served_during_an_attack() {
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
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n", mallory.access);
        attacker.send(request.repeat(100)).await;
        for _ in 0..100 {
            assert_eq!(attacker.read_response().await.status, 200, "per {per}");
        }
        let attack = async || {
            attacker.send(request.repeat(20)).await;
            for _ in 0..20 {
                let rejected = attacker.read_response().await;
                assert_eq!((rejected.status, rejected.header("retry-after")), (429, Some("36")), "per {per}");
                let left = format!("\"{per}\";r=0;t=3600");
                assert_eq!(rejected.header("ratelimit"), Some(&*left));
            }
        };
        honest.assert_served_during(attack).await;
        assert_eq!(upstream.seen().len(), 100, "per {per}");
    }
}

#[tokio::test]
async fn several_rates_apply_at_once_and_all_are_reported() {
    let upstream = Upstream::start();
    let more = "[[rate]]\nper = \"address\"\nrequests = 100\n[[route]]\npath = \"/\"\npublic = true\n\
                [[route.rate]]\nper = \"route\"\nrequests = 2\nwindow = \"1h\"\n";
    let gateway = Gateway::with_config(&upstream, more);
    let policies = "\"address\";q=100;w=60, \"route\";q=2;w=3600";
    for (status, left) in [(200, "r=99;t=1, \"route\";r=1;t=1800"), (200, "r=98;t=2, \"route\";r=0;t=3600")] {
        let response = gateway.client().get("/").await;
        assert_eq!(response.status, status);
        assert_rate_limit(&response, policies, &format!("\"address\";{left}"));
    }
    let rejected = gateway.client().get("/").await;
    rejected.assert_rejected(429, "rate_limited");
    assert_eq!(rejected.header("retry-after"), Some("1800"));
    assert_rate_limit(&rejected, policies, "\"address\";r=97;t=2, \"route\";r=0;t=3600");
}

/// A client that repeats rejected requests at once gets its next 429 after a delay, over HTTP/1.1 and HTTP/2. Others do
/// not.
#[tokio::test]
async fn after_many_429_the_next_one_is_delayed() {
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
    // Another connection of that address has its own count. A success resets the count of this one.
    first.send(get).await;
    assert_eq!(first.read_response().await.status, 429);
    gateway.advance(Duration::from_mins(1));
    held.send(get).await;
    assert_eq!(held.read_response().await.status, 200);

    let mut connection = Wire::connect_from(attacker, gateway.address()).await;
    let began = Instant::now();
    connection.send(frames::connection_preface()).await;
    for number in 0..11 {
        connection.send(frames::get(2 * number + 1, "/")).await;
        let response = frames::next(&mut connection, &[HEADERS, GOAWAY]).await;
        assert_eq!((response.kind, response.stream), (HEADERS, 2 * number + 1));
    }
    assert!(began.elapsed() >= Duration::from_millis(50), "{:?}", began.elapsed());
}

/// A backend may have its own limits, and the connection of a proxy carries the requests of many clients.
#[tokio::test]
async fn no_delay_for_a_backends_429_or_behind_a_trusted_proxy() {
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
async fn without_a_rate_no_rate_limit_headers_are_sent() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "");
    let response = gateway.client().get("/").await;
    assert_eq!((response.header("ratelimit"), response.header("ratelimit-policy")), (None, None));
}

/// Otherwise the rejection for the rate would keep the connection open, and its next request could be misread.
#[tokio::test]
async fn a_malformed_request_ends_its_connection_above_a_rate() {
    let upstream = Upstream::start();
    let gateway = Gateway::public(upstream.address, "[[rate]]\nper = \"address\"\nrequests = 1\nwindow = \"1h\"\n");
    let next = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for _ in 0..2 {
        for (malformed, status) in [
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".to_owned(), 400),
            ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n".to_owned(), 400),
            (format!("GET /{} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "x".repeat(9_000)), 400),
            ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".to_owned(), 405),
        ] {
            let mut wire = Wire::connect(gateway.address()).await;
            wire.send([&*malformed, next].concat()).await;
            let response = wire.read_response().await;
            assert_eq!(response.status, status, "{response:?}");
            assert_eq!(wire.read_to_end().await, "", "nothing more is read");
        }
        // It uses up the rate, so in the second round it is used up.
        gateway.client().get("/").await;
    }
    gateway.client().get("/").await.assert_rejected(429, "rate_limited");
}

/// A client is not at fault for missing keys, and `[throttle]` limits the gateway's own paths.
#[tokio::test]
async fn own_paths_and_missing_keys_do_not_count_for_rates() {
    let upstream = Upstream::start();
    let more = "[[rate]]\nper = \"address\"\nrequests = 2\nwindow = \"1h\"\n[[issuer]]\nissuer = \"https://login.example\"\n\
                audience = [\"https://api.example\"]\nalgorithms = [\"ES256\"]\njwks_url = \"http://127.0.0.1:9/keys\"\nstartup = \"continue\"\n";
    let gateway = Gateway::with_config(&upstream, more);
    let of_unknown_key = Mint::new(Algorithm::ES256).valid_token(gateway.now_secs());
    for _ in 0..3 {
        for path in ["/user/refresh", "/token/x", "/.well-known/jwks.json"] {
            let response = gateway.client().send(Method::PUT, path, Bytes::new()).await;
            response.assert_rejected(405, "invalid_request");
            assert_eq!(response.header("ratelimit"), None);
        }
        let response = gateway.client().bearer(&of_unknown_key).get("/").await;
        response.assert_rejected(503, "temporarily_unavailable");
        assert_eq!(response.header("ratelimit"), None);
    }
    for status in [401, 401, 429] {
        assert_eq!(gateway.client().get("/").await.status, status, "other rejected requests count");
    }
}
