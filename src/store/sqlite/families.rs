//! The operations on families. Each runs inside a batch, and may run more than once.

use std::time::Duration;

use rusqlite::{Connection, params};

use crate::store::api::{DecideRotation, IssuedOnce, RevokeOutcome, RevokedBy};
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::late::CallTime;
use crate::store::provider_login::AT_ONCE;
use crate::store::sqlite::audit::record;
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::origins;
use crate::store::sqlite::rows::{self, counter};
use crate::store::watermark::{is_void, with_watermark};
use crate::tokens::audit_event::{Event, EventContext};
use crate::tokens::authorization::grant::GrantedFamily;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::family::rotation::Rotation;
use crate::tokens::family::{Family, RevokeReason, RevokedAt};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Maximum length of a list of families.
const MAX_LISTED: i64 = 1_000;

/// `?4`: the watermark of the subject. Each family has that of its own client besides.
pub(super) const LEAST_RECENTLY_USED: &str = "select * from families f
    where subject = ?1 and revoked_at is null and key_hash is null and generation > 0 and id <> ?2
        and idle_expiry > ?3 and absolute_expiry > ?3 and created_at > ?4
        and created_at > coalesce((select max(c.not_after) from clients c
            where c.client_id = f.client_id and c.subject in ('', f.subject)), -1)
        and (?7 is null or client_id = ?7)
    order by last_used_at desc, created_at desc limit ?5 offset ?6";

/// Whether one of the newest families of a subject is of a client. It reads no more of them than a list has.
pub(super) const HAS_CLIENT: &str = "select count(*) from (
        select client_id from families where subject = ?1 and key_hash is null
        order by created_at desc, id desc limit ?3
    ) where client_id = ?2";
pub(super) const SUPERSEDED: &str = "select * from families
    where subject = ?1 and client_id = ?2 and revoked_at is null and superseded_at is not null";

pub(super) fn issue(
    batch: &mut Batch<'_>,
    family: &Family,
    max_live: usize,
    context: &EventContext,
) -> Result<Option<Family>, StoreError> {
    insert(batch, family, &[events::issued(family)], max_live, None, context)
}

/// `events`: what is recorded if the family is written. `of_client`: maximum number of live families of its client.
fn insert(
    batch: &mut Batch<'_>,
    family: &Family,
    events: &[Event],
    max_live: usize,
    of_client: Option<usize>,
    context: &EventContext,
) -> Result<Option<Family>, StoreError> {
    // A login can be dated earlier: an authorization code, by the consent.
    let now = family.created_at.max(context.at);
    let mark = batch.watermark(&family.subject, &family.client_id)?;
    if is_void(family, mark) {
        return Ok(None);
    }
    if let Some(origin) = &family.origin
        && origins::is_revoked(batch, origin)?
    {
        return Ok(None);
    }
    rows::insert_family(batch.connection, family)?;
    for event in events {
        record(batch, event, context)?;
    }
    if !family.has_refresh_token() {
        return Ok(Some(family.clone()));
    }
    // Before the limit, for which they do not count any more.
    end_superseded(batch, family, mark, context)?;
    let of_subject = batch.watermark(&family.subject, "")?;
    // First the sessions of the client, so that a client ends its own sessions before those of others.
    let of_client = of_client.map(|max_live| Limit { max_live, client_id: Some(&family.client_id) });
    for limit in of_client.into_iter().chain([Limit { max_live, client_id: None }]) {
        for surplus in least_recently_used(batch, family, of_subject, now, &limit)? {
            end(batch, surplus.id, RevokedAt { at: now, reason: RevokeReason::Limit }, context)?;
            record(batch, &events::ended(&surplus, RevokeReason::Limit, context), context)?;
        }
    }
    Ok(Some(family.clone()))
}

/// Maximum number of live families of a subject.
struct Limit<'f> {
    max_live: usize,
    /// Only those of this client count.
    client_id: Option<&'f str>,
}

/// Ends the grants that this new one supersedes.
fn end_superseded(
    batch: &mut Batch<'_>,
    new: &Family,
    mark: Option<UnixTime>,
    context: &EventContext,
) -> Result<(), StoreError> {
    if new.grant.is_none() {
        return Ok(());
    }
    let now = new.created_at.max(context.at);
    let found = batch.query(SUPERSEDED, params![new.subject, new.client_id], rows::family)?;
    let context = context.clone().by_grant(new.id);
    for old in found {
        if old.is_superseded_by(new) && with_watermark(old.clone(), mark).is_live(now) {
            end(batch, old.id, RevokedAt { at: now, reason: RevokeReason::Reuse }, &context)?;
            record(batch, &events::ended(&old, RevokeReason::Reuse, &context), &context)?;
        }
    }
    Ok(())
}

pub(super) fn issue_once(
    batch: &mut Batch<'_>,
    grant: &GrantedFamily,
    max_live: usize,
    call: CallTime,
    context: &EventContext,
) -> Result<IssuedOnce, StoreError> {
    let family = &grant.family;
    if let Some(taken) = find(batch, family.id)? {
        // The caller takes it for theft.
        call.check_theft(batch.limits.timeout, || batch.was_paused)?;
        return Ok(IssuedOnce::Taken(taken));
    }
    let mut events = vec![events::granted(grant)];
    if !has_client(batch, family)? {
        events.push(events::client_seen(grant));
    }
    Ok(insert(batch, family, &events, max_live, Some(grant.max_live), context)?
        .map_or(IssuedOnce::Void, IssuedOnce::Written))
}

fn has_client(batch: &Batch<'_>, family: &Family) -> Result<bool, StoreError> {
    let params = params![family.subject, family.client_id, MAX_LISTED];
    let found: i64 = batch.connection.prepare_cached(HAS_CLIENT)?.query_row(params, |row| row.get(0))?;
    Ok(found > 0)
}

/// The live families of the subject beyond the limit. The new family counts, but is never returned: it is in use, even
/// if the clock says otherwise.
fn least_recently_used(
    batch: &Batch<'_>,
    new: &Family,
    mark: Option<UnixTime>,
    now: UnixTime,
    limit: &Limit<'_>,
) -> Result<Vec<Family>, StoreError> {
    let other_live = i64::try_from(limit.max_live.saturating_sub(1)).unwrap_or(i64::MAX);
    let mark = mark.unwrap_or_default();
    let params = params![new.subject, new.id, now, mark, i64::MAX, other_live, limit.client_id];
    batch.query(LEAST_RECENTLY_USED, params, rows::family)
}

pub(super) fn rotate(
    batch: &mut Batch<'_>,
    presented: &PresentedToken,
    decide: &DecideRotation,
    call: CallTime,
    context: &EventContext,
) -> Result<Rotation, StoreError> {
    let family = find(batch, presented.token_id)?;
    let mark = match &family {
        Some(family) => batch.watermark(&family.subject, &family.client_id)?,
        None => None,
    };
    let deciding = batch.steady_now.deciding(family.as_ref());
    let rotation = decide(family.as_ref(), mark, presented, Some(deciding));
    call.check_rotation(batch.limits.timeout, &rotation, Duration::ZERO, || batch.was_paused)?;
    match &rotation {
        Rotation::Rotated(family) => {
            let rotated_at = batch.steady_now.of_rotation(family.rotated_at, deciding);
            rows::update_rotated(batch.connection, family, rotated_at)?;
        }
        Rotation::Reused(family) => {
            let revoked = family
                .revoked
                .ok_or_else(|| StoreError::new("a reuse of a refresh token did not revoke its family"))?;
            end(batch, family.id, revoked, context)?;
        }
        Rotation::Superseded(family) => rows::update_grant(batch.connection, family)?,
        Rotation::Replayed(_) | Rotation::Recovered(_) | Rotation::Repeated(_) | Rotation::Rejected(_) => {}
    }
    if !events::is_of_stranger(&rotation) {
        record(batch, &events::rotation(&rotation, family.as_ref(), presented), context)?;
    }
    Ok(rotation)
}

pub(super) fn revoke_family(
    batch: &mut Batch<'_>,
    id: TokenId,
    by: &RevokedBy,
    context: &EventContext,
) -> Result<RevokeOutcome, StoreError> {
    let Some(family) = find(batch, id)?.filter(|family| by.can_revoke(family)) else {
        return Ok(RevokeOutcome::NotFound);
    };
    // An access token that was issued just before the family expired is valid longer than the family.
    let last_token_ends = family.idle_expiry.min(family.absolute_expiry) + batch.limits.longest_life;
    if family.revoked.is_some() || last_token_ends <= context.at {
        return Ok(RevokeOutcome::AlreadyEnded);
    }
    end(batch, id, RevokedAt { at: context.at, reason: by.reason() }, context)?;
    record(batch, &events::ended(&family, by.reason(), context), context)?;
    Ok(RevokeOutcome::Revoked)
}

/// Ends a family: its row stops refreshes, the log of revocations stops its access tokens.
pub(super) fn end(
    batch: &mut Batch<'_>,
    id: TokenId,
    revoked: RevokedAt,
    context: &EventContext,
) -> Result<(), StoreError> {
    rows::update_revoked(batch.connection, id, revoked)?;
    batch.execute("update provider_logins set check_at = ?2 where id = ?1", params![id, AT_ONCE])?;
    batch.revoke(Revoked::Family(id), revoked.at, revoked.reason, context)?;
    Ok(())
}

pub(super) fn confirm(batch: &Batch<'_>, seen: &[(TokenId, u64)]) -> Result<(), StoreError> {
    for (id, generation) in seen {
        // SQLite cannot store so large a generation, so it does not exist.
        let Ok(generation) = counter(*generation) else { continue };
        batch.execute(
            "update families set confirmed = ?2 where id = ?1 and confirmed < ?2 and generation >= ?2",
            params![id, generation],
        )?;
    }
    Ok(())
}

pub(super) fn of_subject(batch: &Batch<'_>, subject: &str) -> Result<Vec<Family>, StoreError> {
    let sql = "select * from families where subject = ?1 and key_hash is null order by created_at desc limit ?2";
    batch.query(sql, params![subject, MAX_LISTED], |row| {
        let family = rows::family(row)?;
        let mark = batch.watermark(&family.subject, &family.client_id)?;
        Ok(with_watermark(family, mark))
    })
}

pub(super) fn show(batch: &Batch<'_>, id: TokenId) -> Result<Option<Family>, StoreError> {
    let Some(family) = find(batch, id)? else { return Ok(None) };
    let mark = batch.watermark(&family.subject, &family.client_id)?;
    Ok(Some(with_watermark(family, mark)))
}

fn find(batch: &Batch<'_>, id: TokenId) -> Result<Option<Family>, StoreError> {
    read(batch.connection, id)
}

pub(super) fn read(connection: &Connection, id: TokenId) -> Result<Option<Family>, StoreError> {
    let mut select = connection.prepare_cached("select * from families where id = ?1")?;
    select.query_and_then([id], rows::family)?.next().transpose()
}
