//! The gateway and its peers in one run: round by round, so that a drift of the machine meets them all alike; medians, and
//! the gateway's ratio to the best peer.

use crate::drive::{Measured, Pace, drive};
use crate::gateway::Gateway;
use crate::peers::Peer;
use crate::scenario::Scenario;
use crate::{Flags, Outcome, load};

const OURSELVES: &str = "bearward";

/// What is compared, and how a figure of it is read off two runs: the closed loop and the open one.
type Figure = (&'static str, fn(&(Measured, Measured)) -> f64);

const FIGURES: [Figure; 3] = [
    ("CPU us/req", |(closed, _)| closed.cpu_micros_per_request()),
    ("p50 us", |(_, open)| open.latency_micros(0.5)),
    ("p99 us", |(_, open)| open.latency_micros(0.99)),
];

pub fn compare(flags: &Flags, scenarios: &[&Scenario], gateway: &Gateway, peers: &[Peer]) -> Outcome<()> {
    println!("medians of {} rounds; ratio: {OURSELVES} to the best peer of the run\n", flags.rounds);
    print!("{:14}{:12}{:>12}", "scenario", "", OURSELVES);
    peers.iter().for_each(|peer| print!("{:>12}", peer.kind.name()));
    println!("{:>10}", "ratio");
    for scenario in scenarios {
        let able: Vec<&Peer> = peers.iter().filter(|peer| peer.kind.checks_tokens() || scenario.is_public()).collect();
        let mut ours = Vec::new();
        let mut theirs: Vec<Vec<(Measured, Measured)>> = able.iter().map(|_| Vec::new()).collect();
        for _ in 0..flags.rounds {
            ours.push(measure(flags, scenario, gateway, None)?);
            for (peer, runs) in able.iter().zip(&mut theirs) {
                runs.push(measure(flags, scenario, gateway, Some(peer))?);
            }
        }
        for (name, figure) in FIGURES {
            let ours = median(&ours, figure);
            let theirs: Vec<f64> = theirs.iter().map(|runs| median(runs, figure)).collect();
            print!("{:14}{name:12}{ours:>12.1}", scenario.name);
            for peer in peers {
                match able.iter().position(|able| able.kind == peer.kind) {
                    Some(place) => print!("{:>12.1}", theirs[place]),
                    None => print!("{:>12}", "-"),
                }
            }
            match theirs.iter().copied().reduce(f64::min) {
                Some(best) => println!("{:>10.2}", ours / best),
                None => println!("{:>10}", "-"),
            }
        }
    }
    Ok(())
}

fn measure(
    flags: &Flags,
    scenario: &Scenario,
    gateway: &Gateway,
    peer: Option<&Peer>,
) -> Outcome<(Measured, Measured)> {
    let mut load = load(flags, scenario, gateway)?;
    let mut pid = gateway.pid();
    if let Some(peer) = peer {
        load.target.address = peer.address(scenario.tls);
        pid = peer.pid();
    }
    // Caches fill and pools open.
    drive(&load, Pace::AsFastAsItAnswers, flags.warm_up(), pid)?;
    let closed = drive(&load, Pace::AsFastAsItAnswers, flags.length(), pid)?;
    let open = drive(&load, Pace::PerSecond(load.rate), flags.length(), pid)?;
    Ok((closed, open))
}

fn median(runs: &[(Measured, Measured)], figure: impl Fn(&(Measured, Measured)) -> f64) -> f64 {
    let mut figures: Vec<f64> = runs.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
