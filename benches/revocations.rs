//! The revocation set: hits and misses, with 1,000 and with 1,000,000 entries, alone and beside threads that read or
//! insert; the cost of an insert, and the memory of an entry.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "a bench prints its result")]

use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bearward::auth::revocations::{RevocationKeys, Revocations};
use bearward::tokens::jwt::verify::verify;
use bearward::tokens::jwt::{Algorithm, Validity};
use bearward::types::step::StepReporter;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use setup::{Mint, NOW};

mod setup;

/// Number of tokens that are looked up.
const LOOKUPS: u32 = 1_000;

/// The revocation keys of tokens of the families 0 to 999.
fn keys() -> Vec<RevocationKeys> {
    let mint = Mint::new(Algorithm::HS256);
    let issuers = [mint.trusted()];
    let keys = |number| {
        let token =
            verify(&mint.token(number), &issuers, NOW, Validity::Live, StepReporter::OFF).expect("a good token");
        RevocationKeys::of(&token)
    };
    (0..LOOKUPS).map(keys).collect()
}

/// Revokes `count` families, starting with `first`.
fn revoke(revocations: &Revocations, first: u32, count: u32) {
    for number in first..first + count {
        revocations.enforce(&setup::revocation(number));
    }
}

fn lookup(c: &mut Criterion) {
    let mut group = c.benchmark_group("revocations");
    group.throughput(Throughput::Elements(1));
    let keys = keys();
    let million = if setup::in_brief() { 2_000 } else { 1_000_000 };
    for (name, count) in [("1,000 entries", 1_000), ("1,000,000 entries", million)] {
        // Either all families that are looked up are revoked, or none.
        for (outcome, first) in [("hit", 0), ("miss", LOOKUPS)] {
            let before = resident_bytes();
            let revocations = Revocations::new();
            revoke(&revocations, first, count);
            revocations.remove_expired();
            assert_eq!(revocations.count(), u64::from(count));
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

/// How long four threads need to look up `count` tokens each.
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

/// Inserts into an empty set each time, so that a longer measurement does not use a larger set.
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

/// Latency of look-ups among a million entries beside a thread that only inserts. Turns with and without inserts
/// alternate, because the machine causes most of the longest waits.
fn beside_inserts(_: &mut Criterion) {
    let (million, turn) =
        if setup::in_brief() { (2_000, Duration::from_millis(50)) } else { (1_000_000, Duration::from_secs(3)) };
    let (keys, revocations) = (keys(), Revocations::new());
    revoke(&revocations, LOOKUPS, million);
    let mut next = LOOKUPS + million;
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
    let inserted = next - LOOKUPS - million;
    println!("revocations/1,000,000 entries, look-ups alone: {}", show(alone));
    println!("revocations/1,000,000 entries, look-ups beside {inserted} inserts: {}", show(beside));
}

/// Looks tokens up for the time `turn`. Returns how long each look-up took.
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

/// Resident memory of this process (proc_pid_statm(5): the second number, in pages).
fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).expect("seven numbers").parse().expect("a number");
    // The page size of x86-64. With another page size, the figure is wrong by the factor between the two.
    pages * 4096
}

criterion_group!(benches, lookup, insert, beside_inserts);
criterion_main!(benches);
