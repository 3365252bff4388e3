//! The list of API keys, and when they were used.

use rusqlite::params;

use crate::store::error::StoreError;
use crate::store::search::{FoundFamilies, KeySearch};
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows;
use crate::store::watermark::with_watermark;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// After the text of every id.
const AFTER_IDS: &str = "~";

const SEARCH: &str = "select * from families indexed by families_api_keys
    where key_hash is not null and (?1 is null or subject = ?1)
        and (subject > ?2 or subject = ?2 and (created_at, id) < (?3, ?4))
    order by subject, created_at desc, id desc limit ?5";

pub(super) fn search(batch: &Batch<'_>, search: &KeySearch) -> Result<FoundFamilies, StoreError> {
    let (subject, created_at, id) = match &search.after {
        Some(after) => (after.subject.as_str(), after.created_at, after.id.to_string()),
        None => ("", UnixTime::MAX, AFTER_IDS.to_owned()),
    };
    let limit = i64::try_from(search.limit + 1).unwrap_or(i64::MAX);
    let params = params![search.subject, subject, created_at, id, limit];
    let mut found = Vec::new();
    for family in batch.query(SEARCH, params, rows::family)? {
        let mark = batch.watermark(&family.subject, &family.client_id)?;
        found.push(with_watermark(family, mark));
    }
    Ok(FoundFamilies::page(found, search.limit, None))
}

/// The idle time of a login at a provider counts from its last use. That of a login of our own counts from its refresh.
const USED: &str = "update families set last_used_at = ?2, idle_expiry = case
        when key_hash is null and idle is not null then max(idle_expiry, min(?2 + idle, absolute_expiry))
        else idle_expiry end
    where id = ?1 and (key_hash is not null or origin_issuer is not null) and last_used_at < ?2 and idle_expiry > ?2";

pub(super) fn used(batch: &Batch<'_>, id: TokenId, at: UnixTime) -> Result<(), StoreError> {
    batch.execute(USED, params![id, at])?;
    Ok(())
}
