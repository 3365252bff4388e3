//! What the embedded store does in a second, beside what its disk does.
//!
//! `flush` is one 4 KiB write and one fsync: the most that single durable writes could reach. One caller cannot be
//! faster than that; sixty-four show what group commit makes of it.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bearward::clock::{Clock, SystemClock, UnixTime};
use bearward::family::refresh_token::{PresentedToken, Roots, current};
use bearward::family::rotation::{Rotation, rotate};
use bearward::family::{Family, Lifetimes};
use bearward::ids::TokenId;
use bearward::secret::{self, Secret};
use bearward::store::Store;
use bearward::store::sqlite::{Settings, SqliteStore};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

const LIFETIMES: Lifetimes = Lifetimes {
    access: Duration::from_secs(900),
    idle: Duration::from_secs(7 * 86_400),
    absolute: Duration::from_secs(30 * 86_400),
    grace: Duration::from_secs(10),
};

fn store(c: &mut Criterion) {
    let mut group = c.benchmark_group("store");
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3));
    group.throughput(Throughput::Elements(1));

    // Below target/, as /tmp may lie in memory, where a flush costs nothing.
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    group.bench_function("flush", |b| b.iter_custom(|count| flush(folder.path(), count)));

    let runtime = Builder::new_current_thread().build().expect("a runtime");
    let path = folder.path().join("bearward.db");
    let settings = Settings {
        issuer: "https://gateway.example".into(),
        longest_life: LIFETIMES.access,
        longest_family: LIFETIMES.absolute,
        audit: 1_000_000,
    };
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path, settings, Arc::new(|_| {})).expect("the store opens"));
    let roots = Arc::new(Roots::new((1, Secret::random(32)), vec![]));
    for callers in [1, 64] {
        let clients: Vec<_> = (0..callers).map(|_| Client::log_in(&runtime, store.clone(), roots.clone())).collect();
        group.bench_function(format!("rotate/{callers} callers"), |b| {
            b.iter_custom(|count| runtime.block_on(refresh_together(&clients, count)));
        });
    }
}

fn flush(folder: &Path, count: u64) -> Duration {
    let mut file = File::create(folder.join("flush")).expect("creates");
    let start = Instant::now();
    for _ in 0..count {
        file.write_all(&[7; 4096]).and_then(|()| file.sync_all()).expect("writes");
    }
    start.elapsed()
}

/// Refreshes `count` times in all.
async fn refresh_together(clients: &[Client], count: u64) -> Duration {
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

/// Somebody who logged in and refreshes again and again.
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
        let mut family = self.store.family(self.id).await.expect("the store works").expect("is there");
        for _ in 0..times {
            let token = current(&family, &self.roots).expect("the root secret is known");
            let presented = PresentedToken::parse(&token).expect("what we mint is well formed");
            let (roots, now) = (self.roots.clone(), SystemClock.now());
            let decide = move |family: Option<&Family>, watermark: Option<UnixTime>, presented: &PresentedToken| {
                rotate(family, watermark, presented, &roots, &LIFETIMES, now)
            };
            match self.store.rotate(presented, Box::new(decide), now.into()).await {
                Ok(Rotation::Rotated(next)) => family = next,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn family(now: UnixTime) -> Family {
    let id = TokenId::random();
    Family {
        id,
        subject: id.to_string(),
        scope: "orders:read orders:write".into(),
        audience: vec![],
        client_id: "app".into(),
        claims: Default::default(),
        label: "a phone".into(),
        salt: secret::random(),
        generation: 1,
        root: 1,
        address: None,
        idle: None,
        rotated_at: now,
        confirmed: 0,
        created_at: now,
        last_used_at: now,
        idle_expiry: now + LIFETIMES.idle,
        absolute_expiry: now + LIFETIMES.absolute,
        revoked: None,
    }
}

criterion_group!(benches, store);
criterion_main!(benches);
