//! The statements of the follower.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio_postgres::Row;

use super::state::{Entry, Page, Position, Tag};
use crate::store::error::StoreError;
use crate::store::postgres::clock::{Reading, database_time};
use crate::store::postgres::error::QueryError;
use crate::store::postgres::leases;
use crate::store::postgres::rows::{self, get, read_counter};
use crate::store::postgres::session::Session;
use crate::types::boot_time::BootTime;
use crate::types::clock::UnixTime;

/// One snapshot: the head of the log, the version of the signing keys, the time, if a gateway writes back what was
/// lost, and the entries from `$1` on. Without entries there is one row, with null as its sequence. `offset 0` keeps
/// what does not depend on an entry from being evaluated for each of them.
const POLL: &str = concat!(
    "select h.value as newest, h.tag as newest_tag, k.value as keys, m.micros, m.written_back, t.clock, t.set_back,
        r.sequence, r.kind, r.issuer, r.name, r.not_after, r.at, r.until, r.tag, r.session
    from meta h
        join meta k on k.name = 'signing_keys'
        cross join (
            select c.micros,
                exists (select from leases l where l.name = $3 and l.until > c.micros / 1000) as written_back
            from (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as micros) c offset 0
        ) m
        cross join ",
    database_time!(),
    "
        left join (
            select l.sequence, l.kind, l.issuer, l.name, l.not_after, l.at, l.until, l.tag, l.session
            from revocations l where l.sequence >= $1 order by l.sequence limit $2
        ) r on true
    where h.name = 'revocation_sequence'
    order by r.sequence"
);

/// The result of a poll.
pub(super) struct Polled {
    pub(super) page: Page,
    /// Version of the signing keys.
    pub(super) keys: u64,
    /// The time of the database, in microseconds since 1970.
    pub(super) micros: i64,
    /// The time of this machine when the poll was sent.
    pub(super) local: i64,
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

pub(super) async fn poll(session: &Session, from: u64, limit: usize) -> Result<Polled, QueryError> {
    let sent = BootTime::now();
    let local = micros();
    let found = session.query(POLL, &[&rows::counter(from)?, &rows::limit(limit), &leases::WRITE_BACK]).await?;
    let answered = BootTime::now();
    let missing = || StoreError::new("the table meta lacks a row; restore a backup");
    let head = found.first().ok_or_else(missing)?;
    let newest = Position { sequence: read_counter(head, "newest")?, tag: tag(head, "newest_tag")? };
    let has_entry = |row: &&Row| matches!(row.try_get::<_, Option<i64>>("sequence"), Ok(Some(_)) | Err(_));
    let entries = found.iter().filter(has_entry).map(entry).collect::<Result<_, QueryError>>()?;
    let keys = read_counter(head, "keys")?;
    Ok(Polled {
        page: Page { newest, entries },
        keys,
        micros: get(head, "micros")?,
        local,
        reading: Reading::read(head, sent, answered)?,
        on: session.number(),
        is_written_back: get(head, "written_back")?,
    })
}

/// Prepares the poll on a new connection. The time that it takes is no part of a sample of the clock.
pub(super) async fn prepare(session: &Session) -> Result<(), QueryError> {
    poll(session, 0, 0).await.map(drop)
}

/// The time of this machine, in microseconds since 1970.
fn micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

fn entry(row: &Row) -> Result<Entry, QueryError> {
    Ok(Entry { revocation: rows::revocation(row)?, tag: tag(row, "tag")? })
}

/// The tag of an empty log is empty.
fn tag(row: &Row, column: &str) -> Result<Tag, QueryError> {
    let bytes: &[u8] = get(row, column)?;
    match bytes.len() {
        0 => Ok(Tag::default()),
        _ => bytes.try_into().map_err(|_| StoreError::new("a tag of the log of revocations has a wrong length").into()),
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
        let polled = Polled { page, keys: 0, micros, local: 0, reading, on: 0, is_written_back: false };
        assert_eq!(polled.time(), UnixTime::from_millis(1_700_000_000_123));
    }
}
