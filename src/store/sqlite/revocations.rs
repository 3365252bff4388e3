//! The operations on the log of revocations and on watermarks.

use rusqlite::params;

use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows::{self, counter};
use crate::store::sqlite::{audit, families};
use crate::store::{StoreError, events};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::{RevokeReason, RevokedAt};
use crate::types::clock::UnixTime;

pub(super) fn revoke(batch: &mut Batch<'_>, what: &Revoked, occasion: &EventContext) -> Result<u64, StoreError> {
    if let Revoked::Family(id) = what {
        return Err(StoreError::new(format!("family {id} was to be revoked without asking who may")));
    }
    let Revocation { sequence, until, .. } = *batch.revoke(what.clone(), occasion.at)?;
    audit::record(batch, &events::revocation(what), occasion)?;
    match what {
        // Another issuer's subject has no family here. The name of our own issuer is configuration and may change; the
        // families stay ours, so their watermarks are kept without it.
        Revoked::Subject { issuer, subject, not_after } if *issuer == batch.terms.issuer => {
            raise_watermark(batch, subject, *not_after, until)?;
            end_those_ahead(batch, Some(subject), *not_after, occasion)?;
        }
        // All families are of our own issuer.
        Revoked::Issuer { issuer, not_after } if *issuer == batch.terms.issuer => {
            over_all(batch, *not_after, occasion)?
        }
        Revoked::Everything { not_after } => over_all(batch, *not_after, occasion)?,
        Revoked::Subject { .. } | Revoked::Issuer { .. } | Revoked::Token { .. } | Revoked::Family(_) => {}
    }
    Ok(sequence)
}

fn over_all(batch: &mut Batch<'_>, not_after: UnixTime, occasion: &EventContext) -> Result<(), StoreError> {
    batch.raise_watermark(not_after)?;
    end_those_ahead(batch, None, not_after, occasion)
}

/// Ends the families that are dated past the watermark and are there all the same. A login right after a watermark is moved
/// past it, by up to a second, and another watermark may come before that has passed; or the clock was set back.
fn end_those_ahead(
    batch: &mut Batch<'_>,
    subject: Option<&str>,
    not_after: UnixTime,
    occasion: &EventContext,
) -> Result<(), StoreError> {
    // One in the past spares on purpose what came after it.
    if not_after < occasion.at {
        return Ok(());
    }
    let ahead = match subject {
        Some(subject) => batch.query(AHEAD_OF_SUBJECT, params![subject, not_after], rows::family)?,
        None => batch.query(AHEAD, [not_after], rows::family)?,
    };
    for family in ahead {
        let reason = RevokeReason::Admin;
        families::end(batch, family.id, RevokedAt { at: occasion.at, reason })?;
        audit::record(batch, &events::ended(&family, reason), occasion)?;
    }
    Ok(())
}

const AHEAD_OF_SUBJECT: &str = "select * from families where subject = ?1 and created_at > ?2 and revoked_at is null";
/// By an index that has all it asks about: it is read whole, once for each mass revocation.
const AHEAD: &str = "select * from families indexed by families_unrevoked where created_at > ?1 and revoked_at is null";

/// Raises a subject's watermark. It is needed while it lies ahead of new families (`until` is later than that), and while
/// there is an old one that it voids.
fn raise_watermark(batch: &Batch<'_>, subject: &str, not_after: UnixTime, until: UnixTime) -> Result<(), StoreError> {
    let last_expiry: Option<UnixTime> = batch
        .connection
        .prepare_cached("select max(absolute_expiry) from families where subject = ?1 and revoked_at is null")?
        .query_row([subject], |row| row.get(0))?;
    let needed_until = until.max(last_expiry.unwrap_or_default());
    batch.execute(
        "insert into subjects (subject, not_after, needed_until) values (?1, ?2, ?3)
         on conflict (subject) do update set
             not_after = case when not_after < ?2 then ?2 else not_after end,
             needed_until = case when needed_until < ?3 then ?3 else needed_until end",
        params![subject, not_after, needed_until],
    )?;
    Ok(())
}

pub(super) const SINCE: &str = "select * from revocations where sequence > ?1 and until >= ?2 order by sequence";

pub(super) fn since(batch: &Batch<'_>, after: u64, now: UnixTime) -> Result<Vec<Revocation>, StoreError> {
    batch.query(SINCE, params![counter(after)?, now], rows::revocation)
}
