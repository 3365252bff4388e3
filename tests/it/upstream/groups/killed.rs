//! A backend is killed under load, with its listener and all its connections. Almost no client gets an error.

use std::time::Duration;

use http::Request;

use super::load::LoadGenerator;
use super::{addresses, in_front_of, metric, wait_for_share};
use crate::support::connection::{self, HttpConnection};
use crate::support::wait::eventually;
use crate::support::{Gateway, Upstream, secrets};

const PART: usize = 2_000;

/// Returns how often the log reports that this server was ejected, and that it gets requests again.
fn ejections_and_returns(begin: usize, server: std::net::SocketAddr) -> (usize, usize) {
    let traced = secrets::logged_since(begin);
    let of_it = |words: &str| {
        let name = format!("server=\"{server}\"");
        traced.lines().filter(|line| line.contains(&name) && line.contains(words)).count()
    };
    (of_it("ejected for"), of_it("gets requests again"))
}

async fn kill_one_of_three(protocol: &str, start: fn() -> Upstream, again: fn(std::net::SocketAddr) -> Upstream) {
    let begin = secrets::capture_log();
    let mut backends = [start(), start(), start()];
    let servers = addresses(&backends);
    let ejection = "[upstream.ejection]\nbase_time = \"500ms\"\nmax_time = \"1s\"\nslow_start = \"1s\"";
    let more = format!("protocol = \"{protocol}\"\n{ejection}");
    let gateway = Gateway::from_text(super::text(&servers, &more).replace("workers = 1", "workers = 2"));
    let load = LoadGenerator::start(gateway.address(), 12);
    load.goes_on(PART).await;
    // Requests in flight at the killed server are retried at another one.
    let mut waiting_requests = Vec::new();
    let arrived_there = || backends[1].seen().iter().any(|seen| seen.uri.ends_with("/slow"));
    while !arrived_there() {
        let mut connection = HttpConnection::http1(gateway.address()).await;
        waiting_requests.push(tokio::spawn(async move {
            connection.send(Request::get("/slow").body(connection::empty()).expect("a request")).await.status()
        }));
        // The pace of the requests. The loop ends when one has arrived.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let replacement = Upstream::start();
    let killed = std::mem::replace(&mut backends[1], replacement);
    drop(killed);
    wait_for_share(&gateway, servers[1], |share| share == 0.0).await;
    load.goes_on(PART).await;
    backends[1] = again(servers[1]);
    wait_for_share(&gateway, servers[1], |share| share == 1.0).await;
    load.goes_on(PART).await;

    for answer in waiting_requests {
        assert_eq!(
            answer.await.expect("no panic"),
            200,
            "{protocol}: a request of the killed server is retried at another one"
        );
    }
    let answers = load.ends().await;
    let total: usize = answers.values().sum();
    let failed = total - answers.get(&200).copied().unwrap_or_default();
    assert!(total >= 3 * PART, "{total}");
    assert!(failed * 1000 < total, "{protocol}: {failed} of {total} failed: {answers:?}");
    assert!(
        backends[1].seen().len() * 10 > PART,
        "{protocol}: the server has its share again: {}",
        backends[1].seen().len()
    );
    assert!(metric(&gateway, "ejections_total", servers[1]).await >= 1.0);
    assert!(metric(&gateway, "retries_total", servers[1]).await >= 1.0);
    for other in [servers[0], servers[2]] {
        assert_eq!(metric(&gateway, "ejections_total", other).await, 0.0, "{protocol}: {other} did nothing wrong");
    }
    let (left_out, back) = ejections_and_returns(begin, servers[1]);
    let ejections = metric(&gateway, "ejections_total", servers[1]).await;
    assert_eq!(
        (left_out as f64, back as f64),
        (ejections, ejections),
        "one log line for each ejection and each return"
    );
}

#[tokio::test]
async fn killing_one_of_three_backends_fails_under_one_in_a_thousand() {
    kill_one_of_three("http1", Upstream::start, |address| Upstream::at(&address.to_string())).await;
}

#[tokio::test]
async fn killing_an_http2_backend_fails_under_one_in_a_thousand() {
    kill_one_of_three("h2", Upstream::start_http2, Upstream::http2_at).await;
}

/// If all servers look unhealthy, the checks are probably wrong, and rejecting every request would not help.
#[tokio::test]
async fn if_all_servers_are_ejected_all_get_requests() {
    let backends = [Upstream::start(), Upstream::start()];
    let servers = addresses(&backends);
    let gateway =
        in_front_of(&servers, "[upstream.ejection]\nconsecutive_failures = 1\nbase_time = \"1h\"\nmax_time = \"1h\"");
    for _ in 0..4 {
        // The gateway does not retry a POST, so both servers fail one after the other.
        gateway
            .client()
            .send(http::Method::POST, "/close", Default::default())
            .await
            .assert_rejected(502, "bad_gateway");
    }
    for server in &servers {
        assert_eq!(metric(&gateway, "share", *server).await, 0.0);
        assert_eq!(metric(&gateway, "ejections_total", *server).await, 1.0);
    }
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    assert!(super::counts(&backends).iter().all(|count| *count >= 3), "{:?}", super::counts(&backends));
}

#[tokio::test]
async fn a_single_server_is_never_ejected_and_a_503_is_no_failure() {
    let alone = Upstream::start();
    let gateway = in_front_of(&[alone.address], "[upstream.ejection]\nconsecutive_failures = 1");
    for _ in 0..5 {
        gateway.client().get("/close").await.assert_rejected(502, "bad_gateway");
    }
    assert_eq!(metric(&gateway, "share", alone.address).await, 1.0);
    let backends = [Upstream::start(), Upstream::start()];
    let gateway = in_front_of(&addresses(&backends), "[upstream.ejection]\nconsecutive_failures = 1");
    for _ in 0..6 {
        assert_eq!(gateway.client().get("/status/503").await.status, 503);
    }
    assert_eq!(super::counts(&backends), [3, 3]);
}

/// A client that aborts an upload or its request says nothing about the server.
#[tokio::test]
async fn disconnecting_clients_eject_no_server() {
    let backends = [Upstream::start(), Upstream::start()];
    let servers = addresses(&backends);
    let gateway = in_front_of(&servers, "[upstream.ejection]\nconsecutive_failures = 1");
    for path in ["/hang", "/swallow"] {
        for _ in 0..4 {
            let mut wire = crate::support::Wire::connect(gateway.address()).await;
            wire.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")).await;
            let in_flight = || backends.iter().map(Upstream::in_flight).sum::<usize>();
            eventually("a backend has the request", || in_flight() == 1).await;
            drop(wire);
            eventually("the backend request is cancelled", || in_flight() == 0).await;
        }
    }
    gateway.log_lines(8).await;
    for server in servers {
        assert_eq!(metric(&gateway, "share", server).await, 1.0);
    }
}
