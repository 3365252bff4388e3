//! Whole gateways on one PostgreSQL database.

mod check;
mod copy;
mod encryption;
mod explain;
mod old_server;
mod outage;
mod pooler;
mod proofs;
mod roots;
mod sessions;
mod sweep;

use std::path::Path;
use std::sync::Arc;

use bearward::app::{self, StartError};
use bearward::config::{self, Probe};
use tempfile::TempDir;

use crate::support::clock::ManualClock;
use crate::support::postgres::PostgresServer;
use crate::support::{Gateway, Upstream};

/// A configuration with these keys in `[store]`.
fn text(upstream: &Upstream, store: &str) -> String {
    Gateway::config_text(&upstream.address.to_string(), &format!("[store]\n{store}\n"))
}

fn folder() -> Arc<TempDir> {
    Arc::new(TempDir::new().expect("a folder"))
}

/// Starts a gateway with the files of `folder`.
fn gateway(upstream: &Upstream, store: &str, folder: &Arc<TempDir>, clock: &Arc<ManualClock>) -> Gateway {
    Gateway::in_folder(text(upstream, store), folder.clone(), clock.clone())
}

/// Copies the root secrets of one gateway for another one.
fn copy_roots(from: &Path, to: &Path) {
    std::fs::copy(from.join("bearward.secret"), to.join("bearward.secret")).expect("copied");
}

/// Why a gateway does not start, with all causes.
fn start_error(text: &str, folder: &Path) -> String {
    let config = config::parse(text, folder, Probe::None).unwrap_or_else(|errors| panic!("{}", errors.render(false)));
    // On its own thread, because the start blocks, which the runtime of a test does not allow.
    let started = std::thread::scope(|scope| scope.spawn(|| app::start(config, Arc::new(ManualClock::new()))).join());
    let error: StartError = started.expect("no panic").err().expect("it does not start");
    bearward::types::reject::with_causes(&error)
}

fn store_keys() -> String {
    PostgresServer::shared().store_keys()
}

fn schema(keys: &str) -> &str {
    keys.rsplit('"').nth(1).expect("the last key is the schema")
}
