//! A rotation of the issuer's keys, and tokens with key ids that do not exist.

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

use super::{
    TIMEOUT, fetched_from, fetches, mint, new_token, status, wait_for_fetch, wait_for_key_requests, wait_for_status,
};
use crate::support::tokens::Mint;
use crate::support::wait::{eventually, eventually_within};
use crate::support::{Gateway, KeyServer, Upstream};

const COOLDOWN: Duration = Duration::from_secs(30);

/// Tokens that the issuer signed with one key.
struct Batch {
    rotation: usize,
    mint: Mint,
    tokens: Vec<String>,
}

impl Batch {
    fn new(rotation: usize, gateway: &Gateway, mint: Mint) -> Arc<Batch> {
        let tokens = (0..64).map(|_| new_token(gateway, &mint)).collect();
        Arc::new(Batch { rotation, mint, tokens })
    }
}

/// The state that the clients of a test share.
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

    /// Runs one client over one connection.
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
            // A token may be rejected if its key was withdrawn while the request was in flight.
            if status != StatusCode::OK && self.current().rotation == batch.rotation {
                self.wrong.lock().expect("unpoisoned").push(format!("{status} {}", String::from_utf8_lossy(&body)));
            }
        }
    }
}

/// Prints the rate: 22,000 requests per second on two cores in a release build.
#[tokio::test]
async fn a_rotation_of_the_issuer_under_load_rejects_no_valid_token() {
    let upstream = Upstream::start();
    let first = mint();
    let server = KeyServer::start(&[&first]);
    // Slow enough that many requests arrive during a fetch.
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
        // The time of the load between two rotations.
        tokio::time::sleep(Duration::from_millis(400)).await;
        let (next, before) = (Batch::new(rotation, &traffic.gateway, mint()), traffic.current());
        // Every second rotation publishes both keys. The others withdraw the old key, as after a theft.
        if rotation % 2 == 0 {
            server.publish(&[&next.mint, &before.mint])
        } else {
            server.publish(&[&next.mint])
        }
        traffic.gateway.advance(COOLDOWN);
        *traffic.current.lock().expect("unpoisoned") = next;
        // The next rotation starts after the gateway has fetched these keys and handled requests with them.
        wait_for_key_requests(&server, rotation + 1).await;
        let before = traffic.requests.load(Ordering::Relaxed);
        let requests = || traffic.requests.load(Ordering::Relaxed);
        eventually("the clients send 256 requests", || requests() >= before + 256).await;
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
async fn random_kids_cause_one_fetch_per_cooldown() {
    let upstream = Upstream::start();
    let known = mint();
    let server = KeyServer::start(&[&known]);
    let gateway = Arc::new(Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), "")));
    assert_eq!(server.key_requests(), 1);
    let flood = async |from: usize| {
        let mut responses = Vec::new();
        for kid in from..from + 300 {
            let token = known.with_header(gateway.now_secs(), json!({ "kid": format!("random-{kid}") }));
            let gateway = gateway.clone();
            responses.push(tokio::spawn(async move { gateway.client().bearer(&token).get("/").await }));
        }
        for response in responses {
            response.await.expect("no panic").assert_rejected(401, "invalid_token");
        }
    };
    flood(0).await;
    assert_eq!(server.key_requests(), 2);
    gateway.advance(COOLDOWN - Duration::from_millis(1));
    flood(300).await;
    assert_eq!(server.key_requests(), 2, "a millisecond before the end of the cooldown");
    gateway.advance(Duration::from_millis(1));
    flood(600).await;
    assert_eq!(server.key_requests(), 3);
    assert_eq!(status(&gateway, &new_token(&gateway, &known)).await, 200);
    assert!(upstream.seen().len() == 1, "only the valid token passed");
}

/// An issuer without names of keys, or with a fixed one, replaces its key. Bad signatures cause no more fetches than
/// unknown keys.
#[tokio::test]
async fn a_key_that_was_replaced_under_its_name_is_fetched() {
    let upstream = Upstream::start();
    let old = mint();
    let next = mint().named(&old.kid);
    let server = KeyServer::start(&[&old]);
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), ""));
    assert_eq!(status(&gateway, &new_token(&gateway, &old)).await, 200);
    server.publish(&[&next]);
    assert_eq!(status(&gateway, &new_token(&gateway, &next)).await, 200);
    assert_eq!(server.key_requests(), 2);
    for _ in 0..20 {
        assert_eq!(status(&gateway, &new_token(&gateway, &old)).await, 401);
    }
    assert_eq!(server.key_requests(), 2, "within the cooldown");
    gateway.advance(COOLDOWN);
    for _ in 0..20 {
        assert_eq!(status(&gateway, &new_token(&gateway, &old)).await, 401);
    }
    assert_eq!(server.key_requests(), 3);
    assert_eq!(status(&gateway, &new_token(&gateway, &next)).await, 200);
}

/// Otherwise a client with expired tokens could use up the cooldown.
#[tokio::test]
async fn an_otherwise_invalid_token_causes_no_fetch() {
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
    assert_eq!(status(&gateway, &new_token(&gateway, &next)).await, 200, "the first token that is otherwise valid");
    assert_eq!(status(&gateway, &new_token(&gateway, &old)).await, 401, "the other key was withdrawn");
    assert_eq!(server.key_requests(), 2);
}

#[tokio::test]
async fn only_requests_with_unknown_keys_wait_for_a_slow_source() {
    let upstream = Upstream::start();
    let (old, next) = (mint(), mint());
    let server = KeyServer::start(&[&old]);
    let gateway = Arc::new(Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), "")));
    let known = new_token(&gateway, &old);
    assert_eq!(status(&gateway, &known).await, 200);
    server.publish(&[&old, &next]);
    server.pages().delay = Duration::from_millis(1500);
    let request = |token: String| {
        let gateway = gateway.clone();
        tokio::spawn(async move { status(&gateway, &token).await })
    };
    let waiting: Vec<_> = (0..20).map(|_| request(new_token(&gateway, &next))).collect();
    tokio::task::yield_now().await;
    let others = tokio::time::timeout(Duration::from_millis(1400), async {
        wait_for_key_requests(&server, 2).await;
        for token in [known.clone(), new_token(&gateway, &old)] {
            assert_eq!(status(&gateway, &token).await, 200);
        }
    });
    others.await.expect("requests with known keys do not wait");
    assert!(waiting.iter().all(|task| !task.is_finished()));
    for task in waiting {
        assert_eq!(task.await.expect("no panic"), 200);
    }
    assert_eq!(server.key_requests(), 2);
}

/// The key may exist. A 401 would make the client discard its token.
#[tokio::test]
async fn a_token_with_unavailable_keys_gets_503_not_401() {
    let upstream = Upstream::start();
    let (old, next) = (mint(), mint());
    let server = KeyServer::start(&[&old]);
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), "refetch_cooldown = \"10s\""));
    server.publish(&[&old, &next]);
    // Longer than the gateway waits for keys.
    server.pages().delay = Duration::from_millis(2500);
    let started = Instant::now();
    let response = gateway.client().bearer(&new_token(&gateway, &next)).get("/").await;
    response.assert_rejected(503, "temporarily_unavailable");
    assert!(response.header("retry-after").is_some());
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
    server.pages().delay = Duration::ZERO;
    wait_for_status(&gateway, &next, 200).await;

    // The source fails: known keys stay valid, and tokens with unknown keys get 503.
    let third = mint();
    server.fail_with(500);
    gateway.advance(Duration::from_secs(10));
    for _ in 0..2 {
        gateway
            .client()
            .bearer(&new_token(&gateway, &third))
            .get("/")
            .await
            .assert_rejected(503, "temporarily_unavailable");
        assert_eq!(status(&gateway, &new_token(&gateway, &next)).await, 200);
    }
    let lines = gateway.log_lines(1).await;
    assert!(lines.iter().any(|line| line["reason"] == "keys_unavailable"), "{lines:?}");
    // The source recovers. The gateway retries after a failure, also within the cooldown.
    server.publish(&[&next, &third]);
    server.fail_with(200);
    wait_for_status(&gateway, &third, 200).await;
    assert_eq!(status(&gateway, &new_token(&gateway, &old)).await, 401);
}

/// The metric of cache misses shows whether a token was verified again.
#[tokio::test]
async fn a_key_refresh_keeps_cached_tokens_of_unchanged_keys() {
    let upstream = Upstream::start();
    let (one, two) = (mint(), mint());
    let server = KeyServer::start(&[&one]);
    let frequent = "refresh_min = \"1s\"\nrefresh_max = \"1s\"";
    let gateway = Gateway::with_config(&upstream, &fetched_from(&server.url("/keys"), frequent));
    let token = new_token(&gateway, &one);
    assert_eq!(status(&gateway, &token).await, 200);
    let misses = async || gateway.metric("bearward_token_cache_misses_total").await;
    let before = misses().await;
    wait_for_key_requests(&server, 3).await;
    assert!(fetches(&gateway, "unchanged").await >= 1.0);
    let modified = server.pages().seen.iter().filter(|(_, not_modified)| !not_modified).count();
    assert_eq!(modified, 1, "the other responses were 304");
    assert_eq!((status(&gateway, &token).await, misses().await), (200, before));

    for (keys, what) in [(&[&two, &one][..], "an additional key"), (&[&one], "another key removed")] {
        server.publish(keys);
        let before_fetch = fetches(&gateway, "changed").await;
        wait_for_fetch(&gateway, "changed", before_fetch).await;
        assert_eq!((status(&gateway, &token).await, misses().await), (200, before), "{what}");
    }

    server.publish(&[&two]);
    eventually_within(TIMEOUT, "the token of a removed key is rejected", async || {
        match status(&gateway, &token).await {
            200 => Err("it is accepted".into()),
            _ => Ok(()),
        }
    })
    .await;
}
