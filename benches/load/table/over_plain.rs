//! The cost of a token: requests with a token of each kind, compared with requests to a public route.

use super::alternating::{Side, costs, ratio};
use super::line::{Line, is_at_most};
use super::side_by_side::REVOCATIONS;
use crate::Outcome;
use crate::bench::Bench;
use crate::gateway::{Gateway, Setup};
use crate::peers::Kind;
use crate::scenario::Scenario;

/// Maximum ratio to a request without a token check. `--instructions` shows the ratio without the noise of the machine.
const GOAL: f64 = 1.04;

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let gateway = Gateway::start(&Setup { workers: 1, revocations: REVOCATIONS, ..bench.gateway() })?;
    let side = |name: &'static str| Scenario::by_name(name).map(|scenario| Side { gateway: &gateway, scenario });
    let line = |name: &'static str| {
        let costs = costs(bench, &[side("plain")?, side(name)?])?;
        let (ratio, [_, dearer]) = (ratio(&costs), costs);
        let line = Line::alone(&format!("{name}, in turns with plain"), "CPU us/req", dearer, kinds.len());
        Outcome::Ok(line.goal(ratio, format!("{GOAL:.2} x plain"), is_at_most(ratio, GOAL)))
    };
    ["es256", "rs256", "eddsa", "hs256", "es256-10k"].into_iter().map(line).collect()
}
