//! Several gateways on one PostgreSQL: how fast a revocation reaches the others, and how fast they recover.
//! `shared_store` measures their throughput.
//!
//! Starts a server of its own with the binaries of the machine, and gateways with one worker each. The clients, the
//! gateways and the server share the machine. `--flush` makes each flush of the server take at least that long, as on a
//! common disk; put the server's files in memory for that (`TMPDIR=/dev/shm`).

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "a bench prints its result")]
#![allow(unreachable_pub, reason = "`pub` means visible to the other files of this bench")]

#[allow(dead_code, reason = "`load` uses the rest")]
#[path = "../load/client.rs"]
mod client;
mod figures;
#[path = "../setup/flush.rs"]
mod flush;
mod known_token;
mod lag;
#[path = "../load/origin.rs"]
mod origin;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/it/support/postgres.rs"]
mod postgres;
mod replica;
mod streams;
mod tokens;
mod upkeep;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use figures::Bench;
use postgres::{PostgresServer, REPLICATED, USER};
use upkeep::Load;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Row {
    /// From the response to a revocation until it is in force at another gateway, with NOTIFY and by polling alone
    Lag,
    /// From the response to a revocation until the last byte of a stream at another gateway
    Streams,
    /// A request with a known token, with SQLite and with PostgreSQL
    KnownToken,
    /// The start of a gateway with a long log
    CatchUp,
    /// A database that has lost revocations
    WriteBack,
    /// Refreshes while entries of the log expire
    Sweep,
    /// kill -9 of the database
    Recovery,
    /// A standby is promoted
    Promotion,
}

#[derive(Parser)]
#[command(about = "Several gateways on one PostgreSQL")]
struct Options {
    /// Microseconds that each flush of the server takes at least
    #[arg(long, default_value_t = 0)]
    flush: u32,
    /// Revocations on their way to another gateway
    #[arg(long, default_value_t = 100_000)]
    revocations: usize,
    /// Sessions with an open stream, each of which is revoked; a server has 200 connections by default
    #[arg(long, default_value_t = 150)]
    streams: usize,
    /// Entries in the log when a gateway starts again
    #[arg(long, default_value_t = 1_000_000)]
    entries: usize,
    /// Revocations that the database has lost
    #[arg(long, default_value_t = 100_000)]
    lost: usize,
    /// Entries of the log that expire in each second
    #[arg(long, default_value_t = 5_555)]
    expiries: usize,
    /// Refreshes in each second beside them
    #[arg(long, default_value_t = 500)]
    refreshes: u32,
    /// Seconds of each turn with expiries
    #[arg(long, default_value_t = 150)]
    turn: u64,
    /// Requests with a known token to each gateway, in each round
    #[arg(long, default_value_t = 60_000)]
    requests: usize,
    /// Only these rows; may be repeated
    #[arg(long = "row", value_enum)]
    rows: Vec<Row>,
    /// Clients at the same time
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Measures this gateway instead of the one just built
    #[arg(long)]
    gateway: Option<PathBuf>,
    /// Runs each row once, in brief
    #[arg(long)]
    test: bool,
    /// Cargo passes it
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    if options.test {
        options = Options { revocations: 200, entries: 1_000, requests: 100, clients: 8, ..options };
        options = Options { streams: 5, lost: 1_000, expiries: 100, refreshes: 40, turn: 1, ..options };
    }
    match flush::delay(options.flush).and_then(|()| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("replicas: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Outcome<()> {
    let settings = ["max_connections=200", "shared_buffers=128MB", "wal_sync_method=fdatasync", "max_wal_size=4GB"];
    let mut server = PostgresServer::start_with(&settings, "trust");
    println!("| row | figure |\n|---|---|");
    let bench = Bench {
        program: options.gateway.clone().unwrap_or_else(|| env!("CARGO_BIN_EXE_bearward").into()),
        upstream: origin::start()?,
        clients: options.clients,
    };
    let wants = |row: Row| {
        let is_wanted = options.rows.is_empty() || options.rows.contains(&row);
        if let Some(row) = row.to_possible_value().filter(|_| is_wanted) {
            eprintln!("running {}", row.get_name());
        }
        is_wanted
    };
    if wants(Row::Lag) {
        let lag = |how: &str| bench.lag(&server, options.revocations, how);
        with_and_without_notify(&server, &lag)?;
    }
    if wants(Row::Streams) {
        let streams = |how: &str| bench.streams(&server, options.streams, how);
        with_and_without_notify(&server, &streams)?;
    }
    if wants(Row::KnownToken) {
        bench.known_token(&server, options.requests)?;
    }
    if wants(Row::CatchUp) {
        bench.catch_up(&server, options.entries)?;
    }
    if wants(Row::WriteBack) {
        bench.write_back(&server, options.lost)?;
    }
    if wants(Row::Sweep) {
        let Options { expiries, refreshes, turn, .. } = *options;
        bench.sweep(&server, Load { expiries, refreshes, turn: Duration::from_secs(turn) })?;
    }
    if wants(Row::Recovery) {
        bench.recovery(&mut server)?;
    }
    if wants(Row::Promotion) {
        bench.promotion(PostgresServer::start_with(&[&settings[..], REPLICATED].concat(), "trust"))?;
    }
    Ok(())
}

/// Measures a row twice: when the database tells the other gateway of revocations, and when that one polls alone.
fn with_and_without_notify(server: &PostgresServer, measure: &dyn Fn(&str) -> Outcome<()>) -> Outcome<()> {
    measure("with NOTIFY")?;
    // The role of the gateways is no superuser: their notifications fail, as if each one were lost.
    server.sql(USER, "revoke execute on function pg_notify(text, text) from public");
    measure("by polling alone")?;
    server.sql(USER, "grant execute on function pg_notify(text, text) to public");
    Ok(())
}
