//! Makes logins due for a refresh at their provider.

use crate::store::error::StoreError;
use crate::store::pool::OperationKind;
use crate::store::postgres::attempts::Attempts;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::rows::{self, get};
use crate::store::postgres::session::{Param, Session};
use crate::tokens::family::revocation::Revoked;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Some of them, and whether each was changed: another transaction may have locked it. Not those that are never due.
/// One that is being refreshed is due already: the response may be older than the reason for this. `$1` is when, `$2`
/// the issuer.
macro_rules! make_due {
    ($of:literal) => {
        concat!(
            "with due as (
                select l.id from families f join provider_logins l on l.id = f.id
                where f.origin_issuer = $2 and ",
            $of,
            " and f.revoked_at is null and f.idle_expiry > $1
                    and (l.due > $1 or l.held_until > 0 and l.due <> $1) and l.due < 9223372036854775807
                limit 512
            ), locked as (
                select l.id from provider_logins l join due d on d.id = l.id
                where l.due > $1 or l.held_until > 0 and l.due <> $1 for update of l skip locked
            ), changed as (
                update provider_logins l set due = $1, changes = l.changes + 1
                from locked where l.id = locked.id returning l.id
            )
            select d.id, exists (select from changed c where c.id = d.id) as changed from due d"
        )
    };
}

pub(super) struct MakeDue {
    pub(super) of: Revoked,
    pub(super) at: UnixTime,
}

impl Operation for MakeDue {
    type Output = Vec<TokenId>;

    const KIND: OperationKind = OperationKind::Upkeep;

    async fn run(&self, _: &Shared, session: &Session) -> Result<Vec<TokenId>, QueryError> {
        let mut made = Vec::new();
        let mut attempts = Attempts::default();
        loop {
            let found = self.some(session).await?;
            let mut is_blocked = false;
            for (id, is_changed) in &found {
                if *is_changed { made.push(*id) } else { is_blocked = true }
            }
            if found.is_empty() {
                return Ok(made);
            }
            if is_blocked {
                attempts.again("a login").await?;
            }
        }
    }
}

impl MakeDue {
    async fn some(&self, session: &Session) -> Result<Vec<(TokenId, bool)>, QueryError> {
        let at = rows::time(self.at);
        let (sql, issuer, name, not_after) = match &self.of {
            Revoked::Session { issuer, session } => (make_due!("f.origin_session = $3"), issuer, Some(session), None),
            Revoked::Subject { issuer, subject, not_after } => {
                (make_due!("f.origin_subject = $3 and f.origin_dated <= $4"), issuer, Some(subject), Some(not_after))
            }
            Revoked::Issuer { issuer, not_after } => (make_due!("f.origin_dated <= $3"), issuer, None, Some(not_after)),
            Revoked::Family(_) | Revoked::Token { .. } | Revoked::Client { .. } | Revoked::Everything { .. } => {
                return Ok(Vec::new());
            }
        };
        let issuer = rows::text(issuer);
        let name = name.map(|name| rows::text(name));
        let not_after = not_after.map(|time| rows::time(*time));
        let mut parameters: Vec<&dyn Param> = vec![&at, &issuer];
        parameters.extend(name.iter().map(|name| name as &dyn Param));
        parameters.extend(not_after.iter().map(|time| time as &dyn Param));
        let read = |row| Ok::<_, StoreError>((rows::token_id(get(row, "id")?)?, get(row, "changed")?));
        Ok(session.query(sql, &parameters).await?.iter().map(read).collect::<Result<_, _>>()?)
    }
}
