//! The cost of sharing between workers: a request through the pipeline on one core, and on 2, 4, 8 and more up to all
//! cores of the machine, by workers that share nothing, the gateway, or the gateway and the token.
//!
//! The additional time with sharing is the part of a request that more cores do not make faster. The workers run
//! without any HTTP work between requests. In a running gateway they contend a twelfth as often.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bearward::tokens::jwt::Algorithm;
use bearward::types::per_worker::{PaddedArc, PerWorker};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};

use setup::Mint;
use setup::steps::{SampleRequest, Steps, routes};

mod setup;

/// How many tokens each worker uses. They fit in the processor's cache, so that only sharing makes a difference.
const TOKENS: u32 = 100;

/// 1, 2, 4 and so on, and all cores.
fn worker_counts() -> Vec<usize> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut counts: Vec<_> = (0..).map(|power| 1 << power).take_while(|count| *count < cores).collect();
    counts.push(cores);
    counts
}

/// What a request holds outside of these steps: the gateway and the server. Each worker counts its own references.
type Held = PaddedArc<u8>;

struct Worker {
    number: usize,
    steps: Steps,
    held: Arc<[PerWorker<Held>; 2]>,
    requests: Vec<SampleRequest>,
}

impl Worker {
    /// The first of this number of workers.
    fn first(mint: &Mint, workers: usize) -> Worker {
        let steps = Steps::with(setup::authenticator(mint), &routes(10), workers);
        let held = Arc::new([1, 2].map(|value| PerWorker::new(Held::new(value), workers)));
        Worker { number: 0, steps, held, requests: Vec::new() }.with_tokens(mint, 0)
    }

    /// Another worker of the same gateway, with tokens of its own.
    fn beside(&self, mint: &Mint, number: usize) -> Worker {
        let other = Worker { number, steps: self.steps.beside(number), held: self.held.clone(), requests: Vec::new() };
        other.with_tokens(mint, number)
    }

    fn with_tokens(self, mint: &Mint, number: usize) -> Worker {
        let first = u32::try_from(number).expect("few workers") * TOKENS;
        self.with_requests(mint, first..first + TOKENS)
    }

    fn with_requests(self, mint: &Mint, tokens: std::ops::Range<u32>) -> Worker {
        let requests: Vec<_> = tokens.map(|number| SampleRequest::plain(&mint.token(number))).collect();
        for sent in &requests {
            assert!(self.steps.run(&mut sent.to_request()).is_ok(), "the request is accepted");
        }
        Worker { requests, ..self }
    }

    /// Processes `count` requests, one after another.
    fn work(&self, count: u64) {
        for (sent, _) in self.requests.iter().cycle().zip(0..count) {
            let held = [&self.held[0], &self.held[1]].map(|held| held.of(self.number, Held::clone).clone());
            let mut request = sent.to_request();
            black_box((self.steps.run(&mut request).is_ok(), held));
        }
    }
}

/// How long the threads need, in parallel.
fn in_parallel<W: Sync>(workers: &[W], work: impl Fn(&W) + Sync) -> Duration {
    let start = Instant::now();
    thread::scope(|scope| {
        for worker in workers {
            let work = &work;
            scope.spawn(move || work(worker));
        }
    });
    start.elapsed()
}

fn scaling(c: &mut Criterion) {
    let mut group = c.benchmark_group("scaling");
    group.throughput(Throughput::Elements(1));
    let mint = Mint::new(Algorithm::ES256);
    for count in worker_counts() {
        let alone: Vec<_> = (0..count).map(|_| Worker::first(&mint, 1)).collect();
        run(&mut group, count, "nothing shared", &alone);
        if count == 1 {
            continue;
        }
        let first = Worker::first(&mint, count);
        let others = (1..count).map(|number| first.beside(&mint, number));
        let one_token = |worker: Worker| worker.with_requests(&mint, 0..1);
        let sharing_token: Vec<_> = others.clone().map(one_token).chain([one_token(first.beside(&mint, 0))]).collect();
        let mut sharing_gateway: Vec<_> = others.collect();
        sharing_gateway.push(first);
        run(&mut group, count, "one gateway and route", &sharing_gateway);
        run(&mut group, count, "one gateway, route and token", &sharing_token);
    }
}

fn run(group: &mut BenchmarkGroup<'_, WallTime>, count: usize, shared: &str, workers: &[Worker]) {
    group.bench_function(format!("{count} workers, {shared}"), |b| {
        b.iter_custom(|count| in_parallel(workers, |worker| worker.work(count)));
    });
}

/// A reference taken and given back: if all threads count it in one place, and if each counts its own.
fn one_count(c: &mut Criterion) {
    let mut group = c.benchmark_group("count");
    for count in worker_counts() {
        let shared = PerWorker::new(Held::new(1), count);
        let (numbers, in_one_place): (Vec<_>, _) = ((0..count).collect(), shared.shared());
        group.bench_function(format!("one for {count} threads"), |b| {
            b.iter_custom(|times| {
                in_parallel(&numbers, |_| (0..times).for_each(|_| drop(black_box(in_one_place.clone()))))
            });
        });
        group.bench_function(format!("one for each of {count} threads"), |b| {
            let own = |number: &usize| shared.of(*number, Held::clone).clone();
            b.iter_custom(|times| {
                in_parallel(&numbers, |number| (0..times).for_each(|_| drop(black_box(own(number)))))
            });
        });
    }
}

criterion_group!(benches, scaling, one_count);
criterion_main!(benches);
