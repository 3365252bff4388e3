//! The cost of a DPoP proof: requests with a bound token and a new proof each, compared with requests to a public route
//! and a bare check of an ES256 signature.

use super::alternating::{Side, costs};
use super::line::{Line, is_at_most, median};
use super::side_by_side::REVOCATIONS;
use crate::Outcome;
use crate::bench::Bench;
use crate::gateway::{Gateway, Setup};
use crate::peers::Kind;
use crate::scenario::Scenario;

/// Maximum ratio to a request without a token check and one signature check.
const GOAL: f64 = 1.05;

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let gateway = Gateway::start(&Setup { workers: 1, revocations: REVOCATIONS, ..bench.gateway() })?;
    let side = |name: &'static str| Scenario::by_name(name).map(|scenario| Side { gateway: &gateway, scenario });
    let before = bench.keys.micros_per_check()?;
    let [plain, proven] = costs(bench, &[side("plain")?, side("dpop")?])?;
    // The speed of the machine may have changed meanwhile.
    let checks = vec![before, bench.keys.micros_per_check()?];
    let check = checks.iter().sum::<f64>() / 2.0;
    let ratios: Vec<f64> = proven.iter().zip(&plain).map(|(proven, plain)| proven / (plain + check)).collect();
    let ratio = median(&ratios);
    let dearer = Line::alone("dpop, in turns with plain", "CPU us/req", proven, kinds.len());
    Ok(vec![
        Line::alone("one ES256 check", "CPU us", checks, kinds.len()),
        dearer.goal(ratio, format!("{GOAL:.2} x (plain + check)"), is_at_most(ratio, GOAL)),
    ])
}
