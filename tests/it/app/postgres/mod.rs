//! Whole gateways on one PostgreSQL database.

mod check;
mod copy;
mod encryption;
mod explain;
mod hosts;
mod least_privilege;
mod old_server;
mod outage;
mod pooler;
mod roots;
mod sweep;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bearward::app::{self, StartError};
use bearward::config::{self, Probe};

use crate::support::clock::ManualClock;
use crate::support::replicas::{copy_roots, folder, gateway, store_keys, text};

/// Why a gateway does not start, with all causes.
fn start_error(text: &str, folder: &Path) -> String {
    let config = config::parse(text, folder, Probe::None);
    let mut config = config.unwrap_or_else(|errors| panic!("{}", errors.render(false)));
    // The server runs, or will not.
    config.store.start_patience = Duration::from_millis(100);
    // On its own thread, because the start blocks, which the runtime of a test does not allow.
    let started = std::thread::scope(|scope| scope.spawn(|| app::start(config, Arc::new(ManualClock::new()))).join());
    let error: StartError = started.expect("no panic").err().expect("it does not start");
    bearward::types::reject::with_causes(&error)
}

fn schema(keys: &str) -> &str {
    keys.rsplit('"').nth(1).expect("the last key is the schema")
}
