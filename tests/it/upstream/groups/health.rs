//! Backends are asked whether they are well.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bearward::config::{self, Probe};

use super::{addresses, counts, has_share, in_front_of, metric, text};
use crate::support::session::eventually;
use crate::support::{Gateway, Scripted, Upstream};

/// Answers `/healthz` with a status that can be changed, and everything else with 200.
struct Patient {
    backend: Scripted,
    status: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl Patient {
    fn start() -> Patient {
        let (status, asked) = (Arc::new(AtomicUsize::new(200)), Arc::<AtomicUsize>::default());
        let (says, counts) = (status.clone(), asked.clone());
        let backend = Scripted::start(move |mut wire, _| {
            let (says, counts) = (says.clone(), counts.clone());
            async move {
                while let Some(head) = wire.try_hear_until("\r\n\r\n").await {
                    let is_check = head.starts_with("GET /healthz?deep=1 HTTP/1.1\r\n");
                    let status = if is_check { says.load(Ordering::SeqCst) } else { 200 };
                    counts.fetch_add(usize::from(is_check), Ordering::SeqCst);
                    if wire.try_say(format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok")).await.is_err() {
                        return;
                    }
                }
            }
        });
        Patient { backend, status, asked }
    }

    fn says(&self, status: usize) {
        self.status.store(status, Ordering::SeqCst);
    }
}

const CHECKS: &str = "[upstream.ejection]\nslow_start = \"0s\"\n[upstream.health_check]\npath = \"/healthz?deep=1\"\ninterval = \"50ms\"\ntimeout = \"5s\"\n";

#[tokio::test]
async fn a_server_that_is_unwell_is_left_out_and_comes_back_when_it_is_well() {
    let patient = Patient::start();
    let other = [Upstream::start()];
    let servers = [patient.backend.address, other[0].address];
    let gateway = in_front_of(&servers, CHECKS);
    eventually("it is asked", || patient.asked.load(Ordering::SeqCst) >= 3).await;
    assert_eq!(metric(&gateway, "share", servers[0]).await, 1.0);
    patient.says(503);
    has_share(&gateway, servers[0], |share| share == 0.0).await;
    assert!(metric(&gateway, "failed_checks_total", servers[0]).await >= 3.0);
    let before = other[0].seen().iter().filter(|seen| seen.uri == "/").count();
    for _ in 0..6 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    assert_eq!(other[0].seen().iter().filter(|seen| seen.uri == "/").count(), before + 6);

    // Readiness is about the gateway.
    assert_eq!(gateway.admin_client().get("/readyz").await.status, 200);
    let answer = gateway.admin_client().get("/admin/v1/upstreams").await.json();
    let listed = &answer["upstreams"][0]["servers"][0];
    assert_eq!((listed["state"].as_str(), listed["share"].as_f64()), (Some("unhealthy"), Some(0.0)), "{answer}");
    assert_eq!(
        (&answer["upstreams"][0]["name"], &answer["upstreams"][0]["servers"][1]["state"]),
        (&"backend".into(), &"in".into())
    );

    patient.says(204);
    has_share(&gateway, servers[0], |share| share == 1.0).await;
}

/// By the whole gateway: workers do not ask each for itself.
#[tokio::test]
async fn a_server_is_asked_at_once_and_then_once_each_interval() {
    let began = Instant::now();
    let start = |interval: &str| {
        let patient = Patient::start();
        let text = text(&[patient.backend.address], &CHECKS.replace("50ms", interval));
        (Gateway::from_text(text.replace("workers = 1", "workers = 2")), patient)
    };
    let [often, now_and_then, once] = ["50ms", "500ms", "1h"].map(start);
    let asked = |(_, patient): &(Gateway, Patient)| patient.asked.load(Ordering::SeqCst);
    eventually("they are asked", || asked(&often) >= 20 && asked(&now_and_then) >= 3 && asked(&once) >= 1).await;
    for (server, interval) in [(&often, 50), (&now_and_then, 500), (&once, 3_600_000)] {
        let (asked, passed) = (asked(server) as u128, began.elapsed().as_millis() / interval);
        assert!(asked <= 1 + passed, "{asked} times, and {passed} times {interval}ms have passed");
    }
}

#[tokio::test]
async fn one_that_does_not_answer_or_is_not_there_is_unwell() {
    let silent = Scripted::start(|mut wire, _| async move {
        wire.try_hear_until("never").await;
    });
    let nobody =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    let well = Upstream::start_http2();
    let servers = [silent.address, nobody, well.address];
    let checks = CHECKS.replace("timeout = \"5s\"", "timeout = \"100ms\"");
    let gateway = in_front_of(&servers, &format!("protocol = \"h2\"\n{checks}"));
    for server in [silent.address, nobody] {
        has_share(&gateway, server, |share| share == 0.0).await;
    }
    assert_eq!(metric(&gateway, "share", well.address).await, 1.0);
    assert!(well.seen().iter().any(|seen| seen.target() == "/healthz?deep=1"));
    for _ in 0..6 {
        assert_eq!(gateway.client().send(http::Method::POST, "/", "once".into()).await.status, 200);
    }
}

#[tokio::test]
async fn if_all_are_unwell_all_get_requests() {
    let backends = [Upstream::start(), Upstream::start()];
    let servers = addresses(&backends);
    let gateway = in_front_of(&servers, &CHECKS.replace("/healthz?deep=1", "/status/500"));
    for server in &servers {
        has_share(&gateway, *server, |share| share == 0.0).await;
    }
    for _ in 0..4 {
        assert_eq!(gateway.client().get("/orders").await.status, 200);
    }
    for backend in &backends {
        assert_eq!(backend.seen().iter().filter(|seen| seen.uri == "/orders").count(), 2);
    }
    assert_eq!(gateway.admin_client().get("/readyz").await.status, 200);
}

fn reload(gateway: &Gateway, text: &str) {
    let config = config::parse(text, gateway.path(), Probe::None).expect("a good configuration");
    gateway.running().reload(config).expect("it reloads");
}

#[tokio::test]
async fn a_reload_forgets_nothing_about_a_server_that_stays() {
    let backends = [Upstream::start(), Upstream::start()];
    let servers = addresses(&backends);
    let eject = "[upstream.ejection]\nconsecutive_failures = 1\nbase_time = \"1h\"\nmax_time = \"1h\"\n";
    let gateway = in_front_of(&servers, eject);
    gateway.client().send(http::Method::POST, "/close", Default::default()).await.refused(502, "bad_gateway");
    let ill = usize::from(counts(&backends)[1] == 1);
    assert_eq!(metric(&gateway, "share", servers[ill]).await, 0.0);
    let third = Upstream::start();
    reload(&gateway, &text(&[third.address, servers[1], servers[0]], eject));
    for server in [servers[1 - ill], third.address] {
        assert_eq!(metric(&gateway, "share", server).await, 1.0);
    }
    assert_eq!(metric(&gateway, "share", servers[ill]).await, 0.0);
    assert_eq!(metric(&gateway, "ejections_total", servers[ill]).await, 1.0);
    for _ in 0..6 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    assert_eq!((backends[ill].seen().len(), third.seen().len()), (1, 3));
}

#[tokio::test]
async fn who_is_no_longer_asked_is_no_longer_unwell() {
    let patient = Patient::start();
    let other = Upstream::start();
    let servers = [patient.backend.address, other.address];
    let gateway = in_front_of(&servers, CHECKS);
    patient.says(500);
    has_share(&gateway, servers[0], |share| share == 0.0).await;
    reload(&gateway, &text(&servers, "[upstream.ejection]\nslow_start = \"0s\"\n"));
    assert_eq!(metric(&gateway, "share", servers[0]).await, 1.0);
    let asked = patient.asked.load(Ordering::SeqCst);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(patient.asked.load(Ordering::SeqCst) <= asked + 1, "the checks have ended");
}
