//! The costs of traces for the clients: with a collector and nothing sampled, with one request in a hundred, and with
//! all.

use super::alternating::{Side, costs, ratio};
use super::line::{Line, is_at_most};
use crate::Outcome;
use crate::bench::Bench;
use crate::gateway::{Gateway, Setup};
use crate::peers::Kind;
use crate::scenario::Scenario;

/// Maximum ratio to the same without `[trace]` if nothing is sampled. Two equal gateways differ by as much.
const GOAL: f64 = 1.03;

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let setup = Setup { workers: 1, ..bench.gateway() };
    let off = Gateway::start(&setup)?;
    let scenario = Scenario::by_name("es256")?;
    let mut lines = Vec::new();
    for percent in [0, 1, 100] {
        // The origin accepts what it gets, as a collector does.
        let more = format!(
            "[trace]\nendpoint = \"http://{}/v1/traces\"\nsample = \"{percent}%\"\nper_second = 0\n",
            setup.origin
        );
        let traced = Gateway::start(&Setup { more: &more, ..setup })?;
        let costs = costs(bench, &[Side { gateway: &off, scenario }, Side { gateway: &traced, scenario }])?;
        let (ratio, [without, with]) = (ratio(&costs), costs);
        if lines.is_empty() {
            lines.push(Line::alone("es256, without traces", "CPU us/req", without, kinds.len()));
        }
        let line = Line::alone(&format!("es256, {percent} % of the traces sampled"), "CPU us/req", with, kinds.len());
        lines.push(match percent {
            0 => line.goal(ratio, format!("{GOAL:.2} x without traces"), is_at_most(ratio, GOAL)),
            _ => Line { ratio: Some(ratio), ..line },
        });
    }
    Ok(lines)
}
