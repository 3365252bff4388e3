//! Families that began at another issuer, and the revocations there that end them.

use rusqlite::params;

use crate::store::error::StoreError;
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::family::{Family, FamilyOrigin};
use crate::types::clock::UnixTime;

/// Separate queries, so that each uses the whole index.
const IS_REVOKED: &str = "select exists (
        select 1 from revocations where issuer = ?1 and kind = 'session' and name = ?2
    ) or exists (
        select 1 from revocations where issuer = ?1 and kind = 'subject' and name = ?3 and not_after >= ?4
    ) or exists (
        select 1 from revocations where issuer = ?1 and kind = 'issuer' and not_after >= ?4
    )";

/// Returns true if a revocation that is still in the log covers the origin. They are kept for as long as any token that
/// began a login can be accepted.
pub(super) fn is_revoked(batch: &Batch<'_>, origin: &FamilyOrigin) -> Result<bool, StoreError> {
    let FamilyOrigin { issuer, subject, session, dated } = origin;
    let mut select = batch.connection.prepare_cached(IS_REVOKED)?;
    Ok(select.query_row(params![issuer, session, subject, dated], |row| row.get(0))?)
}

const OF_SESSION: &str = "select * from families
    where origin_session = ?2 and origin_issuer = ?1 and revoked_at is null and idle_expiry >= ?3";
const OF_SUBJECT: &str = "select * from families
    where origin_issuer = ?1 and origin_subject = ?2 and origin_dated <= ?4 and revoked_at is null
        and idle_expiry >= ?3";
const OF_ISSUER: &str = "select * from families
    where origin_issuer = ?1 and origin_dated <= ?2 and revoked_at is null and idle_expiry >= ?3";

/// The families that came from what was revoked. An access token that was issued just before its family expired is
/// valid for longer than the family.
pub(super) fn families_of(batch: &Batch<'_>, what: &Revoked, at: UnixTime) -> Result<Vec<Family>, StoreError> {
    let since = at - batch.limits.longest_life;
    match what {
        Revoked::Session { issuer, session } => batch.query(OF_SESSION, params![issuer, session, since], rows::family),
        Revoked::Subject { issuer, subject, not_after } => {
            batch.query(OF_SUBJECT, params![issuer, subject, since, not_after], rows::family)
        }
        Revoked::Issuer { issuer, not_after } => {
            batch.query(OF_ISSUER, params![issuer, not_after, since], rows::family)
        }
        Revoked::Family(_) | Revoked::Token { .. } | Revoked::Client { .. } | Revoked::Everything { .. } => {
            Ok(Vec::new())
        }
    }
}
