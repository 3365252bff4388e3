//! A rotation at the source, and tokens that pretend there was one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

use super::{fetched_from, fresh, mint, soon, status, visits};
use crate::support::tokens::Mint;
use crate::support::{Gateway, KeyServer, Upstream};

const COOL_DOWN: Duration = Duration::from_secs(30);

/// What the issuer gave out with one key.
struct Batch {
    rotation: usize,
    mint: Mint,
    tokens: Vec<String>,
}

impl Batch {
    fn new(rotation: usize, gateway: &Gateway, mint: Mint) -> Arc<Batch> {
        let tokens = (0..64).map(|_| fresh(gateway, &mint)).collect();
        Arc::new(Batch { rotation, mint, tokens })
    }
}

/// What the clients of the next story share.
struct Traffic {
    gateway: Gateway,
    current: Mutex<Arc<Batch>>,
    stop: AtomicBool,
    requests: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

impl Traffic {
    fn current(&self) -> Arc<Batch> {
        self.current.lock().expect("unpoisoned").clone()
    }

    /// One client, over one connection.
    async fn client(self: Arc<Self>) {
        let stream = TcpStream::connect(self.gateway.address()).await.expect("the gateway listens");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
        tokio::spawn(connection);
        while !self.stop.load(Ordering::Relaxed) {
            let batch = self.current();
            let token = &batch.tokens[self.requests.fetch_add(1, Ordering::Relaxed) % batch.tokens.len()];
            let request = Request::get("/").header("host", "gateway.test");
            let request = request.header("authorization", format!("Bearer {token}")).body(Empty::<Bytes>::new());
            let response = sender.send_request(request.expect("a request")).await.expect("a response");
            let status = response.status();
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            // A token whose key was withdrawn while it was on its way is refused with good reason.
            if status != StatusCode::OK && self.current().rotation == batch.rotation {
                self.wrong.lock().expect("unpoisoned").push(format!("{status} {}", String::from_utf8_lossy(&body)));
            }
        }
    }
}

/// `cargo test --release --test it under_load -- --nocapture` tells the rate: 22,000 requests a second on two cores.
#[tokio::test]
async fn under_load_no_good_token_is_refused_while_the_source_rotates() {
    let upstream = Upstream::start();
    let first = mint();
    let server = KeyServer::start(&[&first]);
    // Slow enough that many requests arrive while the source is asked.
    server.pages().delay = Duration::from_millis(50);
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), ""));
    let traffic = Arc::new(Traffic {
        current: Mutex::new(Batch::new(0, &gateway, first)),
        gateway,
        stop: AtomicBool::new(false),
        requests: AtomicUsize::new(0),
        wrong: Mutex::default(),
    });
    let clients: Vec<_> = (0..64).map(|_| tokio::spawn(traffic.clone().client())).collect();
    let started = Instant::now();
    for rotation in 1..=6 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        let (next, before) = (Batch::new(rotation, &traffic.gateway, mint()), traffic.current());
        // By turns as it should be done, with both keys for a while, and as it is done after a theft.
        if rotation % 2 == 0 {
            server.publish(&[&next.mint, &before.mint])
        } else {
            server.publish(&[&next.mint])
        }
        traffic.gateway.advance(COOL_DOWN);
        *traffic.current.lock().expect("unpoisoned") = next;
        // However slow the machine is: the next rotation comes after this one was noticed, and lived with.
        soon_visit(&server, rotation + 1).await;
        let noticed = traffic.requests.load(Ordering::Relaxed);
        while traffic.requests.load(Ordering::Relaxed) < noticed + 256 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    traffic.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("no panic");
    }
    let requests = traffic.requests.load(Ordering::Relaxed);
    eprintln!("{:.0} requests/s", requests as f64 / started.elapsed().as_secs_f64());
    let wrong = traffic.wrong.lock().expect("unpoisoned");
    assert!(wrong.is_empty(), "{} of {requests} wrong: {:?}", wrong.len(), wrong.first());
    assert_eq!(server.key_requests(), 7, "one at the start, and one for each rotation");
}

#[tokio::test]
async fn however_many_tokens_carry_random_kids_the_source_is_asked_once_in_a_cool_down() {
    let upstream = Upstream::start();
    let good = mint();
    let server = KeyServer::start(&[&good]);
    let gateway = Arc::new(Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), "")));
    assert_eq!(server.key_requests(), 1);
    let flood = async |from: usize| {
        let mut responses = Vec::new();
        for kid in from..from + 300 {
            let token = good.with_header(gateway.now_secs(), json!({ "kid": format!("random-{kid}") }));
            let gateway = gateway.clone();
            responses.push(tokio::spawn(async move { gateway.client().bearer(&token).get("/").await }));
        }
        for response in responses {
            response.await.expect("no panic").assert_rejected(401, "invalid_token");
        }
    };
    flood(0).await;
    assert_eq!(server.key_requests(), 2);
    gateway.advance(COOL_DOWN - Duration::from_millis(1));
    flood(300).await;
    assert_eq!(server.key_requests(), 2, "a millisecond before the cool-down is over");
    gateway.advance(Duration::from_millis(1));
    flood(600).await;
    assert_eq!(server.key_requests(), 3);
    assert_eq!(status(&gateway, &fresh(&gateway, &good)).await, 200);
    assert!(upstream.seen().len() == 1, "nothing else got through");
}

/// Others than good tokens cause nothing: who sends old ones around cannot use up the cool-down.
#[tokio::test]
async fn a_token_that_is_bad_besides_does_not_cause_a_fetch() {
    let upstream = Upstream::start();
    let (old, next) = (mint(), mint());
    let server = KeyServer::start(&[&old]);
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), ""));
    let now = gateway.now_secs();
    for claims in [json!({ "iat": now - 700, "exp": now - 600 }), json!({ "aud": "https://other.example" })] {
        assert_eq!(status(&gateway, &next.with_claims(now, claims)).await, 401);
    }
    assert_eq!(status(&gateway, &next.with_header(now, json!({ "alg": "RS256" }))).await, 401);
    assert_eq!(server.key_requests(), 1);
    server.publish(&[&next]);
    assert_eq!(status(&gateway, &fresh(&gateway, &next)).await, 200, "the first that is good");
    assert_eq!(status(&gateway, &fresh(&gateway, &old)).await, 401, "and the other key is gone");
    assert_eq!(server.key_requests(), 2);
}

#[tokio::test]
async fn requests_wait_for_a_slow_source_and_nobody_else_does() {
    let upstream = Upstream::start();
    let (old, next) = (mint(), mint());
    let server = KeyServer::start(&[&old]);
    let gateway = Arc::new(Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), "")));
    let known = fresh(&gateway, &old);
    assert_eq!(status(&gateway, &known).await, 200);
    server.publish(&[&old, &next]);
    server.pages().delay = Duration::from_millis(1500);
    let ask = |token: String| {
        let gateway = gateway.clone();
        tokio::spawn(async move { status(&gateway, &token).await })
    };
    let waiting: Vec<_> = (0..20).map(|_| ask(fresh(&gateway, &next))).collect();
    tokio::task::yield_now().await;
    let others = tokio::time::timeout(Duration::from_millis(1400), async {
        soon_visit(&server, 2).await;
        for token in [known.clone(), fresh(&gateway, &old)] {
            assert_eq!(status(&gateway, &token).await, 200);
        }
    });
    others.await.expect("they do not wait");
    assert!(waiting.iter().all(|task| !task.is_finished()));
    for task in waiting {
        assert_eq!(task.await.expect("no panic"), 200);
    }
    assert_eq!(server.key_requests(), 2);
}

async fn soon_visit(server: &KeyServer, count: usize) {
    while server.key_requests() < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A key that cannot be looked for may be good: 401 would make its client throw the token away.
#[tokio::test]
async fn what_cannot_be_known_is_503_and_not_401() {
    let upstream = Upstream::start();
    let (old, next) = (mint(), mint());
    let server = KeyServer::start(&[&old]);
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), "refetch_cooldown = \"10s\""));
    server.publish(&[&old, &next]);
    // Too slow: its answer would come after 2.5 seconds.
    server.pages().delay = Duration::from_millis(2500);
    let started = Instant::now();
    let response = gateway.client().bearer(&fresh(&gateway, &next)).get("/").await;
    response.assert_rejected(503, "temporarily_unavailable");
    assert!(response.header("retry-after").is_some());
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
    server.pages().delay = Duration::ZERO;
    super::soon_status(&gateway, &next, 200).await;

    // Broken: before and after the cool-down, known keys go on and unknown ones are not judged.
    let third = mint();
    server.fail_with(500);
    gateway.advance(Duration::from_secs(10));
    for _ in 0..2 {
        gateway
            .client()
            .bearer(&fresh(&gateway, &third))
            .get("/")
            .await
            .assert_rejected(503, "temporarily_unavailable");
        assert_eq!(status(&gateway, &fresh(&gateway, &next)).await, 200);
    }
    let lines = gateway.log_lines(1).await;
    assert!(lines.iter().any(|line| line["reason"] == "keys_unavailable"), "{lines:?}");
    // It recovers: within the cool-down, by the retries that it gets after a failure.
    server.publish(&[&next, &third]);
    server.fail_with(200);
    super::soon_status(&gateway, &third, 200).await;
    assert_eq!(status(&gateway, &fresh(&gateway, &old)).await, 401);
}

/// The metric of misses tells whether known tokens were verified again.
#[tokio::test]
async fn a_refresh_that_keeps_its_key_leaves_a_known_token_known() {
    let upstream = Upstream::start();
    let (one, two) = (mint(), mint());
    let server = KeyServer::start(&[&one]);
    let often = "refresh_min = \"1s\"\nrefresh_max = \"1s\"";
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), often));
    let token = fresh(&gateway, &one);
    assert_eq!(status(&gateway, &token).await, 200);
    let misses = async || gateway.metric("bearward_token_cache_misses_total").await;
    let before = misses().await;
    soon("two refreshes", || server.key_requests() >= 3);
    assert!(visits(&gateway, "unchanged").await >= 1.0);
    let modified = server.pages().seen.iter().filter(|(_, not_modified)| !not_modified).count();
    assert_eq!(modified, 1, "the rest was answered with 304");
    assert_eq!((status(&gateway, &token).await, misses().await), (200, before));

    for (keys, what) in [(&[&two, &one][..], "a key more"), (&[&one], "another key that is gone")] {
        server.publish(keys);
        let so_far = visits(&gateway, "changed").await;
        while visits(&gateway, "changed").await == so_far {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!((status(&gateway, &token).await, misses().await), (200, before), "{what}");
    }

    server.publish(&[&two]);
    let started = Instant::now();
    while status(&gateway, &token).await == 200 {
        assert!(started.elapsed() < Duration::from_secs(20), "a key that is gone goes on working");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
