//! The whole gateway over loopback: requests per second, CPU time per request, latency percentiles.
//!
//! Starts a small origin in this process and the gateway as a child of its own, then runs each scenario twice:
//!
//! - **closed loop**: every connection sends its next request when it has the answer to the last. It shows how much the
//!   gateway can do, and the CPU time that a request costs it. Latency is not shown: it would be the length of a queue.
//! - **open loop**: requests are due on a fixed schedule, and latency counts from the moment a request was due, not from
//!   when it could at last be sent. A gateway that stalls for 100 ms is charged for each request that came due meanwhile
//!   (the correction for coordinated omission).
//!
//! CPU time is user and system time of the gateway's whole process, its log writer and store thread included, from
//! `/proc/<pid>/stat`: the kernel counts it in ticks of 10 ms, so a run of a second is good to about 1 %.
//!
//! `benches/README.md` says how to run it and how to pin it to cores.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "what a bench prints is its result")]
#![allow(unreachable_pub, reason = "`pub` means `for the other files of this bench` here")]

mod bench;
mod client;
mod drive;
mod gateway;
mod h2;
mod keys;
mod origin;
mod peer_files;
mod peers;
mod revoked;
mod scenario;
mod stand_back;
mod streams;
mod table;
mod tls;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use bench::{Answers, Bench};
use drive::{Measured, Pace};
use gateway::{Gateway, Setup};
use keys::Keys;
use peers::Kind;
use scenario::{Over, SCENARIOS, Scenario, Stock};

/// What may go wrong in a bench is told to a person and ends it.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Load test of the whole gateway over loopback.
#[derive(Parser)]
struct Flags {
    /// The table of the goals, instead of the scenarios by themselves
    #[arg(long)]
    table: bool,
    /// Of the table, this row only; may be repeated
    #[arg(long, value_parser = table::names(), requires = "table")]
    row: Vec<String>,
    /// Beside the gateway, this proxy only, as an operator gets it from Debian; may be repeated
    #[arg(long = "peer", value_enum, requires = "table")]
    peers: Vec<Kind>,
    /// Rounds of the table, of which the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of each run
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Requests a second of the open loop
    #[arg(long, default_value_t = 4_000)]
    rate: u64,
    /// Keep-alive connections, each with a thread of its own
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// Idle TLS connections of the row `idle`
    #[arg(long, default_value_t = 2_000)]
    idle: usize,
    /// WebSockets that are open in the scenario `streams`
    #[arg(long, default_value_t = 10_000)]
    streams: usize,
    /// Run this one only; may be repeated
    #[arg(long, value_parser = scenario::names(), conflicts_with = "table")]
    scenario: Vec<String>,
    /// Measure this program instead of the one just built
    #[arg(long, value_name = "PATH", default_value = env!("CARGO_BIN_EXE_bearward"))]
    gateway: PathBuf,
    /// Pin the gateway to these cores with taskset, as in "1" or "2-3"
    #[arg(long, value_name = "LIST")]
    gateway_cpus: Option<String>,
    /// A moment of each, to see that everything still works; its figures mean nothing
    #[arg(long)]
    test: bool,
    /// What `cargo bench` passes
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
    let bench = Bench { flags, keys: &keys, origin: origin::start()?, stock: Stock::new(&keys, flags.test) };
    print_head(flags);
    // In brief, both.
    if flags.table || flags.test {
        table::measure(&bench)?;
    }
    if flags.table {
        return Ok(());
    }
    let gateway = Gateway::start(&bench.gateway())?;
    let tireless = Gateway::start(&Setup { bad_signatures: 10_000, ..bench.gateway() })?;
    print_columns();
    for scenario in SCENARIOS.iter().filter(|one| is_wanted(&flags.scenario, one.name)) {
        let gateway = if scenario.is_beyond_limits() { &tireless } else { &gateway };
        let _open = open_streams(flags, scenario, gateway)?;
        let rate = scenario.rate(flags.rate);
        let (closed, open) = measure(&bench, scenario, Answers::gateway(gateway, scenario), rate)?;
        print_row(scenario.name, rate as f64 * flags.length().as_secs_f64(), &closed, open.as_ref());
    }
    Ok(())
}

/// Streams of a hundred logins, to be held open beside the requests.
fn open_streams(flags: &Flags, scenario: &Scenario, gateway: &Gateway) -> Outcome<Option<streams::Open>> {
    if !scenario.streams {
        return Ok(None);
    }
    let logins = gateway.log_in(flags.streams.min(100))?;
    let tokens: Vec<String> = logins.into_iter().map(|login| login.access).collect();
    streams::open(gateway.target(false).address, &tokens, flags.streams).map(Some)
}

/// Were none named, or this one?
fn is_wanted(named: &[String], name: &str) -> bool {
    named.is_empty() || named.iter().any(|one| one == name)
}

impl Flags {
    fn length(&self) -> Duration {
        if self.test { Duration::from_millis(150) } else { Duration::from_secs(self.seconds) }
    }

    /// Caches fill and pools open.
    fn warm_up(&self) -> Duration {
        Duration::from_millis(if self.test { 30 } else { 500 })
    }

    /// Of the table.
    fn wants(&self, row: &str) -> bool {
        is_wanted(&self.row, row)
    }

    fn peers(&self) -> Vec<Kind> {
        if self.peers.is_empty() { Kind::value_variants().to_vec() } else { self.peers.clone() }
    }
}

/// The closed loop of one scenario, and the open one where there is one.
fn measure(bench: &Bench<'_>, scenario: &Scenario, who: Answers, rate: u64) -> Outcome<(Measured, Option<Measured>)> {
    let length = bench.flags.length();
    bench.warm_up(scenario, who)?;
    let closed = bench.run(scenario, who, Pace::AsFastAsItAnswers, length)?;
    let open = match scenario.over {
        Over::H2 => None,
        _ => Some(bench.run(scenario, who, Pace::PerSecond(rate), length)?),
    };
    Ok((closed, open))
}

fn print_head(flags: &Flags) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let pinned = flags.gateway_cpus.as_ref().map_or("not pinned".to_owned(), |list| format!("pinned to {list}"));
    println!("gateway: {} ({pinned}); cores lent to this bench: {cores}", flags.gateway.display());
    println!("{} connections, {:?} a run, 1 KiB answers", flags.connections, flags.length());
    println!("latencies in microseconds from when a request was due, at {} requests a second\n", flags.rate);
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
        // The load generator's own share: the 99th percentile of how late it woke for a request that nothing held up.
        open.lateness.value_at_quantile(0.99) as f64 / 1e3,
    );
    if (open.answered as f64) < due.floor() {
        println!("{:18}{} of {due} due requests were answered: these are latencies of an overload", "", open.answered);
    }
}
