//! The list of API keys, and when they were used.

use crate::store::pool::OperationKind;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::lookup::{MarkedFamily, found, mark_of};
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::rows::{self, family_columns};
use crate::store::postgres::session::Session;
use crate::store::search::{FoundFamilies, KeySearch};
use crate::store::watermark::with_watermark;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// After the text of every id.
const AFTER_IDS: &str = "~";

const SEARCH: &str = concat!(
    "select ",
    family_columns!(),
    ", ",
    mark_of!("f.subject", "f.client_id"),
    " as mark from families f
    where f.key_hash is not null and ($1::text is null or f.subject = $1)
        and (f.subject > $2 or f.subject = $2 and (f.created_at, f.id) < ($3, $4))
    order by f.subject, f.created_at desc, f.id desc limit $5"
);

/// It need not survive a crash, and does not wait for a row that another transaction has locked. The idle time of a
/// login at a provider counts from its last use. That of a login of our own counts from its refresh.
const USED: &str = "with due as (
        select f.id from families f
        where f.id = $1 and (f.key_hash is not null or f.origin_issuer is not null) and f.last_used_at < $2
            and f.idle_expiry > $2 for update of f skip locked
    )
    update families f set last_used_at = $2, idle_expiry = case
            when f.key_hash is null and f.idle is not null
            then greatest(f.idle_expiry, least($2 + f.idle, f.absolute_expiry)) else f.idle_expiry end
    from due
    where f.id = due.id and (select set_config('synchronous_commit', 'off', true)) is not null";

pub(super) struct SearchKeys {
    pub(super) search: KeySearch,
}

impl Operation for SearchKeys {
    type Output = FoundFamilies;

    const KIND: OperationKind = OperationKind::Read;

    async fn run(&self, _: &Shared, session: &Session) -> Result<FoundFamilies, QueryError> {
        let KeySearch { subject, after, limit } = &self.search;
        let (begin, created_at, id) = match after {
            Some(after) => (rows::text(&after.subject), rows::time(after.created_at), after.id.to_string()),
            None => (String::new(), i64::MAX, AFTER_IDS.to_owned()),
        };
        let subject = subject.as_deref().map(rows::text);
        let wanted = rows::limit(limit + 1);
        let mut keys = Vec::new();
        for row in &session.query(SEARCH, &[&subject, &begin, &created_at, &id, &wanted]).await? {
            let MarkedFamily { family, mark } = found(row)?;
            keys.push(with_watermark(family, mark));
        }
        Ok(FoundFamilies::page(keys, *limit, None))
    }
}

pub(super) struct Used {
    pub(super) id: TokenId,
    pub(super) at: UnixTime,
}

impl Operation for Used {
    type Output = ();

    const KIND: OperationKind = OperationKind::Upkeep;

    async fn run(&self, _: &Shared, session: &Session) -> Result<(), QueryError> {
        session.execute(USED, &[&self.id.to_string(), &rows::time(self.at)]).await?;
        Ok(())
    }
}
