//! Logins at providers.

use rusqlite::{Row, params};

use crate::store::api::RevokedBy;
use crate::store::error::StoreError;
use crate::store::events;
use crate::store::provider_login::{
    AT_ONCE, Lease, LoginLease, ProviderLogin, RefreshedLogin, Renewed, Save, SavedLogin, StoredLogin, ends_at,
};
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows::{self, counter, read_counter};
use crate::store::sqlite::{api_keys, audit, families};
use crate::tokens::audit_event::EventContext;
use crate::tokens::family::Family;
use crate::tokens::family::revocation::Revoked;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// The processes that had the leases have ended: one process at a time has the database.
pub(super) const END_LEASES: &str = "update provider_logins set held_until = 1 where held_until > 1";

const INTERRUPTED: &str = "select l.id from provider_logins l join families f on f.id = l.id
    where l.held_until > 0 and l.held_until <= ?1 and f.revoked_at is null and f.idle_expiry > ?1
        and f.absolute_expiry > ?1
    order by l.held_until desc limit ?2";

/// The family and its login, in one transaction. A family that it replaces ends in the same one.
pub(super) fn begin(
    batch: &mut Batch<'_>,
    family: &Family,
    login: &ProviderLogin,
    replaces: Option<TokenId>,
    max_live: usize,
    context: &EventContext,
) -> Result<Option<Family>, StoreError> {
    let Some(family) = families::issue(batch, family, max_live, context)? else { return Ok(None) };
    insert(batch, &StoredLogin::begun(&family, login.clone()))?;
    if let Some(replaced) = replaces.map(|id| families::read(batch.connection, id)).transpose()?.flatten() {
        families::revoke_family(batch, replaced.id, &RevokedBy::Owner(replaced.subject), context)?;
    }
    Ok(Some(family))
}

fn insert(batch: &Batch<'_>, stored: &StoredLogin) -> Result<(), StoreError> {
    let StoredLogin { id, subject, began_at, login, check_at, .. } = stored;
    let ProviderLogin { provider, root, sealed, version, due, claimed } = login;
    batch.execute(
        "insert into provider_logins
            (id, subject, began_at, provider, root, sealed, version, due, claimed, held_until, check_at, retry_at)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, ?10, 0)",
        params![id, subject, began_at, provider, root, sealed, counter(*version)?, due, claimed, check_at],
    )?;
    Ok(())
}

/// The family as lists show it, and its login.
pub(super) fn find(batch: &Batch<'_>, id: TokenId) -> Result<Option<(Family, StoredLogin)>, StoreError> {
    let Some(family) = families::show(batch, id)? else { return Ok(None) };
    let stored = batch.query("select * from provider_logins where id = ?1", [id], read)?;
    Ok(stored.into_iter().next().map(|stored| (family, stored)))
}

pub(super) fn claim(batch: &Batch<'_>, id: TokenId, at: UnixTime) -> Result<(), StoreError> {
    let Some((family, stored)) = find(batch, id)? else { return Ok(()) };
    if stored.login.claimed || !family.is_live(at) {
        return Ok(());
    }
    let sql = "update provider_logins set claimed = 1, check_at = ?2 where id = ?1";
    batch.execute(sql, params![id, ends_at(&family)])?;
    // The first use moves the idle end, as each later one does.
    api_keys::used(batch, id, at)
}

pub(super) fn lease(
    batch: &Batch<'_>,
    id: TokenId,
    version: u64,
    wanted: Lease,
    now: UnixTime,
) -> Result<LoginLease, StoreError> {
    let Some((family, stored)) = find(batch, id)? else { return Ok(LoginLease::Ended) };
    let outcome = stored.lease(family.is_live(now), version, wanted.holder, now);
    if outcome == LoginLease::Granted {
        let sql = "update provider_logins set holder = ?2, held_until = ?3 where id = ?1";
        batch.execute(sql, params![id, wanted.holder, wanted.until])?;
    }
    Ok(outcome)
}

pub(super) fn interrupted(
    batch: &Batch<'_>,
    now: UnixTime,
    limit: usize,
) -> Result<Vec<(Family, ProviderLogin)>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let ids: Vec<TokenId> = batch.query(INTERRUPTED, params![now, limit], |row| Ok(row.get(0)?))?;
    let mut logins = Vec::new();
    for id in ids {
        let found = find(batch, id)?.filter(|(family, _)| family.is_live(now));
        logins.extend(found.map(|(family, stored)| (family, stored.login)));
    }
    Ok(logins)
}

pub(super) fn save(
    batch: &mut Batch<'_>,
    id: TokenId,
    holder: [u8; 16],
    refreshed: &RefreshedLogin,
    context: &EventContext,
) -> Result<SavedLogin, StoreError> {
    let RefreshedLogin { login, renewed } = refreshed;
    let Some((family, stored)) = find(batch, id)? else { return Ok(SavedLogin::Forgotten) };
    match stored.save(family.is_live(context.at), login) {
        Save::Nothing(outcome) => Ok(outcome),
        Save::Written => Ok(SavedLogin::Saved),
        Save::Keep => {
            write(batch, id, holder, login, AT_ONCE)?;
            Ok(SavedLogin::Ended)
        }
        Save::Write => {
            match renewed {
                Some(renewed) => renew(batch, family, &stored, holder, login, renewed, context)?,
                None => write_tokens(batch, id, login)?,
            }
            Ok(SavedLogin::Saved)
        }
    }
}

fn renew(
    batch: &mut Batch<'_>,
    family: Family,
    stored: &StoredLogin,
    holder: [u8; 16],
    login: &ProviderLogin,
    renewed: &Renewed,
    context: &EventContext,
) -> Result<(), StoreError> {
    let next = renewed_family(family, renewed, context);
    rows::update_claims(batch.connection, &next)?;
    let check_at = if stored.login.claimed { ends_at(&next) } else { stored.check_at };
    let login = ProviderLogin { due: stored.next_due(login, renewed), ..login.clone() };
    write(batch, stored.id, holder, &login, check_at)?;
    audit::record(batch, &events::login_refreshed(&next), context)
}

fn renewed_family(family: Family, renewed: &Renewed, context: &EventContext) -> Family {
    Family {
        scope: renewed.scope.clone(),
        claims: renewed.claims.clone(),
        address: context.client.or(family.address),
        ..family
    }
}

fn write_tokens(batch: &Batch<'_>, id: TokenId, login: &ProviderLogin) -> Result<(), StoreError> {
    let ProviderLogin { root, sealed, version, .. } = login;
    let sql = "update provider_logins set root = ?2, sealed = ?3, version = ?4 where id = ?1";
    batch.execute(sql, params![id, root, sealed, counter(*version)?])?;
    Ok(())
}

/// The lease of the caller ends with it. Another one may have it meanwhile.
fn write(
    batch: &Batch<'_>,
    id: TokenId,
    holder: [u8; 16],
    login: &ProviderLogin,
    check_at: UnixTime,
) -> Result<(), StoreError> {
    let ProviderLogin { provider, root, sealed, version, due, .. } = login;
    batch.execute(
        "update provider_logins set provider = ?2, root = ?3, sealed = ?4, version = ?5, due = ?6, check_at = ?7,
            retry_at = 0, held_until = case when holder = ?8 then 0 else held_until end
         where id = ?1",
        params![id, provider, root, sealed, counter(*version)?, due, check_at, holder],
    )?;
    Ok(())
}

/// Not those that are never due. One that is being refreshed is due already: the response may be older than the reason
/// for this. `?1` is when, `?2` the issuer.
macro_rules! make_due {
    ($of:literal) => {
        concat!(
            "update provider_logins set due = ?1 where (due > ?1 or held_until > 0 and due <> ?1) and due < 9223372036854775807 and id in (
                select id from families where origin_issuer = ?2 and ",
            $of,
            " and revoked_at is null and idle_expiry > ?1
            ) returning id"
        )
    };
}

pub(super) fn make_due(batch: &Batch<'_>, of: &Revoked, at: UnixTime) -> Result<Vec<TokenId>, StoreError> {
    let id = |row: &Row<'_>| Ok(row.get("id")?);
    match of {
        Revoked::Session { issuer, session } => {
            batch.query(make_due!("origin_session = ?3"), params![at, issuer, session], id)
        }
        Revoked::Subject { issuer, subject, not_after } => {
            let sql = make_due!("origin_subject = ?3 and origin_dated <= ?4");
            batch.query(sql, params![at, issuer, subject, not_after], id)
        }
        Revoked::Issuer { issuer, not_after } => {
            batch.query(make_due!("origin_dated <= ?3"), params![at, issuer, not_after], id)
        }
        Revoked::Family(_) | Revoked::Token { .. } | Revoked::Client { .. } | Revoked::Everything { .. } => {
            Ok(Vec::new())
        }
    }
}

pub(super) fn read(row: &Row<'_>) -> Result<StoredLogin, StoreError> {
    let holder: Option<[u8; 16]> = row.get("holder")?;
    let until = row.get("held_until")?;
    Ok(StoredLogin {
        id: row.get("id")?,
        subject: row.get("subject")?,
        began_at: row.get("began_at")?,
        login: ProviderLogin {
            provider: row.get("provider")?,
            root: row.get("root")?,
            sealed: row.get("sealed")?,
            version: read_counter(row, "version")?,
            due: row.get("due")?,
            claimed: row.get("claimed")?,
        },
        lease: holder.map(|holder| Lease { holder, until }),
        check_at: row.get("check_at")?,
        ended_at: row.get("ended_at")?,
    })
}
