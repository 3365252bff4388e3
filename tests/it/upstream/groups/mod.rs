//! Groups of servers: how the gateway selects one for a request, and what it does when one fails.

mod balance;
mod connections;
mod health;
mod killed;
mod load;
mod names;
mod quiet;
mod retries;
mod stalled;
mod tls;
mod unsent;
mod uploads;
mod weights;

use std::net::SocketAddr;

use crate::support::wait::eventually_ok;
use crate::support::{Gateway, Upstream};

/// A gateway with one worker and a public route to these servers. `more` begins inside `[[upstream]]`.
fn in_front_of(servers: &[SocketAddr], more: &str) -> Gateway {
    Gateway::from_text(text(servers, more))
}

fn text(servers: &[SocketAddr], more: &str) -> String {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let public = "[[route]]\npath = \"/\"\npublic = true\n";
    let text = Gateway::config_text(&servers.join("\", \"http://"), &format!("{more}\n{public}"));
    text.replace("workers = 2", "workers = 1")
}

fn addresses(backends: &[Upstream]) -> Vec<SocketAddr> {
    backends.iter().map(|backend| backend.address).collect()
}

/// Returns how many requests reached each backend.
fn counts(backends: &[Upstream]) -> Vec<usize> {
    backends.iter().map(|backend| backend.seen().len()).collect()
}

/// Returns one value of a server's metrics.
async fn metric(gateway: &Gateway, name: &str, server: SocketAddr) -> f64 {
    gateway.metric(&format!("bearward_upstream_server_{name}{{upstream=\"backend\",server=\"{server}\"}}")).await
}

/// Waits until the server's share of the requests satisfies `wanted`.
async fn wait_for_share(gateway: &Gateway, server: SocketAddr, wanted: impl Fn(f64) -> bool) {
    eventually_ok("the server has its share", async || {
        let share = metric(gateway, "share", server).await;
        wanted(share).then_some(()).ok_or_else(|| format!("{server} has {share}"))
    })
    .await;
}
