//! Families that began at another issuer, and the revocations there that end them.

use crate::store::error::StoreError;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::operation::Shared;
use crate::store::postgres::rows::{self, family_columns};
use crate::store::postgres::session::Session;
use crate::tokens::family::revocation::Revoked;
use crate::tokens::family::{Family, FamilyOrigin};
use crate::types::clock::UnixTime;

/// True if a revocation covers the origin. The values are the issuer, the subject and the session there, and the date.
macro_rules! is_revoked {
    ($issuer:literal, $subject:literal, $session:literal, $dated:literal) => {
        concat!(
            "exists (select from revocations r where r.issuer = ",
            $issuer,
            " and (coalesce(r.name, r.issuer) = ",
            $session,
            " and r.session and r.name = ",
            $session,
            " or coalesce(r.name, r.issuer) = ",
            $subject,
            " and r.kind = 'subject' and r.name = ",
            $subject,
            " and r.not_after >= ",
            $dated,
            " or coalesce(r.name, r.issuer) = ",
            $issuer,
            " and r.kind = 'issuer' and r.not_after >= ",
            $dated,
            "))"
        )
    };
}
pub(super) use is_revoked as origin_is_revoked;

const IS_REVOKED: &str = concat!("select ", is_revoked!("$1::text", "$2::text", "$3::text", "$4::bigint"));

const OF_SESSION: &str = concat!(
    "select ",
    family_columns!(),
    " from families f where f.origin_session = $2 and f.origin_issuer = $1 and f.revoked_at is null
        and f.idle_expiry >= $3 limit $4"
);
const OF_SUBJECT: &str = concat!(
    "select ",
    family_columns!(),
    " from families f where f.origin_issuer = $1 and f.origin_subject = $2 and f.origin_dated <= $3
        and f.revoked_at is null and f.idle_expiry >= $4 limit $5"
);
const OF_ISSUER: &str = concat!(
    "select ",
    family_columns!(),
    " from families f where f.origin_issuer = $1 and f.origin_dated <= $2 and f.revoked_at is null
        and f.idle_expiry >= $3 limit $4"
);

/// Returns true if a revocation that is still in the log covers the origin. They are kept for as long as any token that
/// began a login can be accepted.
pub(super) async fn is_revoked(session: &Session, origin: &FamilyOrigin) -> Result<bool, QueryError> {
    let Columns { issuer, subject, session: of_session, dated } = Columns::of(Some(origin));
    let row = session.query_opt(IS_REVOKED, &[&issuer, &subject, &of_session, &dated]).await?;
    let row = row.ok_or_else(|| StoreError::new("the database did not respond with a row"))?;
    Ok(row.try_get(0).map_err(StoreError::from)?)
}

/// Some of the families that came from what was revoked. An access token that was issued just before its family expired
/// is valid for longer than the family.
pub(super) async fn families_of(
    shared: &Shared,
    session: &Session,
    what: &Revoked,
    at: UnixTime,
    limit: usize,
) -> Result<Vec<Family>, QueryError> {
    let since = rows::time(at - shared.enforcement.longest_life);
    let limit = rows::limit(limit);
    let found = match what {
        Revoked::Session { issuer, session: of_session } => {
            session.query(OF_SESSION, &[&rows::text(issuer), &rows::text(of_session), &since, &limit]).await?
        }
        Revoked::Subject { issuer, subject, not_after } => {
            let issuer = rows::text(issuer);
            let subject = rows::text(subject);
            session.query(OF_SUBJECT, &[&issuer, &subject, &rows::time(*not_after), &since, &limit]).await?
        }
        Revoked::Issuer { issuer, not_after } => {
            session.query(OF_ISSUER, &[&rows::text(issuer), &rows::time(*not_after), &since, &limit]).await?
        }
        Revoked::Family(_) | Revoked::Token { .. } | Revoked::Client { .. } | Revoked::Everything { .. } => {
            return Ok(Vec::new());
        }
    };
    Ok(found.iter().map(rows::family).collect::<Result<_, _>>()?)
}

/// The columns of an origin. All are null for a login of the gateway's own.
pub(super) struct Columns {
    pub(super) issuer: Option<String>,
    pub(super) subject: Option<String>,
    pub(super) session: Option<String>,
    pub(super) dated: Option<i64>,
}

impl Columns {
    pub(super) fn of(origin: Option<&FamilyOrigin>) -> Self {
        Columns {
            issuer: origin.map(|origin| rows::text(&origin.issuer)),
            subject: origin.map(|origin| rows::text(&origin.subject)),
            session: origin.and_then(|origin| origin.session.as_deref()).map(rows::text),
            dated: origin.map(|origin| rows::time(origin.dated)),
        }
    }
}
