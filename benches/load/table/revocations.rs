//! Requests with many tokens, with a million live revocations and with none.

use super::alternating::{Side, costs, ratio};
use super::line::{Line, is_at_most};
use crate::Outcome;
use crate::bench::Bench;
use crate::gateway::{Gateway, Setup};
use crate::peers::Kind;
use crate::scenario::Scenario;

/// Maximum ratio to the cost without revocations.
const GOAL: f64 = 1.03;

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let scenario = Scenario::by_name("es256-10k")?;
    let many = if bench.flags.test { 2_000 } else { 1_000_000 };
    let setup = Setup { workers: 1, ..bench.gateway() };
    let gateways = [Gateway::start(&setup)?, Gateway::start(&Setup { revocations: many, ..setup })?];
    let [none, million] = &gateways;
    let costs = costs(bench, &[Side { gateway: none, scenario }, Side { gateway: million, scenario }])?;
    let (ratio, [without, with]) = (ratio(&costs), costs);
    let line = |count: u32, costs| {
        let name = format!("es256, 10,000 tokens, {count} revocations");
        Line::alone(&name, "CPU us/req", costs, kinds.len())
    };
    let with = line(many, with).goal(ratio, format!("{GOAL:.2} x none"), is_at_most(ratio, GOAL));
    Ok(vec![line(0, without), with])
}
