//! Whose file is it, and which schema does it have?

use rusqlite::{Connection, TransactionBehavior};

use crate::store::StoreError;

/// "bwrd" in ASCII. It marks a database as one of ours.
const APPLICATION_ID: i32 = 0x6277_7264;

/// Step n leads from schema n to schema n + 1. A step that was released is never changed; new ones are added.
const STEPS: &[&str] = &[include_str!("schema.sql"), include_str!("addresses.sql"), include_str!("audit.sql")];
/// The schema that this program writes; SQLite's `user_version`.
const SCHEMA: i32 = STEPS.len() as i32;

/// The schema that a database has; 0 for one that is empty.
#[derive(Debug)]
pub(super) struct Found(usize);

impl Found {
    pub(super) fn is_ours(&self) -> bool {
        self.0 > 0
    }
}

/// Refuses whatever this program should not write to. Only reads.
pub(super) fn identify(connection: &Connection) -> Result<Found, StoreError> {
    let application: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let schema: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if application != APPLICATION_ID {
        let objects: i64 = connection.query_row("select count(*) from sqlite_schema", [], |row| row.get(0))?;
        return match (application, schema, objects) {
            (0, 0, 0) => Ok(Found(0)),
            _ => Err(StoreError::new("this is a database of another program; it was not touched")),
        };
    }
    match usize::try_from(schema) {
        Ok(schema) if schema <= STEPS.len() => Ok(Found(schema)),
        _ => Err(StoreError::new(format!(
            "the database has schema {schema}, and this bearward knows none above {SCHEMA}: it was written by a newer \
             version; start that one, or restore a backup from before it"
        ))),
    }
}

/// Takes all steps that are missing, in one transaction: a crash leaves the old schema or the new one.
pub(super) fn bring_up_to_date(connection: &mut Connection, Found(schema): Found) -> Result<(), StoreError> {
    let missing = STEPS.get(schema..).unwrap_or_default();
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
