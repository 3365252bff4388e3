//! The content of the store, read before the gateway opens it, or beside a gateway that runs.
//!
//! Nothing here changes the store, except that PostgreSQL remembers which root secrets belong to it.

use std::time::Duration;

use super::error::StartError;
use crate::config::{Database, StoreSettings};
use crate::protocols::tls;
use crate::store::postgres::PostgresSettings;
use crate::store::{StoreError, postgres, sqlite};
use crate::tokens::family::Family;
use crate::tokens::family::revocation::Revocation;
use crate::tokens::signing::StoredKey;
use crate::types::ids::TokenId;

/// Returns true if the store has been used. Fails if it belongs to another program. `patience`: how long to wait for
/// PostgreSQL.
pub(super) fn has_data(store: &StoreSettings, patience: Duration) -> Result<bool, StartError> {
    let found = match &store.database {
        Database::Sqlite(file) => sqlite::is_initialized(file),
        Database::Postgres(settings) => postgres::inspect::is_initialized(settings, encryption(settings)?, patience),
    };
    found.map_err(|error| open_error(store, error))
}

/// The revocations with a sequence above `after`.
pub(super) fn revocations(store: &StoreSettings, after: u64) -> Result<Vec<Revocation>, StartError> {
    let read = match &store.database {
        Database::Sqlite(file) => sqlite::stored_revocations(file, after),
        Database::Postgres(settings) => postgres::inspect::revocations(settings, encryption(settings)?, after),
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
pub(super) fn encryption(settings: &PostgresSettings) -> Result<Option<postgres::Tls>, StartError> {
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
