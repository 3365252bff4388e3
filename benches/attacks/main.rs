//! What an honest client feels while somebody attacks: its latency with and without each attack, in one table.
//!
//! Starts the gateway as `load` does, as a child in front of a small origin. An honest client asks it over TLS on a fixed
//! schedule, with latency counted from when each request was due; in turns alone and beside one attacker with many
//! connections, who comes from another address each time, as one that has flooded is not let in again for a while. The ratio
//! of the medians of the 99th percentiles is the result: the aim is at most twice. What was asked while the host had taken a
//! processor away counts for neither.
//!
//! The gateway runs as an operator would have it who expects this: with a `[[rate]]` for each address, of which the honest client
//! needs half. The attackers come from other addresses.
//!
//! Attacker, client, origin and gateway share this machine. The attacker runs only where nobody else wants to (SCHED_IDLE), and
//! `--gateway-cpus` gives the gateway cores of its own.

#![allow(clippy::expect_used, reason = "a test or a bench that cannot go on panics")]
#![allow(clippy::print_stdout, reason = "what a bench prints is its result")]
#![allow(unreachable_pub, reason = "`pub` means `for the other files of this bench` here")]

mod attack;
#[allow(dead_code, reason = "the other half is for `load`")]
#[path = "../load/client.rs"]
mod client;
#[allow(dead_code, reason = "the other half is for `load`")]
#[path = "../load/gateway.rs"]
mod gateway;
#[allow(dead_code, reason = "the other half is for `load`")]
#[path = "../load/keys.rs"]
mod keys;
mod machine;
#[path = "../load/origin.rs"]
mod origin;
#[path = "../load/revoked.rs"]
mod revoked;
#[path = "../load/stand_back.rs"]
mod stand_back;
mod stolen;
#[allow(dead_code, reason = "the other half is for `load`")]
#[path = "../load/tls.rs"]
mod tls;

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;

use attack::Attack;
use bearward::tokens::jwt::Algorithm;
use client::{Connection, Target};
use gateway::{Gateway, Setup};
use keys::Keys;
use machine::{Machine, cpu_time, resident};
use stand_back::stand_back;
use stolen::Lookout;

/// What may go wrong in a bench is told to a person and ends it.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// All of `127.0.0.0/8` is this machine.
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn attacker(round: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 1, round))
}

/// An honest client's latency with and without an attacker.
#[derive(Parser)]
struct Flags {
    /// Length of each run
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Runs alone, and beside each attack, of which the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Requests a second of the honest client
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// Run this one only; may be repeated
    #[arg(long, value_parser = attack::NAMES)]
    attack: Vec<String>,
    /// Attack this program instead of the one just built
    #[arg(long, value_name = "PATH", default_value = env!("CARGO_BIN_EXE_bearward"), hide_default_value = true)]
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
        "an honest client over TLS, {} requests a second, {} s a run, median of {}; microseconds",
        flags.rate, flags.seconds, flags.rounds
    );
    println!(
        "[[rate]] of the gateway: {} requests a second for each address, {} at once",
        flags.quota(),
        flags.burst()
    );
    println!(
        "{:14}{:>10}{:>10}{:>10}{:>10}{:>8}{:>8}{:>14}{:>8}{:>10}{:>10}{:>8}",
        "attack",
        "p50",
        "p99",
        "p50 then",
        "p99 then",
        "ratio",
        "failed",
        "attacks/s",
        "CPU %",
        "RSS MiB",
        "stolen %",
        "kept %"
    );
    let keys = Keys::make()?;
    for name in
        attack::NAMES.iter().filter(|name| flags.attack.is_empty() || flags.attack.iter().any(|one| one == *name))
    {
        // Each has a gateway of its own: nothing of one attack is left for the next.
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
        let [token, of_attacker] = keys.tokens(Algorithm::ES256, 2)?.try_into().map_err(|_| "there are two tokens")?;
        let honest = Honest { target: Target { from: Some(HONEST), ..gateway.target(true) }, token: &token, flags };
        let attack = Attack::named(name, &gateway, &of_attacker)?;
        let mut rounds = Vec::new();
        let before = Machine::now()?;
        for round in 1..=flags.rounds {
            // What is left of the attack before is no part of being alone.
            honest.asks(Duration::from_millis(500))?;
            let alone = honest.asks(flags.length())?;
            rounds.push((alone, beside(&attack, attacker(round), &honest, &gateway)?));
        }
        print_row(name, &rounds, Machine::now()?.stolen_since(&before), flags);
    }
    Ok(())
}

fn beside(attack: &Attack, from: IpAddr, honest: &Honest<'_>, gateway: &Gateway) -> Outcome<Attacked> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attacking = scope.spawn(|| {
            stand_back()?;
            Outcome::Ok(attack.run(from, &over))
        });
        let cpu_before = cpu_time(gateway.pid());
        let felt = honest.asks(honest.flags.length());
        let (cpu_after, memory) = (cpu_time(gateway.pid()), resident(gateway.pid()));
        over.store(true, Ordering::Relaxed);
        let attacks = attacking.join().map_err(|_| "the attacker panicked")??;
        let cpu = cpu_after?.saturating_sub(cpu_before?);
        Ok(Attacked { felt: felt?, cpu, memory: memory?, attacks })
    })
}

impl Flags {
    /// Requests a second that an address may make.
    fn quota(&self) -> u64 {
        2 * self.rate
    }

    /// Of these, at once.
    fn burst(&self) -> u64 {
        (self.rate / 4).max(1)
    }

    fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// What the honest client felt, and what the gateway was made to spend.
struct Attacked {
    felt: Felt,
    cpu: Duration,
    /// MiB
    memory: u64,
    attacks: u64,
}

struct Honest<'r> {
    target: Target,
    token: &'r str,
    flags: &'r Flags,
}

struct Felt {
    /// Microseconds from when a request was due to its answer, of those in whose time no processor was stolen.
    latency: Histogram<u64>,
    /// All that were asked.
    asked: u64,
    /// Requests without a good answer.
    failed: u64,
}

impl Felt {
    /// Of a hundred requests, so many count.
    fn kept(&self) -> u64 {
        100 * self.latency.len() / self.asked.max(1)
    }
}

impl Honest<'_> {
    fn asks(&self, length: Duration) -> Outcome<Felt> {
        let request =
            format!("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", self.token).into_bytes();
        let mut connection = Connection::open(&self.target)?;
        let (mut answered, mut failed) = (Vec::new(), 0);
        let lookout = Lookout::begin();
        let start = Instant::now();
        for turn in 0.. {
            let due = start + Duration::from_secs_f64(turn as f64 / self.flags.rate as f64);
            if due >= start + length || start.elapsed() > length + Duration::from_secs(5) {
                break;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            // After a failure, the next request opens a connection.
            match connection.exchange(&request) {
                Ok(response) if response.status == 200 => {}
                _ => failed += 1,
            }
            answered.push((due, Instant::now()));
        }
        let (stolen, mut latency) = (lookout.end()?, Histogram::new_with_bounds(1, 60_000_000, 3)?);
        for (due, at) in answered.iter().filter(|(due, at)| !stolen.touches(*due, *at)) {
            latency.saturating_record(u64::try_from((*at - *due).as_micros())?);
        }
        Ok(Felt { latency, asked: answered.len() as u64, failed })
    }
}

fn print_row(name: &str, rounds: &[(Felt, Attacked)], stolen: f64, flags: &Flags) {
    let alone = |quantile| median(rounds.iter().map(|(alone, _)| alone.latency.value_at_quantile(quantile)));
    let beside = |quantile| median(rounds.iter().map(|(_, beside)| beside.felt.latency.value_at_quantile(quantile)));
    println!(
        "{name:14}{:>10}{:>10}{:>10}{:>10}{:>8.1}{:>8}{:>14}{:>8}{:>10}{stolen:>10.1}{:>8}",
        alone(0.5),
        alone(0.99),
        beside(0.5),
        beside(0.99),
        beside(0.99) as f64 / alone(0.99).max(1) as f64,
        rounds.iter().map(|(_, beside)| beside.felt.failed).sum::<u64>(),
        median(rounds.iter().map(|(_, beside)| beside.attacks / flags.seconds)),
        median(
            rounds.iter().map(|(_, beside)| (100.0 * beside.cpu.as_secs_f64() / flags.length().as_secs_f64()) as u64)
        ),
        rounds.iter().map(|(_, beside)| beside.memory).max().unwrap_or_default(),
        rounds.iter().flat_map(|(alone, beside)| [alone, &beside.felt]).map(Felt::kept).min().unwrap_or_default(),
    );
}

fn median(figures: impl Iterator<Item = u64>) -> u64 {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_unstable();
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}
