//! The statements of the follower.

use std::time::Duration;

use tokio_postgres::Row;

use super::state::{LogEntry, Page, Position, Tag};
use crate::store::error::StoreError;
use crate::store::postgres::clock::{Reading, database_time};
use crate::store::postgres::error::QueryError;
use crate::store::postgres::leases;
use crate::store::postgres::rows::{self, get, read_counter, revocation_columns};
use crate::store::postgres::session::{Param, Session};
use crate::types::boot_time::BootTime;
use crate::types::clock::{Clock, SystemClock, UnixTime};

/// How far the clocks of gateways and of the database may differ, and more: further apart, no gateway is ready.
const CLOCK_MARGIN: Duration = Duration::from_mins(1);

/// One snapshot: the head of the log, the version of the signing keys, the time and if a gateway writes back what was
/// lost, in one row without an entry; and a row for each entry from `$1` on. Of these, not those that have ended before
/// `$4`: `+ 0`, because the entries come in the order of another index. A lease ends within `$5`, unless it is of
/// before the clock was set back.
const POLL: &str = concat!(
    "select null::bigint as sequence, null::text as kind, null::text as issuer, null::text as name,
        null::bigint as not_after, null::bigint as at, null::bigint as until, null::boolean as session,
        null::text as client, null::bytea as tag,
        h.value as newest, h.tag as newest_tag, k.value as keys, m.micros, m.written_back, t.clock, t.set_back
    from meta h
        join meta k on k.name = 'signing_keys'
        cross join (
            select c.micros,
                exists (select from leases l where l.name = $3
                    and l.until > c.micros / 1000 and l.until <= c.micros / 1000 + $5) as written_back
            from (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as micros) c offset 0
        ) m
        cross join ",
    database_time!(),
    "
    where h.name = 'revocation_sequence'
    union all (
        select ",
    revocation_columns!(),
    ", r.tag, null, null, null, null, null, null, null
        from revocations r where r.sequence >= $1 and r.until + 0 >= $4 order by r.sequence limit $2
    )"
);

/// The result of a poll.
pub(super) struct Polled {
    pub(super) page: Page,
    /// Version of the signing keys.
    pub(super) keys: u64,
    /// The time of the database, in microseconds since 1970.
    pub(super) micros: i64,
    /// The time of the database that is never set back.
    pub(super) reading: Reading,
    /// The connection.
    pub(super) on: u64,
    /// A gateway writes back what the database has lost.
    pub(super) is_written_back: bool,
}

impl Polled {
    pub(super) fn time(&self) -> UnixTime {
        UnixTime::from_millis(self.micros.unsigned_abs() / 1000)
    }
}

/// Waits for notifications of new entries on this connection. To be done before the poll that shall see everything.
pub(super) async fn listen(session: &Session, schema: &str) -> Result<(), QueryError> {
    session.batch(&format!("listen \"{schema}\"")).await
}

/// Reads at most `limit` entries from the sequence `from` on, without those that have ended before `needed_at`.
pub(super) async fn poll(
    session: &Session,
    from: u64,
    limit: usize,
    needed_at: UnixTime,
) -> Result<Polled, QueryError> {
    let sent = BootTime::now();
    let lease = rows::millis(leases::DURATION + leases::TOLERANCE);
    let params: [&dyn Param; 5] =
        [&rows::counter(from)?, &rows::limit(limit), &leases::WRITE_BACK, &rows::time(needed_at), &lease];
    let found = session.query(POLL, &params).await?;
    let answered = BootTime::now();
    let mut entries = Vec::with_capacity(found.len());
    let mut head = None;
    for row in &found {
        if rows::is_revocation(row)? { entries.push(entry(row)?) } else { head = Some(row) }
    }
    // A statement of several parts promises no order.
    entries.sort_unstable_by_key(|entry: &LogEntry| entry.revocation.sequence);
    let head = head.ok_or_else(|| StoreError::new("the table meta lacks a row; restore a backup"))?;
    let newest = Position { sequence: read_counter(head, "newest")?, tag: tag(get(head, "newest_tag")?)? };
    Ok(Polled {
        page: Page { newest, entries },
        keys: read_counter(head, "keys")?,
        micros: get(head, "micros")?,
        reading: Reading::read(head, sent, answered)?,
        on: session.number(),
        is_written_back: get(head, "written_back")?,
    })
}

/// Prepares the poll on a new connection. The time that it takes is no part of a sample of the clock.
///
/// Returns since when an entry that has ended is not needed, neither by this clock nor by that of the database: one of
/// them may be wrong.
pub(super) async fn prepare(session: &Session) -> Result<UnixTime, QueryError> {
    let polled = poll(session, 0, 0, UnixTime::default()).await?;
    Ok(polled.time().min(SystemClock.now()) - CLOCK_MARGIN)
}

fn entry(row: &Row) -> Result<LogEntry, QueryError> {
    let bytes: &[u8] = row.try_get(rows::REVOCATION_COLUMNS).map_err(StoreError::from)?;
    Ok(LogEntry { revocation: rows::revocation(row)?, tag: tag(bytes)? })
}

/// The tag of an empty log is empty.
fn tag(bytes: &[u8]) -> Result<Tag, StoreError> {
    match bytes.len() {
        0 => Ok(Tag::default()),
        _ => bytes.try_into().map_err(|_| StoreError::new("a tag of the log of revocations has a wrong length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_database_is_cut_to_milliseconds() {
        let page = Page { newest: Position::default(), entries: vec![] };
        let sent = BootTime::default();
        let reading = Reading { time: UnixTime::default(), set_back: 0, sent, answered: sent };
        let micros = 1_700_000_000_123_999;
        let polled = Polled { page, keys: 0, micros, reading, on: 0, is_written_back: false };
        assert_eq!(polled.time(), UnixTime::from_millis(1_700_000_000_123));
    }
}
