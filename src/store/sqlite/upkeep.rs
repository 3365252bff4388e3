//! The operations that serve the store itself: sweeping, the readiness check, signing keys.

use rusqlite::params;

use crate::audit::Event;
use crate::clock::UnixTime;
use crate::store::sqlite::audit;
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows;
use crate::store::{StoreError, StoredKey};

/// Everything is kept through the very moment that it is needed until. A family stays a little longer than it lives: an
/// access token given at its end can still be revoked by its name.
pub(super) fn sweep(batch: &Batch<'_>, now: UnixTime, limit: usize) -> Result<usize, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let families = batch.execute(
        "delete from families where id in
             (select id from families where absolute_expiry < ?1 order by absolute_expiry limit ?2)",
        params![now - batch.terms.longest_life, limit],
    )?;
    let revocations = batch.execute(
        "delete from revocations where sequence in
             (select sequence from revocations where until < ?1 order by until limit ?2)",
        params![now, limit],
    )?;
    let watermarks = batch.execute(
        "delete from subjects where subject in
             (select subject from subjects where needed_until < ?1 order by needed_until limit ?2)",
        params![now, limit],
    )?;
    Ok(families + revocations + watermarks)
}

/// Writes, because a disk that is full or read-only shows itself in nothing else.
pub(super) fn check(batch: &Batch<'_>) -> Result<(), StoreError> {
    batch.execute("update meta set value = value + 1 where name = 'checks'", [])?;
    Ok(())
}

/// The newest first.
pub(super) const SIGNING_KEYS: &str = "select * from signing_keys order by created_at desc, kid";

pub(super) fn signing_keys(batch: &Batch<'_>) -> Result<Vec<StoredKey>, StoreError> {
    batch.query(SIGNING_KEYS, [], rows::signing_key)
}

pub(super) fn add_first_signing_key(batch: &mut Batch<'_>, key: &StoredKey) -> Result<Vec<StoredKey>, StoreError> {
    let made = batch.execute(
        "insert into signing_keys (kid, algorithm, sealed, created_at)
         select ?1, ?2, ?3, ?4 where not exists (select 1 from signing_keys where algorithm = ?2)",
        params![key.kid, key.algorithm, key.sealed, key.created_at],
    )?;
    if made > 0 {
        let event = Event { kid: Some(key.kid.clone()), ..Event::new("key.made") };
        audit::record(batch, &event, &key.created_at.into())?;
    }
    signing_keys(batch)
}
