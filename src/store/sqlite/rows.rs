//! Conversion between rows and values.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, params};

use crate::store::endings::Revoker;
use crate::store::error::StoreError;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::{Family, FamilyOrigin, Grant, KeyRate, RevokeReason, RevokedAt, Superseded};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Milliseconds. A time that exceeds the largest integer of SQLite (year 292 million) is stored as that integer and
/// read as [`UnixTime::MAX`], so that "never" stays "never".
impl ToSql for UnixTime {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(i64::try_from(self.as_millis()).unwrap_or(i64::MAX).into())
    }
}

impl FromSql for UnixTime {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value.as_i64()? {
            i64::MAX => Ok(UnixTime::MAX),
            millis => u64::try_from(millis).map(UnixTime::from_millis).map_err(|_| FromSqlError::OutOfRange(millis)),
        }
    }
}

impl ToSql for TokenId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.to_string().into())
    }
}

impl FromSql for TokenId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        TokenId::parse(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}

impl ToSql for RevokeReason {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_str().into())
    }
}

impl FromSql for RevokeReason {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        RevokeReason::parse(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}

/// A counter as an integer of SQLite. Unlike a time it must not be clamped: two generations would become equal.
pub(super) fn counter(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::new(format!("the counter {value} is too large for SQLite")))
}

/// A duration as an integer of SQLite.
pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn read_counter(row: &Row<'_>, column: &str) -> Result<u64, StoreError> {
    let value: i64 = row.get(column)?;
    u64::try_from(value)
        .map_err(|_| StoreError::new(format!("the column {column} has the negative value {value}; restore a backup")))
}

pub(super) fn family(row: &Row<'_>) -> Result<Family, StoreError> {
    let id = row.get("id")?;
    let revoked = match row.get("revoked_at")? {
        Some(at) => Some(RevokedAt { at, reason: row.get("revoked_reason")? }),
        None => None,
    };
    Ok(Family {
        id,
        subject: row.get("subject")?,
        scope: row.get("scope")?,
        audience: json(row, id, "audience")?,
        client_id: row.get("client_id")?,
        claims: json(row, id, "claims")?,
        label: row.get("label")?,
        salt: row.get("salt")?,
        generation: read_counter(row, "generation")?,
        root: row.get("root")?,
        rotated_at: row.get("rotated_at")?,
        confirmed: read_counter(row, "confirmed")?,
        created_at: row.get("created_at")?,
        last_used_at: row.get("last_used_at")?,
        address: address(row, id)?,
        idle: row.get::<_, Option<i64>>("idle")?.map(|idle| Duration::from_millis(idle.unsigned_abs())),
        idle_expiry: row.get("idle_expiry")?,
        absolute_expiry: row.get("absolute_expiry")?,
        key_hash: row.get("key_hash")?,
        key_rate: key_rate(row, id)?,
        origin: origin(row)?,
        grant: grant(row)?,
        revoked,
    })
}

fn key_rate(row: &Row<'_>, id: TokenId) -> Result<Option<KeyRate>, StoreError> {
    let text: Option<String> = row.get("key_rate")?;
    let damaged = || StoreError::new(format!("the column key_rate of family {id} is damaged; restore a backup"));
    text.map(|text| KeyRate::parse(&text).ok_or_else(damaged)).transpose()
}

fn origin(row: &Row<'_>) -> Result<Option<FamilyOrigin>, StoreError> {
    let Some(issuer) = row.get("origin_issuer")? else { return Ok(None) };
    Ok(Some(FamilyOrigin {
        issuer,
        subject: row.get("origin_subject")?,
        session: row.get("origin_session")?,
        dated: row.get("origin_dated")?,
    }))
}

fn grant(row: &Row<'_>) -> Result<Option<Grant>, StoreError> {
    let Some(count) = row.get("late_refreshes")? else { return Ok(None) };
    let at: Option<UnixTime> = row.get("superseded_at")?;
    Ok(Some(Grant { superseded: at.map(|at| Superseded { at, count }) }))
}

/// The columns `superseded_at` and `late_refreshes`.
fn grant_columns(grant: Option<Grant>) -> (Option<UnixTime>, Option<u32>) {
    let superseded = grant.and_then(|grant| grant.superseded);
    (superseded.map(|superseded| superseded.at), grant.map(|_| superseded.map_or(0, |superseded| superseded.count)))
}

fn address(row: &Row<'_>, id: TokenId) -> Result<Option<IpAddr>, StoreError> {
    let text: Option<String> = row.get("address")?;
    let parse = |text: String| {
        text.parse()
            .map_err(|_| StoreError::new(format!("the column address of family {id} is damaged; restore a backup")))
    };
    text.map(parse).transpose()
}

fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, id: TokenId, column: &str) -> Result<T, StoreError> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| {
        StoreError::new(format!("the column {column} of family {id} is damaged: {error}; restore a backup"))
    })
}

fn to_json(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::new(format!("cannot convert a value to JSON: {error}")))
}

pub(super) fn insert_family(connection: &Connection, family: &Family) -> Result<(), StoreError> {
    let mut insert = connection.prepare_cached(
        "insert into families (id, subject, scope, audience, client_id, claims, label, salt, generation, root,
            rotated_at, confirmed, created_at, last_used_at, idle, idle_expiry, absolute_expiry, revoked_at,
            revoked_reason, address, key_hash, key_rate, origin_issuer, origin_subject, origin_session, origin_dated,
            superseded_at, late_refreshes)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21,
            ?22, ?23, ?24, ?25, ?26, ?27, ?28)",
    )?;
    let origin = family.origin.as_ref();
    let (superseded_at, late_refreshes) = grant_columns(family.grant);
    insert.execute(params![
        family.id,
        family.subject,
        family.scope,
        to_json(&family.audience)?,
        family.client_id,
        to_json(&family.claims)?,
        family.label,
        family.salt,
        counter(family.generation)?,
        family.root,
        family.rotated_at,
        counter(family.confirmed)?,
        family.created_at,
        family.last_used_at,
        family.idle.map(millis),
        family.idle_expiry,
        family.absolute_expiry,
        family.revoked.map(|revoked| revoked.at),
        family.revoked.map(|revoked| revoked.reason),
        family.address.map(|address| address.to_string()),
        family.key_hash,
        family.key_rate.map(|rate| rate.to_string()),
        origin.map(|origin| &origin.issuer),
        origin.map(|origin| &origin.subject),
        origin.and_then(|origin| origin.session.as_ref()),
        origin.map(|origin| origin.dated),
        superseded_at,
        late_refreshes,
    ])?;
    Ok(())
}

/// Writes the columns that a rotation changes. The statement must not name an indexed column, even with its old value:
/// SQLite would write the index too, and twice as much to the disk.
pub(super) fn update_rotated(connection: &Connection, family: &Family, rotated_at: UnixTime) -> Result<(), StoreError> {
    let mut update = connection.prepare_cached(
        "update families set generation = ?2, root = ?3, rotated_at = ?4, confirmed = ?5, last_used_at = ?6,
            idle_expiry = ?7, address = ?8
         where id = ?1",
    )?;
    let changed = update.execute(params![
        family.id,
        counter(family.generation)?,
        family.root,
        rotated_at,
        counter(family.confirmed)?,
        family.last_used_at,
        family.idle_expiry,
        family.address.map(|address| address.to_string()),
    ])?;
    one_row(changed, family.id)
}

/// Writes the columns that a refresh of tokens at a provider changes. None of them is in an index.
pub(super) fn update_claims(connection: &Connection, family: &Family) -> Result<(), StoreError> {
    let mut update =
        connection.prepare_cached("update families set scope = ?2, claims = ?3, address = ?4 where id = ?1")?;
    let changed = update.execute(params![
        family.id,
        family.scope,
        to_json(&family.claims)?,
        family.address.map(|address| address.to_string()),
    ])?;
    one_row(changed, family.id)
}

/// Writes the columns that a late refresh changes. None of them is in an index.
pub(super) fn update_grant(connection: &Connection, family: &Family) -> Result<(), StoreError> {
    let (superseded_at, late_refreshes) = grant_columns(family.grant);
    let changed = connection
        .prepare_cached("update families set superseded_at = ?2, late_refreshes = ?3 where id = ?1")?
        .execute(params![family.id, superseded_at, late_refreshes])?;
    one_row(changed, family.id)
}

pub(super) fn update_revoked(connection: &Connection, id: TokenId, revoked: RevokedAt) -> Result<(), StoreError> {
    let changed = connection
        .prepare_cached("update families set revoked_at = ?2, revoked_reason = ?3 where id = ?1")?
        .execute(params![id, revoked.at, revoked.reason])?;
    one_row(changed, id)
}

fn one_row(changed: usize, id: TokenId) -> Result<(), StoreError> {
    match changed {
        1 => Ok(()),
        _ => Err(StoreError::new(format!("cannot update family {id}: it is not in the store"))),
    }
}

pub(super) fn revocation(row: &Row<'_>) -> Result<Revocation, StoreError> {
    let kind: String = row.get("kind")?;
    let what = match kind.as_str() {
        "family" => Revoked::Family(row.get("name")?),
        "token" => Revoked::Token { issuer: row.get("issuer")?, jti: row.get("name")? },
        "session" => Revoked::Session { issuer: row.get("issuer")?, session: row.get("name")? },
        "subject" => {
            Revoked::Subject { issuer: row.get("issuer")?, subject: row.get("name")?, not_after: row.get("not_after")? }
        }
        "issuer" => Revoked::Issuer { issuer: row.get("issuer")?, not_after: row.get("not_after")? },
        "client" => Revoked::Client {
            client_id: row.get("client")?,
            subject: row.get("name")?,
            not_after: row.get("not_after")?,
        },
        "everything" => Revoked::Everything { not_after: row.get("not_after")? },
        _ => {
            return Err(StoreError::new(format!(
                "the log has a revocation of the unknown kind {kind:?}; start the newer version that wrote it"
            )));
        }
    };
    Ok(Revocation { sequence: read_counter(row, "sequence")?, what, at: row.get("at")?, until: row.get("until")? })
}

/// The columns of an entry of the log that say what is revoked.
#[derive(Default)]
struct RevokedColumns<'r> {
    kind: &'static str,
    issuer: Option<&'r str>,
    name: Option<Cow<'r, str>>,
    not_after: Option<UnixTime>,
    client: Option<&'r str>,
}

impl<'r> RevokedColumns<'r> {
    fn of(what: &'r Revoked) -> Self {
        let named = |kind, issuer: &'r str, name: &'r str| RevokedColumns {
            kind,
            issuer: Some(issuer),
            name: Some(name.into()),
            ..RevokedColumns::default()
        };
        let not_after = what.not_after();
        match what {
            Revoked::Family(id) => {
                RevokedColumns { kind: "family", name: Some(id.to_string().into()), ..RevokedColumns::default() }
            }
            Revoked::Token { issuer, jti } => named("token", issuer, jti),
            Revoked::Session { issuer, session } => named("session", issuer, session),
            Revoked::Subject { issuer, subject, .. } => {
                RevokedColumns { not_after, ..named("subject", issuer, subject) }
            }
            Revoked::Issuer { issuer, .. } => {
                RevokedColumns { kind: "issuer", issuer: Some(issuer), not_after, ..RevokedColumns::default() }
            }
            Revoked::Client { client_id, subject, .. } => RevokedColumns {
                kind: "client",
                name: subject.as_deref().map(Cow::from),
                not_after,
                client: Some(client_id),
                ..RevokedColumns::default()
            },
            Revoked::Everything { .. } => RevokedColumns { kind: "everything", not_after, ..RevokedColumns::default() },
        }
    }
}

pub(super) fn insert_revocation(connection: &Connection, revocation: &Revocation) -> Result<(), StoreError> {
    let RevokedColumns { kind, issuer, name, not_after, client } = RevokedColumns::of(&revocation.what);
    let mut insert = connection.prepare_cached(
        "insert into revocations (sequence, kind, issuer, name, not_after, at, until, client)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let sequence = counter(revocation.sequence)?;
    insert.execute(params![sequence, kind, issuer, name, not_after, revocation.at, revocation.until, client])?;
    Ok(())
}

/// `until`: how long the list has the entry. An entry that is there already prevents no revocation.
pub(super) fn insert_ending(
    connection: &Connection,
    revocation: &Revocation,
    reason: RevokeReason,
    by: Option<&Revoker>,
    until: UnixTime,
) -> Result<(), StoreError> {
    let RevokedColumns { kind, issuer, name, not_after, client } = RevokedColumns::of(&revocation.what);
    let mut insert = connection.prepare_cached(
        "insert or ignore into endings (sequence, kind, issuer, name, not_after, at, reason, by, until, client)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    let sequence = counter(revocation.sequence)?;
    let by = by.map(Revoker::to_text);
    insert.execute(params![sequence, kind, issuer, name, not_after, revocation.at, reason, by, until, client])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_of_a_missing_family_fails() {
        let id = TokenId::random();
        assert!(one_row(1, id).is_ok() && one_row(0, id).is_err() && one_row(2, id).is_err());
    }
}
