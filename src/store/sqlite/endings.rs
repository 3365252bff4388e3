//! The list of what was ended, why and by which actor.

use rusqlite::{Row, params};

use crate::store::endings::{Ending, EndingSearch, FoundEndings, MAX_SCANNED, Revoker};
use crate::store::error::StoreError;
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::families;
use crate::store::sqlite::rows::{self, counter};
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::types::ids::TokenId;

const PAGE: &str = "select * from endings where sequence < ?1 order by sequence desc";

pub(super) fn search(batch: &Batch<'_>, search: &EndingSearch) -> Result<FoundEndings, StoreError> {
    // Larger than every sequence.
    let before = search.before.map_or(Ok(i64::MAX), counter)?;
    let mut statement = batch.connection.prepare_cached(PAGE)?;
    let mut rows = statement.query([before])?;
    let mut found = Vec::new();
    let mut last = None;
    for _ in 0..MAX_SCANNED {
        let Some(row) = rows.next()? else { return Ok(FoundEndings::page(found, search.limit, None)) };
        let ending = read(row)?;
        last = Some(ending.sequence);
        if search.wants(&ending) {
            let family = match &ending.what {
                Revoked::Family(id) => families::read(batch.connection, *id)?,
                _ => None,
            };
            found.push((ending, family));
        }
        if found.len() > search.limit {
            break;
        }
    }
    Ok(FoundEndings::page(found, search.limit, last))
}

pub(super) fn read(row: &Row<'_>) -> Result<Ending, StoreError> {
    let Revocation { sequence, what, at, until } = rows::revocation(row)?;
    let by: Option<String> = row.get("by")?;
    let by = by.as_deref().and_then(Revoker::parse);
    Ok(Ending { sequence, what, at, reason: row.get("reason")?, by, until })
}

pub(super) fn revokers(batch: &Batch<'_>, ids: &[TokenId]) -> Result<Vec<(TokenId, Revoker)>, StoreError> {
    let sql = "select by from endings where name = ?1 and kind = 'family' and by is not null";
    let mut revokers = Vec::new();
    for id in ids {
        let texts = batch.query(sql, params![id], |row| Ok(row.get::<_, String>("by")?))?;
        revokers.extend(texts.iter().filter_map(|text| Revoker::parse(text)).map(|revoker| (*id, revoker)));
    }
    Ok(revokers)
}
