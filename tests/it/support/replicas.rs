//! Whole gateways on one PostgreSQL database.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use super::clock::ManualClock;
use super::postgres::PostgresServer;
use super::{Gateway, Upstream};

/// A configuration with these keys in `[store]`.
pub fn text(upstream: &Upstream, store: &str) -> String {
    Gateway::config_text(&upstream.address.to_string(), &format!("[store]\n{store}\n"))
}

pub fn folder() -> Arc<TempDir> {
    Arc::new(TempDir::new().expect("a folder"))
}

/// Starts a gateway with the files of `folder`.
pub fn gateway(upstream: &Upstream, store: &str, folder: &Arc<TempDir>, clock: &Arc<ManualClock>) -> Gateway {
    Gateway::in_folder(text(upstream, store), folder.clone(), clock.clone())
}

/// Copies the root secrets of one gateway for another one.
pub fn copy_roots(from: &Path, to: &Path) {
    std::fs::copy(from.join("bearward.secret"), to.join("bearward.secret")).expect("copied");
}

pub fn store_keys() -> String {
    PostgresServer::shared().store_keys()
}

/// Two gateways with the same database and root secret.
pub fn two_gateways(upstream: &Upstream) -> [Gateway; 2] {
    let (keys, clock, folders) = (store_keys(), Arc::new(ManualClock::new()), [folder(), folder()]);
    let first = gateway(upstream, &keys, &folders[0], &clock);
    copy_roots(folders[0].path(), folders[1].path());
    let second = gateway(upstream, &keys, &folders[1], &clock);
    [first, second]
}
