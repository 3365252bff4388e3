//! Many tokens beside a million live revocations, and beside none.

use super::{Line, is_at_most, median};
use crate::Outcome;
use crate::bench::{Answers, Bench};
use crate::drive::Pace;
use crate::gateway::{Gateway, Setup};
use crate::peers::Kind;
use crate::scenario::Scenario;

/// With them, at most so many times what it costs without.
const GOAL: f64 = 1.03;

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let scenario = Scenario::called("es256-10k")?;
    let million = if bench.flags.test { 2_000 } else { 1_000_000 };
    let setup = Setup { workers: 1, ..bench.gateway() };
    let gateways = [Gateway::start(&setup)?, Gateway::start(&Setup { revocations: million, ..setup })?];
    let mut costs = [Vec::new(), Vec::new()];
    for round in 0..bench.flags.rounds {
        // Not always the same one first.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for place in order {
            let who = Answers::gateway(&gateways[place], scenario);
            bench.warm_up(scenario, who)?;
            let measured = bench.run(scenario, who, Pace::AsFastAsItAnswers, bench.flags.length())?;
            costs[place].push(measured.cpu_micros_per_request());
        }
    }
    let [without, with] = costs;
    let ratio = median(&with) / median(&without);
    let line = |count: u32, costs| {
        let name = format!("es256, 10,000 tokens, {count} revocations");
        Line::alone(&name, "CPU us/req", costs, kinds.len())
    };
    let with = line(million, with).goal(ratio, format!("{GOAL:.2} x none"), is_at_most(ratio, GOAL));
    Ok(vec![line(0, without), with])
}
