//! What goes on beside the requests of an upstream, on the control thread: time passes for servers that are out, idle
//! connections end, health is checked, names are looked up again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::pool::Server;
use super::{Upstream, health};
use crate::types::clock::every;

/// A server returns, and its share rises, this late at most.
const TICK: Duration = Duration::from_millis(250);
const TICKS_A_SECOND: u32 = 4;

/// Runs until it is dropped.
pub async fn look_after(upstream: Arc<Upstream>) {
    // Ends with this task.
    let mut tasks = JoinSet::new();
    for server in &upstream.servers {
        match upstream.settings.health_check.clone() {
            Some(health) => drop(tasks.spawn(keep_checking(server.clone(), health))),
            // Only now: while a reload is being prepared, the configuration in force goes on checking.
            None => server.standing.forget_checks(&upstream.settings.ejection, Instant::now()),
        }
        if !server.dialer.addresses.are_fixed() {
            tasks.spawn(keep_resolving(upstream.clone(), server.clone()));
        }
    }
    let mut due = every(TICK);
    let mut tick = 0;
    loop {
        due.tick().await;
        let now = Instant::now();
        for server in &upstream.servers {
            server.standing.advance(&upstream.settings.ejection, now);
        }
        tick = (tick + 1) % TICKS_A_SECOND;
        if tick == 0 {
            upstream.servers.iter().for_each(|server| server.retire(now));
            upstream.budget.second(upstream.requests());
        }
    }
}

async fn keep_checking(server: Arc<Server>, settings: health::Settings) {
    let mut due = every(settings.interval);
    loop {
        due.tick().await;
        let named = (server.scheme(), server.name.as_str());
        let outcome = health::check(&server.dialer, server.protocol, named, &settings).await;
        server.standing.checked(outcome, (&settings, &server.ejection), Instant::now());
    }
}

async fn keep_resolving(upstream: Arc<Upstream>, server: Arc<Server>) {
    let mut due = every(upstream.settings.dns_refresh_interval);
    let mut fails = false;
    let (name, addresses) = (&server.name, &server.dialer.addresses);
    loop {
        due.tick().await;
        match addresses.look_up().await {
            Ok(found) => {
                if addresses.follow(found) {
                    let known = addresses.known();
                    tracing::info!(upstream = &*upstream.name, server = name, addresses = ?known, "the name leads here");
                    server.retire(Instant::now());
                }
                fails = false;
            }
            Err(error) if !fails => {
                fails = true;
                tracing::warn!(upstream = &*upstream.name, server = name, %error, "the name is not found; what was known stays");
            }
            Err(_) => {}
        }
    }
}
