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
    // A counter, because SQLite would read the whole outbox to count its rows. Sequence numbers do not tell how many
    // rows there are, because lost events leave gaps.
    if batch.waiting() < max as u64 {
        batch.execute("insert into audit (event) values (?1)", params![event.to_json(context)])?;
        batch.events.recorded += 1;
    } else {
        batch.execute("update sqlite_sequence set seq = seq + 1 where name = 'audit'", [])?;
        batch.events.lost += 1;
    }
    Ok(())
}

pub(super) fn undelivered(batch: &Batch<'_>, limit: usize) -> Result<Vec<Recorded>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    batch.query("select * from audit order by sequence limit ?1", [limit], |row| {
        Ok(Recorded { sequence: read_counter(row, "sequence")?, event: row.get("event")? })
    })
}

pub(super) fn delivered(batch: &mut Batch<'_>, sequences: &[u64]) -> Result<(), StoreError> {
    for sequence in sequences {
        let deleted = batch.execute("delete from audit where sequence = ?1", [counter(*sequence)?])?;
        batch.events.delivered += deleted as u64;
    }
    Ok(())
}
