//! The background tasks of an upstream, on the control thread: ejections end, idle connections are closed, servers are
//! checked, names are looked up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::group::Upstream;
use super::health::{self, CheckedServer};
use super::pool::Server;
use super::settings::HealthCheckSettings;
use crate::types::clock::every;

/// How often ejections and slow starts are advanced.
const TICK: Duration = Duration::from_millis(250);
const TICKS_PER_SECOND: u32 = 4;

/// Runs until it is dropped.
pub async fn maintain(upstream: Arc<Upstream>) {
    // Dropped with this task, which ends them.
    let mut tasks = JoinSet::new();
    for server in &upstream.servers {
        match upstream.settings.health_check.clone() {
            Some(settings) => drop(tasks.spawn(keep_checking(server.shared(), settings))),
            // Not earlier: while a reload is prepared, the current configuration still checks the server.
            None => server.state.forget_checks(&upstream.settings.ejection, Instant::now()),
        }
        if !server.connector.addresses.is_literal() {
            tasks.spawn(keep_resolving(upstream.clone(), server.shared()));
        }
    }
    let mut due = every(TICK);
    let mut tick = 0;
    loop {
        due.tick().await;
        let now = Instant::now();
        for server in &upstream.servers {
            server.state.advance(&upstream.settings.ejection, now);
        }
        tick = (tick + 1) % TICKS_PER_SECOND;
        if tick == 0 {
            upstream.servers.iter().for_each(|server| server.close_expired(now));
            upstream.retry_budget.advance(upstream.requests());
        }
    }
}

async fn keep_checking(server: Arc<Server>, settings: HealthCheckSettings) {
    loop {
        sleep_until(server.state.next_check(&settings, Instant::now()).into()).await;
        let deadline = server.state.begin_check(&settings, Instant::now());
        let checked = CheckedServer { scheme: server.scheme(), authority: &server.name };
        let result = health::check(&server.connector, server.protocol, checked, &settings, deadline).await;
        server.state.record_check(result, &settings, &server.ejection, Instant::now());
    }
}

async fn keep_resolving(upstream: Arc<Upstream>, server: Arc<Server>) {
    let mut due = every(upstream.settings.dns_refresh_interval);
    let mut is_failing = false;
    let name = &server.name;
    let addresses = &server.connector.addresses;
    loop {
        due.tick().await;
        match addresses.resolve().await {
            Ok(found) => {
                if addresses.update(found) {
                    let known = addresses.known();
                    tracing::info!(upstream = &*upstream.name, server = name, addresses = ?known, "addresses changed");
                    server.close_expired(Instant::now());
                }
                is_failing = false;
            }
            Err(error) if !is_failing => {
                is_failing = true;
                let upstream = &*upstream.name;
                tracing::warn!(upstream, server = name, %error, "DNS lookup failed, keeping the last addresses");
            }
            Err(_) => {}
        }
    }
}
