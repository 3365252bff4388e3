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

#![allow(clippy::print_stdout, reason = "what a bench prints is its result")]
#![allow(unreachable_pub, reason = "`pub` means `for the other files of this bench` here")]

mod client;
mod compare;
mod drive;
mod gateway;
mod origin;
mod peers;
mod scenario;
mod streams;

use std::error::Error;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Parser;

use drive::{Load, Measured, Pace};
use gateway::{Gateway, Setup};
use peers::{Kind, Peer};
use scenario::{SCENARIOS, Scenario};

/// What may go wrong in a bench is told to a person and ends it.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Load test of the whole gateway over loopback.
#[derive(Parser)]
struct Flags {
    /// Length of each run
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Requests a second of the open loop
    #[arg(long, default_value_t = 4_000)]
    rate: u64,
    /// Keep-alive connections, each with a thread of its own
    #[arg(long, default_value_t = 50)]
    connections: usize,
    /// WebSockets that are open in the scenario `streams`
    #[arg(long, default_value_t = 10_000)]
    streams: usize,
    /// Run this one only; may be repeated
    #[arg(long, value_parser = scenario::names())]
    scenario: Vec<String>,
    /// Measure this program instead of the one just built
    #[arg(long, value_name = "PATH", default_value = env!("CARGO_BIN_EXE_bearward"))]
    gateway: PathBuf,
    /// Pin the gateway to these cores with taskset, as in "1" or "2-3"
    #[arg(long, value_name = "LIST")]
    gateway_cpus: Option<String>,
    /// Measure this proxy beside the gateway, as an operator gets it from Debian; may be repeated
    #[arg(long = "peer", value_enum)]
    peers: Vec<Kind>,
    /// Rounds of a comparison, of which the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A second of each, to see that everything still works; its figures mean nothing
    #[arg(long)]
    test: bool,
    /// What `cargo bench` passes
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let mut flags = Flags::parse();
    if flags.test {
        (flags.seconds, flags.rate, flags.connections, flags.rounds) = (1, 200, 4, 1);
        flags.streams = 20;
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
    let chosen: Vec<&Scenario> = SCENARIOS
        .iter()
        .filter(|scenario| flags.scenario.is_empty() || flags.scenario.iter().any(|name| name == scenario.name))
        .collect();
    drive::sharpen_timers();
    let origin = origin::start()?;
    let cpus = flags.gateway_cpus.as_deref();
    // Every peer has one worker.
    let workers = if flags.peers.is_empty() { 0 } else { 1 };
    let gateway = Gateway::start(&Setup { program: &flags.gateway, cpus, origin, workers, connections: 0, more: "" })?;
    let peers = flags.peers.iter().map(|kind| Peer::start(*kind, &gateway, cpus, origin));
    let peers = peers.collect::<Outcome<Vec<_>>>()?;

    print_head(flags);
    if !peers.is_empty() {
        return compare::compare(flags, &chosen, &gateway, &peers);
    }
    print_columns();
    for scenario in chosen {
        let load = load(flags, scenario, &gateway)?;
        let _open = open_streams(flags, scenario, &gateway)?;
        print_row(scenario.name, load.rate * flags.seconds, measure(&load, flags, gateway.pid())?);
    }
    Ok(())
}

/// Streams of a hundred logins, to be held open beside the requests.
fn open_streams(flags: &Flags, scenario: &Scenario, gateway: &Gateway) -> Outcome<Vec<TcpStream>> {
    if !scenario.streams {
        return Ok(Vec::new());
    }
    streams::open(gateway.target(false).address, &gateway.issue_many(flags.streams.min(100))?, flags.streams)
}

/// What this scenario asks of the gateway.
fn load(flags: &Flags, scenario: &Scenario, gateway: &Gateway) -> Outcome<Load> {
    Ok(Load {
        target: gateway.target(scenario.tls),
        requests: scenario.requests(gateway, if flags.test { 20 } else { 1_000 })?,
        expected_status: scenario.expected_status,
        connections: flags.connections,
        rate: scenario.rate(flags.rate),
        anew: scenario.anew,
    })
}

impl Flags {
    fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// Caches fill and pools open.
    fn warm_up(&self) -> Duration {
        Duration::from_millis(if self.test { 50 } else { 1_000 })
    }
}

/// The closed and the open loop of one scenario.
fn measure(load: &Load, flags: &Flags, pid: u32) -> Outcome<(Measured, Measured)> {
    drive::drive(load, Pace::AsFastAsItAnswers, flags.warm_up(), pid)?;
    let closed = drive::drive(load, Pace::AsFastAsItAnswers, flags.length(), pid)?;
    let open = drive::drive(load, Pace::PerSecond(load.rate), flags.length(), pid)?;
    Ok((closed, open))
}

fn print_head(flags: &Flags) {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let pinned = flags.gateway_cpus.as_ref().map_or("not pinned".to_owned(), |list| format!("pinned to {list}"));
    println!("gateway: {} ({pinned}); cores lent to this bench: {cores}", flags.gateway.display());
    println!("{} connections, {} s a run, 1 KiB answers", flags.connections, flags.seconds);
    println!("latencies in microseconds from when a request was due, at {} requests a second\n", flags.rate);
}

fn print_columns() {
    println!("{:12}{:^22}{:^62}", "", "------ closed loop", "------------------------------------------- open loop");
    println!(
        "{:12}{:>10}{:>12}{:>10}{:>10}{:>10}{:>10}{:>12}{:>10}",
        "scenario", "req/s", "CPU us/req", "p50", "p90", "p99", "p99.9", "CPU us/req", "woke late"
    );
}

fn print_row(name: &str, due: u64, (closed, open): (Measured, Measured)) {
    let percentile = |quantile: f64| open.latency_micros(quantile);
    println!(
        "{name:12}{:>10.0}{:>12.1}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>12.1}{:>10.0}",
        closed.per_second(),
        closed.cpu_micros_per_request(),
        percentile(0.5),
        percentile(0.9),
        percentile(0.99),
        percentile(0.999),
        open.cpu_micros_per_request(),
        // The load generator's own share: the 99th percentile of how late it woke for a request that nothing held up.
        open.lateness.value_at_quantile(0.99) as f64 / 1e3,
    );
    if open.answered < due {
        println!("{:12}{} of {due} due requests were answered: these are latencies of an overload", "", open.answered);
    }
}
