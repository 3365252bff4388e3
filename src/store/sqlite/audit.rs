//! The outbox of audit events: written in the transaction that they tell of, deleted once they are delivered.

use rusqlite::params;

use crate::store::StoreError;
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows::{counter, read_counter};
use crate::tokens::audit_event::{Event, EventContext, Recorded};

/// Writes an event, if there is room for it. If not, it takes its place in the sequence all the same: the gap tells of it.
pub(super) fn record(batch: &mut Batch<'_>, event: &Event, occasion: &EventContext) -> Result<(), StoreError> {
    let most = batch.terms.audit;
    if most == 0 {
        return Ok(());
    }
    // Two subqueries, as SQLite finds a smallest or a largest key at once, but not both in one.
    let written = batch.execute(
        "insert into audit (event)
         select ?1 where coalesce((select max(sequence) from audit) - (select min(sequence) from audit) + 1, 0) < ?2",
        params![event.written(occasion), i64::try_from(most).unwrap_or(i64::MAX)],
    )?;
    match written {
        0 => {
            batch.execute("update sqlite_sequence set seq = seq + 1 where name = 'audit'", [])?;
            batch.audited.lost += 1;
        }
        _ => batch.audited.recorded += 1,
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
