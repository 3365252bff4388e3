//! Compares two kinds of requests that differ by a few percent. They take turns of about a second, because the speed of
//! the machine changes by more than that within a minute.

use std::time::Duration;

use super::line::median;
use crate::Outcome;
use crate::bench::{Bench, UnderTest};
use crate::drive::Pace;
use crate::gateway::Gateway;
use crate::scenario::Scenario;

/// Turns of each side in a round.
const TURNS: u32 = 3;

pub struct Side<'g> {
    pub gateway: &'g Gateway,
    pub scenario: &'static Scenario,
}

/// CPU microseconds per request of both sides, one figure for each turn.
pub fn costs(bench: &Bench<'_>, sides: &[Side<'_>; 2]) -> Outcome<[Vec<f64>; 2]> {
    let process = |side: &Side<'_>| UnderTest::gateway(side.gateway, side.scenario);
    for side in sides {
        bench.warm_up(side.scenario, process(side))?;
    }
    in_turns(bench, |place, length| {
        let side = &sides[place];
        let measured = bench.run(side.scenario, process(side), Pace::ClosedLoop, length)?;
        Ok(measured.cpu_micros_per_request())
    })
}

/// Measures the costs of side 0 and of side 1 in turns.
pub fn in_turns(bench: &Bench<'_>, measure: impl Fn(usize, Duration) -> Outcome<f64>) -> Outcome<[Vec<f64>; 2]> {
    let mut costs = [Vec::new(), Vec::new()];
    for turn in 0..bench.flags.rounds * TURNS as usize {
        // The sides alternate in going first.
        let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        for place in order {
            costs[place].push(measure(place, bench.flags.length() / TURNS)?);
        }
    }
    Ok(costs)
}

/// The cost of the second side divided by that of the first: the median over all turns.
pub fn ratio([first, second]: &[Vec<f64>; 2]) -> f64 {
    let ratios: Vec<f64> = second.iter().zip(first).map(|(second, first)| second / first).collect();
    median(&ratios)
}
