//! Health checks of servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bearward::config::{self, Probe};

use super::{addresses, counts, in_front_of, metric, text, wait_for_share};
use crate::support::ports::ClosedPort;
use crate::support::wait::eventually;
use crate::support::{Gateway, ScriptedBackend, Upstream};

/// A backend that responds to `/healthz` with a status that the test sets, and to other requests with 200.
struct CheckedBackend {
    backend: ScriptedBackend,
    status: Arc<AtomicUsize>,
    checks: Arc<AtomicUsize>,
}

impl CheckedBackend {
    fn start() -> CheckedBackend {
        let (status, checks) = (Arc::new(AtomicUsize::new(200)), Arc::<AtomicUsize>::default());
        let (says, counts) = (status.clone(), checks.clone());
        let backend = ScriptedBackend::start(move |mut wire, _| {
            let (says, counts) = (says.clone(), counts.clone());
            async move {
                while let Some(head) = wire.try_read_until("\r\n\r\n").await {
                    let is_check = head.starts_with("GET /healthz?deep=1 HTTP/1.1\r\n");
                    let status = if is_check { says.load(Ordering::SeqCst) } else { 200 };
                    counts.fetch_add(usize::from(is_check), Ordering::SeqCst);
                    if wire.try_send(format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok")).await.is_err() {
                        return;
                    }
                }
            }
        });
        CheckedBackend { backend, status, checks }
    }

    fn set_status(&self, status: usize) {
        self.status.store(status, Ordering::SeqCst);
    }
}

const CHECKS: &str = "[upstream.ejection]\nslow_start = \"0s\"\n[upstream.health_check]\npath = \"/healthz?deep=1\"\ninterval = \"50ms\"\ntimeout = \"5s\"\n";

#[tokio::test]
async fn an_unhealthy_server_gets_no_requests_until_it_is_healthy() {
    let checked = CheckedBackend::start();
    let other = [Upstream::start()];
    let servers = [checked.backend.address, other[0].address];
    let gateway = in_front_of(&servers, CHECKS);
    eventually("the server is checked", || checked.checks.load(Ordering::SeqCst) >= 3).await;
    assert_eq!(metric(&gateway, "share", servers[0]).await, 1.0);
    checked.set_status(503);
    wait_for_share(&gateway, servers[0], |share| share == 0.0).await;
    assert!(metric(&gateway, "failed_checks_total", servers[0]).await >= 3.0);
    let before = other[0].seen().iter().filter(|seen| seen.uri == "/").count();
    for _ in 0..6 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    assert_eq!(other[0].seen().iter().filter(|seen| seen.uri == "/").count(), before + 6);

    // Readiness only concerns the gateway.
    assert_eq!(gateway.admin_client().get("/readyz").await.status, 200);
    let answer = gateway.admin_client().get("/admin/v1/upstreams").await.json();
    let listed = &answer["upstreams"][0]["servers"][0];
    assert_eq!((listed["state"].as_str(), listed["share"].as_f64()), (Some("unhealthy"), Some(0.0)), "{answer}");
    assert_eq!(
        (&answer["upstreams"][0]["name"], &answer["upstreams"][0]["servers"][1]["state"]),
        (&"backend".into(), &"in".into())
    );

    checked.set_status(204);
    wait_for_share(&gateway, servers[0], |share| share == 1.0).await;
}

/// The whole gateway sends one check per interval, not each worker.
#[tokio::test]
async fn a_server_is_checked_at_once_and_then_once_per_interval() {
    let began = Instant::now();
    let start = |interval: &str| {
        let checked = CheckedBackend::start();
        let text = text(&[checked.backend.address], &CHECKS.replace("50ms", interval));
        (Gateway::from_text(text.replace("workers = 1", "workers = 2")), checked)
    };
    let [frequent, regular, single] = ["50ms", "500ms", "1h"].map(start);
    let checks = |(_, checked): &(Gateway, CheckedBackend)| checked.checks.load(Ordering::SeqCst);
    eventually("the servers are checked", || checks(&frequent) >= 20 && checks(&regular) >= 3 && checks(&single) >= 1)
        .await;
    for (server, interval) in [(&frequent, 50), (&regular, 500), (&single, 3_600_000)] {
        let (checks, passed) = (checks(server) as u128, began.elapsed().as_millis() / interval);
        assert!(checks <= 1 + passed, "{checks} times, and {passed} times {interval}ms have passed");
    }
}

#[tokio::test]
async fn a_silent_or_unreachable_server_is_unhealthy() {
    let silent = ScriptedBackend::start(|mut wire, _| async move {
        wire.try_read_until("never").await;
    });
    let closed = ClosedPort::new();
    let healthy = Upstream::start_http2();
    let servers = [silent.address, closed.address, healthy.address];
    let checks = CHECKS.replace("timeout = \"5s\"", "timeout = \"100ms\"");
    let gateway = in_front_of(&servers, &format!("protocol = \"h2\"\n{checks}"));
    for server in [silent.address, closed.address] {
        wait_for_share(&gateway, server, |share| share == 0.0).await;
    }
    wait_for_share(&gateway, healthy.address, |share| share == 1.0).await;
    assert!(healthy.seen().iter().any(|seen| seen.target() == "/healthz?deep=1"));
    for _ in 0..6 {
        assert_eq!(gateway.client().send(http::Method::POST, "/", "single".into()).await.status, 200);
    }
}

#[tokio::test]
async fn if_all_servers_are_unhealthy_all_get_requests() {
    let backends = [Upstream::start(), Upstream::start()];
    let servers = addresses(&backends);
    let gateway = in_front_of(&servers, &CHECKS.replace("/healthz?deep=1", "/status/500"));
    for server in &servers {
        wait_for_share(&gateway, *server, |share| share == 0.0).await;
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
async fn a_reload_keeps_the_state_of_a_server_that_stays() {
    let backends = [Upstream::start(), Upstream::start()];
    let servers = addresses(&backends);
    let eject = "[upstream.ejection]\nconsecutive_failures = 1\nbase_time = \"1h\"\nmax_time = \"1h\"\n";
    let gateway = in_front_of(&servers, eject);
    gateway.client().send(http::Method::POST, "/close", Default::default()).await.assert_rejected(502, "bad_gateway");
    let ejected = usize::from(counts(&backends)[1] == 1);
    assert_eq!(metric(&gateway, "share", servers[ejected]).await, 0.0);
    let third = Upstream::start();
    reload(&gateway, &text(&[third.address, servers[1], servers[0]], eject));
    for server in [servers[1 - ejected], third.address] {
        assert_eq!(metric(&gateway, "share", server).await, 1.0);
    }
    assert_eq!(metric(&gateway, "share", servers[ejected]).await, 0.0);
    assert_eq!(metric(&gateway, "ejections_total", servers[ejected]).await, 1.0);
    for _ in 0..6 {
        assert_eq!(gateway.client().get("/").await.status, 200);
    }
    assert_eq!((backends[ejected].seen().len(), third.seen().len()), (1, 3));
}

#[tokio::test]
async fn a_server_without_checks_is_no_longer_unhealthy() {
    let checked = CheckedBackend::start();
    let other = Upstream::start();
    let servers = [checked.backend.address, other.address];
    let gateway = in_front_of(&servers, CHECKS);
    checked.set_status(500);
    wait_for_share(&gateway, servers[0], |share| share == 0.0).await;
    reload(&gateway, &text(&servers, "[upstream.ejection]\nslow_start = \"0s\"\n"));
    wait_for_share(&gateway, servers[0], |share| share == 1.0).await;
    let checks = checked.checks.load(Ordering::SeqCst);
    // The absence of further checks is under test, so there is no condition to wait for.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(checked.checks.load(Ordering::SeqCst) <= checks + 1, "the checks have ended");
}

#[tokio::test]
async fn reloads_do_not_restart_the_checks() {
    let checked = CheckedBackend::start();
    let other = Upstream::start();
    let servers = [checked.backend.address, other.address];
    let checks = CHECKS.replace("50ms", "1h");
    let gateway = in_front_of(&servers, &checks);
    eventually("the server is checked", || checked.checks.load(Ordering::SeqCst) == 1).await;
    checked.set_status(503);
    for reload_number in 0..5 {
        // The same upstream, and one with other settings of its connections.
        for more in ["", &format!("idle_timeout = \"{}s\"\n", 100 + reload_number)] {
            reload(&gateway, &text(&servers, &format!("{more}{checks}")));
        }
    }
    // The absence of further checks is under test, so there is no condition to wait for.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(checked.checks.load(Ordering::SeqCst), 1);
    assert_eq!(metric(&gateway, "share", servers[0]).await, 1.0);
    // Other settings of the checks apply at once.
    reload(&gateway, &text(&servers, CHECKS));
    wait_for_share(&gateway, servers[0], |share| share == 0.0).await;
}

/// The reloads come faster than a check times out, and change the upstream each time.
#[tokio::test]
async fn a_hanging_server_is_found_despite_reloads() {
    let silent = ScriptedBackend::start(|mut wire, _| async move {
        wire.try_read_until("never").await;
    });
    let healthy = Upstream::start();
    let servers = [silent.address, healthy.address];
    let checks = CHECKS.replace("timeout = \"5s\"", "timeout = \"400ms\"");
    let gateway = in_front_of(&servers, &checks);
    let reloads = AtomicUsize::new(0);
    crate::support::wait::eventually_ok("the server is unhealthy", async || {
        for _ in 0..4 {
            let idle_timeout = 100 + reloads.fetch_add(1, Ordering::SeqCst);
            reload(&gateway, &text(&servers, &format!("idle_timeout = \"{idle_timeout}s\"\n{checks}")));
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let share = metric(&gateway, "share", servers[0]).await;
        (share == 0.0).then_some(()).ok_or_else(|| format!("{share}"))
    })
    .await;
    assert_eq!(metric(&gateway, "share", servers[1]).await, 1.0);
}

/// The gateway reports `in` as soon as the server has all its requests again.
#[tokio::test]
async fn a_server_with_its_full_share_does_not_stay_returning() {
    let checked = CheckedBackend::start();
    let other = Upstream::start();
    let servers = [checked.backend.address, other.address];
    let gateway = in_front_of(&servers, CHECKS);
    checked.set_status(503);
    wait_for_share(&gateway, servers[0], |share| share == 0.0).await;
    checked.set_status(200);
    wait_for_share(&gateway, servers[0], |share| share == 1.0).await;
    let listed = gateway.admin_client().get("/admin/v1/upstreams").await.json();
    assert_eq!(listed["upstreams"][0]["servers"][0]["state"], "in", "{listed}");
}
