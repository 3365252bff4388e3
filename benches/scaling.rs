//! The cost of sharing between workers: a request through the pipeline on one core, and on two cores that share
//! nothing, the gateway, or the gateway and the token.
//!
//! The additional time with sharing is the part of a request that more cores do not make faster. Both workers run
//! without any HTTP work between requests. In a running gateway they contend a fifteenth as often.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bearward::tokens::jwt::Algorithm;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use setup::Mint;
use setup::steps::{SampleRequest, Steps};

mod setup;

/// The reference-counted values that all workers share and that a request holds outside of these steps: the gateway,
/// the name of the upstream, and the server.
#[derive(Clone)]
struct SharedRefs {
    _gateway: Arc<u8>,
    _upstream: Arc<str>,
    _server: Arc<u8>,
}

struct Worker {
    steps: Steps,
    shared: Arc<SharedRefs>,
    requests: Vec<SampleRequest>,
}

impl Worker {
    fn new(mint: &Mint, tokens: std::ops::Range<u32>) -> Worker {
        let held = SharedRefs { _gateway: Arc::new(1), _upstream: "orders".into(), _server: Arc::new(2) };
        Worker::with(Steps::new(mint), Arc::new(held), mint, tokens)
    }

    fn beside(&self, mint: &Mint, tokens: std::ops::Range<u32>) -> Worker {
        Worker::with(self.steps.beside(), self.shared.clone(), mint, tokens)
    }

    fn with(steps: Steps, shared: Arc<SharedRefs>, mint: &Mint, tokens: std::ops::Range<u32>) -> Worker {
        let requests: Vec<_> = tokens.map(|number| SampleRequest::plain(&mint.token(number))).collect();
        for sent in &requests {
            assert!(steps.run(&mut sent.to_request()).is_ok(), "the request is accepted");
        }
        Worker { steps, shared, requests }
    }

    /// Processes `count` requests, one after another.
    fn work(&self, count: u64) {
        for (sent, _) in self.requests.iter().cycle().zip(0..count) {
            let held = SharedRefs::clone(&self.shared);
            let mut request = sent.to_request();
            black_box((self.steps.run(&mut request).is_ok(), held));
        }
    }
}

/// How long the workers need to process `count` requests each, in parallel.
fn in_parallel(workers: &[Worker], count: u64) -> Duration {
    let start = Instant::now();
    thread::scope(|scope| {
        for worker in workers {
            scope.spawn(move || worker.work(count));
        }
    });
    start.elapsed()
}

fn scaling(c: &mut Criterion) {
    let mut group = c.benchmark_group("scaling");
    group.throughput(Throughput::Elements(1));
    let mint = Mint::new(Algorithm::ES256);
    // 100 tokens fit in the processor's cache, so that only sharing makes a difference.
    let alone = || Worker::new(&mint, 0..100);
    let gateway = alone();
    let sharing_gateway = [gateway.beside(&mint, 100..200), gateway.beside(&mint, 200..300)];
    let sharing_token = [gateway.beside(&mint, 0..1), gateway.beside(&mint, 0..1)];
    let cases: [(&str, &[Worker]); 4] = [
        ("1 worker", &[gateway]),
        ("2 workers, nothing shared", &[alone(), alone()]),
        ("2 workers, one gateway and route", &sharing_gateway),
        ("2 workers, one gateway, route and token", &sharing_token),
    ];
    for (name, workers) in cases {
        group.bench_function(name, |b| b.iter_custom(|count| in_parallel(workers, count)));
    }
}

/// One reference count that two cores write to: a reference taken and given back.
fn one_count(c: &mut Criterion) {
    let mut group = c.benchmark_group("count");
    let one: Arc<u8> = Arc::new(1);
    for (name, counts) in [("1 thread", vec![one.clone()]), ("2 threads", vec![one.clone(), one.clone()])] {
        group.bench_function(format!("a reference taken and given back, {name}"), |b| {
            b.iter_custom(|count| {
                let start = Instant::now();
                thread::scope(|scope| {
                    for shared in &counts {
                        scope.spawn(move || (0..count).for_each(|_| drop(black_box(shared.clone()))));
                    }
                });
                start.elapsed()
            });
        });
    }
}

criterion_group!(benches, scaling, one_count);
criterion_main!(benches);
