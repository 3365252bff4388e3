//! The result of a reload.

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
        self.changes.iter().filter(|change| change["requiresRestart"] == true).map(key_with_place).collect()
    }
}

fn key_with_place(change: &Value) -> String {
    let key = change["key"].as_str().unwrap_or_default();
    match change["place"].as_str() {
        Some(place) => format!("{key} ({place})"),
        None => key.to_owned(),
    }
}

/// What the reload thread is asked for.
pub struct ReloadRequest {
    /// If true, it only says what a reload would change.
    pub is_dry_run: bool,
    /// Where the result goes.
    pub reply: oneshot::Sender<Result<Reloaded, ReloadError>>,
}

/// Why a reload changed nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{report}")]
pub struct ReloadError {
    /// The errors as text.
    pub report: String,
    /// The errors in the file with their places, as JSON. Empty if the file is valid.
    pub errors: Value,
}
