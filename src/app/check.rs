//! What `bearward check` finds in what the configuration names: the secrets and the database, as a start would find
//! them.
//!
//! It reads only, and creates and locks no file, so that it works beside a running gateway.

use std::path::Path;

use super::error::StartError;
use super::own_keys;
use super::root_secrets::{self, exists, read_existing_roots};
use super::secrets::{SecretError, read_admin_token};
use super::stored;
use crate::admin::SecretSource;
use crate::auth::keyring::OwnKeysError;
use crate::config::{Config, Database, Finding};
use crate::store::{postgres, sqlite};
use crate::types::clock::{Clock, SystemClock};
use crate::types::reject::with_causes;

const ROOTS: &str = "expected lines of a number and a root secret";
const TOKEN: &str = "expected the token of the admin API";
const DATABASE: &str = "expected a database that the gateway can use";

/// Missing files are valid. `is_offline`: do not connect to PostgreSQL.
pub fn check(config: &Config, is_offline: bool) -> Vec<Finding> {
    let mut found = check_secrets(config);
    let has_secrets = found.is_empty();
    match &config.store.database {
        Database::Postgres(_) if is_offline => return found,
        Database::Postgres(settings) => found.extend(check_postgres(config, settings)),
        Database::Sqlite(file) => found.extend(check_sqlite(config, file)),
    }
    if has_secrets && !found.iter().any(Finding::is_error) {
        found.extend(check_root(config).map(|error| root_finding(config, &error)));
    }
    found
}

fn check_secrets(config: &Config) -> Vec<Finding> {
    let root = &config.store.secret;
    let root_error = exists(root).then(|| read_existing_roots(root).err()).flatten();
    let root_error = root_error.map(|error| secret(root, ["store.secret_file", "store.secret_env"], ROOTS, &error));
    let token = &config.admin.token;
    let token_error = exists(token).then(|| read_admin_token(token).err()).flatten();
    let token_error = token_error.map(|error| secret(token, ["admin.token_file", "admin.token_env"], TOKEN, &error));
    root_error.into_iter().chain(token_error).collect()
}

/// `keys`: of a file, and of a variable.
fn secret(source: &SecretSource, keys: [&str; 2], expected: &str, error: &SecretError) -> Finding {
    let [file, variable] = keys;
    let key = if matches!(source, SecretSource::File(_)) { file } else { variable };
    Finding::error(key, with_causes(error), expected, None)
}

fn check_sqlite(config: &Config, file: &Path) -> Option<Finding> {
    const KEY: &str = "store.sqlite";
    if let Err(error) = sqlite::check(file, SystemClock.now()) {
        return Some(Finding::error(KEY, error.message, DATABASE, None));
    }
    match root_secrets::beginning(&config.store) {
        Ok(warning) => warning.map(|warning| Finding::warning(KEY, warning, DATABASE, "")),
        Err(error) => Some(Finding::error(KEY, without_key(&error), DATABASE, None)),
    }
}

fn check_postgres(config: &Config, settings: &postgres::Settings) -> Vec<Finding> {
    const KEY: &str = "store.postgres";
    let checked = match stored::encryption(settings) {
        Ok(tls) => postgres::check(settings, tls, || SystemClock.now()),
        Err(error) => return vec![Finding::error("store.postgres_ca_file", with_causes(&error), DATABASE, None)],
    };
    match checked {
        Ok(findings) => {
            let warning = |finding: postgres::Finding| Finding::warning(KEY, finding.found, DATABASE, &finding.advice);
            findings.into_iter().map(warning).collect()
        }
        // The text says what to do.
        Err(error) => {
            let message = format!("{} cannot be used: {error}", config.store.database);
            vec![Finding::error(KEY, message, DATABASE, None)]
        }
    }
}

/// Why the root secret is not that of the database: it is missing, or does not open the signing keys.
fn check_root(config: &Config) -> Option<StartError> {
    if let Err(error) = root_secrets::check_root_is_not_lost(&config.store) {
        return Some(error);
    }
    if !exists(&config.store.secret) {
        return None;
    }
    own_keys::find(config, SystemClock.now()).err().filter(|error| !creates_key(error))
}

/// Returns true if no key in the store signs: a start then creates one.
fn creates_key(error: &StartError) -> bool {
    let StartError::SigningKeys(source) = error else { return false };
    matches!(source.downcast_ref(), Some(OwnKeysError::NoSigningKey))
}

fn root_finding(config: &Config, error: &StartError) -> Finding {
    let key = match (error, &config.store.secret) {
        (StartError::OpenStore { database, .. } | StartError::ReadStore { database, .. }, _) => database.key(),
        (_, SecretSource::File(_)) => "store.secret_file",
        (_, SecretSource::Environment(_)) => "store.secret_env",
    };
    Finding::error(key, without_key(error), "expected the root secret of the database", None)
}

/// A start prints the key. A finding begins with it anyway.
fn without_key(error: &StartError) -> String {
    let message = with_causes(error);
    let keys = ["store.sqlite: ", "store.postgres: ", "store.secret_file: "];
    keys.iter().find_map(|key| message.strip_prefix(key)).unwrap_or(&message).to_owned()
}
