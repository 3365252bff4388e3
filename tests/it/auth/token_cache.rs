//! The verified-token cache under threads: what it remembers never outlives a revocation, a key or an expiry that was
//! complete when a request came, and a token that many bring at once is checked once by each worker at most.

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

/// A token that ends, and the number of requests that have seen it good so far.
struct Round {
    headers: HeaderMap,
    good: AtomicU32,
    is_over: AtomicBool,
}

impl Round {
    fn new(mint: &Mint, number: u32) -> Arc<Round> {
        let headers = setup::bearer(&mint.token(number));
        Arc::new(Round { headers, good: AtomicU32::new(0), is_over: AtomicBool::new(false) })
    }

    /// Asks until it is refused. `is_over` is read first, so a request that came after the end must not be let through.
    fn ask_until_refused(&self, authenticator: &Authenticator, refusal: Reason) {
        let worker = BenchWorker::new();
        loop {
            let was_over = self.is_over.load(Ordering::SeqCst);
            match worker.authenticate(authenticator, &self.headers) {
                Ok(_) => assert!(!was_over, "let through after its end"),
                Err(reject) => return assert_eq!(reject.reason, refusal, "{reject:?}"),
            }
            self.good.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Ends the token while requests with it go on, and waits until all of them have noticed.
    fn run(self: &Arc<Self>, authenticator: &Arc<Authenticator>, refusal: Reason, end: impl FnOnce()) {
        let ask = || {
            let (round, authenticator) = (self.clone(), authenticator.clone());
            thread::spawn(move || round.ask_until_refused(&authenticator, refusal))
        };
        let readers: Vec<_> = (0..READERS).map(|_| ask()).collect();
        while self.good.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        end();
        self.is_over.store(true, Ordering::SeqCst);
        readers.into_iter().for_each(|reader| reader.join().expect("no request was let through too late"));
    }
}

#[test]
fn no_request_is_let_through_after_the_revocation_of_its_token() {
    let mint = Mint::new(Algorithm::HS256);
    let (authenticator, _) = setup::authenticator(&mint);
    let authenticator = Arc::new(authenticator);
    for number in 0..ROUNDS {
        let revoke = || authenticator.revocations.enforce(&setup::revocation(number), NOW);
        Round::new(&mint, number).run(&authenticator, Reason::Revoked, revoke);
    }
}

#[test]
fn no_request_is_let_through_after_its_key_was_removed() {
    let mint = Mint::new(Algorithm::HS256);
    let (authenticator, _) = setup::authenticator(&mint);
    let authenticator = Arc::new(authenticator);
    let swap =
        |trusted: TrustedIssuer| authenticator.keyring.swap(|_| Keys::new(OwnIssuer::single_key(trusted, signing())));
    let other = Mint::new(Algorithm::HS256);
    let nothing = TrustedIssuer { keys: Arc::default(), ..mint.trusted() };
    assert_eq!(other.trusted().policy, nothing.policy, "only the keys differ");
    for number in 0..ROUNDS {
        swap(mint.trusted());
        // The same token in each round: what was remembered of it is of an earlier generation of keys.
        let round = Round::new(&mint, number % 2);
        round.run(&authenticator, Reason::KeysUnavailable, || swap(nothing.clone()));
    }
}

fn signing() -> SigningKey {
    let pem = generate_pem(Algorithm::EdDSA).expect("a key");
    SigningKey::from_pem(pem.expose(), Algorithm::EdDSA).expect("its own key")
}

/// Many threads, each with its own time: each is told what is true at that time.
#[test]
fn a_known_token_is_asked_for_its_time_by_every_request() {
    let mint = Mint::new(Algorithm::HS256);
    let (authenticator, _) = setup::authenticator(&mint);
    let headers = setup::bearer(&mint.token(0));
    // `exp` and the clock skew, of setup's tokens.
    let end = NOW + Duration::from_secs(900 - 60 + 30);
    let ask = |offset: u64| {
        let worker = BenchWorker::new();
        let now = end - Duration::from_millis(5) + Duration::from_millis(offset);
        for _ in 0..2_000 {
            let bearer = bearer::find(&headers, 8 << 10).expect("a token");
            let caller = setup::run_ready(authenticator.authenticate(bearer, &worker.context(now)));
            match caller {
                Ok(_) => assert!(now < end, "let through {offset} ms into the end"),
                Err(reject) => assert!(now >= end && reject.reason == Reason::Expired, "{reject:?}"),
            }
        }
    };
    thread::scope(|threads| {
        for offset in 3..=7 {
            threads.spawn(move || ask(offset));
        }
    });
}

#[tokio::test]
async fn a_token_that_many_bring_at_once_is_verified_once_by_each_worker_at_most() {
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
