//! The result of a reload.

use std::error::Error;
use std::fmt;

use serde_json::Value;
use tokio::sync::oneshot;

/// The tables of the configuration that a reload has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Changed and active.
    pub active: Vec<&'static str>,
    /// Changed in the file, and active from the next start.
    pub requires_restart: Vec<&'static str>,
    /// Each key that differs from the one in force, as JSON.
    pub changes: Vec<Value>,
    /// The warnings about the file, sessions that go on under the old rules, and what is active and has not worked yet,
    /// such as a source of keys that cannot be fetched.
    pub warnings: Vec<String>,
}

impl Reloaded {
    /// The keys that require a restart, with the lines of their new values: `store.sqlite (gateway.toml:7)`. A table is
    /// named without a key if only the content of its files has changed.
    pub fn restart_keys(&self) -> Vec<String> {
        let changes: Vec<_> = self.changes.iter().filter(|change| change["requiresRestart"] == true).collect();
        let key = |change: &Value| change["key"].as_str().unwrap_or_default().to_owned();
        let named = |change: &&Value| match change["place"].as_str() {
            Some(place) => format!("{} ({place})", key(change)),
            None => key(change),
        };
        let is_named = |table: &&str| changes.iter().any(|change| is_of(table, &key(change)));
        let tables = self.requires_restart.iter().filter(|table| !is_named(table)).map(|table| (*table).to_owned());
        changes.iter().map(named).chain(tables).collect()
    }
}

/// `timeouts and limits` are two tables.
fn is_of(table: &str, key: &str) -> bool {
    let of_key = key.split(['.', '[']).next().unwrap_or_default();
    table.split(" and ").any(|table| table == of_key)
}

/// What the reload thread is asked for.
pub struct ReloadRequest {
    /// If true, it only says what a reload would change.
    pub is_dry_run: bool,
    /// Where the result goes.
    pub reply: oneshot::Sender<Result<Reloaded, ReloadError>>,
}

/// Why a reload changed nothing.
#[derive(Clone, Debug)]
pub struct ReloadError {
    /// The errors as text.
    pub report: String,
    /// The errors in the file with their places, as JSON. Empty if the file is valid.
    pub errors: Value,
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report)
    }
}

impl Error for ReloadError {}
