//! What the store contains, read before the gateway opens it, or beside a gateway that runs.
//!
//! Nothing here changes the store, except that PostgreSQL remembers which root secrets belong to it.

use std::time::Duration;

use super::error::StartError;
use crate::config::{Config, Database, Finding, StoreSettings};
use crate::protocols::tls;
use crate::store::{StoreError, postgres, sqlite};
use crate::tokens::family::Family;
use crate::tokens::family::revocation::Revocation;
use crate::tokens::signing::StoredKey;
use crate::types::clock::{Clock, SystemClock, UnixTime};
use crate::types::ids::TokenId;
use crate::types::reject::with_causes;

/// Returns true if the store has been used. Fails if it belongs to another program. `patience`: how long to wait for
/// PostgreSQL.
pub(super) fn has_data(store: &StoreSettings, patience: Duration) -> Result<bool, StartError> {
    let found = match &store.database {
        Database::Sqlite(file) => sqlite::is_initialized(file),
        Database::Postgres(settings) => postgres::inspect::is_initialized(settings, encryption(settings)?, patience),
    };
    found.map_err(|error| open_error(store, error))
}

/// The revocations with a sequence above `after` that matter at `now`.
pub(super) fn revocations(store: &StoreSettings, after: u64, now: UnixTime) -> Result<Vec<Revocation>, StartError> {
    let read = match &store.database {
        Database::Sqlite(file) => sqlite::stored_revocations(file, after, now),
        Database::Postgres(settings) => postgres::inspect::revocations(settings, encryption(settings)?, after, now),
    };
    read.map_err(|error| read_error(store, error))
}

/// `None` if the store has no family with this id.
pub(super) fn family(store: &StoreSettings, id: TokenId) -> Result<Option<Family>, StartError> {
    let read = match &store.database {
        Database::Sqlite(file) => sqlite::stored_family(file, id),
        Database::Postgres(settings) => postgres::inspect::family(settings, encryption(settings)?, id),
    };
    read.map_err(|error| read_error(store, error))
}

/// Empty if the store is empty.
pub(super) fn signing_keys(store: &StoreSettings) -> Result<Vec<StoredKey>, StartError> {
    let read = match &store.database {
        Database::Sqlite(file) => sqlite::stored_signing_keys(file),
        Database::Postgres(settings) => postgres::inspect::signing_keys(settings, encryption(settings)?),
    };
    read.map_err(|error| read_error(store, error))
}

/// TLS to the database; `None` if the operator has disabled it.
pub(super) fn encryption(settings: &postgres::Settings) -> Result<Option<postgres::Tls>, StartError> {
    if !settings.target.tls {
        return Ok(None);
    }
    let config = tls::client_config(settings.ca_file.as_deref(), &[]);
    let config = config.map_err(|error| StartError::DatabaseCertificates(error.into()))?;
    Ok(Some(postgres::Tls { config, end_point: tls::server_end_point }))
}

pub(super) fn open_error(store: &StoreSettings, error: StoreError) -> StartError {
    StartError::OpenStore { database: store.database.clone(), source: error.into() }
}

pub(super) fn read_error(store: &StoreSettings, error: StoreError) -> StartError {
    StartError::ReadStore { database: store.database.clone(), source: error.into() }
}

/// What `bearward check` finds in the database. Empty with SQLite, which a check of the files covers.
pub fn check_store(config: &Config) -> Vec<Finding> {
    const KEY: &str = "store.postgres";
    const EXPECTED: &str = "expected a database that the gateway can use";
    let Some(settings) = config.store.postgres() else { return Vec::new() };
    let checked = match encryption(settings) {
        Ok(tls) => postgres::check(settings, tls, || SystemClock.now()),
        Err(error) => return vec![Finding::error("store.postgres_ca_file", with_causes(&error), EXPECTED, None)],
    };
    match checked {
        Ok(findings) => {
            let warning = |finding: postgres::Finding| Finding::warning(KEY, finding.found, EXPECTED, &finding.advice);
            findings.into_iter().map(warning).collect()
        }
        // The text says what to do.
        Err(error) => {
            let message = format!("{} cannot be used: {error}", config.store.database);
            vec![Finding::error(KEY, message, EXPECTED, None)]
        }
    }
}
