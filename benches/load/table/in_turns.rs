//! What differs by a few percent is measured in turns of a second or so: within a minute, the machine differs from itself by more.

use super::median;
use crate::Outcome;
use crate::bench::{Answers, Bench};
use crate::drive::Pace;
use crate::gateway::Gateway;
use crate::scenario::Scenario;

/// Turns of each in a round.
const TURNS: u32 = 3;

pub struct Side<'g> {
    pub gateway: &'g Gateway,
    pub scenario: &'static Scenario,
}

/// CPU microseconds a request of both, in each of their turns.
pub fn costs(bench: &Bench<'_>, sides: &[Side<'_>; 2]) -> Outcome<[Vec<f64>; 2]> {
    let who = |side: &Side<'_>| Answers::gateway(side.gateway, side.scenario);
    for side in sides {
        bench.warm_up(side.scenario, who(side))?;
    }
    let mut costs = [Vec::new(), Vec::new()];
    for turn in 0..bench.flags.rounds * TURNS as usize {
        // Not always the same one first.
        let order = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        for place in order {
            let (side, length) = (&sides[place], bench.flags.length() / TURNS);
            let measured = bench.run(side.scenario, who(side), Pace::AsFastAsItAnswers, length)?;
            costs[place].push(measured.cpu_micros_per_request());
        }
    }
    Ok(costs)
}

/// What the second costs beside the first: the median of their turns.
pub fn ratio([first, second]: &[Vec<f64>; 2]) -> f64 {
    let ratios: Vec<f64> = second.iter().zip(first).map(|(second, first)| second / first).collect();
    median(&ratios)
}
