//! A known token: what each request pays for authentication; and the cache beside the one it was chosen over.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bearward::auth::authenticate::Authenticator;
use bearward::auth::bearer;
use bearward::auth::token_cache::{CachedToken, TokenCache};
use bearward::tokens::jwt::Algorithm;
use bearward::types::reject::Reason;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use foldhash::fast::RandomState;
use http::HeaderMap;

use setup::{BenchWorker, Mint};

mod setup;

/// Requests that wait to be authenticated. Few, so that their headers are still in the processor's cache, as they are when
/// they were just read.
const FEW: BatchSize = BatchSize::NumIterations(8);

/// More tokens than the processor's own caches hold.
fn many() -> u32 {
    if setup::in_brief() { 100 } else { 10_000 }
}

/// An authenticator that knows `count` tokens, and these in shuffled order.
fn known_tokens(count: u32) -> (Authenticator, BenchWorker, Vec<String>) {
    let mint = Mint::new(Algorithm::ES256);
    let (authenticator, _) = setup::authenticator(&mint);
    let worker = BenchWorker::new();
    let tokens: Vec<_> = setup::shuffled(count).into_iter().map(|number| mint.token(number)).collect();
    for token in &tokens {
        assert!(worker.authenticate(&authenticator, &setup::bearer(token)).is_ok());
    }
    assert_eq!(authenticator.token_cache.len(), tokens.len(), "all of them fit");
    (authenticator, worker, tokens)
}

fn authenticate(c: &mut Criterion) {
    let mut group = c.benchmark_group("authenticate");
    for (name, count) in [("one known token", 1), ("10,000 known tokens", many())] {
        let (authenticator, worker, tokens) = known_tokens(count);
        let mut next = tokens.iter().cycle();
        group.bench_function(name, |b| {
            let arrives = || setup::bearer(next.next().expect("endless"));
            b.iter_batched_ref(arrives, |headers| worker.authenticate(&authenticator, headers).is_ok(), FEW);
        });
        assert_eq!(worker.0.metrics.token_cache_misses.get(), u64::from(count), "only the first time");
    }

    let mint = Mint::new(Algorithm::ES256);
    let (authenticator, _) = setup::authenticator(&mint);
    let worker = BenchWorker::new();
    let forged = setup::bearer(&mint.forged());
    group.bench_function("a bad signature, known", |b| {
        b.iter(|| worker.authenticate(&authenticator, &forged).err().map(|refusal| refusal.reason));
    });
    let refusal = worker.authenticate(&authenticator, &forged).err().expect("a refusal");
    assert_eq!((refusal.reason, &*refusal.detail), (Reason::BadSignature, "the same token again"));
    group.bench_function("no token", |b| {
        let none = HeaderMap::new();
        b.iter(|| worker.authenticate(&authenticator, &none).err().map(|refusal| refusal.reason));
    });
}

/// Two caches that could hold known tokens, each behind the same question.
trait Finds: Sync {
    fn find(&self, headers: &HeaderMap) -> Option<Arc<CachedToken>>;
}

impl Finds for TokenCache {
    fn find(&self, headers: &HeaderMap) -> Option<Arc<CachedToken>> {
        TokenCache::find(self, bearer::find(headers, usize::MAX).ok()?, 1, |_| false)
    }
}

struct Moka(moka::sync::Cache<Arc<[u8]>, Arc<CachedToken>, RandomState>);

impl Finds for Moka {
    fn find(&self, headers: &HeaderMap) -> Option<Arc<CachedToken>> {
        self.0.get(bearer::find(headers, usize::MAX).ok()?.as_bytes())
    }
}

impl Moka {
    /// The same entries, bounded by bytes as ours are.
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

/// No cache: what the rest of the question costs.
struct Neither(Arc<CachedToken>);

impl Finds for Neither {
    fn find(&self, headers: &HeaderMap) -> Option<Arc<CachedToken>> {
        bearer::find(headers, usize::MAX).ok().map(|_| self.0.clone())
    }
}

/// A token's way from the headers to its entry: 10,000 tokens in shuffled order; and one token that two threads ask for, each
/// from headers of its own.
fn caches(c: &mut Criterion) {
    let mut group = c.benchmark_group("cache");
    group.throughput(Throughput::Elements(1));
    let (authenticator, _, tokens) = known_tokens(many());
    let requests: Vec<HeaderMap> = tokens.iter().map(|token| setup::bearer(token)).collect();
    let quick = &*authenticator.token_cache;
    let moka = Moka::of(quick, &requests);
    let neither = Neither(Finds::find(quick, &requests[0]).expect("is known"));
    let caches: [(&str, &dyn Finds); 3] = [("neither", &neither), ("quick_cache", quick), ("moka", &moka)];
    for (name, cache) in caches {
        let mut next = tokens.iter().cycle();
        group.bench_function(format!("{name}/10,000 tokens"), |b| {
            let arrives = || setup::bearer(next.next().expect("endless"));
            b.iter_batched_ref(arrives, |headers| cache.find(headers).is_some(), FEW);
        });
        group.bench_function(format!("{name}/one token, 2 threads"), |b| {
            b.iter_custom(|count| on_two_threads(cache, &tokens[0], count));
        });
    }
}

/// The time until each of two threads has looked the token up `count` times.
fn on_two_threads(cache: &dyn Finds, token: &str, count: u64) -> Duration {
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

criterion_group!(benches, authenticate, caches);
criterion_main!(benches);
