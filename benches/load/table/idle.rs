//! What an idle TLS connection holds in memory, in processes that were started for it: one that had more to do before holds
//! memory that it does not need.

use std::fs;
use std::thread;
use std::time::Duration;

use super::side_by_side::REVOCATIONS;
use super::{Figure, Line, is_at_most, median};
use crate::Outcome;
use crate::bench::{Answers, Bench};
use crate::client::Connection;
use crate::drive::Pace;
use crate::gateway::{Gateway, Setup};
use crate::peers::{Kind, Peer};
use crate::scenario::Scenario;

/// Until whatever a connection gives back while it lies idle has been given back.
const SETTLES: Duration = Duration::from_secs(2);

/// At most so many times HAProxy's; and less than nginx's.
const GOAL: f64 = 2.0;

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let scenario = Scenario::called("tls-plain")?;
    let mut figures: Vec<Figure> = (0..=kinds.len()).map(|_| Ok(Vec::new())).collect();
    for _ in 0..bench.flags.rounds {
        for (place, figure) in figures.iter_mut().enumerate() {
            let Ok(rounds) = figure else { continue };
            let held = match place.checked_sub(1) {
                None => {
                    let setup = Setup { workers: 1, revocations: REVOCATIONS, ..bench.gateway() };
                    Gateway::start(&setup).and_then(|ours| held(bench, scenario, Answers::gateway(&ours, scenario)))
                }
                Some(place) => Peer::start(kinds[place], &bench.peer())
                    .and_then(|peer| held(bench, scenario, Answers::peer(&peer, scenario))),
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

/// KiB a connection, of so many that have each asked once. Each process here is one alone, so its own memory is all of it.
fn held(bench: &Bench<'_>, scenario: &Scenario, who: Answers) -> Outcome<f64> {
    let load = bench.load(scenario, who.address, Pace::AsFastAsItAnswers, SETTLES)?;
    let too_many =
        |error| format!("{error}: each connection is an open file here and there; see `ulimit -n` and `--idle`");
    let open = |count: usize| -> Outcome<Vec<Connection>> {
        let one = |_| {
            let mut connection = Connection::open(&load.target)?;
            let answer = connection.exchange(&load.requests[0])?;
            if answer.status == 200 { Ok(connection) } else { Err(format!("got {}", answer.status).into()) }
        };
        (0..count).map(one).collect()
    };
    // What the first ones make it hold is not theirs.
    drop(open(bench.flags.idle.min(50))?);
    thread::sleep(SETTLES);
    let before = pss(who.pid)?;
    let connections = open(bench.flags.idle).map_err(too_many)?;
    thread::sleep(SETTLES);
    let held = pss(who.pid)?.saturating_sub(before);
    Ok(held as f64 / connections.len() as f64)
}

/// KiB in memory; what is shared counts in parts (proc_pid_smaps(5)).
fn pss(pid: u32) -> Outcome<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or("no Pss")?;
    Ok(line.split_whitespace().next().ok_or("no Pss")?.parse()?)
}
