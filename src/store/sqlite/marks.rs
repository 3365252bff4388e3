//! Marks of things that can be used once.

use rusqlite::{OptionalExtension, Row, params};

use crate::store::error::StoreError;
use crate::store::mark::{Mark, Marked, StoredMark};
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::revocations;
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::Revoked;

pub(super) fn find(batch: &Batch<'_>, mark: &Mark) -> Result<Marked, StoreError> {
    let known: Option<Vec<u8>> = batch
        .connection
        .prepare_cached("select value from marks where id = ?1")?
        .query_row([mark.id()], |row| row.get(0))
        .optional()?;
    Ok(known.map_or(Marked::First, |known| mark.compared(&known)))
}

pub(super) fn mark(
    batch: &mut Batch<'_>,
    mark: &Mark,
    revoke: &[Revoked],
    context: &EventContext,
) -> Result<Marked, StoreError> {
    let found = find(batch, mark)?;
    if found != Marked::First {
        return Ok(found);
    }
    let StoredMark { id, kind, value, until } = mark.stored();
    batch.execute(
        "insert into marks (id, kind, value, until) values (?1, ?2, ?3, ?4)",
        params![id, kind, value, until],
    )?;
    for what in revoke {
        revocations::revoke(batch, what, context)?;
    }
    Ok(Marked::First)
}

pub(super) fn read(row: &Row<'_>) -> Result<StoredMark, StoreError> {
    Ok(StoredMark { id: row.get("id")?, kind: row.get("kind")?, value: row.get("value")?, until: row.get("until")? })
}
