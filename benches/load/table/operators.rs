//! The costs of operators for the clients: watching a gateway, and keeping its newest rejections.

use std::thread;
use std::time::Duration;

use super::alternating::{Side, costs, ratio};
use super::line::{Line, is_at_most};
use crate::Outcome;
use crate::bench::Bench;
use crate::drive::cpu_time;
use crate::gateway::{Gateway, Setup};
use crate::peers::Kind;
use crate::scenario::Scenario;

/// Maximum ratio to the same without operators. The two sides of a comparison of equal gateways differ by as much.
const GOAL: f64 = 1.03;

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let setup = Setup { workers: 1, ..bench.gateway() };
    let [alone, watched] = [Gateway::start(&setup)?, Gateway::start(&setup)?];
    let watch = watched.watch()?;
    let mut lines = Vec::new();
    for name in ["es256", "bad"] {
        let scenario = Scenario::by_name(name)?;
        let costs = costs(bench, &[Side { gateway: &alone, scenario }, Side { gateway: &watched, scenario }])?;
        lines.push(compared(&format!("{name}, three operators watch"), "unwatched", costs, kinds.len()));
    }
    let idle = idle(bench, [&alone, &watched])?;
    drop(watch);

    let unkept = Gateway::start(&Setup { admin: "recent_rejections = 0", ..setup })?;
    let scenario = Scenario::by_name("bad")?;
    let costs = costs(bench, &[Side { gateway: &unkept, scenario }, Side { gateway: &alone, scenario }])?;
    lines.push(compared("bad, the newest rejections are kept", "without them", costs, kinds.len()));
    let names = ["idle gateway with its snapshots", "idle gateway, three operators watch"];
    lines.extend(names.into_iter().zip(idle).map(|(name, cost)| Line::alone(name, "CPU ms/s", cost, kinds.len())));
    Ok(lines)
}

fn compared(name: &str, to: &str, costs: [Vec<f64>; 2], peers: usize) -> Line {
    let (ratio, [_, with]) = (ratio(&costs), costs);
    let line = Line::alone(name, "CPU us/req", with, peers);
    line.goal(ratio, format!("{GOAL:.2} x {to}"), is_at_most(ratio, GOAL))
}

/// CPU milliseconds per second of each gateway without a request. The kernel counts in ticks of 10 ms.
fn idle(bench: &Bench<'_>, gateways: [&Gateway; 2]) -> Outcome<[Vec<f64>; 2]> {
    let length = if bench.flags.test { Duration::from_millis(500) } else { Duration::from_secs(20) };
    let times = || gateways.iter().map(|gateway| cpu_time(gateway.pid())).collect::<Outcome<Vec<_>>>();
    let mut figures = [Vec::new(), Vec::new()];
    for _ in 0..bench.flags.rounds.min(3) {
        let before = times()?;
        thread::sleep(length);
        for (place, after) in times()?.into_iter().enumerate() {
            figures[place].push((after - before[place]).as_secs_f64() * 1e3 / length.as_secs_f64());
        }
    }
    Ok(figures)
}
