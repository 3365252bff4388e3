//! Pages of a search of sessions by their subject, in both stores: 100,000 live sessions, 100,000 that have ended, and
//! each page of a search. The PostgreSQL server is one of the bench's own, with its files in the temporary folder.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "a bench prints its result")]

use std::path::Path;
use std::time::{Duration, Instant};

use bearward::store::postgres::{Database, OnStale, PostgresStore, PostgresTarget};
use bearward::store::sqlite::SqliteStore;
use bearward::store::{Search, SearchState, Store, StoreOptions, Subjects};
use bearward::tokens::family::revocation::Revoked;
use bearward::types::clock::{Clock, SystemClock, UnixTime};
use clap::Parser;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

#[allow(dead_code, reason = "the bench uses a part")]
#[allow(unreachable_pub, reason = "`pub` means visible to the benches; nothing is exported")]
#[path = "../tests/it/support/postgres.rs"]
mod server;

use server::PostgresServer;

/// Sessions in a page, as on the operators' page, and at most.
const PAGES: [usize; 2] = [50, 500];

#[derive(Parser)]
#[command(about = "Pages of a search of sessions")]
struct Options {
    /// Live sessions. As many more have ended.
    #[arg(long, default_value_t = 100_000)]
    sessions: u32,
    /// Runs each row with few sessions
    #[arg(long)]
    test: bool,
    /// Cargo passes it
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let options = Options::parse();
    let sessions = if options.test { 1_000 } else { options.sessions };
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");

    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let database = folder.path().join("bearward.db");
    drop(embedded(&database));
    eprintln!("writing 2 * {sessions} sessions to each store");
    let connection = rusqlite::Connection::open(&database).expect("opens");
    connection.execute_batch("pragma synchronous = off").expect("sets");
    connection.execute_batch(&of_sqlite(sessions)).expect("writes");
    drop(connection);
    rows("SQLite", &runtime, &embedded(&database));

    let server = PostgresServer::start_with(&["shared_buffers=128MB"], "trust");
    let schema = server.schema();
    drop(shared(&server, &schema));
    server.sql("bearward", &of_postgres(&schema, sessions));
    rows("PostgreSQL", &runtime, &shared(&server, &schema));
}

fn limits() -> StoreOptions {
    let (life, family) = (Duration::from_secs(900), Duration::from_secs(30 * 86_400));
    StoreOptions {
        issuer: "https://gateway.example".into(),
        longest_life: life,
        longest_family: family,
        timeout: Duration::from_secs(10),
        audit: 1_000,
    }
}

fn embedded(database: &Path) -> SqliteStore {
    SqliteStore::open(database, limits(), std::sync::Arc::new(|_, _| {})).expect("the store opens")
}

fn shared(server: &PostgresServer, schema: &str) -> PostgresStore {
    let settings = bearward::store::postgres::PostgresSettings {
        target: PostgresTarget::parse(&server.url()).expect("the URL is valid"),
        password: None,
        ca_file: None,
        schema: schema.into(),
        pool: 4,
        prepared: true,
        timeout: Duration::from_secs(10),
        max_staleness: Duration::from_secs(30),
        on_stale: OnStale::Deny,
        strict: false,
    };
    let database = Database { settings, tls: None, replica: "bench".into() };
    let (patience, now) = (Duration::from_secs(10), SystemClock.now());
    PostgresStore::open(database, limits(), std::sync::Arc::new(|_, _| {}), patience, now).expect("the store opens")
}

/// The columns of session `n`: ids and subjects are spread like real ones, with three sessions for each subject.
/// `random` is 32 hexadecimal digits.
fn select(random: &str, salt: &str) -> String {
    let now = SystemClock.now().as_millis();
    format!(
        "insert into families (id, subject, scope, audience, client_id, claims, label, salt, generation, root,
             rotated_at, confirmed, created_at, last_used_at, idle_expiry, absolute_expiry, revoked_at, revoked_reason)
         select '0' || substr({random}, 1, 21), substr({random}, 1, 1) || 'user' || (n / 6), 'orders:read', '[]',
             'app', '{{}}', 'a phone', {salt}, 7, 1, {now} - n, 6, {now} - n, {now} - n,
             {now} + 600000000, {now} + 900000000, case when n % 2 = 1 then {now} - n end,
             case when n % 2 = 1 then 'logout' end"
    )
}

fn of_sqlite(sessions: u32) -> String {
    format!(
        "with recursive number (n) as (select 1 union all select n + 1 from number where n < 2 * {sessions})
         {} from number",
        select("lower(hex(randomblob(16)))", "randomblob(32)")
    )
}

fn of_postgres(schema: &str, sessions: u32) -> String {
    format!(
        "set search_path = {schema}; {} from generate_series(1, 2 * {sessions}) n",
        select("md5(random()::text || n)", "sha256(n::text::bytea)")
    )
}

fn rows(name: &str, runtime: &Runtime, store: &dyn Store) {
    let one = Subjects::One(first_subject(runtime, store));
    let (letter, all) = (Subjects::WithPrefix("a".into()), Subjects::WithPrefix(String::new()));
    for (what, subjects, state) in [
        ("one subject", &one, SearchState::All),
        ("one letter, live", &letter, SearchState::Live),
        ("all, live", &all, SearchState::Live),
        ("all, ended", &all, SearchState::Ended),
        ("all, all states", &all, SearchState::All),
    ] {
        row(name, what, runtime, store, subjects, state);
    }
    // The watermark leaves no live session, so that each page looks at as many as it may.
    let everything = Revoked::Everything { not_after: SystemClock.now() };
    runtime.block_on(store.revoke(everything, SystemClock.now().into())).expect("revokes");
    row(name, "all, live, after a revocation of all", runtime, store, &all, SearchState::Live);
}

fn first_subject(runtime: &Runtime, store: &dyn Store) -> String {
    let search = Search {
        subjects: Subjects::WithPrefix(String::new()),
        state: SearchState::Live,
        client_id: None,
        resource: None,
        after: None,
        limit: 1,
        now: SystemClock.now(),
    };
    let found = runtime.block_on(store.search(search)).expect("the store works");
    found.families.into_iter().next().expect("a session").subject
}

/// Reads every page of a search.
fn row(name: &str, what: &str, runtime: &Runtime, store: &dyn Store, subjects: &Subjects, state: SearchState) {
    for limit in PAGES {
        eprintln!("running {name}, {what}, {limit} in a page");
        let (mut times, mut found, mut after, now) = (Vec::new(), 0, None, SystemClock.now());
        loop {
            let (time, page) = timed(runtime, store, subjects, state, after, limit, now);
            times.push(time);
            found += page.families.len();
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        times.sort();
        let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
        let at = |share: usize| millis(times[(times.len() - 1) * share / 100]);
        println!(
            "logins/{name}, {what}, {limit} in a page: {found} found in {} pages; p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
            times.len(),
            at(50),
            at(99),
            at(100)
        );
    }
}

fn timed(
    runtime: &Runtime,
    store: &dyn Store,
    subjects: &Subjects,
    state: SearchState,
    after: Option<bearward::store::Position>,
    limit: usize,
    now: UnixTime,
) -> (Duration, bearward::store::FoundFamilies) {
    let began = Instant::now();
    let search = Search { subjects: subjects.clone(), state, client_id: None, resource: None, after, limit, now };
    let page = runtime.block_on(store.search(search)).expect("the store works");
    (began.elapsed(), page)
}
