//! The files that the configuration names and the gateway reads: a change of their content is a change of the
//! configuration.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::config::document::record::{Record, without_indexes};

/// What the gateway writes, and what it reads again each time or by a task of its own.
const NOT_LOADED: [&str; 11] = [
    "include",
    "store.sqlite",
    "store.postgres_password_file",
    "access_log.file",
    "audit.file",
    "audit.webhook_authorization_file",
    "trace.authorization_file",
    "admin.socket",
    "issuer[].jwks_file",
    "issuer[].pem_file",
    "issuer[].secret_file",
];

/// Secrets that a start reads, and a reload does not.
const AT_START: [&str; 7] = [
    "store.secret_file",
    "admin.token_file",
    "admin.operator[].token_file",
    "event_stream[].authorization_file",
    "event_stream[].client.client_secret_file",
    "event_stream[].client.assertion_key_file",
    "event_stream[].client.client_key",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// For example `provider[0].client_secret_file`.
    pub key: String,
    pub path: PathBuf,
}

impl NamedFile {
    /// Returns true if only a start reads the file.
    pub fn requires_restart(&self) -> bool {
        AT_START.contains(&without_indexes(&self.key).as_str())
    }
}

/// The files that are read when the configuration is loaded. Relative paths start at `base`.
pub(super) fn of(records: &[Record], base: &Path) -> Vec<NamedFile> {
    let paths_only = records.iter().filter(|record| record.is_path);
    let loaded = paths_only.filter(|record| !NOT_LOADED.contains(&without_indexes(&record.key).as_str()));
    loaded.flat_map(|record| paths(record).into_iter().map(|path| named(record, base, path))).collect()
}

fn named(record: &Record, base: &Path, path: &str) -> NamedFile {
    NamedFile { key: record.key.clone(), path: base.join(path) }
}

fn paths(record: &Record) -> Vec<&str> {
    match &record.value {
        Some(Json::String(path)) => vec![path],
        Some(Json::Array(paths)) => paths.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_name_only_keys_that_exist() {
        let keys = crate::config::keys();
        let unknown: Vec<_> = NOT_LOADED.iter().chain(&AT_START).filter(|key| !keys.contains(**key)).collect();
        assert_eq!(unknown, Vec::<&&str>::new());
    }
}
