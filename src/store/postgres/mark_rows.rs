//! The rows of marks, as they are written and read.

use tokio_postgres::Row;

use crate::store::error::StoreError;
use crate::store::mark::{Mark, Marked, StoredMark};
use crate::store::postgres::error::QueryError;
use crate::store::postgres::rows::{self, get};
use crate::store::postgres::session::{Param, Session};
use crate::types::secret;

/// For a call that revokes nothing: it does not wait for the log.
const PLACE: &str = "insert into marks as m (id, kind, value, until, tag, seen) values ($1, $2, $3, $4, $5, 0)
    on conflict (id) do update set seen = m.seen + 1
    returning m.seen, m.value, m.tag";

/// A mark that a call wants to write.
pub(super) struct MarkRow {
    mark: Mark,
    pub(super) stored: StoredMark,
    /// Random, and the same in each run of the operation.
    pub(super) tag: [u8; 16],
}

/// What the statement found.
pub(super) struct FoundMark {
    /// Whether this statement wrote it.
    is_new: bool,
    value: Vec<u8>,
    tag: Vec<u8>,
}

impl MarkRow {
    pub(super) fn new(mark: Mark) -> Self {
        MarkRow { stored: mark.stored(), mark, tag: secret::random() }
    }

    /// Writes the mark alone.
    pub(super) async fn place(&self, session: &Session) -> Result<FoundMark, QueryError> {
        let StoredMark { id, kind, value, until } = &self.stored;
        let kind = kind.as_str();
        let until = rows::time(*until);
        let params: [&dyn Param; 5] = [&id.as_slice(), &kind, &value.as_slice(), &until, &self.tag.as_slice()];
        let placed = session.query_opt(PLACE, &params).await?;
        let found = placed.as_ref().map(FoundMark::read).transpose()?.flatten();
        Ok(found.ok_or_else(|| StoreError::new("a mark was not written"))?)
    }

    pub(super) fn outcome(&self, found: &FoundMark) -> Marked {
        // An earlier attempt of this call has written it, and lost its connection.
        if found.is_new || found.tag == self.tag { Marked::First } else { self.mark.compared(&found.value) }
    }
}

impl FoundMark {
    /// `None` for a row of the log.
    pub(super) fn read(row: &Row) -> Result<Option<Self>, StoreError> {
        let Some(seen) = get::<Option<i32>>(row, "seen")? else { return Ok(None) };
        Ok(Some(FoundMark { is_new: seen == 0, value: get(row, "value")?, tag: get(row, "tag")? }))
    }
}

pub(super) fn read(row: &Row) -> Result<StoredMark, StoreError> {
    Ok(StoredMark {
        id: rows::read_hash(row, "id")?,
        kind: rows::read_text(row, "kind")?,
        value: rows::read_hash(row, "value")?,
        until: rows::read_time(row, "until")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::mark::MarkKind;
    use crate::types::clock::UnixTime;

    #[test]
    fn a_mark_that_the_lost_attempt_wrote_is_its_own() {
        let kind = MarkKind::LogoutToken;
        let until = UnixTime::MAX;
        let row = MarkRow::new(Mark { kind, issuer: "a".into(), key: "b".into(), value: [1; 32], until });
        let own = row.tag.to_vec();
        for (is_new, value, tag, expected) in [
            (true, [1; 32], own.clone(), Marked::First),
            (false, [1; 32], own, Marked::First),
            (false, [1; 32], vec![0; 16], Marked::Repeated),
            (false, [2; 32], vec![0; 16], Marked::Taken),
        ] {
            assert_eq!(row.outcome(&FoundMark { is_new, value: value.to_vec(), tag }), expected);
        }
    }
}
