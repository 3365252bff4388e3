//! The cost of a sign-in: requests with the cookie of a login at a provider, compared with a known token.

use super::alternating::{in_turns, ratio};
use super::line::{Line, is_at_most};
use super::side_by_side::REVOCATIONS;
use crate::Outcome;
use crate::bench::Bench;
use crate::drive::{Pace, drive};
use crate::gateway::{Gateway, Setup};
use crate::peers::Kind;
use crate::provider::{Provider, SIGNED_IN};
use bearward::tokens::jwt::Algorithm;

/// Maximum ratio to a request with a known token.
const GOAL: f64 = 1.10;

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let provider = Provider::start(bench.keys)?;
    let more = provider.configuration();
    let gateway = Gateway::start(&Setup { workers: 1, revocations: REVOCATIONS, more: &more, ..bench.gateway() })?;
    let address = gateway.target(false).address;
    let token = bench.keys.tokens(Algorithm::ES256, 1)?.remove(0);
    let cookie = provider.sign_in(address, "localhost", SIGNED_IN)?;
    let sides = [
        bench.repeated(address, "/1k", &format!("Authorization: Bearer {token}")),
        bench.repeated(address, SIGNED_IN, &format!("Cookie: theme=dark; {cookie}")),
    ];
    for side in &sides {
        drive(side, Pace::ClosedLoop, bench.flags.warm_up(), gateway.pid())?;
    }
    let costs = in_turns(bench, |place, length| {
        Ok(drive(&sides[place], Pace::ClosedLoop, length, gateway.pid())?.cpu_micros_per_request())
    })?;
    let (ratio, [token, cookie]) = (ratio(&costs), costs);
    let line = |name: &str, costs| Line::alone(name, "CPU us/req", costs, kinds.len());
    let cookie = line("a sign-in's cookie, in turns with a token", cookie);
    let cookie = cookie.goal(ratio, format!("{GOAL:.2} x the token"), is_at_most(ratio, GOAL));
    Ok(vec![line("es256, in turns with a sign-in's cookie", token), cookie])
}
