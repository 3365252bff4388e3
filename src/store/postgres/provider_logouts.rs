//! Logins at providers that have ended, for the providers to be told.
//!
//! A revocation of a family does not write here, so that it waits for no lock. Its entry in the list of what was ended
//! is found later, also that of an older gateway.

use tokio_postgres::Row;

use crate::store::api::RevokedBy;
use crate::store::error::StoreError;
use crate::store::pool::OperationKind;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::families::RevokeFamily;
use crate::store::postgres::lookup::mark_of;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::provider_logins::{login_columns, read};
use crate::store::postgres::rows::{self, get};
use crate::store::postgres::session::Session;
use crate::store::provider_login::{AT_ONCE, ATTEMPT_TIME, CLAIM_TIME, ProviderLogin, TELL_RETRY};
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Entries of the list that one statement reads.
const PAGE: i64 = 5_000;

/// Compares the next entries of the list with the logins. They have an order without gaps, so that none is missed.
/// Returns how many there were; null if another gateway does the same now.
const FIND_ENDED: &str = "with cursor as (
        select m.value from meta m where m.name = 'provider_logins' for update skip locked
    ), page as (
        select e.sequence, e.kind, e.name from endings e, cursor c where e.sequence > c.value
        order by e.sequence limit $1
    ), found as (
        select l.id from page p join provider_logins l on l.id = p.name where p.kind = 'family'
        order by l.id for update of l
    ), noted as (
        update provider_logins l set check_at = $2, changes = l.changes + 1 from found where l.id = found.id
    ), moved as (
        update meta m set value = (select max(p.sequence) from page p)
        where m.name = 'provider_logins' and exists (select from page)
    )
    select case when exists (select from cursor) then (select count(*) from page) end as read";

/// Families that their browsers have not claimed in time.
const UNCLAIMED: &str = "select l.id from provider_logins l join families f on f.id = l.id
    where l.check_at <= $1 and not l.claimed and l.began_at <= $1 - $2 and f.revoked_at is null limit $3";

/// Logins with a family that lives on. `$2` is how many.
const PUT_OFF: &str = "with due as (
        select l.id from provider_logins l where l.check_at <= $1 order by l.check_at limit $2
    ), alive as (
        select l.id, least(f.idle_expiry, f.absolute_expiry) as ends
        from due d join provider_logins l on l.id = d.id join families f on f.id = l.id
        where l.claimed and l.check_at > 0 and f.revoked_at is null and f.idle_expiry > $1 and f.absolute_expiry > $1
        for update of l skip locked
    )
    update provider_logins l set check_at = a.ends, changes = l.changes + 1 from alive a where l.id = a.id";

/// A watermark may void a million families, so that it changes no row. The time since the attempt before counts only up
/// to a limit (`$5`).
const ENDED: &str = concat!(
    "with due as (
        select l.id from provider_logins l where l.check_at <= $1
        union select l.id from provider_logins l
            where l.began_at <= (select m.value from meta m where m.name = 'watermark')
        union select l.id from subjects s join provider_logins l on l.subject = s.subject and l.began_at <= s.not_after
    ), ended as (
        select l.id from due d join provider_logins l on l.id = d.id left join families f on f.id = l.id
        where l.provider = $4 and l.retry_at <= $1 and l.held_until <= $1 and (f.id is null or f.revoked_at is not null
            or f.idle_expiry <= $1 or f.absolute_expiry <= $1 or f.created_at <= ",
    mark_of!("l.subject", "f.client_id"),
    ")
        order by l.id limit $2 for update of l skip locked
    )
    update provider_logins l set check_at = $3, retry_at = $3, changes = l.changes + 1,
        ended_at = case when l.ended_at is null then $1
            else l.ended_at + greatest(0, $1 - greatest(l.ended_at, l.retry_at) - $5) end
    from ended e where l.id = e.id returning ",
    login_columns!()
);

pub(super) struct LoginsToRevoke {
    pub(super) provider: String,
    pub(super) now: UnixTime,
    pub(super) limit: usize,
}

impl Operation for LoginsToRevoke {
    type Output = Vec<(TokenId, ProviderLogin)>;

    const KIND: OperationKind = OperationKind::Read;

    async fn run(&self, shared: &Shared, session: &Session) -> Result<Self::Output, QueryError> {
        let now = rows::time(self.now);
        let limit = rows::limit(self.limit);
        while read_ended(session).await? == PAGE {}
        for row in &session.query(UNCLAIMED, &[&now, &rows::millis(CLAIM_TIME), &limit]).await? {
            let id = rows::token_id(get(row, "id")?)?;
            RevokeFamily::new(id, RevokedBy::Admin, self.now.into()).run(shared, session).await?;
        }
        session.execute(PUT_OFF, &[&now, &limit]).await?;
        let retry_at = rows::time(self.now + TELL_RETRY);
        let provider = rows::text(&self.provider);
        let counts = rows::millis(ATTEMPT_TIME);
        let ended = session.query(ENDED, &[&now, &limit, &retry_at, &provider, &counts]).await?;
        let login = |row: &Row| read(row).map(|stored| (stored.id, stored.login));
        Ok(ended.iter().map(login).collect::<Result<_, StoreError>>()?)
    }
}

async fn read_ended(session: &Session) -> Result<i64, QueryError> {
    let row = session.query_opt(FIND_ENDED, &[&PAGE, &rows::time(AT_ONCE)]).await?;
    Ok(row.map(|row| get::<Option<i64>>(&row, "read")).transpose()?.flatten().unwrap_or_default())
}

const FORGET: &str = "delete from provider_logins where id = $1 and version = $2";

pub(super) struct ForgetLogin {
    pub(super) id: TokenId,
    pub(super) version: u64,
}

impl Operation for ForgetLogin {
    type Output = ();

    const KIND: OperationKind = OperationKind::Upkeep;

    async fn run(&self, _: &Shared, session: &Session) -> Result<(), QueryError> {
        session.execute(FORGET, &[&self.id.to_string(), &rows::counter(self.version)?]).await.map(drop)
    }
}
