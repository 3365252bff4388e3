//! The cost of the access log: the gateway with its log beside peers that write one as well, as operators run them, and
//! all of them without.

use super::line::{Figure, Line, in_turns};
use super::side_by_side::REVOCATIONS;
use crate::Outcome;
use crate::bench::{Bench, UnderTest};
use crate::drive::Pace;
use crate::gateway::{Gateway, Setup};
use crate::peer_setup::PeerSetup;
use crate::peers::{Kind, Peer};
use crate::scenario::Scenario;

/// Maximum ratio to the best peer, with logs and without.
const GOALS: [f64; 2] = [0.95, 1.00];

pub fn lines(bench: &Bench<'_>, kinds: &[Kind]) -> Outcome<Vec<Line>> {
    let with = compare(bench, kinds, "access.log", true)?;
    let without = compare(bench, kinds, "off", false)?;
    let [goal_with, goal_without] = GOALS.map(Some);
    Ok(vec![
        Line::compared("plain, all with access logs", "CPU us/req", with, goal_with),
        Line::compared("plain, none with an access log", "CPU us/req", without, goal_without),
    ])
}

/// The figures of the gateway and of the peers, which take turns in each round.
fn compare(bench: &Bench<'_>, kinds: &[Kind], access_log: &str, logged: bool) -> Outcome<Vec<Figure>> {
    let scenario = Scenario::by_name("plain")?;
    let gateway = Gateway::start(&Setup { workers: 1, revocations: REVOCATIONS, access_log, ..bench.gateway() })?;
    let peers: Vec<Outcome<Peer>> =
        kinds.iter().map(|kind| Peer::start(*kind, &PeerSetup { logged, ..bench.peer() })).collect();
    let measure = |place: usize| {
        let process = match place.checked_sub(1).map(|place| &peers[place]) {
            None => UnderTest::gateway(&gateway, scenario),
            Some(peer) => UnderTest::peer(peer.as_ref().map_err(ToString::to_string)?, scenario),
        };
        bench.warm_up(scenario, process)?;
        Ok(bench.run(scenario, process, Pace::ClosedLoop, bench.flags.length())?.cpu_micros_per_request())
    };
    Ok(in_turns(bench.flags.rounds, 1 + peers.len(), measure))
}
