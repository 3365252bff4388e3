//! A backend dies under load, its listener and all its connections at once. Hardly a client notices.

use std::time::Duration;

use http::Request;

use super::crowd::PerAddressLimit;
use super::{addresses, has_share, in_front_of, metric};
use crate::support::session::{self, Session};
use crate::support::{Gateway, Upstream, secrets};

const PART: usize = 2_000;

/// How often the log says that this server left, and that it came back.
fn told(begin: usize, server: std::net::SocketAddr) -> (usize, usize) {
    let traced = secrets::traced_since(begin);
    let of_it = |words: &str| {
        let name = format!("server=\"{server}\"");
        traced.lines().filter(|line| line.contains(&name) && line.contains(words)).count()
    };
    (of_it("ejected for"), of_it("gets requests again"))
}

async fn kill_one_of_three(protocol: &str, start: fn() -> Upstream, again: fn(std::net::SocketAddr) -> Upstream) {
    let begin = secrets::capture_traces();
    let mut backends = [start(), start(), start()];
    let servers = addresses(&backends);
    let ejection = "[upstream.ejection]\nbase_time = \"500ms\"\nmax_time = \"1s\"\nslow_start = \"1s\"";
    let more = format!("protocol = \"{protocol}\"\n{ejection}");
    let gateway = Gateway::from_text(super::text(&servers, &more).replace("workers = 1", "workers = 2"));
    let crowd = PerAddressLimit::ask(gateway.address(), 12);
    crowd.goes_on(PART).await;
    // What is in the middle of being answered goes on elsewhere, too.
    let mut patient = Vec::new();
    let waits_there = || backends[1].seen().iter().any(|seen| seen.uri.ends_with("/slow"));
    while !waits_there() {
        let mut session = Session::http1(gateway.address()).await;
        patient.push(tokio::spawn(async move {
            session.send(Request::get("/slow").body(session::empty()).expect("a request")).await.status()
        }));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let living = Upstream::start();
    let killed = std::mem::replace(&mut backends[1], living);
    drop(killed);
    has_share(&gateway, servers[1], |share| share == 0.0).await;
    crowd.goes_on(PART).await;
    backends[1] = again(servers[1]);
    has_share(&gateway, servers[1], |share| share == 1.0).await;
    crowd.goes_on(PART).await;

    for answer in patient {
        assert_eq!(
            answer.await.expect("no panic"),
            200,
            "{protocol}: it was seen by the dead, and asked again elsewhere"
        );
    }
    let answers = crowd.ends().await;
    let total: usize = answers.values().sum();
    let failed = total - answers.get(&200).copied().unwrap_or_default();
    assert!(total >= 3 * PART, "{total}");
    assert!(failed * 1000 < total, "{protocol}: {failed} of {total} failed: {answers:?}");
    assert!(backends[1].seen().len() * 10 > PART, "{protocol}: it has its share again: {}", backends[1].seen().len());
    assert!(metric(&gateway, "ejections_total", servers[1]).await >= 1.0);
    assert!(metric(&gateway, "retries_total", servers[1]).await >= 1.0);
    for other in [servers[0], servers[2]] {
        assert_eq!(metric(&gateway, "ejections_total", other).await, 0.0, "{protocol}: {other} did nothing wrong");
    }
    let (left, back) = told(begin, servers[1]);
    let ejections = metric(&gateway, "ejections_total", servers[1]).await;
    assert_eq!((left as f64, back as f64), (ejections, ejections), "once each");
}

#[tokio::test]
async fn killing_one_of_three_backends_under_load_fails_fewer_than_one_in_a_thousand() {
    kill_one_of_three("http1", Upstream::start, |address| Upstream::at(&address.to_string())).await;
}

#[tokio::test]
async fn also_over_http2() {
    kill_one_of_three("h2", Upstream::start_http2, Upstream::http2_at).await;
}

/// The judgement about all of them is more likely wrong than right, and a refusal for certain helps nobody.
#[tokio::test]
async fn if_all_are_out_all_get_requests() {
    let backends = [Upstream::start(), Upstream::start()];
    let servers = addresses(&backends);
    let gateway =
        in_front_of(&servers, "[upstream.ejection]\nconsecutive_failures = 1\nbase_time = \"1h\"\nmax_time = \"1h\"");
    for _ in 0..4 {
        // A POST is not sent on, so each of the two fails in its turn.
        gateway.client().send(http::Method::POST, "/close", Default::default()).await.refused(502, "bad_gateway");
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
async fn an_only_server_is_never_left_out_and_what_it_answers_is_no_failure() {
    let alone = Upstream::start();
    let gateway = in_front_of(&[alone.address], "[upstream.ejection]\nconsecutive_failures = 1");
    for _ in 0..5 {
        gateway.client().get("/close").await.refused(502, "bad_gateway");
    }
    assert_eq!(metric(&gateway, "share", alone.address).await, 1.0);
    let backends = [Upstream::start(), Upstream::start()];
    let gateway = in_front_of(&addresses(&backends), "[upstream.ejection]\nconsecutive_failures = 1");
    for _ in 0..6 {
        assert_eq!(gateway.client().get("/status/503").await.status, 503);
    }
    assert_eq!(super::counts(&backends), [3, 3]);
}

/// Whoever breaks off an upload, or loses patience, says nothing about the backend.
#[tokio::test]
async fn clients_that_leave_eject_nobody() {
    let backends = [Upstream::start(), Upstream::start()];
    let servers = addresses(&backends);
    let gateway = in_front_of(&servers, "[upstream.ejection]\nconsecutive_failures = 1");
    for path in ["/hang", "/swallow"] {
        for _ in 0..4 {
            let mut wire = crate::support::Wire::connect(gateway.address()).await;
            wire.say(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    gateway.log_lines(8).await;
    for server in servers {
        assert_eq!(metric(&gateway, "share", server).await, 1.0);
    }
}
