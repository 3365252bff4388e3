//! `kill -9` of the real program at random moments of many logins, refreshes and logouts. After the restart, everything
//! that the gateway had answered holds, clients retry what it had not answered, and no token works twice.
//!
//! The suite runs a few rounds. To run 500 rounds and print what was checked:
//!
//! ```console
//! $ BEARWARD_ROUNDS=500 cargo test --test programs killed -- --nocapture
//! ```

mod checks;
mod clients;

use std::collections::HashSet;
use std::time::Instant;

use tempfile::TempDir;
use tokio::task::JoinSet;

use self::checks::{Checked, assert_dead, check, collect_events, wait_for_audit_events};
use self::clients::{Entrance, work_until_killed};
use crate::support::program::GatewayProcess;
use crate::support::repetitions::repetitions;
use crate::support::{Gateway, Upstream};

const ROUNDS: usize = 8;

#[tokio::test]
async fn no_response_is_lost_and_no_token_works_twice_after_kill_9() {
    let upstream = Upstream::start();
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("gateway.toml"), configuration(&upstream)).expect("written");
    let began = Instant::now();
    let mut checked = Checked::default();
    let mut dead = Vec::new();
    let mut audited = HashSet::new();
    let rounds = repetitions(ROUNDS);

    let mut served = GatewayProcess::start(folder.path());
    for round in 1..=rounds {
        let logins = work_until_killed(served, folder.path()).await;
        collect_events(folder.path(), &mut audited);
        served = GatewayProcess::start(folder.path());
        let entrance = Entrance::to(&served, folder.path());
        eprintln!("round {round}: {} logins", logins.len());
        let mut checks: JoinSet<_> = logins.into_iter().map(|login| check(login, entrance.clone())).collect();
        while let Some(done) = checks.join_next().await {
            let (login, seen) = done.expect("what the gateway answered holds");
            checked.add(&seen);
            dead.push(login);
        }
    }
    // The logins of the first rounds have been through all later kills.
    let entrance = Entrance::to(&served, folder.path());
    let mut public = entrance.public().await;
    for login in &dead {
        assert_dead(&mut public, login).await;
    }
    wait_for_audit_events(folder.path(), &mut audited, &dead).await;
    assert!(checked.rotations > rounds && checked.revocations > rounds, "too few operations between the kills");
    eprintln!(
        "{rounds} kills in {:.0?}: {} answered rotations and {} answered revocations hold; {} refreshes and {} logouts were in \
         flight; {} logins are dead at the end",
        began.elapsed(),
        checked.rotations,
        checked.revocations,
        checked.lost_refreshes,
        checked.lost_revocations,
        dead.len(),
    );
}

/// The grace period and the access lifetime outlast every round, because the program uses the real clock.
fn configuration(upstream: &Upstream) -> String {
    let text = Gateway::config_text(&upstream.address.to_string(), "");
    let text = text.replace("file = \"access.log\"", "file = \"off\"");
    text.replace("[tokens]\n", "[tokens]\naccess_lifetime = \"24h\"\nrefresh_grace = \"60s\"\n")
}
