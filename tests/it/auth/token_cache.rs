//! The token cache with concurrent requests: a request never passes if the revocation, the removal of the key or the
//! expiry was complete before it. Each worker verifies a token at most once.

#[path = "../../../benches/setup/mod.rs"]
pub(crate) mod setup;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use bearward::auth::authenticate::Authenticator;
use bearward::auth::bearer;
use bearward::auth::keyring::{Keys, OwnIssuer};
use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::sign::{SigningKey, generate_pem};
use bearward::tokens::jwt::verify::TrustedIssuer;
use bearward::types::reject::Reason;
use futures_util::future::join_all;
use http::HeaderMap;

use crate::support::{Gateway, Upstream};
use setup::{BenchWorker, Mint, NOW};

const ROUNDS: u32 = 400;
const READERS: u32 = 3;

/// A token that ends during concurrent requests, and the number of requests that passed so far.
struct Round {
    headers: HeaderMap,
    passed: AtomicU32,
    is_over: AtomicBool,
}

impl Round {
    fn new(mint: &Mint, number: u32) -> Arc<Round> {
        let headers = setup::bearer(&mint.token(number));
        Arc::new(Round { headers, passed: AtomicU32::new(0), is_over: AtomicBool::new(false) })
    }

    /// Sends requests until one is rejected. Reads `is_over` first, because a request that starts after the end must
    /// not pass.
    fn request_until_rejected(&self, authenticator: &Authenticator, reason: Reason) {
        let worker = BenchWorker::new();
        loop {
            let was_over = self.is_over.load(Ordering::SeqCst);
            match worker.authenticate(authenticator, &self.headers) {
                Ok(_) => assert!(!was_over, "passed after the end of its token"),
                Err(reject) => return assert_eq!(reject.reason, reason, "{reject:?}"),
            }
            self.passed.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Ends the token during concurrent requests. Returns when all threads had a rejected request.
    fn run(self: &Arc<Self>, authenticator: &Arc<Authenticator>, reason: Reason, end: impl FnOnce()) {
        let start = || {
            let (round, authenticator) = (self.clone(), authenticator.clone());
            thread::spawn(move || round.request_until_rejected(&authenticator, reason))
        };
        let readers: Vec<_> = (0..READERS).map(|_| start()).collect();
        while self.passed.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        end();
        self.is_over.store(true, Ordering::SeqCst);
        readers.into_iter().for_each(|reader| reader.join().expect("no request passed too late"));
    }
}

#[test]
fn no_request_passes_after_the_revocation_of_its_token() {
    let mint = Mint::new(Algorithm::HS256);
    let (authenticator, _) = setup::authenticator(&mint);
    let authenticator = Arc::new(authenticator);
    for number in 0..ROUNDS {
        let revoke = || authenticator.known.revocations.enforce(&setup::revocation(number));
        Round::new(&mint, number).run(&authenticator, Reason::Revoked, revoke);
    }
}

#[test]
fn no_request_passes_after_its_key_was_removed() {
    let mint = Mint::new(Algorithm::HS256);
    let (authenticator, _) = setup::authenticator(&mint);
    let authenticator = Arc::new(authenticator);
    let swap = |trusted: TrustedIssuer| {
        authenticator.known.keyring.swap(|_| Keys::new(OwnIssuer::single_key(trusted, signing())))
    };
    let other = Mint::new(Algorithm::HS256);
    let nothing = TrustedIssuer { keys: Arc::default(), ..mint.trusted() };
    assert_eq!(other.trusted().policy, nothing.policy, "only the keys differ");
    for number in 0..ROUNDS {
        swap(mint.trusted());
        // Two tokens in turn, so that the cache has entries of an earlier key set.
        let round = Round::new(&mint, number % 2);
        round.run(&authenticator, Reason::KeysUnavailable, || swap(nothing.clone()));
    }
}

fn signing() -> SigningKey {
    let pem = generate_pem(Algorithm::EdDSA).expect("a key");
    SigningKey::from_pem(pem.expose(), Algorithm::EdDSA).expect("the generated key")
}

/// Several threads with different times. Each result must be right for its time.
#[test]
fn the_expiry_of_a_cached_token_is_checked_for_each_request() {
    let mint = Mint::new(Algorithm::HS256);
    let (authenticator, _) = setup::authenticator(&mint);
    let headers = setup::bearer(&mint.token(0));
    // The expiry of the tokens of `setup`, and the clock skew.
    let end = NOW + Duration::from_secs(900 - 60 + 30);
    let request_at = |offset: u64| {
        let worker = BenchWorker::new();
        let now = end - Duration::from_millis(5) + Duration::from_millis(offset);
        for _ in 0..2_000 {
            let bearer = bearer::find(&headers, 8 << 10).expect("a token");
            let caller = setup::run_ready(authenticator.authenticate(bearer, &worker.context(now)));
            match caller {
                Ok(_) => assert!(now < end, "passed at offset {offset} ms, after the expiry"),
                Err(reject) => assert!(now >= end && reject.reason == Reason::Expired, "{reject:?}"),
            }
        }
    };
    thread::scope(|threads| {
        for offset in 3..=7 {
            threads.spawn(move || request_at(offset));
        }
    });
}

#[tokio::test]
async fn a_token_in_many_requests_is_verified_once_per_worker() {
    let upstream = Upstream::start();
    let gateway = Gateway::start(&upstream);
    let pair = gateway.issue("alice", "").await;
    let client = || gateway.client().bearer(&pair.access);
    let responses =
        join_all((0..100).map(|_| client()).map(async |client| client.get("/").await.status.as_u16())).await;
    assert!(responses.iter().all(|status| *status == 200), "{responses:?}");
    let misses = gateway.metric("bearward_token_cache_misses_total").await;
    assert!((1.0..=2.0).contains(&misses), "{misses} verifications by two workers");
}
