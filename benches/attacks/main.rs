//! Latency of an honest client with and without each attack, in one table.
//!
//! Starts the gateway as `load` does, as a child process in front of a small origin. An honest client sends requests
//! over TLS on a fixed schedule, alternately alone and beside one attacker with many connections. Latency counts from
//! the time a request was due. The attacker has a new address in each round, because the gateway pauses an address that
//! has flooded. The result is the ratio of the medians of the 99th percentiles; the goal is at most 2. Requests that
//! were in flight while the host had taken a processor away are not counted.
//!
//! The gateway has a `[[rate]]` for each address, as an operator who expects attacks would configure. The honest client
//! needs half of it. The attackers have other addresses.
//!
//! Attacker, client, origin and gateway share this machine. The attacker runs in the scheduling class SCHED_IDLE, and
//! `--gateway-cpus` reserves cores for the gateway.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "a bench prints its result")]
#![allow(unreachable_pub, reason = "`pub` means visible to the other files of this bench")]

mod attack;
#[allow(dead_code, reason = "`load` uses the rest")]
#[path = "../load/client.rs"]
mod client;
#[allow(dead_code, reason = "`load` uses the rest")]
#[path = "../load/gateway.rs"]
mod gateway;
#[path = "../load/idle_priority.rs"]
mod idle_priority;
#[allow(dead_code, reason = "`load` uses the rest")]
#[path = "../load/keys.rs"]
mod keys;
mod machine;
#[path = "../load/origin.rs"]
mod origin;
#[allow(dead_code)]
#[path = "../../tests/it/support/ports.rs"]
mod ports;
#[path = "../load/revoked.rs"]
mod revoked;
mod steal;
#[allow(dead_code, reason = "`load` uses the rest")]
#[path = "../load/tls.rs"]
mod tls;
#[path = "../load/watch.rs"]
mod watch;

use std::error::Error;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;

use attack::{Attack, Sent};
use bearward::tokens::jwt::Algorithm;
use client::{Connection, Target};
use gateway::{Gateway, Setup};
use idle_priority::idle_priority;
use keys::Keys;
use machine::{Machine, cpu_time, resident};
use steal::StealMonitor;

/// Any error is printed and ends the bench.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// On Linux, all of `127.0.0.0/8` belongs to this machine.
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Size of an upload of the honest client: so large that its rest is discarded only with a slot.
const UPLOAD: usize = 256 * 1024;

fn attacker_address(round: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 1, round))
}

/// An honest client's latency with and without an attacker.
#[derive(Parser)]
struct Flags {
    /// Length of each run, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Rounds for each attack; the result is their median
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Requests per second of the honest client
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// Run only this attack; may be repeated
    #[arg(long, value_parser = attack::NAMES)]
    attack: Vec<String>,
    /// Attack this executable instead of the one just built
    #[arg(long, value_name = "PATH", default_value = env!("CARGO_BIN_EXE_bearward"), hide_default_value = true)]
    gateway: PathBuf,
    /// Pin the gateway to these cores with taskset, for example "1" or "2-3"
    #[arg(long, value_name = "LIST")]
    gateway_cpus: Option<String>,
    /// Run each attack briefly to check that it works; the figures mean nothing
    #[arg(long)]
    test: bool,
    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let mut flags = Flags::parse();
    if flags.test {
        (flags.seconds, flags.rounds, flags.rate) = (1, 1, 50);
    }
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("\nattacks: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Outcome<()> {
    println!(
        "an honest client over TLS, {} requests per second, {} s per run, median of {}; microseconds",
        flags.rate, flags.seconds, flags.rounds
    );
    println!(
        "[[rate]] of the gateway: {} requests per second for each address, burst {}",
        flags.quota(),
        flags.burst()
    );
    println!(
        "{:14}{:>10}{:>10}{:>12}{:>12}{:>8}{:>8}{:>14}{:>8}{:>10}{:>8}{:>10}{:>8}",
        "attack",
        "p50",
        "p99",
        "p50 during",
        "p99 during",
        "ratio",
        "failed",
        "attacks/s",
        "CPU %",
        "RSS MiB",
        "log B/B",
        "stolen %",
        "kept %"
    );
    let keys = Keys::make()?;
    for name in
        attack::NAMES.iter().filter(|name| flags.attack.is_empty() || flags.attack.iter().any(|one| one == *name))
    {
        eprintln!("running {name}");
        // Each attack has its own gateway, so that no state of one attack affects the next.
        let more = format!(
            "{}[[rate]]\nper = \"address\"\nrequests = {}\nwindow = \"1s\"\nburst = {}\n",
            attack::ROUTES,
            flags.quota(),
            flags.burst()
        );
        let shipped = Setup::shipped(&flags.gateway, &keys, origin::start()?);
        let cpus = flags.gateway_cpus.as_deref();
        let gateway =
            Gateway::start(&Setup { cpus, connections: 1_000, limits: attack::LIMITS, more: &more, ..shipped })?;
        let [token, attacker_token] =
            keys.tokens(Algorithm::ES256, 2)?.try_into().map_err(|_| "expected two tokens")?;
        let attack = Attack::by_name(name, &gateway, &attacker_token)?;
        let target = Target { from: Some(HONEST), ..gateway.target(true) };
        let honest = HonestClient {
            target,
            token: &token,
            per_connection: attack.requests_per_connection(),
            uploads: attack.uploads(),
            flags,
        };
        let mut rounds = Vec::new();
        let before = Machine::now()?;
        for round in 1..=flags.rounds {
            // The effects of the previous attack end before the client is measured alone.
            honest.run(Duration::from_millis(500))?;
            let before = log_size(&gateway)?;
            let alone = honest.run(flags.length())?;
            let lines_of_honest = log_size(&gateway)? - before;
            let mut beside = beside(&attack, attacker_address(round), &honest, &gateway)?;
            beside.logged = beside.logged.saturating_sub(lines_of_honest);
            rounds.push((alone, beside));
        }
        print_row(name, &rounds, Machine::now()?.stolen_since(&before), flags);
    }
    Ok(())
}

/// Bytes in the access log, after the lines of finished requests were written.
fn log_size(gateway: &Gateway) -> Outcome<u64> {
    thread::sleep(Duration::from_millis(100));
    Ok(fs::metadata(gateway.folder().join("access.log"))?.len())
}

fn beside(attack: &Attack, from: IpAddr, honest: &HonestClient<'_>, gateway: &Gateway) -> Outcome<AttackResult> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let attacking = scope.spawn(|| {
            idle_priority()?;
            Outcome::Ok(attack.run(from, &done))
        });
        let (cpu_before, log_before) = (cpu_time(gateway.pid()), log_size(gateway));
        let result = honest.run(honest.flags.length());
        let (cpu_after, memory) = (cpu_time(gateway.pid()), resident(gateway.pid()));
        done.store(true, Ordering::Relaxed);
        let sent = attacking.join().map_err(|_| "the attacker panicked")??;
        let cpu = cpu_after?.saturating_sub(cpu_before?);
        let logged = log_size(gateway)? - log_before?;
        Ok(AttackResult { honest: result?, cpu, memory: memory?, sent, logged })
    })
}

impl Flags {
    /// Requests per second that one address may send.
    fn quota(&self) -> u64 {
        2 * self.rate
    }

    /// Maximum number of these at once.
    fn burst(&self) -> u64 {
        (self.rate / 4).max(1)
    }

    fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// The result of the honest client beside an attack, and what the gateway spent.
struct AttackResult {
    honest: ClientResult,
    cpu: Duration,
    /// MiB
    memory: u64,
    sent: Sent,
    /// Bytes that the attack has added to the access log.
    logged: u64,
}

struct HonestClient<'r> {
    target: Target,
    token: &'r str,
    /// Requests until it opens the next connection.
    per_connection: u64,
    uploads: bool,
    flags: &'r Flags,
}

struct ClientResult {
    /// Microseconds from the time a request was due to its response. Requests during stolen processor time are left
    /// out.
    latency: Histogram<u64>,
    /// All requests.
    sent: u64,
    /// Requests without a response of status 200; uploads without 401.
    failed: u64,
}

impl ClientResult {
    /// Percentage of requests that count.
    fn kept(&self) -> u64 {
        100 * self.latency.len() / self.sent.max(1)
    }
}

impl HonestClient<'_> {
    /// Sends requests on the schedule for this time.
    fn run(&self, length: Duration) -> Outcome<ClientResult> {
        let get = format!("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", self.token);
        let post = format!("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {UPLOAD}\r\n\r\n");
        let (request, status, rate) = if self.uploads {
            ([post.as_bytes(), &[b'x'; UPLOAD]].concat(), 401, self.flags.rate.div_ceil(20))
        } else {
            (get.into_bytes(), 200, self.flags.rate)
        };
        let mut connection = Connection::open(&self.target)?;
        let (mut responses, mut failed) = (Vec::new(), 0);
        let monitor = StealMonitor::start();
        let start = Instant::now();
        for turn in 0.. {
            let due = start + Duration::from_secs_f64(turn as f64 / rate as f64);
            if due >= start + length || start.elapsed() > length + Duration::from_secs(5) {
                break;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if turn > 0 && turn % self.per_connection == 0 {
                connection.close();
            }
            // After a failure, the next request opens a new connection.
            match connection.exchange(&request) {
                Ok(response) if response.status == status => {}
                _ => failed += 1,
            }
            responses.push((due, Instant::now()));
        }
        let (stolen, mut latency) = (monitor.stop()?, Histogram::new_with_bounds(1, 60_000_000, 3)?);
        for (due, at) in responses.iter().filter(|(due, at)| !stolen.overlaps(*due, *at)) {
            latency.saturating_record(u64::try_from((*at - *due).as_micros())?);
        }
        Ok(ClientResult { latency, sent: responses.len() as u64, failed })
    }
}

fn print_row(name: &str, rounds: &[(ClientResult, AttackResult)], stolen: f64, flags: &Flags) {
    let alone = |quantile| median(rounds.iter().map(|(alone, _)| alone.latency.value_at_quantile(quantile)));
    let beside = |quantile| median(rounds.iter().map(|(_, beside)| beside.honest.latency.value_at_quantile(quantile)));
    println!(
        "{name:14}{:>10}{:>10}{:>12}{:>12}{:>8.1}{:>8}{:>14}{:>8}{:>10}{:>8.2}{stolen:>10.1}{:>8}",
        alone(0.5),
        alone(0.99),
        beside(0.5),
        beside(0.99),
        beside(0.99) as f64 / alone(0.99).max(1) as f64,
        rounds.iter().map(|(_, beside)| beside.honest.failed).sum::<u64>(),
        median(rounds.iter().map(|(_, beside)| beside.sent.attacks / flags.seconds)),
        median(
            rounds.iter().map(|(_, beside)| (100.0 * beside.cpu.as_secs_f64() / flags.length().as_secs_f64()) as u64)
        ),
        rounds.iter().map(|(_, beside)| beside.memory).max().unwrap_or_default(),
        rounds.iter().map(|(_, beside)| beside.logged).sum::<u64>() as f64
            / rounds.iter().map(|(_, beside)| beside.sent.bytes).sum::<u64>().max(1) as f64,
        rounds
            .iter()
            .flat_map(|(alone, beside)| [alone, &beside.honest])
            .map(ClientResult::kept)
            .min()
            .unwrap_or_default(),
    );
}

fn median(figures: impl Iterator<Item = u64>) -> u64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_unstable();
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}
