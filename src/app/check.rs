//! The part of `bearward check` that opens what the configuration names: secrets and database, as a start would find
//! them.
//!
//! It reads only, and creates and locks no file, so that it works beside a running gateway.

use std::path::Path;

use super::error::StartError;
use super::own_keys;
use super::root_secrets::{self, exists, read_existing_roots};
use super::secrets::read_admin_token;
use super::stored;
use crate::admin::SecretSource;
use crate::auth::keyring::OwnKeysError;
use crate::config::{Config, Database, Finding};
use crate::store::postgres::PostgresSettings;
use crate::store::{postgres, sqlite};
use crate::types::clock::{Clock, SystemClock};
use crate::types::reject::with_causes;

const ROOTS: &str = "expected lines of a number and a root secret";
const ROOT: &str = "expected the root secret of the database";
const TOKEN: &str = "expected the token of the admin API";
const DATABASE: &str = "expected a database that the gateway can use";

/// Missing files are valid. `is_offline`: do not connect to PostgreSQL.
pub fn check(config: &Config, is_offline: bool) -> Vec<Finding> {
    let mut found = check_secrets(config);
    match &config.store.database {
        Database::Postgres(_) if is_offline => return found,
        Database::Postgres(settings) => found.extend(check_postgres(config, settings)),
        Database::Sqlite(file) => found.extend(check_sqlite(config, file)),
    }
    if !found.iter().any(Finding::is_error) {
        found.extend(check_signing_keys(config));
    }
    found
}

fn check_secrets(config: &Config) -> Vec<Finding> {
    let root = &config.store.secret;
    let root_error = exists(root).then(|| read_existing_roots(root).err()).flatten();
    let root_error = root_error.map(|error| Finding::error(root_key(root), with_causes(&error), ROOTS, None));
    let token = &config.admin.token;
    let token_error = exists(token).then(|| read_admin_token(token).err()).flatten();
    let token_error = token_error.map(|error| Finding::error(token_key(token), with_causes(&error), TOKEN, None));
    root_error.into_iter().chain(token_error).collect()
}

fn root_key(source: &SecretSource) -> &'static str {
    match source {
        SecretSource::File(_) => "store.secret_file",
        SecretSource::Environment(_) => "store.secret_env",
    }
}

fn token_key(source: &SecretSource) -> &'static str {
    match source {
        SecretSource::File(_) => "admin.token_file",
        SecretSource::Environment(_) => "admin.token_env",
    }
}

fn check_sqlite(config: &Config, file: &Path) -> Option<Finding> {
    let key = config.store.database.key();
    if let Err(error) = sqlite::check(file) {
        return Some(Finding::error(key, error.message, DATABASE, None));
    }
    check_is_not_lost(config)
}

fn check_postgres(config: &Config, settings: &PostgresSettings) -> Vec<Finding> {
    let key = config.store.database.key();
    let checked = match stored::encryption(settings) {
        Ok(tls) => postgres::check(settings, tls, || SystemClock.now()),
        Err(error) => return vec![Finding::error("store.postgres_ca_file", with_causes(&error), DATABASE, None)],
    };
    match checked {
        Ok(findings) => {
            let warning = |finding: postgres::Finding| Finding::warning(key, finding.found, DATABASE, &finding.advice);
            findings.into_iter().map(warning).chain(check_is_not_lost(config)).collect()
        }
        // The text says what to do.
        Err(error) => {
            let message = format!("{} cannot be used: {error}", config.store.database);
            vec![Finding::error(key, message, DATABASE, None)]
        }
    }
}

fn check_is_not_lost(config: &Config) -> Option<Finding> {
    match root_secrets::check_is_not_lost(&config.store) {
        Ok(warning) => warning.map(|warning| Finding::warning(config.store.database.key(), warning, DATABASE, "")),
        Err(error) => Some(finding(config, &error)),
    }
}

/// Why the root secret does not open the signing keys.
fn check_signing_keys(config: &Config) -> Option<Finding> {
    if !exists(&config.store.secret) {
        return None;
    }
    let error = own_keys::find(config, SystemClock.now()).err()?;
    match &error {
        // No key in the store signs: a start then creates one.
        StartError::SigningKeys(source) if matches!(source.downcast_ref(), Some(OwnKeysError::NoSigningKey)) => None,
        error => Some(finding(config, error)),
    }
}

fn finding(config: &Config, error: &StartError) -> Finding {
    let (key, expected) = match error {
        StartError::Secret(_) => (root_key(&config.store.secret), ROOT),
        _ => (config.store.database.key(), DATABASE),
    };
    // A start prints the key. A finding begins with it anyway.
    let message = with_causes(error);
    let without_key = message.strip_prefix(key).and_then(|rest| rest.strip_prefix(": "));
    Finding::error(key, without_key.unwrap_or(&message), expected, None)
}
