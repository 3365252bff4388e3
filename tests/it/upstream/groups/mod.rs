//! Groups of backends: which of them a request goes to, and how the others stand in when one fails.

mod balance;
mod connections;
mod crowd;
mod health;
mod killed;
mod names;
mod quiet;
mod repeats;
mod stalled;
mod tls;

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::wire::PATIENCE;
use crate::support::{Gateway, Upstream};

/// A gateway of one worker in front of all of these, which asks nobody for a token. `more` begins inside the `[[upstream]]`.
fn in_front_of(servers: &[SocketAddr], more: &str) -> Gateway {
    Gateway::from_text(text(servers, more))
}

fn text(servers: &[SocketAddr], more: &str) -> String {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let public = "[[route]]\npath = \"/\"\npublic = true\n";
    let text = Gateway::text(&servers.join("\", \"http://"), &format!("{more}\n{public}"));
    text.replace("workers = 2", "workers = 1")
}

fn addresses(backends: &[Upstream]) -> Vec<SocketAddr> {
    backends.iter().map(|backend| backend.address).collect()
}

/// How many requests reached each of them.
fn counts(backends: &[Upstream]) -> Vec<usize> {
    backends.iter().map(|backend| backend.seen().len()).collect()
}

/// One value of a server's metrics.
async fn metric(gateway: &Gateway, name: &str, server: SocketAddr) -> f64 {
    gateway.metric(&format!("bearward_upstream_server_{name}{{upstream=\"backend\",server=\"{server}\"}}")).await
}

/// Waits until the server gets this part of its requests.
async fn has_share(gateway: &Gateway, server: SocketAddr, wanted: impl Fn(f64) -> bool) {
    let began = std::time::Instant::now();
    loop {
        let share = metric(gateway, "share", server).await;
        if wanted(share) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{server} has {share}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
