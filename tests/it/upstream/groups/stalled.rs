//! A backend accepts connections and never responds. The gateway ejects it after its timeout, and it returns slowly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Request;

use super::load::LoadGenerator;
use super::{addresses, in_front_of, metric, wait_for_share};
use crate::support::connection::{self, HttpConnection};
use crate::support::wait::eventually;
use crate::support::{ScriptedBackend, Upstream, Wire, secrets};

/// A backend that responds or stalls as the test sets it, and counts the requests.
struct StallingBackend {
    backend: ScriptedBackend,
    stalled: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
}

impl StallingBackend {
    fn start() -> StallingBackend {
        let (stalled, requests) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (is_stalled, counter) = (stalled.clone(), requests.clone());
        let backend = ScriptedBackend::start(move |mut wire, _| {
            let (is_stalled, counter) = (is_stalled.clone(), counter.clone());
            async move {
                while wire.try_read_until("\r\n\r\n").await.is_some() {
                    counter.fetch_add(1, Ordering::SeqCst);
                    if is_stalled.load(Ordering::SeqCst) {
                        // Until the gateway closes the connection.
                        wire.try_read_until("\r\n\r\n").await;
                        return;
                    }
                    if wire.try_send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.is_err() {
                        return;
                    }
                }
            }
        });
        StallingBackend { backend, stalled, requests }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Long enough for a slow machine to serve the requests of this test in the meantime.
const BASE_TIME: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_stalled_backend_is_ejected_in_time_and_returns_slowly() {
    let stalling = StallingBackend::start();
    let others = [Upstream::start(), Upstream::start()];
    let mut servers = addresses(&others);
    servers.push(stalling.backend.address);
    let more = format!(
        "response_timeout = \"{}ms\"\n[upstream.ejection]\nconsecutive_failures = 2\nbase_time = \"{}s\"\nslow_start = \"4s\"",
        RESPONSE_TIMEOUT.as_millis(),
        BASE_TIME.as_secs()
    );
    let gateway = in_front_of(&servers, &more);
    let load = LoadGenerator::start(gateway.address(), 8);
    load.goes_on(300).await;
    assert!(stalling.requests() >= 50, "{}", stalling.requests());

    stalling.stalled.store(true, Ordering::SeqCst);
    let began = Instant::now();
    wait_for_share(&gateway, stalling.backend.address, |share| share == 0.0).await;
    let took = began.elapsed();
    assert!(took < RESPONSE_TIMEOUT * 3, "{took:?}");
    // When other clients have got responses, the requests on their way to the backend have arrived.
    load.goes_on(50).await;
    let requests = stalling.requests();
    load.goes_on(100).await;
    assert_eq!(stalling.requests(), requests, "the ejected backend gets no requests");
    assert_eq!(metric(&gateway, "share", stalling.backend.address).await, 0.0, "the machine is too slow for this test");

    // The backend recovers before its ejection ends.
    stalling.stalled.store(false, Ordering::SeqCst);
    wait_for_share(&gateway, stalling.backend.address, |share| share > 0.0).await;
    assert!(began.elapsed() >= BASE_TIME, "{:?}", began.elapsed());
    let (requests, all) = (stalling.requests(), load.requests());
    load.goes_on(100).await;
    let (here, everywhere) = (stalling.requests() - requests, load.requests() - all);
    assert!(here * 4 < everywhere, "{here} of {everywhere} just after its return: not yet a third");
    wait_for_share(&gateway, stalling.backend.address, |share| share == 1.0).await;
    let (requests, all) = (stalling.requests(), load.requests());
    load.goes_on(600).await;
    let (here, everywhere) = (stalling.requests() - requests, load.requests() - all);
    assert!(here * 4 > everywhere, "{here} of {everywhere} at the end: a third");

    let answers = load.ends().await;
    let failed: usize = answers.iter().filter(|(status, _)| **status != 200).map(|(_, count)| count).sum();
    assert_eq!(failed, answers.get(&504).copied().unwrap_or_default(), "{answers:?}");
    assert!((2..=16).contains(&failed), "each client got one timeout, or two before the second ejection: {answers:?}");
    assert_eq!(metric(&gateway, "ejections_total", stalling.backend.address).await, 1.0);
}

/// The backend sends response heads without bodies.
#[tokio::test]
async fn a_backend_that_stalls_in_its_bodies_is_ejected() {
    let stalled = ScriptedBackend::start(|mut wire, _| async move {
        while wire.try_read_until("\r\n\r\n").await.is_some() {
            let _ = wire.try_send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
        }
    });
    let other = Upstream::start();
    let more = "[upstream.ejection]\nconsecutive_failures = 2\nbase_time = \"60s\"\n[timeouts]\nbody_idle = \"300ms\"";
    let gateway = in_front_of(&[other.address, stalled.address], more);
    for _ in 0..20 {
        let mut client = Wire::connect(gateway.address()).await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert!(client.read_to_end().await.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(metric(&gateway, "share", stalled.address).await, 0.0);
    assert_eq!(stalled.connections(), 2, "after two failures, the backend gets no requests");
}

/// New requests do not queue behind those that wait for the stalled server.
#[tokio::test]
async fn a_full_server_is_skipped_while_another_has_free_slots() {
    for balance in ["round_robin", "least_requests"] {
        let (well, stalled) = (Upstream::start(), [StallingBackend::start(), StallingBackend::start()]);
        stalled.iter().for_each(|stalling| stalling.stalled.store(true, Ordering::SeqCst));
        let servers = [stalled[0].backend.address, stalled[1].backend.address, well.address];
        let more = format!("balance = \"{balance}\"\nmax_concurrent_requests = 2\nconnect_timeout = \"1m\"");
        let gateway = in_front_of(&servers, &more);
        let requests = || stalled.iter().map(StallingBackend::requests).sum::<usize>();
        let get = || Request::get("/").body(connection::empty()).expect("a request");
        let mut waiting = Vec::new();
        while requests() < 4 {
            waiting.push(tokio::spawn(HttpConnection::http1(gateway.address()).await.sender().send(get())));
            eventually("the request has a response, or is in flight", || {
                let answered = waiting.iter().filter(|request| request.is_finished()).count();
                answered + requests() == waiting.len()
            })
            .await;
        }
        let served = well.seen().len();
        let mut connection = HttpConnection::http1(gateway.address()).await;
        for _ in 0..30 {
            let answer = connection.send(get()).await;
            assert_eq!(answer.status(), 200);
            connection::text(answer.into_body()).await;
        }
        assert_eq!((well.seen().len() - served, requests()), (30, 4), "{balance}");
        waiting.into_iter().for_each(|request| request.abort());
    }
}

/// A backend that still fails after its return costs one request, and is ejected for twice as long.
#[tokio::test]
async fn a_backend_that_still_fails_is_ejected_for_longer() {
    let stalling = StallingBackend::start();
    let other = Upstream::start();
    let servers = [other.address, stalling.backend.address];
    let more = "response_timeout = \"500ms\"\n[upstream.ejection]\nconsecutive_failures = 2\nbase_time = \"300ms\"\nslow_start = \"500ms\"";
    let gateway = in_front_of(&servers, more);
    stalling.stalled.store(true, Ordering::SeqCst);
    let begin = secrets::capture_log();
    let load = LoadGenerator::start(gateway.address(), 2);
    let server = format!("server=\"{}\"", stalling.backend.address);
    let ejection_times = || {
        let traced = secrets::logged_since(begin);
        let lines = traced.lines().filter(|line| line.contains(&server));
        lines
            .filter_map(|line| line.split_once("ejected for ")?.1.split_once("ms").map(|(time, _)| time.to_owned()))
            .collect()
    };
    let mut times: Vec<String> = Vec::new();
    while times.len() < 3 {
        load.goes_on(10).await;
        times = ejection_times();
    }
    assert_eq!(times[..3], ["300", "600", "1200"]);
    let answers = load.ends().await;
    let failed: usize = answers.iter().filter(|(status, _)| **status != 200).map(|(_, count)| count).sum();
    assert!(failed <= 4 + 2 * 3, "{answers:?}");
}
