//! The revocation set: a look-up that finds something and one that does not, small, with a million entries, and while other
//! threads look too, or insert; what an entry costs to add, and to keep.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "what a bench prints is its result")]

use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bearward::auth::revocations::{RevocationKeys, Revocations};
use bearward::tokens::jwt::verify::verify;
use bearward::tokens::jwt::{Algorithm, Validity};
use bearward::types::trace::Trace;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use setup::{Mint, NOW};

mod setup;

const LOOKED_FOR: u32 = 1_000;

/// The names of tokens of the families 0 to 999.
fn keys() -> Vec<RevocationKeys> {
    let mint = Mint::new(Algorithm::HS256);
    let issuers = [mint.trusted()];
    let keys = |number| {
        let token = verify(&mint.token(number), &issuers, NOW, Validity::Live, Trace::OFF).expect("a good token");
        RevocationKeys::of(&token)
    };
    (0..LOOKED_FOR).map(keys).collect()
}

/// Revoked families from `first` on.
fn revoke(revocations: &Revocations, first: u32, count: u32) {
    for number in first..first + count {
        revocations.enforce(&setup::revocation(number), NOW);
    }
}

fn look_up(c: &mut Criterion) {
    let mut group = c.benchmark_group("revocations");
    group.throughput(Throughput::Elements(1));
    let keys = keys();
    let million = if setup::in_brief() { 2_000 } else { 1_000_000 };
    for (name, count) in [("1,000 entries", 1_000), ("1,000,000 entries", million)] {
        // The families that are looked for are among them, or none is.
        for (outcome, first) in [("hit", 0), ("miss", LOOKED_FOR)] {
            let before = resident_bytes();
            let revocations = Revocations::new();
            revoke(&revocations, first, count);
            revocations.remove_expired();
            assert_eq!(revocations.len(), u64::from(count));
            if outcome == "hit" {
                let grown = resident_bytes().saturating_sub(before);
                println!("revocations/{name}: {} bytes of memory an entry", grown / u64::from(count));
            }
            assert!(keys.iter().all(|keys| revocations.is_revoked(keys) == (outcome == "hit")));
            group.bench_function(format!("{name}/{outcome}"), |b| {
                let mut next = keys.iter().cycle();
                b.iter(|| revocations.is_revoked(next.next().expect("endless")));
            });
            group.bench_function(format!("{name}/{outcome}, 4 threads"), |b| {
                b.iter_custom(|count| on_four_threads(&revocations, &keys, count));
            });
        }
    }
}

/// The time until each of four threads has looked up `count` tokens.
fn on_four_threads(revocations: &Revocations, keys: &[RevocationKeys], count: u64) -> Duration {
    let start = Instant::now();
    thread::scope(|scope| {
        for quarter in 0..4 {
            let next = keys.iter().cycle().skip(quarter * keys.len() / 4);
            scope.spawn(move || {
                for (_, keys) in (0..count).zip(next) {
                    black_box(revocations.is_revoked(keys));
                }
            });
        }
    });
    start.elapsed()
}

/// Into an empty set each time, so that the set does not grow with the length of the measurement.
fn insert(c: &mut Criterion) {
    let mut group = c.benchmark_group("revocations");
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    group.bench_function("insert", |b| {
        b.iter_custom(|count| {
            let revocations = Revocations::new();
            let start = Instant::now();
            revoke(&revocations, 0, u32::try_from(count).expect("fewer than four billion"));
            start.elapsed()
        });
    });
}

/// What look-ups among a million entries notice of a thread that does nothing but insert: in turns with nothing inserted, as
/// the longest wait is mostly the machine's.
fn beside_inserts(_: &mut Criterion) {
    let (million, turn) = match setup::in_brief() {
        true => (2_000, Duration::from_millis(50)),
        false => (1_000_000, Duration::from_secs(3)),
    };
    let (keys, revocations) = (keys(), Revocations::new());
    revoke(&revocations, LOOKED_FOR, million);
    let mut next = LOOKED_FOR + million;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        alone.extend(waits(&revocations, &keys, turn));
        let (done, first) = (AtomicBool::new(false), next);
        thread::scope(|scope| {
            let inserting = scope.spawn(|| {
                let mut inserted = 0;
                while !done.load(Ordering::Relaxed) {
                    revoke(&revocations, first + inserted, 1);
                    inserted += 1;
                }
                inserted
            });
            beside.extend(waits(&revocations, &keys, turn));
            done.store(true, Ordering::Relaxed);
            next += inserting.join().expect("no panic");
        });
    }
    let inserted = next - LOOKED_FOR - million;
    println!("revocations/1,000,000 entries, look-ups alone: {}", show(alone));
    println!("revocations/1,000,000 entries, look-ups beside {inserted} inserts: {}", show(beside));
}

/// How long each look-up took.
fn waits(revocations: &Revocations, keys: &[RevocationKeys], turn: Duration) -> Vec<Duration> {
    let (start, mut waits) = (Instant::now(), Vec::new());
    for keys in keys.iter().cycle() {
        let began = Instant::now();
        if began.duration_since(start) > turn {
            break;
        }
        black_box(revocations.is_revoked(keys));
        waits.push(began.elapsed());
    }
    waits
}

fn show(mut waits: Vec<Duration>) -> String {
    waits.sort();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
    format!("p50 {:?}, p99 {:?}, p99.99 {:?}, longest {:?}", at(0.5), at(0.99), at(0.9999), at(1.0))
}

/// What the process holds in memory (proc_pid_statm(5): the second number, in pages).
fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).expect("seven numbers").parse().expect("a number");
    // The page size of x86-64; elsewhere the figure is off by the factor between the two.
    pages * 4096
}

criterion_group!(benches, look_up, insert, beside_inserts);
criterion_main!(benches);
