//! `bearward store migrate`: makes the steps that the tables of PostgreSQL lack, as their owner.

use super::error::StartError;
use super::stored;
use crate::config::Config;
use crate::store::postgres::{self, MigrationProgress, PasswordSource};
use crate::types::clock::UnixTime;

/// Who owns the tables, if that is not the user of `store.postgres`.
pub struct Owner {
    pub role: String,
    pub password: Option<PasswordSource>,
}

/// Returns how many steps were made.
///
/// # Errors
/// If the owner may not make a step.
pub fn migrate_store(
    config: &Config,
    owner: Option<Owner>,
    now: UnixTime,
    progress: MigrationProgress<'_>,
) -> Result<usize, StartError> {
    // A start makes the steps of SQLite.
    let Some(settings) = config.store.postgres() else { return Ok(0) };
    let mut settings = settings.clone();
    let role = owner.as_ref().map(|owner| owner.role.clone());
    if let Some(Owner { role, password }) = owner {
        settings.target.user = role;
        settings.password = password;
    }
    let tls = stored::encryption(&settings)?;
    let migrated = postgres::migrate(&settings, tls, now, progress);
    migrated.map_err(|error| match role {
        Some(owner) => StartError::Migrate { database: config.store.database.clone(), owner, source: error.into() },
        None => stored::open_error(&config.store, error),
    })
}
