//! Clients that are not ours, in front of the real program: each one finds the gateway, gets a grant, calls a server of
//! MCP, refreshes and calls again, and goes on after its session was revoked.
//!
//! The matrix: each client, as each of the kinds of client that it can be (`parties`), with one gateway or two behind
//! nginx (`place`), and with gateways that run on or are killed at four moments: before the browser comes back from the
//! provider, before the user agrees, before the client redeems its code, before it refreshes. `tests/run` runs the
//! libraries behind nginx; `tests/clients` runs all.

mod browser;
mod compared;
mod gateways;
mod parties;
mod place;
mod runs;

use parties::{ALL, LIBRARIES, Registration};
use place::Place;
use runs::go_all_steps;

/// Behind nginx, and killed at each moment: the hardest row.
#[tokio::test]
async fn libraries_go_all_steps_while_gateways_are_killed() {
    go_all_steps(&places(2), LIBRARIES, true).await;
}

/// One in which clients register themselves, and one in which they have documents.
fn places(gateways: usize) -> [Place; 2] {
    [false, true].map(|has_documents| Place::start(gateways, has_documents))
}

/// All clients, with each number of gateways.
async fn all(kills: bool) {
    for gateways in [1, 2] {
        go_all_steps(&places(gateways), ALL, kills).await;
    }
}

#[tokio::test]
#[ignore = "tests/clients runs it"]
async fn all_clients_go_all_steps() {
    all(false).await;
}

#[tokio::test]
#[ignore = "tests/clients runs it"]
async fn all_clients_go_all_steps_while_gateways_are_killed() {
    all(true).await;
}

/// Otherwise a row of the matrix could be lost.
#[test]
fn every_client_is_of_every_kind_that_it_can_be() {
    let kinds = |registration| ALL.iter().filter(|party| party.kinds.contains(&registration)).count();
    assert_eq!(kinds(Registration::Operator), ALL.len(), "an operator can register every client");
    assert_eq!((kinds(Registration::Document), kinds(Registration::Itself)), (5, 8));
}
