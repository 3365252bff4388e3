//! The rows that compare the gateway with its peers. Each gets the same load in turn.

use super::line::{Figure, Line};
use crate::Outcome;
use crate::bench::{Bench, UnderTest};
use crate::drive::{Measured, Pace};
use crate::gateway::{Gateway, Setup};
use crate::peers::{Kind, Peer};
use crate::scenario::Scenario;

/// Live revocations in each gateway that is compared.
pub const REVOCATIONS: u32 = 1_000;

/// One run and the lines that show its results.
struct Run {
    row: &'static str,
    scenario: &'static str,
    /// If true, an open loop at `--rate`.
    is_open: bool,
    lines: &'static [Read],
}

struct Read {
    name: &'static str,
    unit: &'static str,
    figure: fn(&Measured) -> f64,
    /// Maximum ratio to the best peer.
    goal: Option<f64>,
}

macro_rules! cpu {
    ($row:literal, $name:literal, $goal:expr) => {
        Run {
            row: $row,
            scenario: $row,
            is_open: false,
            lines: &[Read { name: $name, unit: "CPU us/req", figure: Measured::cpu_micros_per_request, goal: $goal }],
        }
    };
}

const RUNS: [Run; 16] = [
    cpu!("plain", "plain", Some(1.10)),
    cpu!("es256", "es256, one token", Some(0.42)),
    cpu!("rs256", "rs256, one token", Some(0.42)),
    cpu!("eddsa", "eddsa, one token", Some(0.42)),
    cpu!("es256-10k", "es256, 10,000 tokens", Some(0.45)),
    cpu!("hs256", "hs256, one token", Some(0.63)),
    cpu!("es256-new", "es256, every token new", Some(0.75)),
    cpu!("bad", "a bad token, repeated", Some(0.17)),
    cpu!("bad-each", "bad tokens, each different", Some(0.90)),
    cpu!("bad-flood", "the same, over the limit of one address", None),
    cpu!("tls-es256", "TLS 1.3, h1, es256", Some(0.45)),
    cpu!("h2-es256", "TLS 1.3, h2, es256", Some(0.55)),
    cpu!("handshake", "new TLS connection a request, full", Some(0.66)),
    cpu!("handshake-resumed", "new TLS connection a request, resumed", Some(0.64)),
    cpu!("big-tls", "1 MiB bodies over TLS, per MiB", Some(0.75)),
    Run {
        row: "latency",
        scenario: "es256",
        is_open: true,
        lines: &[
            Read { name: "es256 at --rate, p50", unit: "us", figure: |run| run.latency_micros(0.5), goal: Some(0.70) },
            Read { name: "es256 at --rate, p99", unit: "us", figure: |run| run.latency_micros(0.99), goal: Some(0.50) },
        ],
    },
];

pub fn names() -> Vec<&'static str> {
    RUNS.iter().map(|run| run.row).collect()
}

/// The programs that are compared, in the order of the columns.
struct Programs {
    shipped: Gateway,
    /// With `limits.bad_signatures` at its maximum.
    unlimited: Gateway,
    peers: Vec<(Kind, Result<Peer, String>)>,
}

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let runs: Vec<&Run> = RUNS.iter().filter(|run| bench.flags.wants(run.row)).collect();
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let programs = Programs::start(bench, kinds)?;
    let mut seen: Vec<Vec<Result<Vec<Measured>, String>>> = Vec::new();
    seen.resize_with(runs.len(), || (0..=kinds.len()).map(|_| Ok(Vec::new())).collect());
    for round in 1..=bench.flags.rounds {
        for (run, seen) in runs.iter().zip(&mut seen) {
            eprintln!("round {round} of {}: {}", bench.flags.rounds, run.row);
            for (place, seen) in seen.iter_mut().enumerate() {
                // A program that failed once is not measured again.
                let Ok(rounds) = seen else { continue };
                match programs.measure(bench, run, place) {
                    Ok(measured) => rounds.push(measured),
                    Err(error) => *seen = Err(error.to_string()),
                }
            }
        }
    }
    let read = |(run, seen): (&&Run, &Vec<_>)| run.lines.iter().map(|read| read.line(seen)).collect::<Vec<_>>();
    Ok(runs.iter().zip(&seen).flat_map(read).collect())
}

impl Programs {
    fn start(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Programs> {
        // One worker, as each peer has.
        let setup = Setup { workers: 1, revocations: REVOCATIONS, ..bench.gateway() };
        let start = |kind: &Kind| (*kind, Peer::start(*kind, &bench.peer()).map_err(|error| error.to_string()));
        Ok(Programs {
            shipped: Gateway::start(&setup)?,
            unlimited: Gateway::start(&Setup { bad_signatures: 10_000, ..setup })?,
            peers: kinds.iter().map(start).collect(),
        })
    }

    /// Place 0 is the gateway.
    fn measure(&self, bench: &Bench<'_>, run: &Run, place: usize) -> Outcome<Measured> {
        let scenario = Scenario::by_name(run.scenario)?;
        let process = match place.checked_sub(1).map(|place| &self.peers[place]) {
            None if scenario.needs_unlimited() => UnderTest::gateway(&self.unlimited, scenario),
            None => UnderTest::gateway(&self.shipped, scenario),
            Some((kind, peer)) => {
                if let Some(why) = kind.unsupported_reason(scenario) {
                    return Err(why.into());
                }
                UnderTest::peer(peer.as_ref().map_err(String::as_str)?, scenario)
            }
        };
        bench.warm_up(scenario, process)?;
        let rate = scenario.rate(bench.flags.rate);
        let pace = if run.is_open { Pace::OpenLoop(rate) } else { Pace::ClosedLoop };
        bench.run(scenario, process, pace, bench.flags.length())
    }
}

impl Read {
    fn line(&self, seen: &[Result<Vec<Measured>, String>]) -> Line {
        let of = |rounds: &Vec<Measured>| rounds.iter().map(self.figure).collect();
        let figures: Vec<Figure> = seen.iter().map(|seen| seen.as_ref().map(of).map_err(Clone::clone)).collect();
        Line::compared(self.name, self.unit, figures, self.goal)
    }
}
