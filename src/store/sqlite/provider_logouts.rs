//! Logins at providers that have ended, for the providers to be told.

use rusqlite::params;

use crate::store::api::RevokedBy;
use crate::store::error::StoreError;
use crate::store::provider_login::{ATTEMPT_TIME, ProviderLogin, StoredLogin, TELL_RETRY, TELL_TIME, ends_at};
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows::{self, counter};
use crate::store::sqlite::{families, provider_logins};
use crate::tokens::family::Family;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Logins of which the family may have ended. `?1` is now, `?2` how many, `?3` the provider. A revocation of the
/// family sets `check_at`; a watermark does not, because it may void a million families.
const DUE: &str = "select * from provider_logins
    where check_at <= ?1 and retry_at <= ?1 and held_until <= ?1 and provider = ?3
    order by check_at limit ?2";
const BEFORE_EVERYTHING: &str = "select * from provider_logins
    where began_at <= (select value from meta where name = 'watermark') and retry_at <= ?1 and held_until <= ?1
        and provider = ?3
    order by began_at limit ?2";
const OF_REVOKED_SUBJECTS: &str = "select l.* from subjects s cross join provider_logins l
        on l.subject = s.subject and l.began_at <= s.not_after
    where l.retry_at <= ?1 and l.held_until <= ?1 and l.provider = ?3 limit ?2";

/// An attempt begins. The time since the one before counts only up to a limit.
const TRY: &str = "update provider_logins set check_at = ?2, retry_at = ?2,
        ended_at = case when ended_at is null then ?3
            else ended_at + max(0, ?3 - max(ended_at, retry_at) - ?4) end
    where id = ?1";

/// Those with a day of attempts, and those that no gateway tries. `?1` is a day ago, `?2` how many, `?3` the day, `?4`
/// since when no gateway has tried.
const GIVEN_UP: &str = "delete from provider_logins where id in
    (select id from provider_logins where ended_at < ?1 and (retry_at > ended_at + ?3 or retry_at < ?4)
     order by ended_at limit ?2)";

pub(super) fn to_revoke(
    batch: &mut Batch<'_>,
    provider: &str,
    now: UnixTime,
    limit: usize,
) -> Result<Vec<(TokenId, ProviderLogin)>, StoreError> {
    let mut ended = Vec::new();
    for sql in [DUE, BEFORE_EVERYTHING, OF_REVOKED_SUBJECTS] {
        let left = i64::try_from(limit - ended.len()).unwrap_or(i64::MAX);
        for stored in batch.query(sql, params![now, left, provider], provider_logins::read)? {
            if has_ended(batch, &stored, now)? {
                batch.execute(TRY, params![stored.id, now + TELL_RETRY, now, rows::millis(ATTEMPT_TIME)])?;
                ended.push((stored.id, stored.login));
            }
        }
    }
    Ok(ended)
}

/// Ends a family that its browser has not claimed in time. Looks again later at one that lives on.
fn has_ended(batch: &mut Batch<'_>, stored: &StoredLogin, now: UnixTime) -> Result<bool, StoreError> {
    let found = families::show(batch, stored.id)?;
    let Some(family) = found.filter(|family: &Family| family.is_live(now)) else { return Ok(true) };
    if !stored.login.claimed && stored.check_at <= now {
        families::revoke_family(batch, stored.id, &RevokedBy::Admin, &now.into())?;
        return Ok(true);
    }
    let sql = "update provider_logins set check_at = ?2 where id = ?1 and claimed = 1";
    batch.execute(sql, params![stored.id, ends_at(&family)])?;
    Ok(false)
}

pub(super) fn forget(batch: &Batch<'_>, id: TokenId, version: u64) -> Result<(), StoreError> {
    batch.execute("delete from provider_logins where id = ?1 and version = ?2", params![id, counter(version)?])?;
    Ok(())
}

/// Deletes logins after a day of attempts: the provider could not be told. Also those that no gateway has tried since
/// `untried_since`, a day after their end was noticed: no `[[provider]]` has their name any more.
pub(super) fn sweep(
    batch: &Batch<'_>,
    now: UnixTime,
    untried_since: UnixTime,
    limit: i64,
) -> Result<usize, StoreError> {
    // No gateway has looked at them: it was stopped, or has no `[[provider]]`. Only noticed here, so that the next one
    // has a day to tell the provider.
    batch.execute(
        "update provider_logins set check_at = ?2, ended_at = ?2 where id in
             (select l.id from provider_logins l left join families f on f.id = l.id
              where l.check_at < ?1 and l.ended_at is null
                  and (f.id is null or f.revoked_at is not null or f.idle_expiry < ?1)
              order by l.check_at limit ?3)",
        params![now - TELL_TIME, now, limit],
    )?;
    batch.execute(GIVEN_UP, params![now - TELL_TIME, limit, rows::millis(TELL_TIME), untried_since])
}
