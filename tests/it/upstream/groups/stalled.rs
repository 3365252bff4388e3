//! A backend accepts connections and never answers. It is left out after its time limit, and comes back slowly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Request;

use super::crowd::PerAddressLimit;
use super::{addresses, has_share, in_front_of, metric};
use crate::support::session::{self, Session, eventually};
use crate::support::{Scripted, Upstream, Wire, secrets};

/// Answers, or not, as it is told; knows how many requests came.
struct Moody {
    backend: Scripted,
    stalled: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl Moody {
    fn start() -> Moody {
        let (stalled, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (stalls, counts) = (stalled.clone(), asked.clone());
        let backend = Scripted::start(move |mut wire, _| {
            let (stalls, counts) = (stalls.clone(), counts.clone());
            async move {
                while wire.try_hear_until("\r\n\r\n").await.is_some() {
                    counts.fetch_add(1, Ordering::SeqCst);
                    if stalls.load(Ordering::SeqCst) {
                        // Until the gateway gives up.
                        wire.try_hear_until("\r\n\r\n").await;
                        return;
                    }
                    if wire.try_say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.is_err() {
                        return;
                    }
                }
            }
        });
        Moody { backend, stalled, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

const LIMIT: Duration = Duration::from_secs(1);
/// Long enough that a slow machine serves what this story asks meanwhile.
const OUT: Duration = Duration::from_secs(4);

#[tokio::test]
async fn a_stalled_backend_is_left_out_within_its_time_limit_and_returns_slowly() {
    let moody = Moody::start();
    let others = [Upstream::start(), Upstream::start()];
    let mut servers = addresses(&others);
    servers.push(moody.backend.address);
    let more = format!(
        "response_timeout = \"{}ms\"\n[upstream.ejection]\nconsecutive_failures = 2\nbase_time = \"{}s\"\nslow_start = \"4s\"",
        LIMIT.as_millis(),
        OUT.as_secs()
    );
    let gateway = in_front_of(&servers, &more);
    let crowd = PerAddressLimit::ask(gateway.address(), 8);
    crowd.goes_on(300).await;
    assert!(moody.asked() >= 50, "{}", moody.asked());

    moody.stalled.store(true, Ordering::SeqCst);
    let began = Instant::now();
    has_share(&gateway, moody.backend.address, |share| share == 0.0).await;
    let took = began.elapsed();
    assert!(took < LIMIT * 3, "{took:?}");
    // What was on its way there has arrived when others have been answered.
    crowd.goes_on(50).await;
    let asked = moody.asked();
    crowd.goes_on(100).await;
    assert_eq!(moody.asked(), asked, "nothing goes there any more");
    assert_eq!(metric(&gateway, "share", moody.backend.address).await, 0.0, "the machine is too slow for this story");

    // Well again, before its time is over.
    moody.stalled.store(false, Ordering::SeqCst);
    has_share(&gateway, moody.backend.address, |share| share > 0.0).await;
    assert!(began.elapsed() >= OUT, "{:?}", began.elapsed());
    let (asked, all) = (moody.asked(), crowd.asked());
    crowd.goes_on(100).await;
    let (here, everywhere) = (moody.asked() - asked, crowd.asked() - all);
    assert!(here * 4 < everywhere, "{here} of {everywhere} just after its return: no third yet");
    has_share(&gateway, moody.backend.address, |share| share == 1.0).await;
    let (asked, all) = (moody.asked(), crowd.asked());
    crowd.goes_on(600).await;
    let (here, everywhere) = (moody.asked() - asked, crowd.asked() - all);
    assert!(here * 4 > everywhere, "{here} of {everywhere} in the end: a third");

    let answers = crowd.ends().await;
    let failed: usize = answers.iter().filter(|(status, _)| **status != 200).map(|(_, count)| count).sum();
    assert_eq!(failed, answers.get(&504).copied().unwrap_or_default(), "{answers:?}");
    assert!(
        (2..=16).contains(&failed),
        "each client ran into it once, or twice before the second time-out: {answers:?}"
    );
    assert_eq!(metric(&gateway, "ejections_total", moody.backend.address).await, 1.0);
}

/// Its heads come, and its bodies do not.
#[tokio::test]
async fn a_backend_that_stalls_in_its_bodies_is_left_out() {
    let stalled = Scripted::start(|mut wire, _| async move {
        while wire.try_hear_until("\r\n\r\n").await.is_some() {
            let _ = wire.try_say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
        }
    });
    let other = Upstream::start();
    let more = "[upstream.ejection]\nconsecutive_failures = 2\nbase_time = \"60s\"\n[timeouts]\nbody_idle = \"300ms\"";
    let gateway = in_front_of(&[other.address, stalled.address], more);
    for _ in 0..20 {
        let mut client = Wire::connect(gateway.address()).await;
        client.say("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert!(client.hear_to_the_end().await.starts_with("HTTP/1.1 200"));
    }
    assert_eq!(metric(&gateway, "share", stalled.address).await, 0.0);
    assert_eq!(stalled.connections(), 2, "after two of them, nothing goes there");
}

/// Those who ask on are not lined up behind those who wait for it already.
#[tokio::test]
async fn nobody_waits_for_a_place_at_one_server_while_another_has_places_free() {
    for balance in ["round_robin", "least_requests"] {
        let (well, stalled) = (Upstream::start(), [Moody::start(), Moody::start()]);
        stalled.iter().for_each(|moody| moody.stalled.store(true, Ordering::SeqCst));
        let servers = [stalled[0].backend.address, stalled[1].backend.address, well.address];
        let more = format!("balance = \"{balance}\"\nmax_concurrent_requests = 2\nconnect_timeout = \"1m\"");
        let gateway = in_front_of(&servers, &more);
        let asked = || stalled.iter().map(Moody::asked).sum::<usize>();
        let get = || Request::get("/").body(session::empty()).expect("a request");
        let mut waiting = Vec::new();
        while asked() < 4 {
            waiting.push(tokio::spawn(Session::http1(gateway.address()).await.sender().send(get())));
            eventually("it is answered, or waits for an answer", || {
                let answered = waiting.iter().filter(|request| request.is_finished()).count();
                answered + asked() == waiting.len()
            })
            .await;
        }
        let served = well.seen().len();
        let mut session = Session::http1(gateway.address()).await;
        for _ in 0..30 {
            let answer = session.send(get()).await;
            assert_eq!(answer.status(), 200);
            session::text(answer.into_body()).await;
        }
        assert_eq!((well.seen().len() - served, asked()), (30, 4), "{balance}");
        waiting.into_iter().for_each(|request| request.abort());
    }
}

/// One that is still ill when it comes back costs one client its patience, and is out for twice as long.
#[tokio::test]
async fn who_is_still_ill_is_out_for_longer() {
    let moody = Moody::start();
    let other = Upstream::start();
    let servers = [other.address, moody.backend.address];
    let more = "response_timeout = \"500ms\"\n[upstream.ejection]\nconsecutive_failures = 2\nbase_time = \"300ms\"\nslow_start = \"500ms\"";
    let gateway = in_front_of(&servers, more);
    moody.stalled.store(true, Ordering::SeqCst);
    let begin = secrets::capture_traces();
    let crowd = PerAddressLimit::ask(gateway.address(), 2);
    let server = format!("server=\"{}\"", moody.backend.address);
    let times = || {
        let traced = secrets::traced_since(begin);
        let lines = traced.lines().filter(|line| line.contains(&server));
        lines
            .filter_map(|line| line.split_once("ejected for ")?.1.split_once("ms").map(|(time, _)| time.to_owned()))
            .collect()
    };
    let mut told: Vec<String> = Vec::new();
    while told.len() < 3 {
        crowd.goes_on(10).await;
        told = times();
    }
    assert_eq!(told[..3], ["300", "600", "1200"]);
    let answers = crowd.ends().await;
    let failed: usize = answers.iter().filter(|(status, _)| **status != 200).map(|(_, count)| count).sum();
    assert!(failed <= 4 + 2 * 3, "{answers:?}");
}
