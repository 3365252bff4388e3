//! Conversion between rows and values.

use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use crate::store::error::StoreError;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::{Family, FamilyOrigin, Grant, KeyRate, RevokeReason, RevokedAt, Superseded};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Replaces U+0000, which a text of PostgreSQL cannot contain. It begins with a character that no program uses, so that
/// each text has exactly one form.
const ESCAPE: char = '\u{10FFFF}';

/// The text as a column contains it.
pub(super) fn text(text: &str) -> String {
    if !text.contains(['\0', ESCAPE]) {
        return text.to_owned();
    }
    text.replace(ESCAPE, "\u{10FFFF}1").replace('\0', "\u{10FFFF}0")
}

fn unescaped(text: String) -> String {
    if text.contains(ESCAPE) { text.replace("\u{10FFFF}0", "\0").replace("\u{10FFFF}1", "\u{10FFFF}") } else { text }
}

/// Milliseconds. A time that exceeds the largest integer of PostgreSQL (year 292 million) is stored as that integer and
/// read as [`UnixTime::MAX`], so that "never" stays "never".
pub(super) fn time(time: UnixTime) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A counter as an integer of PostgreSQL. Unlike a time it must not be clamped: two generations would become equal.
pub(super) fn counter(value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::new(format!("the counter {value} is too large for PostgreSQL")))
}

/// A duration as an integer of PostgreSQL.
pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// How many rows a statement can return.
pub(super) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn to_json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::new(format!("cannot convert a value to JSON: {error}")))
}

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, StoreError> {
    Ok(row.try_get(column)?)
}

pub(super) fn read_text(row: &Row, column: &str) -> Result<String, StoreError> {
    Ok(unescaped(get(row, column)?))
}

pub(super) fn read_text_or_null(row: &Row, column: &str) -> Result<Option<String>, StoreError> {
    Ok(get::<Option<String>>(row, column)?.map(unescaped))
}

pub(super) fn read_time(row: &Row, column: &str) -> Result<UnixTime, StoreError> {
    to_time(get(row, column)?, column)
}

pub(super) fn read_time_or_null(row: &Row, column: &str) -> Result<Option<UnixTime>, StoreError> {
    get::<Option<i64>>(row, column)?.map(|millis| to_time(millis, column)).transpose()
}

fn to_time(millis: i64, column: &str) -> Result<UnixTime, StoreError> {
    match millis {
        i64::MAX => Ok(UnixTime::MAX),
        millis => u64::try_from(millis).map(UnixTime::from_millis).map_err(|_| damaged(column, millis)),
    }
}

pub(super) fn read_counter(row: &Row, column: &str) -> Result<u64, StoreError> {
    to_counter(get(row, column)?, column)
}

fn to_counter(value: i64, column: &str) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(|_| damaged(column, value))
}

/// A duration in milliseconds.
pub(super) fn read_millis(row: &Row, column: &str) -> Result<Duration, StoreError> {
    Ok(Duration::from_millis(read_counter(row, column)?))
}

/// The number of a root secret.
pub(super) fn read_root(row: &Row, column: &str) -> Result<u8, StoreError> {
    let root: i32 = get(row, column)?;
    u8::try_from(root).map_err(|_| damaged(column, root))
}

fn damaged(column: &str, value: impl std::fmt::Display) -> StoreError {
    StoreError::new(format!("the column {column} has the impossible value {value}; restore a backup"))
}

/// The columns that [`family`] reads, of the table with the name `f`. Named one by one, so that a prepared statement
/// goes on to work when a newer gateway adds a column.
macro_rules! family_columns {
    () => {
        "f.id, f.subject, f.scope, f.audience, f.client_id, f.claims, f.label, f.salt, f.generation, f.root,
            f.rotated_at, f.confirmed, f.created_at, f.last_used_at, f.idle, f.idle_expiry, f.absolute_expiry,
            f.revoked_at, f.revoked_reason, f.address, f.key_hash, f.key_rate, f.origin_issuer,
            f.origin_subject, f.origin_session, f.origin_dated, f.superseded_at, f.late_refreshes"
    };
}
pub(super) use family_columns;

pub(super) fn family(row: &Row) -> Result<Family, StoreError> {
    let id = token_id(get(row, "id")?)?;
    let revoked = match read_time_or_null(row, "revoked_at")? {
        Some(at) => Some(RevokedAt { at, reason: revoke_reason(get(row, "revoked_reason")?)? }),
        None => None,
    };
    let salt: &[u8] = get(row, "salt")?;
    Ok(Family {
        id,
        subject: read_text(row, "subject")?,
        scope: read_text(row, "scope")?,
        audience: json(row, id, "audience")?,
        client_id: read_text(row, "client_id")?,
        claims: json(row, id, "claims")?,
        label: read_text(row, "label")?,
        salt: salt.try_into().map_err(|_| damaged("salt", format_args!("of {} bytes", salt.len())))?,
        generation: read_counter(row, "generation")?,
        root: read_root(row, "root")?,
        rotated_at: read_time(row, "rotated_at")?,
        confirmed: read_counter(row, "confirmed")?,
        created_at: read_time(row, "created_at")?,
        last_used_at: read_time(row, "last_used_at")?,
        address: address(row, id)?,
        idle: get::<Option<i64>>(row, "idle")?.map(|idle| Duration::from_millis(idle.unsigned_abs())),
        idle_expiry: read_time(row, "idle_expiry")?,
        absolute_expiry: read_time(row, "absolute_expiry")?,
        key_hash: read_bytes_or_null(row, "key_hash")?,
        key_rate: key_rate(row)?,
        origin: origin(row)?,
        grant: grant(row)?,
        revoked,
    })
}

pub(super) fn read_hash(row: &Row, column: &str) -> Result<[u8; 32], StoreError> {
    let hash: &[u8] = get(row, column)?;
    hash.try_into().map_err(|_| damaged(column, format_args!("of {} bytes", hash.len())))
}

pub(super) fn read_bytes_or_null<const N: usize>(row: &Row, column: &str) -> Result<Option<[u8; N]>, StoreError> {
    let bytes: Option<&[u8]> = get(row, column)?;
    let read = |bytes: &[u8]| bytes.try_into().map_err(|_| damaged(column, format_args!("of {} bytes", bytes.len())));
    bytes.map(read).transpose()
}

fn origin(row: &Row) -> Result<Option<FamilyOrigin>, StoreError> {
    let Some(issuer) = read_text_or_null(row, "origin_issuer")? else { return Ok(None) };
    Ok(Some(FamilyOrigin {
        issuer,
        subject: read_text(row, "origin_subject")?,
        session: read_text_or_null(row, "origin_session")?,
        dated: read_time(row, "origin_dated")?,
    }))
}

fn grant(row: &Row) -> Result<Option<Grant>, StoreError> {
    let Some(count) = get::<Option<i32>>(row, "late_refreshes")? else { return Ok(None) };
    let count = u32::try_from(count).map_err(|_| damaged("late_refreshes", count))?;
    let at = read_time_or_null(row, "superseded_at")?;
    Ok(Some(Grant { superseded: at.map(|at| Superseded { at, count }) }))
}

/// The columns of [`Family::grant`].
#[derive(Default)]
pub(super) struct GrantColumns {
    pub(super) superseded_at: Option<i64>,
    pub(super) late_refreshes: Option<i32>,
}

impl GrantColumns {
    pub(super) fn of(grant: Option<Grant>) -> Self {
        let Some(Grant { superseded }) = grant else { return GrantColumns::default() };
        let count = superseded.map_or(0, |superseded| superseded.count);
        GrantColumns {
            superseded_at: superseded.map(|superseded| time(superseded.at)),
            late_refreshes: Some(i32::try_from(count).unwrap_or(i32::MAX)),
        }
    }
}

fn key_rate(row: &Row) -> Result<Option<KeyRate>, StoreError> {
    let text: Option<&str> = get(row, "key_rate")?;
    let read = |text: &str| KeyRate::parse(text).ok_or_else(|| damaged("key_rate", format_args!("{text:?}")));
    text.map(read).transpose()
}

pub(super) fn token_id(text: &str) -> Result<TokenId, StoreError> {
    TokenId::parse(text).ok_or_else(|| damaged("id", format_args!("{text:?}")))
}

pub(super) fn revoke_reason(text: Option<&str>) -> Result<RevokeReason, StoreError> {
    text.and_then(RevokeReason::parse).ok_or_else(|| damaged("revoked_reason", format_args!("{text:?}")))
}

fn address(row: &Row, id: TokenId) -> Result<Option<IpAddr>, StoreError> {
    let text: Option<&str> = get(row, "address")?;
    let parse = |text: &str| {
        text.parse()
            .map_err(|_| StoreError::new(format!("the column address of family {id} is damaged; restore a backup")))
    };
    text.map(parse).transpose()
}

fn json<T: DeserializeOwned>(row: &Row, id: TokenId, column: &str) -> Result<T, StoreError> {
    serde_json::from_str(get(row, column)?).map_err(|error| {
        StoreError::new(format!("the column {column} of family {id} is damaged: {error}; restore a backup"))
    })
}

/// The columns of an entry of the log that say what is revoked.
#[derive(Default)]
pub(super) struct RevokedColumns {
    pub(super) kind: &'static str,
    pub(super) issuer: Option<String>,
    pub(super) name: Option<String>,
    pub(super) not_after: Option<i64>,
    /// The column `session`.
    pub(super) is_session: bool,
    /// The column `client`.
    pub(super) client: Option<String>,
}

impl RevokedColumns {
    pub(super) fn of(what: &Revoked) -> Self {
        let named = |kind, issuer: &str, name: &str| RevokedColumns {
            kind,
            issuer: Some(text(issuer)),
            name: Some(text(name)),
            ..RevokedColumns::default()
        };
        match what {
            Revoked::Family(id) => {
                RevokedColumns { kind: "family", name: Some(id.to_string()), ..RevokedColumns::default() }
            }
            Revoked::Token { issuer, jti } => named("token", issuer, jti),
            // An older gateway reads it as the revocation of one token, and goes on to follow the log.
            Revoked::Session { issuer, session } => {
                RevokedColumns { is_session: true, ..named("token", issuer, session) }
            }
            Revoked::Subject { issuer, subject, not_after } => {
                RevokedColumns { not_after: Some(time(*not_after)), ..named("subject", issuer, subject) }
            }
            Revoked::Issuer { issuer, not_after } => {
                let issuer = Some(text(issuer));
                let not_after = Some(time(*not_after));
                RevokedColumns { kind: "issuer", issuer, not_after, ..RevokedColumns::default() }
            }
            // As for a session. No token has an empty issuer.
            Revoked::Client { client_id, subject, not_after } => RevokedColumns {
                not_after: Some(time(*not_after)),
                client: Some(text(client_id)),
                ..named("token", "", subject.as_deref().unwrap_or_default())
            },
            Revoked::Everything { not_after } => {
                RevokedColumns { kind: "everything", not_after: Some(time(*not_after)), ..RevokedColumns::default() }
            }
        }
    }
}

/// The columns that [`revocation`] reads. A statement begins with them, and reads no other table with such names.
macro_rules! revocation_columns {
    () => {
        "sequence, kind, issuer, name, not_after, at, until, session, client"
    };
}
pub(super) use revocation_columns;

/// How many they are.
pub(super) const REVOCATION_COLUMNS: usize = 9;

/// Returns false for a row with null in place of an entry of the log.
pub(super) fn is_revocation(row: &Row) -> Result<bool, StoreError> {
    Ok(row.try_get::<_, Option<i64>>(0)?.is_some())
}

/// Reads an entry of the log. By the places of its columns: a gateway that starts reads millions, and to search a
/// column by its name costs more than to read it.
pub(super) fn revocation(row: &Row) -> Result<Revocation, StoreError> {
    let text = |place: usize| Ok::<_, StoreError>(unescaped(row.try_get(place)?));
    let time = |place: usize, column| to_time(row.try_get(place)?, column);
    let kind: &str = row.try_get(1)?;
    let what = match kind {
        "family" => Revoked::Family(token_id(row.try_get(3)?)?),
        "token" if row.try_get::<_, Option<bool>>(7)?.unwrap_or_default() => {
            Revoked::Session { issuer: text(2)?, session: text(3)? }
        }
        "token" if row.try_get::<_, Option<&str>>(8)?.is_some() => Revoked::Client {
            client_id: text(8)?,
            subject: Some(text(3)?).filter(|subject| !subject.is_empty()),
            not_after: time(4, "not_after")?,
        },
        "token" => Revoked::Token { issuer: text(2)?, jti: text(3)? },
        "subject" => Revoked::Subject { issuer: text(2)?, subject: text(3)?, not_after: time(4, "not_after")? },
        "issuer" => Revoked::Issuer { issuer: text(2)?, not_after: time(4, "not_after")? },
        "everything" => Revoked::Everything { not_after: time(4, "not_after")? },
        _ => {
            return Err(StoreError::new(format!(
                "the log has a revocation of the unknown kind {kind:?}; start the newer version that wrote it"
            )));
        }
    };
    let sequence = to_counter(row.try_get(0)?, "sequence")?;
    Ok(Revocation { sequence, what, at: time(5, "at")?, until: time(6, "until")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_comes_back_and_none_contains_a_zero_character() {
        for original in ["", "é|'; --", "\0", "a\0b\0\0", "\u{10FFFF}", "\u{10FFFF}0", "\u{10FFFF}1\0\u{10FFFF}"] {
            let stored = text(original);
            assert!(!stored.contains('\0'));
            assert_eq!(unescaped(stored), original);
        }
        assert_ne!(text("\0"), text("\u{10FFFF}0"));
    }
}
