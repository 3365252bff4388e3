//! The statements of the follower.

use tokio_postgres::Row;

use super::state::{Entry, Page, Position, Tag};
use crate::store::error::StoreError;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::rows::{self, get, read_counter};
use crate::store::postgres::session::Session;
use crate::types::boot_time::BootTime;
use crate::types::clock::UnixTime;

/// One snapshot: the head of the log, the version of the signing keys, the time, and the entries from `$1` on. Without
/// entries there is one row, with null as its sequence.
const POLL: &str = "select h.value as newest, h.tag as newest_tag, k.value as keys, t.micros,
        r.sequence, r.kind, r.issuer, r.name, r.not_after, r.at, r.until, r.tag, r.session
    from meta h
        join meta k on k.name = 'signing_keys'
        cross join (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as micros) t
        left join (
            select l.sequence, l.kind, l.issuer, l.name, l.not_after, l.at, l.until, l.tag, l.session
            from revocations l where l.sequence >= $1 order by l.sequence limit $2
        ) r on true
    where h.name = 'revocation_sequence'
    order by r.sequence";

/// The result of a poll, and when it was sent.
pub(super) struct Polled {
    pub(super) page: Page,
    pub(super) sent: BootTime,
    /// Version of the signing keys.
    pub(super) keys: u64,
    /// The time of the database, in microseconds since 1970.
    pub(super) micros: i64,
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
    let found = session.query(POLL, &[&rows::counter(from)?, &rows::limit(limit)]).await?;
    let missing = || StoreError::new("the table meta lacks a row; restore a backup");
    let head = found.first().ok_or_else(missing)?;
    let newest = Position { sequence: read_counter(head, "newest")?, tag: tag(head, "newest_tag")? };
    let has_entry = |row: &&Row| matches!(row.try_get::<_, Option<i64>>("sequence"), Ok(Some(_)) | Err(_));
    let entries = found.iter().filter(has_entry).map(entry).collect::<Result<_, QueryError>>()?;
    let keys = read_counter(head, "keys")?;
    Ok(Polled { page: Page { newest, entries }, sent, keys, micros: get(head, "micros")? })
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
        let polled = Polled { page, sent: BootTime::default(), keys: 0, micros: 1_700_000_000_123_999 };
        assert_eq!(polled.time(), UnixTime::from_millis(1_700_000_000_123));
    }
}
