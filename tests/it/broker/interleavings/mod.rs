//! Logins, refreshes, logouts, mass revocations, disconnects and crashes in random orders. The rules: after a
//! revocation has succeeded, no token from before it is accepted. No revocation is lost. A refresh token has one
//! successor. No session ends without a reason.
//!
//! Broker, revocation set and store are those of the product. Each seed gives one order, the same in each run. A
//! failure prints its seed:
//!
//! ```console
//! $ BEARWARD_SEED=4711 cargo test --test programs interleavings
//! $ BEARWARD_ROUNDS=10000 cargo test --test programs interleavings
//! ```
//!
//! The database is in `/dev/shm` if that exists, because `app::killed` and `store::storm` test that writes reach the
//! disk.

mod gate;
mod model;
mod order;
mod process;

use std::env;
use std::path::Path;
use std::time::Duration;

use bearward::tokens::jwt::Algorithm;
use bearward::tokens::jwt::sign::generate_pem;
use tempfile::TempDir;
use tokio::runtime::Builder;

use crate::store::postgres::Schema;
use crate::store::suite::records::Place;
use crate::support::given::LOGIN;
use crate::support::postgres::PostgresServer;
use crate::support::random::Random;
use crate::support::repetitions::repetitions;
use model::Step;
use order::Order;
use process::Process;

/// The workflow `chaos` runs ten times as many every night.
const ORDERS: usize = 1_000;
/// Each call takes some milliseconds there.
const ORDERS_IN_POSTGRESQL: usize = 100;
/// Number of steps of one order.
const STEPS: Step = 20;
/// Maximum number of concurrent calls.
const MAX_CALLS: usize = 4;
/// Number of orders that share a database. Creating one takes longer than an order.
const ORDERS_PER_DATABASE: usize = 250;
/// One of this many orders has a crash. A start takes as long as several orders.
const CRASH_RATE: u64 = 16;

#[test]
fn exactly_the_revoked_sessions_are_dead_in_any_order() {
    let key = generate_pem(Algorithm::EdDSA).expect("a key");
    let key = str::from_utf8(key.expose()).expect("PEM is text");
    if let Ok(seed) = env::var("BEARWARD_SEED") {
        return run_in_file([seed.parse().expect("a number")], key);
    }
    // Two threads, each with its own databases.
    let seeds: Vec<u64> = (0..repetitions(ORDERS) as u64).collect();
    let (one, other) = seeds.split_at(seeds.len() / 2);
    std::thread::scope(|threads| {
        for half in [one, other] {
            let run_in_file = move |seeds: &[u64]| run_in_file(seeds.iter().copied(), key);
            threads.spawn(move || half.chunks(ORDERS_PER_DATABASE).for_each(run_in_file));
        }
    });
}

/// Calls that are released together run at the same time, so an order can end differently in another run.
#[test]
fn exactly_the_revoked_sessions_are_dead_in_postgresql() {
    let key = generate_pem(Algorithm::EdDSA).expect("a key");
    let key = str::from_utf8(key.expose()).expect("PEM is text");
    let schema = Schema(PostgresServer::shared().schema());
    match env::var("BEARWARD_SEED") {
        Ok(seed) => run([seed.parse().expect("a number")], key, &schema),
        Err(_) => run(0..repetitions(ORDERS_IN_POSTGRESQL) as u64, key, &schema),
    }
}

fn run_in_file(seeds: impl IntoIterator<Item = u64>, key: &str) {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a folder");
    run(seeds, key, &folder.path().join("bearward.db"));
}

fn run(seeds: impl IntoIterator<Item = u64>, key: &str, place: &dyn Place) {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut start = LOGIN;
    let mut process = runtime.block_on(Process::start(place, key, start));
    for seed in seeds {
        let _seed = PrintSeedOnPanic(seed);
        // Later than all times of the previous order.
        start = start + Duration::from_secs(1_000);
        let mut order = Order::new(seed, start, &runtime);
        order.first_login(&process);
        if order.random.one_in(CRASH_RATE) {
            order.run_until(&process, STEPS / 2);
            order.crash();
            drop(process);
            process = runtime.block_on(Process::start(place, key, start));
        }
        order.run_until(&process, STEPS);
        order.check_all(&process);
    }
}

/// Prints the seed of an order that fails.
struct PrintSeedOnPanic(u64);

impl Drop for PrintSeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this order has BEARWARD_SEED={}", self.0);
        }
    }
}
