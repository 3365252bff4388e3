//! The costs of a request in instructions, allocations and system calls, whatever else the machine does.
//!
//! The gateway runs with one worker under valgrind's callgrind, which counts the instructions outside of the kernel and
//! the calls of `malloc`, and then under strace. A client sends one request after another, on one connection or each on
//! a new one. What the idle gateway executes in the same time is subtracted.

mod callgrind;
mod record;
mod strace;

use std::collections::HashMap;
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::client::Connection;
use crate::drive::{Load, Pace};
use crate::gateway::{Gateway, Setup, Under};
use crate::scenario::{Scenario, Tokens, Transport};
use crate::{Outcome, h2};
use callgrind::Counts;

/// The scenarios. The last one fills the caches with tokens that no other one uses.
const ROWS: [&str; 12] = [
    "plain",
    "es256",
    "hs256",
    "es256-1000",
    "bad",
    "tls-es256",
    "h2-es256",
    "handshake",
    "handshake-resumed",
    "big-tls",
    "dpop",
    "es256-new",
];
/// Requests before the counters start.
const WARM_UP: usize = 300;
/// The same for 1,000 tokens: three passes, after which the cache holds all of them.
const WARM_UP_MANY: usize = 3_000;
const COUNTED: usize = 1_000;
/// The same for large bodies, each of which costs as much as 50 requests.
const WARM_UP_BIG: usize = 30;
const COUNTED_BIG: usize = 200;
/// How long the idle gateway is observed.
const IDLE: Duration = Duration::from_secs(5);

/// What counts.
#[derive(Clone, Copy, Debug)]
enum Instrument {
    Callgrind,
    Strace,
}

/// Two counters, and how often each function has allocated.
type Counted = ([f64; 2], HashMap<String, f64>);

/// Runs before a row counts as grown. A thread of the gateway that works in the wrong moment costs a row up to 2 %.
const ATTEMPTS: usize = 3;

/// The costs of one request.
pub struct Row {
    scenario: &'static str,
    instructions: f64,
    allocations: f64,
    system_calls: f64,
}

/// Prints the table. With `check`, compares it with the one in `benches/README.md`. A row that costs more counts with
/// the least of several runs.
pub fn measure(bench: &Bench<'_>, check: bool) -> Outcome<()> {
    let mut rows = rows(bench, &ROWS)?;
    record::print(&rows);
    record::print_known_tokens(&rows);
    if !check {
        return Ok(());
    }
    for _ in 1..ATTEMPTS {
        let grown = record::grown(&rows)?;
        if grown.is_empty() {
            break;
        }
        for again in self::rows(bench, &grown)? {
            record::print(slice::from_ref(&again));
            rows.iter_mut().filter(|row| row.scenario == again.scenario).for_each(|row| row.keep_least(&again));
        }
    }
    record::compare(&rows)?;
    println!("\nno row costs more than in benches/README.md");
    Ok(())
}

impl Row {
    fn keep_least(&mut self, again: &Row) {
        self.instructions = self.instructions.min(again.instructions);
        self.allocations = self.allocations.min(again.allocations);
        self.system_calls = self.system_calls.min(again.system_calls);
    }
}

fn rows(bench: &Bench<'_>, scenarios: &[&'static str]) -> Outcome<Vec<Row>> {
    let counted = run(bench, Instrument::Callgrind, scenarios)?;
    let traced = run(bench, Instrument::Strace, scenarios)?;
    let mut rows = Vec::new();
    for (scenario, (counted, traced)) in scenarios.iter().zip(counted.into_iter().zip(traced)) {
        let ([instructions, allocations], [system_calls, _]) = (counted, traced);
        rows.push(Row { scenario, instructions, allocations, system_calls });
    }
    Ok(rows)
}

/// What each row costs, by the counters of one instrument.
fn run(bench: &Bench<'_>, instrument: Instrument, scenarios: &[&str]) -> Outcome<Vec<[f64; 2]>> {
    let gateway = Gateway::start(&Setup { workers: 1, under: Some(instrument.under()), ..bench.gateway() })?;
    let begun = Instant::now();
    let (idle, _) = instrument.count(&gateway, || {
        thread::sleep(if bench.flags.test { Duration::from_millis(100) } else { IDLE });
        Ok(())
    })?;
    let idle = idle.map(|count| count / begun.elapsed().as_secs_f64());
    let of_row = |name: &&str| {
        eprintln!("counting {name} with {instrument:?}");
        count(bench, &gateway, instrument, Scenario::by_name(name)?, idle)
    };
    scenarios.iter().map(of_row).collect()
}

/// The costs of one request. `idle`: what the gateway does in one second without requests.
fn count(
    bench: &Bench<'_>,
    gateway: &Gateway,
    instrument: Instrument,
    scenario: &'static Scenario,
    idle: [f64; 2],
) -> Outcome<[f64; 2]> {
    let (warm_up, counted) = match scenario.tokens {
        _ if bench.flags.test => (10, 10),
        Tokens::Many(_) => (WARM_UP_MANY, COUNTED),
        _ if scenario.name.starts_with("big") => (WARM_UP_BIG, COUNTED_BIG),
        _ => (WARM_UP, COUNTED),
    };
    let address = gateway.target(scenario.transport != Transport::Plain).address;
    // One second at this rate needs as many requests as are sent.
    let pace = Pace::OpenLoop((warm_up + counted) as u64);
    let load = bench.load(scenario, address, pace, Duration::from_secs(1))?;
    let mut client = Client::open(&load)?;
    for turn in 0..warm_up {
        client.exchange(&load, turn)?;
    }
    let begun = Instant::now();
    let (sum, callers) =
        instrument.count(gateway, || (warm_up..warm_up + counted).try_for_each(|turn| client.exchange(&load, turn)))?;
    let elapsed = begun.elapsed().as_secs_f64();
    if bench.flags.callers && !callers.is_empty() {
        record::print_callers(scenario.name, callers, counted);
    }
    Ok(std::array::from_fn(|index| (sum[index] - idle[index] * elapsed) / counted as f64))
}

impl Instrument {
    fn under(self) -> Under {
        match self {
            Instrument::Callgrind => callgrind::command,
            Instrument::Strace => strace::command,
        }
    }

    /// Its counters for what the gateway does meanwhile: instructions and allocations, or system calls. Then how often
    /// each function has allocated.
    fn count(self, gateway: &Gateway, meanwhile: impl FnOnce() -> Outcome<()>) -> Outcome<Counted> {
        match self {
            Instrument::Callgrind => {
                callgrind::zero(gateway.pid())?;
                meanwhile()?;
                let Counts { instructions, callers } = callgrind::dump(gateway.pid(), gateway.folder())?;
                Ok(([instructions, callers.values().sum()], callers))
            }
            Instrument::Strace => {
                let begun = strace::position(gateway.folder())?;
                meanwhile()?;
                Ok(([strace::calls_since(begun, gateway.folder())?, 0.0], HashMap::new()))
            }
        }
    }
}

enum Client {
    Http1(Box<Connection>),
    Http2(Box<h2::Session>),
}

impl Client {
    fn open(load: &Load) -> Outcome<Client> {
        if load.target.tls.as_ref().is_some_and(|tls| tls.alpn_protocols == [b"h2"]) {
            return Ok(Client::Http2(Box::new(h2::Session::open(load)?)));
        }
        Ok(Client::Http1(Box::new(Connection::open(&load.target_of(0))?)))
    }

    /// Any other status than the expected one ends the bench.
    fn exchange(&mut self, load: &Load, turn: usize) -> Outcome<()> {
        let status = match self {
            Client::Http1(connection) => load.exchange(connection, turn)?.status,
            Client::Http2(session) => session.exchange()?,
        };
        if !load.expected_status.contains(&status) {
            return Err(format!("expected {:?}, got {status}", load.expected_status).into());
        }
        Ok(())
    }
}
