//! Known tokens beside a flood of new ones: each of those costs a signature, and those with known tokens must not wait for
//! them all.

use std::thread;

use super::side_by_side::REVOCATIONS;
use super::{Line, median};
use crate::Outcome;
use crate::bench::{Answers, Bench};
use crate::drive::{Load, Measured, Pace, drive};
use crate::gateway::{Gateway, Setup};
use crate::peers::Kind;
use crate::scenario::Scenario;
use crate::stand_back::stand_back;

/// Connections that each bring one token after the other that nobody has seen: if these were served as they come, whoever has a
/// known token would wait for two hundred signatures.
const FLOODING: usize = 200;

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let (known, new) = (Scenario::called("es256-1000")?, Scenario::called("es256-new")?);
    let gateway = Gateway::start(&Setup { workers: 1, revocations: REVOCATIONS, ..bench.gateway() })?;
    let who = Answers::gateway(&gateway, known);
    // A quarter of the usual rate: the flood takes what is left of the worker, whatever that is.
    let (pace, length) = (Pace::PerSecond(bench.flags.rate / 4), bench.flags.length());
    let (mut alone, mut beside, mut floods) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.flags.rounds {
        bench.warm_up(known, who)?;
        alone.push(bench.run(known, who, pace, length)?);
        let flood = bench.load(new, who.address, Pace::AsFastAsItAnswers, length)?;
        let flood = Load { connections: if bench.flags.test { 4 } else { FLOODING }, ..flood };
        let (known, flooded) = thread::scope(|scope| {
            let flooding = scope.spawn(|| {
                stand_back()?;
                drive(&flood, Pace::AsFastAsItAnswers, length, who.pid)
            });
            let known = bench.run(known, who, pace, length);
            Outcome::Ok((known?, flooding.join().map_err(|_| "the flood panicked")??))
        })?;
        beside.push(known);
        floods.push(flooded.per_second());
    }
    let at = |runs: &[Measured], quantile| runs.iter().map(|run| run.latency_micros(quantile)).collect::<Vec<_>>();
    let line = |name: String, unit, figures| Line::alone(&name, unit, figures, kinds.len());
    let mut lines = Vec::new();
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        let (alone, beside) = (at(&alone, quantile), at(&beside, quantile));
        let ratio = median(&beside) / median(&alone);
        lines.push(line(format!("1,000 known tokens alone, {name}"), "us", alone));
        let beside = line(format!("1,000 known tokens beside a flood, {name}"), "us", beside);
        lines.push(Line { ratio: Some(ratio), ..beside });
    }
    lines.push(line(format!("that flood: new tokens over {FLOODING} connections"), "1/s", floods));
    Ok(lines)
}
