//! The whole gateway over loopback: requests per second, CPU time per request, latency percentiles.
//!
//! Starts a small origin in this process and the gateway as a child process, then runs each scenario twice:
//!
//! - **closed loop**: each connection sends its next request when it has received the response to the previous one.
//!   This measures throughput and CPU time per request. It measures no latency, which would only be the length of a
//!   queue.
//! - **open loop**: requests are due on a fixed schedule. Latency counts from the time at which a request was due, not
//!   from the time at which it was sent. A gateway that stalls for 100 ms is charged for each request that was due in
//!   these 100 ms (correction for coordinated omission).
//!
//! CPU time is the user and system time of the whole gateway process, including its log writer and its store thread,
//! from `/proc/<pid>/stat`. The kernel counts in ticks of 10 ms, so a run of one second is accurate to about 1 %.
//!
//! `benches/README.md` says how to run it and how to pin it to cores.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "a bench prints its result")]
#![allow(unreachable_pub, reason = "`pub` means visible to the other files of this bench")]

mod bench;
mod client;
mod drive;
mod envoy_file;
mod fronts;
mod gateway;
mod h2;
mod idle_priority;
mod instructions;
mod keys;
mod origin;
mod peer_files;
mod peer_setup;
mod peers;
#[allow(dead_code)]
#[path = "../../tests/it/support/ports.rs"]
mod ports;
mod program;
mod provider;
mod revoked;
mod scenario;
mod streams;
mod table;
mod tls;
mod watch;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use bench::{Bench, UnderTest};
use drive::{Measured, Pace};
use gateway::{Gateway, Setup};
use keys::Keys;
use peers::Kind;
use scenario::{RequestPool, SCENARIOS, Scenario, Transport};

/// Any error is printed and ends the bench.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Load test of the whole gateway over loopback.
#[derive(Parser)]
struct Flags {
    /// Measure the table of goals instead of the scenarios
    #[arg(long)]
    table: bool,
    /// Count the instructions, allocations and system calls of a request instead, with valgrind
    #[arg(long, conflicts_with = "table")]
    instructions: bool,
    /// Fail if they are more than in benches/README.md
    #[arg(long, requires = "instructions")]
    check: bool,
    /// Print the functions that allocate
    #[arg(long, requires = "instructions")]
    callers: bool,
    /// Measure only this row of the table; may be repeated
    #[arg(long, value_parser = table::names(), requires = "table")]
    row: Vec<String>,
    /// Compare the gateway only with this proxy; may be repeated
    #[arg(long = "peer", value_enum, requires = "table")]
    peers: Vec<Kind>,
    /// Number of rounds of the table; the result is their median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of each run, in seconds
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Requests per second of the open loop
    #[arg(long, default_value_t = 4_000)]
    rate: u64,
    /// Keep-alive connections; each has its own thread
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// Connections, and WebSockets, of the row `memory`
    #[arg(long, default_value_t = 6_000)]
    idle: usize,
    /// WebSockets open in the scenario `streams`
    #[arg(long, default_value_t = 10_000)]
    streams: usize,
    /// Run only this scenario; may be repeated
    #[arg(long, value_parser = scenario::names(), conflicts_with = "table")]
    scenario: Vec<String>,
    /// Measure this executable instead of the one just built
    #[arg(long, value_name = "PATH", default_value = env!("CARGO_BIN_EXE_bearward"))]
    gateway: PathBuf,
    /// Pin the gateway to these cores with taskset, for example "1" or "2-3"
    #[arg(long, value_name = "LIST")]
    gateway_cpus: Option<String>,
    /// Run each measurement briefly to check that it works; the figures mean nothing
    #[arg(long)]
    test: bool,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let mut flags = Flags::parse();
    if flags.test {
        (flags.rate, flags.connections, flags.rounds) = (200, 4, 1);
        (flags.streams, flags.idle) = (20, 20);
    }
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("\nload: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Outcome<()> {
    drive::sharpen_timers();
    let keys = Keys::make()?;
    let bench = Bench { flags, keys: &keys, origin: origin::start()?, requests: RequestPool::new(&keys, flags.test) };
    print_head(flags);
    if flags.instructions {
        return instructions::measure(&bench, flags.check);
    }
    // With --test, run both.
    if flags.table || flags.test {
        table::measure(&bench)?;
    }
    if flags.table {
        return Ok(());
    }
    let gateway = Gateway::start(&bench.gateway())?;
    let unlimited = Gateway::start(&Setup { bad_signatures: 10_000, ..bench.gateway() })?;
    print_columns();
    for scenario in SCENARIOS.iter().filter(|one| is_wanted(&flags.scenario, one.name)) {
        let gateway = if scenario.needs_unlimited() { &unlimited } else { &gateway };
        let _open = open_streams(flags, scenario, gateway)?;
        let rate = scenario.rate(flags.rate);
        eprintln!("running {}", scenario.name);
        let (closed, open) = measure(&bench, scenario, UnderTest::gateway(gateway, scenario), rate)?;
        print_row(scenario.name, rate as f64 * flags.length().as_secs_f64(), &closed, open.as_ref());
    }
    Ok(())
}

/// Opens the streams of a hundred sessions. They stay open while the scenario runs.
fn open_streams(flags: &Flags, scenario: &Scenario, gateway: &Gateway) -> Outcome<Option<streams::Open>> {
    if !scenario.streams {
        return Ok(None);
    }
    let logins = gateway.log_in(flags.streams.min(100))?;
    let tokens: Vec<String> = logins.into_iter().map(|login| login.access).collect();
    streams::open(gateway.target(false).address, &tokens, flags.streams).map(Some)
}

/// Returns true if `named` is empty or contains `name`.
fn is_wanted(named: &[String], name: &str) -> bool {
    named.is_empty() || named.iter().any(|one| one == name)
}

impl Flags {
    fn length(&self) -> Duration {
        if self.test { Duration::from_millis(150) } else { Duration::from_secs(self.seconds) }
    }

    /// How long the warm-up takes: caches fill and connection pools open.
    fn warm_up(&self) -> Duration {
        Duration::from_millis(if self.test { 30 } else { 500 })
    }

    /// Returns true if this row of the table is measured.
    fn wants(&self, row: &str) -> bool {
        is_wanted(&self.row, row)
    }

    fn peers(&self) -> Vec<Kind> {
        if self.peers.is_empty() { Kind::value_variants().to_vec() } else { self.peers.clone() }
    }
}

/// Runs the closed loop of one scenario, and the open loop unless the scenario uses HTTP/2.
fn measure(
    bench: &Bench<'_>,
    scenario: &Scenario,
    process: UnderTest,
    rate: u64,
) -> Outcome<(Measured, Option<Measured>)> {
    let length = bench.flags.length();
    bench.warm_up(scenario, process)?;
    let closed = bench.run(scenario, process, Pace::ClosedLoop, length)?;
    let open = match scenario.transport {
        Transport::H2 => None,
        _ => Some(bench.run(scenario, process, Pace::OpenLoop(rate), length)?),
    };
    Ok((closed, open))
}

fn print_head(flags: &Flags) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let pinned = flags.gateway_cpus.as_ref().map_or("not pinned".to_owned(), |list| format!("pinned to {list}"));
    println!("gateway: {} ({pinned}); cores available to this bench: {cores}", flags.gateway.display());
    println!("{} connections, {:?} per run, 1 KiB responses", flags.connections, flags.length());
    println!("latencies in microseconds from the time a request was due, at {} requests per second\n", flags.rate);
}

fn print_columns() {
    println!("{:18}{:^22}{:^62}", "", "------ closed loop", "------------------------------------------- open loop");
    println!(
        "{:18}{:>10}{:>12}{:>10}{:>10}{:>10}{:>10}{:>12}{:>10}",
        "scenario", "req/s", "CPU us/req", "p50", "p90", "p99", "p99.9", "CPU us/req", "woke late"
    );
}

fn print_row(name: &str, due: f64, closed: &Measured, open: Option<&Measured>) {
    print!("{name:18}{:>10.0}{:>12.1}", closed.per_second(), closed.cpu_micros_per_request());
    let Some(open) = open else { return println!("{:>10}", "-") };
    let percentile = |quantile: f64| open.latency_micros(quantile);
    println!(
        "{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>12.1}{:>10.0}",
        percentile(0.5),
        percentile(0.9),
        percentile(0.99),
        percentile(0.999),
        open.cpu_micros_per_request(),
        // The load generator's own share: the 99th percentile of how late it woke when its connection was free.
        open.lateness.value_at_quantile(0.99) as f64 / 1e3,
    );
    if (open.responses as f64) < due.floor() {
        println!("{:18}overloaded: {} of {due} requests got a response", "", open.responses);
    }
}
