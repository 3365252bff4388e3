//! Memory of an idle TLS connection. Each measurement starts a new process, because a process that has served load
//! before keeps memory that idle connections do not need.

use std::fs;
use std::thread;
use std::time::Duration;

use super::line::{Figure, Line, is_at_most, median};
use super::side_by_side::REVOCATIONS;
use crate::Outcome;
use crate::bench::{Bench, UnderTest};
use crate::client::Connection;
use crate::drive::Pace;
use crate::gateway::{Gateway, Setup};
use crate::peers::{Kind, Peer};
use crate::scenario::Scenario;

/// How long to wait until idle connections have released their buffers.
const SETTLES: Duration = Duration::from_secs(2);

/// Maximum ratio to HAProxy. The gateway must also use less than nginx.
const GOAL: f64 = 2.0;

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let scenario = Scenario::by_name("tls-plain")?;
    let mut figures: Vec<Figure> = (0..=kinds.len()).map(|_| Ok(Vec::new())).collect();
    for _ in 0..bench.flags.rounds {
        for (place, figure) in figures.iter_mut().enumerate() {
            let Ok(rounds) = figure else { continue };
            let held = match place.checked_sub(1) {
                None => {
                    let setup = Setup { workers: 1, revocations: REVOCATIONS, ..bench.gateway() };
                    Gateway::start(&setup).and_then(|ours| held(bench, scenario, UnderTest::gateway(&ours, scenario)))
                }
                Some(place) => Peer::start(kinds[place], &bench.peer())
                    .and_then(|peer| held(bench, scenario, UnderTest::peer(&peer, scenario))),
            };
            match held {
                Ok(kib) => rounds.push(kib),
                Err(error) => *figure = Err(error.to_string()),
            }
        }
    }
    let of = |kind: Kind| {
        let place = kinds.iter().position(|known| *known == kind)?;
        figures[place + 1].as_ref().ok().map(|rounds| median(rounds))
    };
    let ours = figures[0].as_ref().ok().map(|rounds| median(rounds));
    let (haproxy, nginx) = (of(Kind::Haproxy), of(Kind::Nginx));
    let (name, goal) = ("memory of an idle TLS connection".into(), "2.00 x haproxy, < nginx".into());
    let line = Line { name, unit: "KiB", figures, ratio: None, goal, is_met: None };
    Ok(vec![match (ours, haproxy, nginx) {
        (Some(ours), Some(haproxy), Some(nginx)) => {
            Line { ratio: Some(ours / haproxy), is_met: Some(is_at_most(ours / haproxy, GOAL) && ours < nginx), ..line }
        }
        _ => line,
    }])
}

/// KiB per connection, after one request on each. Gateway and peers each run as a single process here.
fn held(bench: &Bench<'_>, scenario: &Scenario, process: UnderTest) -> Outcome<f64> {
    let load = bench.load(scenario, process.address, Pace::ClosedLoop, SETTLES)?;
    let too_many = |error| {
        format!("{error} (each connection needs an open file on both sides: check `ulimit -n`, or lower `--idle`)")
    };
    let open = |count: usize| -> Outcome<Vec<Connection>> {
        let one = |_| {
            let mut connection = Connection::open(&load.target)?;
            let response = connection.exchange(&load.requests[0])?;
            if response.status == 200 { Ok(connection) } else { Err(format!("got {}", response.status).into()) }
        };
        (0..count).map(one).collect()
    };
    // The first connections make the process allocate memory that is not theirs.
    drop(open(bench.flags.idle.min(50))?);
    thread::sleep(SETTLES);
    let before = pss(process.pid)?;
    let connections = open(bench.flags.idle).map_err(too_many)?;
    thread::sleep(SETTLES);
    let held = pss(process.pid)?.saturating_sub(before);
    Ok(held as f64 / connections.len() as f64)
}

/// Proportional set size in KiB: a shared page counts in proportion (proc_pid_smaps(5)).
fn pss(pid: u32) -> Outcome<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
    Ok(line.split_whitespace().next().ok_or("no Pss")?.parse()?)
}
