//! Deleting old rows, and the readiness check.

use std::time::Duration;

use rusqlite::{Connection, params};

use crate::store::error::StoreError;
use crate::store::expired::Expired;
use crate::store::provider_login::TELL_TIME;
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::{provider_logouts, rows};
use crate::types::clock::UnixTime;

/// Rows are kept to the last millisecond at which they matter. A family is kept a little longer than it lives, so that
/// an access token that was issued at its end can still be revoked.
///
/// `untried_since`: see [`SweepTimes`](crate::store::provider_login::SweepTimes).
pub(super) fn sweep(
    batch: &Batch<'_>,
    now: UnixTime,
    untried_since: UnixTime,
    limit: usize,
) -> Result<usize, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let families = batch.execute(
        "delete from families where id in
             (select id from families where absolute_expiry < ?1 order by absolute_expiry limit ?2)",
        params![now - batch.limits.longest_life, limit],
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
    let of_clients = batch.execute(
        "delete from clients where rowid in
             (select rowid from clients where needed_until < ?1 order by needed_until limit ?2)",
        params![now, limit],
    )?;
    // Its entries end in the order of their sequence, or a little later.
    let endings = batch.execute(
        "delete from endings where until < ?1 and sequence in
             (select sequence from endings order by sequence limit ?2)",
        params![now, limit],
    )?;
    let marks = batch.execute(
        "delete from marks where id in (select id from marks where until < ?1 order by until limit ?2)",
        params![now, limit],
    )?;
    let logins = provider_logouts::sweep(batch, now, untried_since, limit)?;
    Ok(families + revocations + watermarks + of_clients + endings + marks + logins)
}

/// What [`sweep`] would delete, at most `limit` rows of each table, and when the first of them ended.
pub(super) fn expired(batch: &Batch<'_>, now: UnixTime, limit: usize) -> Result<Expired, StoreError> {
    let life = rows::millis(batch.limits.longest_life);
    let told = rows::millis(TELL_TIME);
    let found = batch.query(
        "select count(*), min(ended) from (
             select * from (select absolute_expiry + ?3 as ended from families
                 where absolute_expiry < ?1 - ?3 order by absolute_expiry limit ?2)
             union all select * from (select until from revocations where until < ?1 order by until limit ?2)
             union all select * from (select needed_until from subjects where needed_until < ?1
                 order by needed_until limit ?2)
             union all select * from (select needed_until from clients where needed_until < ?1
                 order by needed_until limit ?2)
             union all select * from (select until from endings
                 where (select until < ?1 from endings order by sequence limit 1) order by sequence limit ?2)
                 where until < ?1
             union all select * from (select until from marks where until < ?1 order by until limit ?2)
             union all select * from (select ended_at + ?4 from provider_logins
                 where ended_at < ?1 - ?4 and retry_at > ended_at + ?4
                 order by ended_at limit ?2)
         )",
        params![now, i64::try_from(limit).unwrap_or(i64::MAX), life, told],
        |row| Ok(Expired { rows: row.get::<_, i64>(0)?.unsigned_abs(), oldest: row.get(1)? }),
    )?;
    Ok(found.into_iter().next().unwrap_or_default())
}

/// Extends the revocations that were written while the longest accepted token lived shorter: one that was too long then
/// may be accepted now. To be called before the new maximum is stored, so that a start that is interrupted does it
/// again.
pub(super) fn keep_revocations_for(connection: &Connection, longest_life: Duration) -> Result<(), StoreError> {
    connection.execute(
        "update revocations set until = min(max(at, ifnull(not_after, at)), ?2 - ?1) + ?1
         where (select value from meta where name = 'longest_life') < ?1
             and until < min(max(at, ifnull(not_after, at)), ?2 - ?1) + ?1",
        params![rows::millis(longest_life), i64::MAX],
    )?;
    Ok(())
}

/// Writes, because reads still work on a full or read-only disk.
pub(super) fn check(batch: &Batch<'_>) -> Result<(), StoreError> {
    batch.execute("update meta set value = value + 1 where name = 'checks'", [])?;
    Ok(())
}
