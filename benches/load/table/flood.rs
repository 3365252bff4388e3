//! Known tokens beside a flood of new tokens. Each new token costs a signature check; requests with known tokens must
//! not wait for all of these checks.

use std::thread;

use super::line::{Line, median};
use super::side_by_side::REVOCATIONS;
use crate::Outcome;
use crate::bench::{Bench, UnderTest};
use crate::drive::{Load, Measured, Pace, drive};
use crate::gateway::{Gateway, Setup};
use crate::idle_priority::idle_priority;
use crate::peers::Kind;
use crate::scenario::Scenario;

/// Connections that each send one new token after another. If the gateway served them in order of arrival, a request
/// with a known token would wait for 200 signature checks.
const FLOODING: usize = 200;

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let (known, new) = (Scenario::by_name("es256-1000")?, Scenario::by_name("es256-new")?);
    let gateway = Gateway::start(&Setup { workers: 1, revocations: REVOCATIONS, ..bench.gateway() })?;
    let process = UnderTest::gateway(&gateway, known);
    // A quarter of the usual rate. The flood uses the rest of the worker's time.
    let (pace, length) = (Pace::OpenLoop(bench.flags.rate / 4), bench.flags.length());
    let (mut alone, mut beside, mut floods) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.flags.rounds {
        bench.warm_up(known, process)?;
        alone.push(bench.run(known, process, pace, length)?);
        let flood = bench.load(new, process.address, Pace::ClosedLoop, length)?;
        let flood = Load { connections: if bench.flags.test { 4 } else { FLOODING }, ..flood };
        let (known, flooded) = thread::scope(|scope| {
            let flooding = scope.spawn(|| {
                idle_priority()?;
                drive(&flood, Pace::ClosedLoop, length, process.pid)
            });
            let known = bench.run(known, process, pace, length);
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
