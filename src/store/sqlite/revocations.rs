//! The log of revocations, and watermarks.

use rusqlite::params;

use crate::store::api::MAX_REVOCATIONS;
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows::{self, counter};
use crate::store::sqlite::{audit, families, origins};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::{Family, RevokeReason, RevokedAt};
use crate::types::clock::UnixTime;

pub(super) fn revoke(batch: &mut Batch<'_>, what: &Revoked, context: &EventContext) -> Result<u64, StoreError> {
    if let Revoked::Family(id) = what {
        return Err(StoreError::new(format!("family {id} must be revoked by revoke_family, which checks the owner")));
    }
    let Revocation { sequence, until, .. } = *batch.revoke(what.clone(), context.at, RevokeReason::Admin, context)?;
    audit::record(batch, &events::revocation(what), context)?;
    match what {
        // Subjects of other issuers own no families. The watermark is stored without the issuer, because the operator
        // may rename the gateway, and its families stay valid.
        Revoked::Subject { issuer, subject, not_after } if *issuer == batch.limits.issuer => {
            raise_watermark(batch, subject, *not_after, until)?;
            end_later_families(batch, Later::OfSubject(subject), *not_after, context)?;
        }
        Revoked::Client { client_id, subject, not_after } => {
            let client = ClientOf { client_id, subject: subject.as_deref() };
            raise_client_watermark(batch, client, *not_after, until)?;
            end_later_families(batch, Later::OfClient(client), *not_after, context)?;
        }
        // All families belong to the gateway's own issuer.
        Revoked::Issuer { issuer, not_after } if *issuer == batch.limits.issuer => {
            raise_global_watermark(batch, *not_after, context)?
        }
        Revoked::Everything { not_after } => raise_global_watermark(batch, *not_after, context)?,
        Revoked::Subject { .. }
        | Revoked::Issuer { .. }
        | Revoked::Token { .. }
        | Revoked::Session { .. }
        | Revoked::Family(_) => {}
    }
    let came_from_there = origins::families_of(batch, what, context.at)?;
    end_all(batch, &came_from_there, context)?;
    Ok(sequence)
}

fn raise_global_watermark(
    batch: &mut Batch<'_>,
    not_after: UnixTime,
    context: &EventContext,
) -> Result<(), StoreError> {
    batch.raise_watermark(not_after)?;
    end_later_families(batch, Later::All, not_after, context)
}

/// A client, with one of its users or with all.
#[derive(Clone, Copy)]
struct ClientOf<'c> {
    client_id: &'c str,
    subject: Option<&'c str>,
}

/// Which families a watermark is about.
enum Later<'c> {
    OfSubject(&'c str),
    OfClient(ClientOf<'c>),
    All,
}

/// Ends the existing families that are dated after the watermark: the clock was set back since their login.
fn end_later_families(
    batch: &mut Batch<'_>,
    of: Later<'_>,
    not_after: UnixTime,
    context: &EventContext,
) -> Result<(), StoreError> {
    // A watermark in the past spares later families on purpose.
    if not_after < context.at {
        return Ok(());
    }
    let later = match of {
        Later::OfSubject(subject) => batch.query(LATER_OF_SUBJECT, params![subject, not_after], rows::family)?,
        Later::OfClient(ClientOf { client_id, subject }) => {
            batch.query(LATER_OF_CLIENT, params![client_id, subject, not_after], rows::family)?
        }
        Later::All => batch.query(LATER, [not_after], rows::family)?,
    };
    end_all(batch, &later, context)
}

fn end_all(batch: &mut Batch<'_>, families: &[Family], context: &EventContext) -> Result<(), StoreError> {
    for family in families {
        let reason = RevokeReason::Admin;
        families::end(batch, family.id, RevokedAt { at: context.at, reason }, context)?;
        audit::record(batch, &events::ended(family, reason, context), context)?;
    }
    Ok(())
}

const LATER_OF_SUBJECT: &str = "select * from families where subject = ?1 and created_at > ?2 and revoked_at is null";
const LATER_OF_CLIENT: &str = "select * from families indexed by families_of_client where client_id = ?1
    and client_id <> '' and (?2 is null or subject = ?2) and created_at > ?3 and revoked_at is null";
/// Reads a whole index that has all needed columns, once for each mass revocation.
const LATER: &str = "select * from families indexed by families_unrevoked where created_at > ?1 and revoked_at is null";

/// Raises the watermark of a subject. It is kept while new families may be older than it (until before `until`), and
/// while there is a family that it voids.
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

/// As [`raise_watermark`].
fn raise_client_watermark(
    batch: &Batch<'_>,
    client: ClientOf<'_>,
    not_after: UnixTime,
    until: UnixTime,
) -> Result<(), StoreError> {
    let last_expiry: Option<UnixTime> = batch
        .connection
        .prepare_cached(
            "select max(absolute_expiry) from families
             where client_id = ?1 and client_id <> '' and (?2 is null or subject = ?2) and revoked_at is null",
        )?
        .query_row(params![client.client_id, client.subject], |row| row.get(0))?;
    let needed_until = until.max(last_expiry.unwrap_or_default());
    batch.execute(
        "insert into clients (client_id, subject, not_after, needed_until) values (?1, ?2, ?3, ?4)
         on conflict (client_id, subject) do update set
             not_after = max(not_after, excluded.not_after),
             needed_until = max(needed_until, excluded.needed_until)",
        params![client.client_id, client.subject.unwrap_or_default(), not_after, needed_until],
    )?;
    Ok(())
}

/// `?2`: how many at most; -1: all.
pub(super) const SINCE: &str = "select * from revocations where sequence > ?1 order by sequence limit ?2";

pub(super) fn since(batch: &Batch<'_>, after: u64) -> Result<Vec<Revocation>, StoreError> {
    batch.query(SINCE, params![counter(after)?, MAX_REVOCATIONS as i64], rows::revocation)
}
