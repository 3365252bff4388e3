//! Throughput of the shared store, compared with the bare statements in pgbench on the same server. The PostgreSQL
//! server is one of the bench's own. Its commits reach the disk of the temporary folder. `--flush MICROS` makes each
//! flush take at least that long, as on a common disk; put the server's files in memory for that (`TMPDIR=/dev/shm`).
//!
//! The gateways of a run are stores in this process, each with its own thread and connections. They share the cores
//! with the server.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "a bench prints its result")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bearward::store::postgres::{Database, OnStale, PostgresStore, PostgresTarget};
use bearward::store::{RevokedBy, Store, StoreOptions};
use bearward::tokens::family::Family;
use bearward::tokens::family::refresh_token::{PresentedToken, Roots, current};
use bearward::tokens::family::revocation::Revoked;
use bearward::tokens::family::rotation::{Rotation, rotate};
use bearward::types::clock::{Clock, SystemClock, UnixTime};
use bearward::types::ids::TokenId;
use bearward::types::secret::Secret;
use clap::Parser;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

#[allow(dead_code, reason = "the bench uses a part")]
#[allow(unreachable_pub, reason = "`pub` means visible to the benches; nothing is exported")]
#[path = "../tests/it/support/postgres.rs"]
mod server;

#[path = "setup/families.rs"]
mod families;
#[path = "setup/flush.rs"]
mod flush;

use families::{LIFETIMES, family};
use server::PostgresServer;

/// Number of families for each gateway, each of which one caller refreshes: more than the database can serve.
const CALLERS: usize = 96;
/// For each gateway: fewer than the database can serve.
const FEW: usize = 4;

/// What pgbench runs: the two statements of a refresh, with its audit event.
const PGBENCH: &str = "\\set n random(1, 96)
select f.id, f.salt, f.generation, greatest((select s.not_after from subjects s where s.subject = f.subject),
    (select m.value from meta m where m.name = 'watermark' and m.value > 0)) from families f where f.label = 'bare' \
    and f.id = 'bare' || :n;
with rotated as (update families set generation = generation + 1, rotated_at = rotated_at + 1,
        last_used_at = last_used_at + 1, idle_expiry = idle_expiry + 1
    where id = 'bare' || :n and revoked_at is null returning id)
insert into audit (id, event) select decode(md5(random()::text), 'hex'), repeat('x', 180) from rotated;
";

#[derive(Parser)]
#[command(about = "Throughput of the shared store")]
struct Options {
    /// Microseconds that each flush of the server takes at least
    #[arg(long, default_value_t = 0)]
    flush: u32,
    /// Connections of each gateway: `store.pool`
    #[arg(long, default_value_t = 4)]
    pool: usize,
    /// Runs each row once, in brief
    #[arg(long)]
    test: bool,
    /// Cargo passes it
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let options = Options::parse();
    flush::delay(options.flush).expect("the delay of flushes needs cc");
    let turn = Duration::from_millis(if options.test { 100 } else { 5_000 });
    let server = PostgresServer::start_with(&["max_connections=100", "shared_buffers=128MB"], "trust");
    let schema = server.schema();
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let stores: Vec<Arc<dyn Store>> = (0..3).map(|number| open(&server, &schema, number, options.pool)).collect();

    for callers in [1, FEW, CALLERS] {
        for gateways in 1..=stores.len() {
            // Nothing delivers the events. A gateway counts them every second, up to its limit, which is high here.
            server.sql("bearward", &format!("truncate {schema}.audit"));
            eprintln!("running {gateways} gateways, {callers} callers each");
            let figures = refreshes(&runtime, &stores[..gateways], gateways * callers, turn);
            println!("shared store/{gateways} gateways, {callers} callers each: {}", figures.show("refreshes"));
        }
    }
    bare_statements(&server, &schema, turn);
    for (gateways, callers) in [(1, 1), (1, 256), (3, 256)] {
        eprintln!("running revocations of {gateways} gateways, {callers} callers each");
        let figures = revocations(&runtime, &stores[..gateways], callers, turn);
        println!("shared store/{gateways} gateways, {callers} callers: {}", figures.show("revocations"));
    }
    eprintln!("running logouts");
    let figures = logouts(&runtime, &stores[0], if turn < Duration::from_secs(1) { 100 } else { 20_000 });
    println!("shared store/1 gateway, 256 callers: {}", figures.show("logouts"));
}

fn open(server: &PostgresServer, schema: &str, number: usize, pool: usize) -> Arc<dyn Store> {
    let settings = bearward::store::postgres::PostgresSettings {
        target: PostgresTarget::parse(&server.url()).expect("the URL is valid"),
        password: None,
        ca_file: None,
        schema: schema.into(),
        pool,
        prepared: true,
        timeout: Duration::from_secs(10),
        max_staleness: Duration::from_secs(30),
        on_stale: OnStale::Deny,
        strict: false,
    };
    let database = Database { settings, tls: None, replica: format!("bench-{number}") };
    let limits = StoreOptions {
        issuer: "https://gateway.example".into(),
        longest_life: LIFETIMES.access,
        longest_family: LIFETIMES.absolute,
        timeout: Duration::from_secs(10),
        audit: 100_000_000,
    };
    let (patience, now) = (Duration::from_secs(10), SystemClock.now());
    Arc::new(PostgresStore::open(database, limits, Arc::new(|_, _| {}), patience, now).expect("the store opens"))
}

/// The bare statements, with as many connections as one gateway and with many.
fn bare_statements(server: &PostgresServer, schema: &str, turn: Duration) {
    let fill = format!(
        "set search_path = {schema};
         insert into families (id, subject, scope, audience, client_id, claims, label, salt, generation, root,
             rotated_at, confirmed, created_at, last_used_at, idle_expiry, absolute_expiry)
         select 'bare' || n, 'bare' || n, 'orders:read', '[]', 'app', '{{}}', 'bare', '\\x00', 1, 1, 0, 0, 0, 0, 0, 0
             from generate_series(1, 96) n"
    );
    server.sql("bearward", &fill);
    let script = server.folder.join("refresh.sql");
    std::fs::write(&script, PGBENCH).expect("written");
    for clients in ["4", "12", "32", "64"] {
        eprintln!("running pgbench with {clients} connections");
        let mut pgbench = Command::new(pgbench());
        pgbench.args([
            "-n",
            "-M",
            "prepared",
            "-j",
            "1",
            "-c",
            clients,
            "-T",
            &turn.as_secs().max(1).to_string(),
            "-f",
        ]);
        pgbench.arg(&script).args(["-h", "127.0.0.1", "-p", &server.port.to_string(), "-U", "postgres", "bearward"]);
        let output = pgbench.env("PGOPTIONS", format!("-c search_path={schema}")).output().expect("pgbench is there");
        let text = String::from_utf8_lossy(&output.stdout);
        let per_second = text.lines().find(|line| line.starts_with("tps")).unwrap_or("no result");
        println!("shared store/pgbench with {clients} connections: {per_second}");
    }
}

fn pgbench() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin/pgbench")).find(|path| path.exists());
    found.unwrap_or_else(|| Path::new("pgbench").into())
}

struct Figures {
    latencies: Vec<Duration>,
    span: Duration,
}

impl Figures {
    fn show(&self, what: &str) -> String {
        let mut latencies = self.latencies.clone();
        latencies.sort();
        let millis = |share: f64| {
            let place = (latencies.len() as f64 * share) as usize;
            latencies.get(place.min(latencies.len().saturating_sub(1))).map_or(0.0, |at| at.as_secs_f64() * 1_000.0)
        };
        let per_second = latencies.len() as f64 / self.span.as_secs_f64();
        format!("{per_second:.0} {what}/s, p50 {:.1} ms, p99 {:.1} ms", millis(0.5), millis(0.99))
    }
}

fn refreshes(runtime: &Runtime, stores: &[Arc<dyn Store>], callers: usize, turn: Duration) -> Figures {
    let roots = Arc::new(Roots::new((1, Secret::random(32)), vec![]));
    measure(runtime, callers, turn, |caller, until| {
        let (store, roots) = (stores[caller % stores.len()].clone(), roots.clone());
        async move {
            let mut family = log_in(&*store).await;
            let mut latencies = Vec::new();
            while Instant::now() < until {
                let began = Instant::now();
                family = next(&*store, &family, &roots).await;
                latencies.push(began.elapsed());
            }
            latencies
        }
    })
}

/// Revocations of single tokens. Each appends to the log.
fn revocations(runtime: &Runtime, stores: &[Arc<dyn Store>], callers: usize, turn: Duration) -> Figures {
    measure(runtime, callers, turn, |caller, until| {
        let store = stores[caller % stores.len()].clone();
        async move {
            let mut latencies = Vec::new();
            while Instant::now() < until {
                let began = Instant::now();
                let jti = TokenId::random().to_string();
                let what = Revoked::Token { issuer: "https://login.example".into(), jti };
                store.revoke(what, SystemClock.now().into()).await.expect("the store works");
                latencies.push(began.elapsed());
            }
            latencies
        }
    })
}

/// Logouts of sessions that were created before.
fn logouts(runtime: &Runtime, store: &Arc<dyn Store>, count: usize) -> Figures {
    let families = runtime.block_on(async {
        let mut logins: JoinSet<_> = JoinSet::new();
        let mut families = Vec::new();
        for _ in 0..count {
            let store = store.clone();
            logins.spawn(async move { log_in(&*store).await.id });
            if logins.len() >= 256 {
                families.extend(logins.join_next().await.map(|id| id.expect("no panic")));
            }
        }
        while let Some(id) = logins.join_next().await {
            families.push(id.expect("no panic"));
        }
        families
    });
    let families = Arc::new(std::sync::Mutex::new(families));
    measure(runtime, 256, Duration::from_secs(600), |_, _| {
        let (store, families) = (store.clone(), families.clone());
        async move {
            let mut latencies = Vec::new();
            let take = || families.lock().expect("not poisoned").pop();
            while let Some(id) = take() {
                let began = Instant::now();
                let outcome = store.revoke_family(id, RevokedBy::Admin, SystemClock.now().into()).await;
                outcome.expect("the store works");
                latencies.push(began.elapsed());
            }
            latencies
        }
    })
}

/// Runs callers until the end of the turn.
fn measure<F>(runtime: &Runtime, callers: usize, turn: Duration, caller: impl Fn(usize, Instant) -> F) -> Figures
where
    F: Future<Output = Vec<Duration>> + Send + 'static,
{
    let began = Instant::now();
    let mut latencies = Vec::new();
    runtime.block_on(async {
        let mut calls: JoinSet<_> = (0..callers).map(|number| caller(number, began + turn)).collect();
        while let Some(done) = calls.join_next().await {
            latencies.extend(done.expect("no panic"));
        }
    });
    Figures { latencies, span: began.elapsed() }
}

async fn next(store: &dyn Store, family: &Family, roots: &Arc<Roots>) -> Family {
    let token = current(family, roots).expect("the root secret is known");
    let presented = PresentedToken::parse(&token).expect("what we mint is well formed");
    let (roots, now) = (roots.clone(), SystemClock.now());
    let decide = move |family: Option<&Family>, watermark: Option<UnixTime>, presented: &PresentedToken, _| {
        rotate(family, watermark, presented, &roots, &LIFETIMES, now.into())
    };
    match store.rotate(presented, Box::new(decide), now.into()).await {
        Ok(Rotation::Rotated(next)) => next,
        other => panic!("{other:?}"),
    }
}

async fn log_in(store: &dyn Store) -> Family {
    let now = SystemClock.now();
    store.issue(family(now), usize::MAX, now.into()).await.expect("the store works").expect("issued")
}
