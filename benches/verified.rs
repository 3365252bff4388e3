//! A known token: the cost of authentication per request, and the cache compared with the alternative, moka.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bearward::auth::authenticate::Authenticator;
use bearward::auth::bearer;
use bearward::auth::proofs::{PresentedProof, ProofRule};
use bearward::auth::token_cache::{CachedToken, TokenCache};
use bearward::tokens::dpop::access_token_hash;
use bearward::tokens::jwt::Algorithm;
use bearward::types::reject::Reason;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use foldhash::fast::RandomState;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use setup::{BenchWorker, Mint};

mod setup;

/// Batches are small so that headers are still in the processor's cache, as they are in a request that was just read.
const FEW: BatchSize = BatchSize::NumIterations(8);

/// More tokens than the processor's caches hold.
fn many() -> u32 {
    if setup::in_brief() { 100 } else { 10_000 }
}

/// An authenticator with `count` known tokens, and these tokens in shuffled order.
fn known_tokens(count: u32) -> (Authenticator, BenchWorker, Vec<String>) {
    let mint = Mint::new(Algorithm::ES256);
    let (authenticator, _) = setup::authenticator(&mint);
    let worker = BenchWorker::new();
    let tokens: Vec<_> = setup::shuffled(count).into_iter().map(|number| mint.token(number)).collect();
    for token in &tokens {
        assert!(worker.authenticate(&authenticator, &setup::bearer(token)).is_ok());
    }
    assert_eq!(authenticator.known.token_cache.count(), tokens.len(), "all of them fit");
    (authenticator, worker, tokens)
}

fn authenticate(c: &mut Criterion) {
    let mut group = c.benchmark_group("authenticate");
    for (name, count) in [("one known token", 1), ("10,000 known tokens", many())] {
        let (authenticator, worker, tokens) = known_tokens(count);
        let mut next = tokens.iter().cycle();
        group.bench_function(name, |b| {
            let headers = || setup::bearer(next.next().expect("endless"));
            b.iter_batched_ref(headers, |headers| worker.authenticate(&authenticator, headers).is_ok(), FEW);
        });
        assert_eq!(worker.0.metrics.token_cache_misses.get(), u64::from(count), "one miss per token");
    }

    let mint = Mint::new(Algorithm::ES256);
    let (authenticator, _) = setup::authenticator(&mint);
    let worker = BenchWorker::new();
    let forged = setup::bearer(&mint.forged());
    group.bench_function("a bad signature, known", |b| {
        b.iter(|| worker.authenticate(&authenticator, &forged).err().map(|reject| reject.reason));
    });
    let reject = worker.authenticate(&authenticator, &forged).err().expect("a rejection");
    assert_eq!((reject.reason, &*reject.detail), (Reason::BadSignature, "the same token again"));
    group.bench_function("no token", |b| {
        let none = HeaderMap::new();
        b.iter(|| worker.authenticate(&authenticator, &none).err().map(|reject| reject.reason));
    });
}

/// A known token on routes with each rule: one without a key costs the same everywhere, and one with a key costs its
/// proof where that is checked. The proof is signed before the clock starts, and used up.
fn proofs(c: &mut Criterion) {
    let mut group = c.benchmark_group("proof rule");
    let (issuer, client) = (Mint::new(Algorithm::ES256), Mint::new(Algorithm::ES256));
    let (mut authenticator, _) = setup::authenticator(&issuer);
    authenticator.proof_verifier.own_hosts.extend(["api.example"]);
    let worker = BenchWorker::new();
    let (plain, bound) = (issuer.token(0), issuer.token_with("cnf", client.confirmation()));
    for (name, token, scheme, rule) in [
        ("off, plain token", &plain, "Bearer", ProofRule::Off),
        ("if_bound, plain token", &plain, "Bearer", ProofRule::IfBound),
        ("off, bound token", &bound, "Bearer", ProofRule::Off),
    ] {
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, setup::credentials(scheme, token))]);
        let authenticate = || worker.authenticate_by(&authenticator, &headers, (rule, None)).is_ok();
        assert!(authenticate(), "{name}");
        group.bench_function(name, |b| b.iter(authenticate));
    }
    let (method, scheme, host) =
        (Method::GET, HeaderValue::from_static("https"), HeaderValue::from_static("api.example"));
    let mut number = 0;
    let mut with_proof = || {
        number += 1;
        let claims = serde_json::json!({
            "jti": format!("proof-{number}"), "htm": "GET", "htu": "https://api.example/orders/1",
            "iat": setup::NOW.as_secs(), "ath": access_token_hash(&bound),
        });
        let proof = HeaderValue::from_str(&client.proof(&claims)).expect("ASCII");
        let authorization = (header::AUTHORIZATION, setup::credentials("DPoP", &bound));
        HeaderMap::from_iter([authorization, (HeaderName::from_static("dpop"), proof)])
    };
    group.bench_function("if_bound, bound token", |b| {
        b.iter_batched_ref(
            &mut with_proof,
            |headers| {
                let presented = PresentedProof {
                    headers,
                    method: &method,
                    scheme: &scheme,
                    host: Some(&host),
                    listener: None,
                    public_url: None,
                    path: "/orders/1",
                    certificate: None,
                };
                let caller = worker.authenticate_by(&authenticator, headers, (ProofRule::IfBound, Some(presented)));
                let caller = caller.expect("a good proof");
                setup::run_ready(authenticator.proof_verifier.use_up(caller.proof(), setup::NOW)).is_ok()
            },
            FEW,
        );
    });
}

/// A cache that finds the token of a request.
trait TokenLookup: Sync {
    fn find(&self, headers: &HeaderMap) -> Option<Arc<CachedToken>>;
}

impl TokenLookup for TokenCache {
    fn find(&self, headers: &HeaderMap) -> Option<Arc<CachedToken>> {
        TokenCache::find(self, bearer::find(headers, usize::MAX).ok()?, 1, |_| false)
    }
}

struct Moka(moka::sync::Cache<Arc<[u8]>, Arc<CachedToken>, RandomState>);

impl TokenLookup for Moka {
    fn find(&self, headers: &HeaderMap) -> Option<Arc<CachedToken>> {
        self.0.get(bearer::find(headers, usize::MAX).ok()?.as_bytes())
    }
}

impl Moka {
    /// The same entries with the same limit in bytes.
    fn of(verified: &TokenCache, requests: &[HeaderMap]) -> Moka {
        let cache = moka::sync::Cache::builder()
            .max_capacity(64 << 20)
            .weigher(|token: &Arc<[u8]>, _| u32::try_from(token.len() * 5 + 1024).unwrap_or(u32::MAX))
            .build_with_hasher(RandomState::default());
        for headers in requests {
            let token = bearer::find(headers, usize::MAX).expect("a token");
            cache.insert(token.as_bytes().into(), TokenCache::find(verified, token, 1, |_| false).expect("is known"));
        }
        cache.run_pending_tasks();
        assert_eq!(cache.entry_count(), requests.len() as u64, "all of them fit");
        Moka(cache)
    }
}

/// No cache: shows the cost of the rest of the look-up.
struct NoCache(Arc<CachedToken>);

impl TokenLookup for NoCache {
    fn find(&self, headers: &HeaderMap) -> Option<Arc<CachedToken>> {
        bearer::find(headers, usize::MAX).ok().map(|_| self.0.clone())
    }
}

/// From the headers of a request to the entry of its token: 10,000 tokens in shuffled order, and one token that two
/// threads look up, each with its own headers.
fn caches(c: &mut Criterion) {
    let mut group = c.benchmark_group("cache");
    group.throughput(Throughput::Elements(1));
    let (authenticator, _, tokens) = known_tokens(many());
    let requests: Vec<HeaderMap> = tokens.iter().map(|token| setup::bearer(token)).collect();
    let quick = &*authenticator.known.token_cache;
    let moka = Moka::of(quick, &requests);
    let neither = NoCache(TokenLookup::find(quick, &requests[0]).expect("is known"));
    let caches: [(&str, &dyn TokenLookup); 3] = [("neither", &neither), ("quick_cache", quick), ("moka", &moka)];
    for (name, cache) in caches {
        let mut next = tokens.iter().cycle();
        group.bench_function(format!("{name}/10,000 tokens"), |b| {
            let headers = || setup::bearer(next.next().expect("endless"));
            b.iter_batched_ref(headers, |headers| cache.find(headers).is_some(), FEW);
        });
        group.bench_function(format!("{name}/one token, 2 threads"), |b| {
            b.iter_custom(|count| on_two_threads(cache, &tokens[0], count));
        });
    }
}

/// How long two threads need to look the token up `count` times each.
fn on_two_threads(cache: &dyn TokenLookup, token: &str, count: u64) -> Duration {
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let headers = setup::bearer(token);
                for _ in 0..count {
                    black_box(cache.find(&headers));
                }
            });
        }
    });
    start.elapsed()
}

criterion_group!(benches, authenticate, proofs, caches);
criterion_main!(benches);
