//! Throughput of the embedded store, compared with that of its disk.
//!
//! `flush` is one write of 4 KiB and one fsync. It is the upper bound for one caller. The run with 64 callers shows the
//! gain of group commit. At the end the bench prints both with the latency of a refresh, and the effect of a sweep of a
//! million families on 64 callers.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "a bench prints its result")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bearward::store::sqlite::{SqliteStore, StoreOptions};
use bearward::store::sweep::{SweepTime, sweep};
use bearward::store::{Backlog, Store};
use bearward::tokens::family::Family;
use bearward::tokens::family::refresh_token::{PresentedToken, Roots, current};
use bearward::tokens::family::rotation::{Rotation, rotate};
use bearward::types::clock::{Clock, SystemClock, UnixTime};
use bearward::types::ids::TokenId;
use bearward::types::secret::Secret;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

#[path = "setup/families.rs"]
mod families;
mod setup;

use families::{LIFETIMES, family};

fn store(c: &mut Criterion) {
    let mut group = c.benchmark_group("store");
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3));
    group.throughput(Throughput::Elements(1));

    let folder = folder();
    group.bench_function("flush", |b| b.iter_custom(|count| flush(folder.path(), count)));

    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let store = open(folder.path());
    let roots = Arc::new(Roots::new((1, Secret::random(32)), vec![]));
    for callers in [1, 64] {
        let clients: Vec<_> = (0..callers).map(|_| Client::log_in(&runtime, store.clone(), roots.clone())).collect();
        group.bench_function(format!("rotate/{callers} callers"), |b| {
            b.iter_custom(|count| runtime.block_on(refresh_in_parallel(&clients, count)));
        });
    }
}

/// Below target/: /tmp may be in memory, where an fsync costs nothing.
fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

fn open(folder: &Path) -> Arc<dyn Store> {
    let settings = StoreOptions {
        issuer: "https://gateway.example".into(),
        longest_life: LIFETIMES.access,
        longest_family: LIFETIMES.absolute,
        timeout: Duration::from_secs(10),
        audit: 1_000_000,
    };
    Arc::new(SqliteStore::open(folder.join("bearward.db"), settings, Arc::new(|_, _| {})).expect("the store opens"))
}

/// Compares 64 callers with one caller, which commits once for each refresh, and with bare fsyncs. They take turns,
/// because the speed of a disk changes.
fn group_commit(_: &mut Criterion) {
    eprintln!("running store/group commit");
    let folder = folder();
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let store = open(folder.path());
    let (one, many) = (Callers::new(1, &runtime, store.clone()), Callers::new(64, &runtime, store));
    let (mut flushes, mut alone, mut refreshes) = (Vec::new(), Figures::default(), Figures::default());
    for _ in 0..3 {
        let count = if setup::in_brief() { 5 } else { 300 };
        flushes.push(count as f64 / flush(folder.path(), count).as_secs_f64());
        alone.add(runtime.block_on(one.refresh_for(turn())));
        refreshes.add(runtime.block_on(many.refresh_for(turn())));
    }
    let flushes = flushes.iter().sum::<f64>() / flushes.len() as f64;
    println!("store/group commit: {flushes:.0} bare fsyncs/s");
    println!("store/group commit: one commit per refresh: {}", alone.show());
    println!("store/group commit: 64 callers: {}", refreshes.show());
    let (commits, bare) = (refreshes.per_second() / alone.per_second(), refreshes.per_second() / flushes);
    println!("store/group commit: {commits:.1} times one commit per refresh, {bare:.1} times the bare fsyncs");
}

/// Sweeps expired families while 64 callers refresh. Turns with and without a sweep alternate.
fn sweeping(_: &mut Criterion) {
    eprintln!("running store/sweep");
    let folder = folder();
    let million: u32 = if setup::in_brief() { 1_000 } else { 1_000_000 };
    drop(open(folder.path()));
    let database = || Connection::open(folder.path().join("bearward.db")).expect("opens");
    fill(&database(), million);
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let store = open(folder.path());
    let callers = Callers::new(64, &runtime, store.clone());
    let (mut alone, mut beside) = (Figures::default(), Figures::default());
    // Both orders, because a database slows down as it grows.
    for sweeps in [false, true, true, false, false, true, true, false] {
        let sweeping = sweeps.then(|| {
            let store = store.clone();
            runtime.spawn(
                async move { sweep(&*store, &SystemClock, &mut SweepTime::default(), &Backlog::default()).await },
            )
        });
        let figures = runtime.block_on(callers.refresh_for(turn()));
        match sweeping {
            None => alone.add(figures),
            Some(sweeping) => {
                sweeping.abort();
                beside.add(figures);
            }
        }
    }
    let left: u32 = database().query_row("select count(*) from families", [], |row| row.get(0)).expect("reads");
    let swept = million + 64 - left;
    assert!(swept > 0, "nothing was swept");
    println!("store/sweep of {million} families: 64 callers alone: {}", alone.show());
    println!("store/sweep of {million} families: beside it: {}; {swept} swept", beside.show());
    let slower = 100.0 * (1.0 - beside.per_second() / alone.per_second());
    println!("store/sweep of {million} families: {slower:.1} % fewer refreshes per second");
}

fn turn() -> Duration {
    if setup::in_brief() { Duration::from_millis(50) } else { Duration::from_secs(5) }
}

/// Inserts families that expired in 1970. Ids and subjects are spread like real ones.
fn fill(database: &Connection, count: u32) {
    database
        .execute_batch("pragma journal_mode = off; pragma synchronous = off; pragma cache_size = -1000000")
        .expect("sets");
    let sql = "with recursive number (n) as (select 1 union all select n + 1 from number where n < ?1)
        insert into families (id, subject, scope, audience, client_id, claims, label, salt, generation, root,
                rotated_at, confirmed, created_at, last_used_at, idle_expiry, absolute_expiry)
            select hex(randomblob(11)), hex(randomblob(11)), 'orders:read orders:write', '[]', 'app', '{}', 'a phone',
                randomblob(32), 1, 1, 0, 0, n, 0, 1, n from number";
    database.execute(sql, [count]).expect("writes");
}

/// Latencies of all refreshes, and the time that they took together.
#[derive(Default)]
struct Figures {
    latencies: Vec<Duration>,
    span: Duration,
}

impl Figures {
    fn add(&mut self, other: Figures) {
        self.latencies.extend(other.latencies);
        self.span += other.span;
    }

    fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.span.as_secs_f64()
    }

    fn show(&self) -> String {
        let mut latencies = self.latencies.clone();
        latencies.sort();
        let millis = |share: f64| {
            let place = (latencies.len() as f64 * share) as usize;
            latencies[place.min(latencies.len() - 1)].as_secs_f64() * 1_000.0
        };
        let (p50, p99, most) = (millis(0.5), millis(0.99), millis(1.0));
        format!("{:.0} refreshes/s, p50 {p50:.1} ms, p99 {p99:.1} ms, at most {most:.1} ms", self.per_second())
    }
}

/// Callers that refresh in parallel, each its own family.
struct Callers {
    clients: Vec<Client>,
}

impl Callers {
    fn new(count: usize, runtime: &Runtime, store: Arc<dyn Store>) -> Self {
        let roots = Arc::new(Roots::new((1, Secret::random(32)), vec![]));
        Callers { clients: (0..count).map(|_| Client::log_in(runtime, store.clone(), roots.clone())).collect() }
    }

    async fn refresh_for(&self, span: Duration) -> Figures {
        let start = Instant::now();
        let until = start + span;
        let mut tasks: JoinSet<_> = self.clients.iter().map(|client| client.clone().refresh_until(until)).collect();
        let mut latencies = Vec::new();
        while let Some(done) = tasks.join_next().await {
            latencies.extend(done.expect("no panic"));
        }
        Figures { latencies, span: start.elapsed() }
    }
}

fn flush(folder: &Path, count: u64) -> Duration {
    let mut file = File::create(folder.join("beside-bearward.db")).expect("creates");
    let start = Instant::now();
    for _ in 0..count {
        file.write_all(&[7; 4096]).and_then(|()| file.sync_all()).expect("writes");
    }
    start.elapsed()
}

/// Refreshes `count` times in total.
async fn refresh_in_parallel(clients: &[Client], count: u64) -> Duration {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for (place, client) in (0..).zip(clients) {
        let share = (count + place) / clients.len() as u64;
        tasks.spawn(client.clone().refresh(share));
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    start.elapsed()
}

/// A client with one family.
#[derive(Clone)]
struct Client {
    store: Arc<dyn Store>,
    roots: Arc<Roots>,
    id: TokenId,
}

impl Client {
    fn log_in(runtime: &Runtime, store: Arc<dyn Store>, roots: Arc<Roots>) -> Self {
        let family = family(SystemClock.now());
        let id = family.id;
        runtime.block_on(store.issue(family, usize::MAX, SystemClock.now().into())).expect("the store works");
        Client { store, roots, id }
    }

    async fn refresh(self, times: u64) {
        let mut family = self.family().await;
        for _ in 0..times {
            family = self.next(&family).await;
        }
    }

    /// Refreshes until `end`. Returns how long each refresh took.
    async fn refresh_until(self, end: Instant) -> Vec<Duration> {
        let mut family = self.family().await;
        let mut latencies = Vec::new();
        while Instant::now() < end {
            let began = Instant::now();
            family = self.next(&family).await;
            latencies.push(began.elapsed());
        }
        latencies
    }

    async fn family(&self) -> Family {
        self.store.family(self.id).await.expect("the store works").expect("is there")
    }

    async fn next(&self, family: &Family) -> Family {
        let token = current(family, &self.roots).expect("the root secret is known");
        let presented = PresentedToken::parse(&token).expect("what we mint is well formed");
        let (roots, now) = (self.roots.clone(), SystemClock.now());
        let decide = move |family: Option<&Family>, watermark: Option<UnixTime>, presented: &PresentedToken, _| {
            rotate(family, watermark, presented, &roots, &LIFETIMES, now.into())
        };
        match self.store.rotate(presented, Box::new(decide), now.into()).await {
            Ok(Rotation::Rotated(next)) => next,
            other => panic!("{other:?}"),
        }
    }
}

criterion_group!(benches, store, group_commit, sweeping);
criterion_main!(benches);
