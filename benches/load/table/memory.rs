//! Memory of what a process holds for its clients: the growth from one number of items to twice as many, for each item.
//! The first half pays for what a process allocates once. Each measurement starts a new process, because a process that
//! has served load before keeps memory that these items do not need.

use std::fs;
use std::thread;
use std::time::Duration;

use super::line::{Line, in_turns, median};
use super::side_by_side::REVOCATIONS;
use crate::Outcome;
use crate::bench::{Bench, UnderTest};
use crate::client::Connection;
use crate::drive::Pace;
use crate::gateway::{Gateway, Setup, TokenPair};
use crate::peers::{Kind, Peer};
use crate::scenario::Scenario;
use crate::streams;
use bearward::tokens::jwt::Algorithm;

/// How long to wait until idle connections have released their buffers.
const SETTLES: Duration = Duration::from_secs(2);

/// Maximum KiB of an idle TLS connection. It must also be less than that of each peer.
const MAX_IDLE: f64 = 10.0;

/// Maximum KiB of an open WebSocket.
const MAX_WEBSOCKET: f64 = 20.0;

/// WebSockets on one connection over HTTP/2.
const STREAMS_PER_CONNECTION: usize = 100;

/// Measures KiB of one item.
type Measure = fn(&Bench<'_>) -> Outcome<f64>;

/// The rows without peers, each with the maximum. Those without one are small, and shown in bytes.
const ALONE: [(&str, Measure, Option<f64>); 6] = [
    ("memory of a WebSocket, HTTP/1.1 over TLS", websocket_over_tls, Some(MAX_WEBSOCKET)),
    ("memory of a WebSocket, 100 on an HTTP/2 connection", websocket_over_http2, Some(MAX_WEBSOCKET)),
    ("memory of a known token", known_token, None),
    ("memory of a revocation", revocation, None),
    ("memory of a family", family, None),
    ("disk of a family", family_on_disk, None),
];

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let mut lines = vec![idle_connection(bench, kinds)?];
    for (name, measure, most) in ALONE {
        let rounds = (0..bench.flags.rounds).map(|_| measure(bench)).collect::<Outcome<Vec<f64>>>();
        lines.push(match rounds {
            Err(error) => Line::not_measured(name, kinds.len(), &error.to_string()),
            Ok(rounds) => line(name, rounds, most, kinds.len()),
        });
    }
    Ok(lines)
}

fn line(name: &str, rounds: Vec<f64>, most: Option<f64>, peers: usize) -> Line {
    let Some(most) = most else {
        let bytes = rounds.iter().map(|kib| kib * 1024.0).collect();
        return Line::alone(name, "bytes", bytes, peers);
    };
    let is_met = Some(median(&rounds) <= most);
    Line { goal: format!("{most:.0} KiB"), is_met, ..Line::alone(name, "KiB", rounds, peers) }
}

fn idle_connection(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Line> {
    let scenario = Scenario::by_name("tls-plain")?;
    let figures = in_turns(bench.flags.rounds, 1 + kinds.len(), |place| match place.checked_sub(1) {
        None => gateway(bench).and_then(|ours| held(bench, scenario, UnderTest::gateway(&ours, scenario))),
        Some(place) => Peer::start(kinds[place], &bench.peer())
            .and_then(|peer| held(bench, scenario, UnderTest::peer(&peer, scenario))),
    });
    let medians: Vec<Option<f64>> =
        figures.iter().map(|figure| figure.as_ref().ok().map(|rounds| median(rounds))).collect();
    let ours = medians[0].unwrap_or(f64::NAN);
    let best = medians[1..].iter().flatten().copied().reduce(f64::min);
    Ok(Line {
        name: "memory of an idle TLS connection".into(),
        unit: "KiB",
        figures,
        ratio: best.map(|best| ours / best),
        goal: format!("{MAX_IDLE:.0} KiB, < peers"),
        is_met: Some(ours <= MAX_IDLE && best.is_none_or(|best| ours < best)),
    })
}

fn gateway(bench: &Bench<'_>) -> Outcome<Gateway> {
    let limits = "connections = 100000";
    Gateway::start(&Setup { workers: 1, revocations: REVOCATIONS, limits, ..bench.gateway() })
}

/// KiB of one more item, from `count` / 2 of them to `count`. `add` adds this number of items. Gateway and peers each
/// run as a single process here.
fn slope(pid: u32, count: usize, mut add: impl FnMut(usize) -> Outcome<()>) -> Outcome<f64> {
    let half = count / 2;
    let mut grow = || -> Outcome<f64> {
        add(half)?;
        thread::sleep(SETTLES);
        pss(pid)
    };
    let (before, after) = (grow()?, grow()?);
    Ok((after - before) / half as f64)
}

/// A connection with one request.
fn held(bench: &Bench<'_>, scenario: &Scenario, process: UnderTest) -> Outcome<f64> {
    let load = bench.load(scenario, process.address, Pace::ClosedLoop, SETTLES)?;
    let mut open = Vec::new();
    slope(process.pid, bench.flags.idle, |count| {
        for _ in 0..count {
            let mut connection = Connection::open(&load.target).map_err(|error| too_many(&*error))?;
            let response = connection.exchange(&load.requests[0])?;
            if response.status != 200 {
                return Err(format!("got {}", response.status).into());
            }
            open.push(connection);
        }
        Ok(())
    })
}

fn too_many(error: &dyn std::error::Error) -> String {
    format!("{error} (each connection needs an open file on both sides: check `ulimit -n`, or lower `--idle`)")
}

fn websocket_over_tls(bench: &Bench<'_>) -> Outcome<f64> {
    let gateway = gateway(bench)?;
    let token = gateway.log_in(1)?.remove(0).access;
    let request = format!(
        "GET /stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    let target = gateway.target(true);
    let mut open = Vec::new();
    slope(gateway.pid(), bench.flags.idle, |count| {
        for _ in 0..count {
            let mut connection = Connection::open(&target).map_err(|error| too_many(&*error))?;
            connection.upgrade(request.as_bytes())?;
            open.push(connection);
        }
        Ok(())
    })
}

fn websocket_over_http2(bench: &Bench<'_>) -> Outcome<f64> {
    let gateway = gateway(bench)?;
    let token = gateway.log_in(1)?.remove(0).access;
    let address = gateway.target(false).address;
    let mut open = Vec::new();
    slope(gateway.pid(), bench.flags.idle, |count| {
        let tokens = vec![token.clone(); count.div_ceil(STREAMS_PER_CONNECTION)];
        open.push(streams::open(address, &tokens, count)?);
        Ok(())
    })
}

fn known_token(bench: &Bench<'_>) -> Outcome<f64> {
    let gateway = gateway(bench)?;
    let count = if bench.flags.test { 20 } else { 10_000 };
    let mut tokens = bench.keys.tokens(Algorithm::ES256, count)?.into_iter();
    let mut connection = Connection::open(&gateway.target(false))?;
    slope(gateway.pid(), count, |count| {
        for token in tokens.by_ref().take(count) {
            let request = format!("GET /1k HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
            let response = connection.exchange(request.as_bytes())?;
            if response.status != 200 {
                return Err(format!("got {}", response.status).into());
            }
        }
        Ok(())
    })
}

/// Between two gateways, because revocations come from the store at the start.
fn revocation(bench: &Bench<'_>) -> Outcome<f64> {
    let many = if bench.flags.test { 2_000 } else { 400_000 };
    let held = |revocations| -> Outcome<f64> {
        let gateway = Gateway::start(&Setup { workers: 1, revocations, ..bench.gateway() })?;
        thread::sleep(SETTLES);
        pss(gateway.pid())
    };
    Ok((held(many)? - held(many / 2)?) / f64::from(many / 2))
}

fn family(bench: &Bench<'_>) -> Outcome<f64> {
    let (gateway, count) = (gateway(bench)?, families(bench));
    slope(gateway.pid(), count, |count| gateway.log_in(count).map(|_: Vec<TokenPair>| ()))
}

fn family_on_disk(bench: &Bench<'_>) -> Outcome<f64> {
    let (gateway, half) = (gateway(bench)?, families(bench) / 2);
    let grow = || -> Outcome<f64> {
        gateway.log_in(half)?;
        let store = rusqlite::Connection::open(gateway.folder().join("bearward.db"))?;
        let number = |name| store.query_row(&format!("pragma {name}"), [], |row| row.get::<_, f64>(0));
        Ok(number("page_count")? * number("page_size")? / 1024.0)
    };
    let (before, after) = (grow()?, grow()?);
    Ok((after - before) / half as f64)
}

/// How many families are logged in, in each of the rows above.
fn families(bench: &Bench<'_>) -> usize {
    if bench.flags.test { 20 } else { 8_000 }
}

/// Proportional set size in KiB: a shared page counts in proportion (proc_pid_smaps(5)).
fn pss(pid: u32) -> Outcome<f64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
    Ok(line.split_whitespace().next().ok_or("no Pss")?.parse()?)
}
