//! One page of a search of families.

use rusqlite::types::Value;
use rusqlite::{Params, Row, params};

use crate::store::error::StoreError;
use crate::store::search::{
    FoundFamilies, LiveClient, MAX_SCANNED, Position, Search, SearchState, Subjects, end_of_prefix,
};
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

/// A watermark changes no row of a family.
const LIVE_CLIENTS: &str = "select f.client_id, count(*) as live from families f indexed by families_of_client
    where f.revoked_at is null and f.client_id <> '' and f.key_hash is null
        and f.idle_expiry > ?1 and f.absolute_expiry > ?1
        and f.created_at > (select value from meta where name = 'watermark')
        and not exists (select 1 from subjects s where s.subject = f.subject and s.not_after >= f.created_at)
        and not exists (select 1 from clients c
            where c.client_id = f.client_id and c.subject in ('', f.subject) and c.not_after >= f.created_at)
    group by f.client_id order by live desc, f.client_id limit ?2";

pub(super) fn live_clients(batch: &Batch<'_>, now: UnixTime, limit: usize) -> Result<Vec<LiveClient>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    batch.query(LIVE_CLIENTS, params![now, limit], |row| {
        Ok(LiveClient { client_id: row.get("client_id")?, live: rows::read_counter(row, "live")? })
    })
}

/// A page that is being filled.
struct Scan<'a, 'writer> {
    batch: &'a Batch<'writer>,
    search: &'a Search,
    /// The subject and the client of the last row, and its watermark.
    mark: Option<(String, String, Option<UnixTime>)>,
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
        if is_session && (is_unended || state != SearchState::Live) && self.is_of_client(row)? {
            let mark = self.watermark(&position.subject, row.get("client_id")?)?;
            let is_live = is_unended && mark.is_none_or(|mark| position.created_at > mark);
            if state == SearchState::All || is_live == (state == SearchState::Live) {
                self.add(rows::family(row)?, mark);
            }
        }
        self.last = Some(position);
        Ok(())
    }

    fn is_of_client(&self, row: &Row<'_>) -> Result<bool, StoreError> {
        let Some(wanted) = &self.search.client_id else { return Ok(true) };
        Ok(row.get::<_, String>("client_id")? == *wanted)
    }

    fn add(&mut self, family: Family, mark: Option<UnixTime>) {
        let wanted = &self.search.resource;
        if wanted.as_ref().is_none_or(|resource| family.audience.contains(resource)) {
            self.found.push(with_watermark(family, mark));
        }
    }

    fn watermark(&mut self, subject: &str, client_id: String) -> Result<Option<UnixTime>, StoreError> {
        if let Some((of_subject, of_client, mark)) = &self.mark
            && of_subject == subject
            && *of_client == client_id
        {
            return Ok(*mark);
        }
        let mark = self.batch.watermark(subject, &client_id)?;
        self.mark = Some((subject.to_owned(), client_id, mark));
        Ok(mark)
    }
}
