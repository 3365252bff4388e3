//! The outbox of audit events, written in the same transaction as the change and deleted after delivery.

use rusqlite::params;

use crate::store::error::StoreError;
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows::{counter, read_counter};
use crate::tokens::audit_event::{Event, EventContext, Recorded};

/// Writes an event. If the outbox is full, only its sequence number is used up: the gap shows the loss.
pub(super) fn record(batch: &mut Batch<'_>, event: &Event, context: &EventContext) -> Result<(), StoreError> {
    let max = batch.limits.audit;
    if max == 0 {
        return Ok(());
    }
    // Two subqueries: SQLite finds one minimum or maximum through the index, but not both in one query.
    let written = batch.execute(
        "insert into audit (event)
         select ?1 where coalesce((select max(sequence) from audit) - (select min(sequence) from audit) + 1, 0) < ?2",
        params![event.to_json(context), i64::try_from(max).unwrap_or(i64::MAX)],
    )?;
    match written {
        0 => {
            batch.execute("update sqlite_sequence set seq = seq + 1 where name = 'audit'", [])?;
            batch.events.lost += 1;
        }
        _ => batch.events.recorded += 1,
    }
    Ok(())
}

pub(super) fn undelivered(batch: &Batch<'_>, limit: usize) -> Result<Vec<Recorded>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    batch.query("select * from audit order by sequence limit ?1", [limit], |row| {
        Ok(Recorded { sequence: read_counter(row, "sequence")?, event: row.get("event")? })
    })
}

pub(super) fn delivered(batch: &Batch<'_>, through: u64) -> Result<(), StoreError> {
    batch.execute("delete from audit where sequence <= ?1", [counter(through)?])?;
    Ok(())
}
