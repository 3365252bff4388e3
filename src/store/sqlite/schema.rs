//! Identifies the database of the gateway, and migrates an older schema.

use rusqlite::{Connection, TransactionBehavior};

use crate::store::error::StoreError;

/// "bwrd" in ASCII. It marks a database of bearward.
const APPLICATION_ID: i32 = 0x6277_7264;

/// Migration n leads from schema n to schema n + 1. A released migration is never changed.
const MIGRATIONS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("addresses.sql"),
    include_str!("audit.sql"),
    include_str!("logins.sql"),
    include_str!("endings.sql"),
    include_str!("api_keys.sql"),
    include_str!("origins.sql"),
    include_str!("provider_logins.sql"),
    include_str!("api_key_rates.sql"),
    include_str!("acme.sql"),
    include_str!("grants.sql"),
    include_str!("clients.sql"),
];
/// The schema of this version, stored as `user_version`.
const SCHEMA: i32 = MIGRATIONS.len() as i32;

/// The schema of a database; 0 for an empty one.
#[derive(Debug)]
pub(super) struct SchemaVersion(usize);

impl SchemaVersion {
    /// Returns false for an empty database.
    pub(super) fn is_initialized(&self) -> bool {
        self.0 > 0
    }

    /// Returns true if no migration is missing.
    pub(super) fn is_current(&self) -> bool {
        self.0 == MIGRATIONS.len()
    }
}

/// Fails for a database that the gateway must not write to. Only reads.
pub(super) fn identify(connection: &Connection) -> Result<SchemaVersion, StoreError> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let schema: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if application != APPLICATION_ID {
        let objects: i64 = connection.query_row("select count(*) from sqlite_schema", [], |row| row.get(0))?;
        return match (application, schema, objects) {
            (0, 0, 0) => Ok(SchemaVersion(0)),
            _ => Err(StoreError::new(
                "the database belongs to another program and was not changed; correct store.sqlite",
            )),
        };
    }
    match usize::try_from(schema) {
        Ok(schema) if schema <= MIGRATIONS.len() => Ok(SchemaVersion(schema)),
        _ => Err(StoreError::new(format!(
            "the database has schema {schema}, but this version supports at most {SCHEMA}: a newer version wrote it; \
             start that version, or restore a backup from before the upgrade"
        ))),
    }
}

/// Applies the missing migrations in one transaction, so that a crash leaves the old or the new schema.
pub(super) fn migrate(connection: &mut Connection, SchemaVersion(schema): SchemaVersion) -> Result<(), StoreError> {
    let missing = MIGRATIONS.get(schema..).unwrap_or_default();
    if missing.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in missing {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA)?;
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_database_is_not_initialized() {
        assert!(!SchemaVersion(0).is_initialized() && SchemaVersion(1).is_initialized());
    }
}
