//! One page of a search of families.

use rusqlite::types::Value;
use rusqlite::{Params, Row, params};

use crate::store::error::StoreError;
use crate::store::search::{FoundFamilies, MAX_SCANNED, Position, Search, SearchState, Subjects, end_of_prefix};
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows;
use crate::store::watermark::with_watermark;
use crate::tokens::family::Family;
use crate::types::clock::UnixTime;

/// The index is named, because a sort of all families would take seconds.
macro_rules! ranges {
    ($index:literal, $condition:literal) => {
        [
            concat!(
                "select * from families indexed by ",
                $index,
                " where subject = ?1 and (created_at, id) < (?2, ?3)",
                $condition,
                " order by created_at desc, id desc"
            ),
            concat!(
                "select * from families indexed by ",
                $index,
                " where subject > ?1 and subject < ?2",
                $condition,
                " order by subject, created_at desc, id desc"
            ),
        ]
    };
}

/// The rest of one subject, and the subjects after it.
pub(super) const OF_LIVE: [&str; 2] = ranges!("families_unrevoked", " and revoked_at is null");
pub(super) const OF_ALL: [&str; 2] = ranges!("families_of_subject", "");

/// After the text of every id.
const AFTER_IDS: &str = "~";

pub(super) fn search(batch: &Batch<'_>, search: &Search) -> Result<FoundFamilies, StoreError> {
    let [rest, others] = match search.state {
        SearchState::Live => OF_LIVE,
        SearchState::Ended | SearchState::All => OF_ALL,
    };
    let mut scan = Scan { batch, search, mark: None, found: Vec::new(), last: None };
    let (subject, created_at, id) = match &search.after {
        Some(after) => (after.subject.as_str(), after.created_at, after.id.to_string()),
        None => (search.subjects.first(), UnixTime::MAX, AFTER_IDS.to_owned()),
    };
    let mut is_over = scan.run(rest, params![subject, created_at, id])?;
    if let (Subjects::WithPrefix(prefix), true) = (&search.subjects, is_over) {
        // Each text is less than each blob.
        let end = end_of_prefix(prefix).map_or(Value::Blob(Vec::new()), Value::Text);
        is_over = scan.run(others, params![subject, end])?;
    }
    let stopped = if is_over { None } else { scan.last };
    Ok(FoundFamilies::page(scan.found, search.limit, stopped))
}

/// A page that is being filled.
struct Scan<'a, 'writer> {
    batch: &'a Batch<'writer>,
    search: &'a Search,
    /// The subject of the last row, and its watermark.
    mark: Option<(String, Option<UnixTime>)>,
    found: Vec<Family>,
    /// The last row that was looked at.
    last: Option<Position>,
}

impl Scan<'_, '_> {
    /// Returns false if there may be more rows.
    fn run(&mut self, sql: &str, params: impl Params) -> Result<bool, StoreError> {
        let mut statement = self.batch.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        for _ in 0..MAX_SCANNED {
            let Some(row) = rows.next()? else { return Ok(true) };
            self.look_at(row)?;
            if self.found.len() > self.search.limit {
                return Ok(false);
            }
        }
        Ok(false)
    }

    fn look_at(&mut self, row: &Row<'_>) -> Result<(), StoreError> {
        let Search { state, now, .. } = *self.search;
        let position =
            Position { subject: row.get("subject")?, created_at: row.get("created_at")?, id: row.get("id")? };
        let is_unended = row.get::<_, Option<UnixTime>>("revoked_at")?.is_none()
            && now < row.get("idle_expiry")?
            && now < row.get("absolute_expiry")?;
        let is_session = row.get::<_, Option<Vec<u8>>>("key_hash")?.is_none();
        // Most of the rows that are not wanted need no watermark.
        if is_session && (is_unended || state != SearchState::Live) {
            let mark = self.watermark(&position.subject)?;
            let is_live = is_unended && mark.is_none_or(|mark| position.created_at > mark);
            if state == SearchState::All || is_live == (state == SearchState::Live) {
                self.found.push(with_watermark(rows::family(row)?, mark));
            }
        }
        self.last = Some(position);
        Ok(())
    }

    fn watermark(&mut self, subject: &str) -> Result<Option<UnixTime>, StoreError> {
        if let Some((known, mark)) = &self.mark
            && known == subject
        {
            return Ok(*mark);
        }
        let mark = self.batch.watermark(subject)?;
        self.mark = Some((subject.to_owned(), mark));
        Ok(mark)
    }
}
