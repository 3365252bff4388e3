//! The list of what was ended, why and by which actor. `append` writes it.

use std::collections::HashMap;

use tokio_postgres::Row;

use crate::store::endings::{Ending, EndingSearch, FoundEndings, MAX_SCANNED, Revoker};
use crate::store::error::StoreError;
use crate::store::pool::OperationKind;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::lookup::{FoundAt, find_all};
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::rows::{self, get, revocation_columns};
use crate::store::postgres::session::Session;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::{Family, RevokeReason};
use crate::types::ids::TokenId;

/// The columns that [`read`] reads.
macro_rules! ending_columns {
    () => {
        concat!(revocation_columns!(), ", e.reason, e.by")
    };
}
pub(super) use ending_columns;

const PAGE: &str = concat!(
    "select ",
    ending_columns!(),
    " from (select ",
    ending_columns!(),
    " from endings e where e.sequence < $1 order by e.sequence desc limit 2000) e
    where e.reason = coalesce($2, e.reason)
        and ($4::boolean is null or coalesce(e.by like 'provider:%' or e.by like 'grant:%', false) = $4) order by e.sequence desc limit $3"
);
/// The last entry that [`PAGE`] looks at, if it looks at as many as it may.
const LAST_SCANNED: &str =
    "select e.sequence from endings e where e.sequence < $1 order by e.sequence desc offset 1999 limit 1";

const _: () = assert!(MAX_SCANNED == 2_000);

const REVOKERS: &str =
    "select e.name, e.by from endings e where e.name = any($1) and e.kind = 'family' and e.by is not null";

pub(super) struct SearchEndings {
    pub(super) search: EndingSearch,
}

impl Operation for SearchEndings {
    type Output = FoundEndings;

    const KIND: OperationKind = OperationKind::Read;

    async fn run(&self, _: &Shared, session: &Session) -> Result<FoundEndings, QueryError> {
        let EndingSearch { reason, is_renamed, before, limit } = &self.search;
        // Larger than every sequence.
        let before = before.map_or(Ok(i64::MAX), rows::counter)?;
        let reason = reason.map(RevokeReason::as_str);
        let mut endings = Vec::new();
        for row in &session.query(PAGE, &[&before, &reason, &rows::limit(limit + 1), is_renamed]).await? {
            endings.push(read(row)?);
        }
        let scanned = if endings.len() > *limit { None } else { session.query_opt(LAST_SCANNED, &[&before]).await? };
        let scanned = scanned.map(|row| rows::read_counter(&row, "sequence")).transpose()?;
        let mut families = families(session, &endings).await?;
        let with_family = |ending: Ending| match ending.what {
            Revoked::Family(id) => (ending, families.remove(&id)),
            _ => (ending, None),
        };
        Ok(FoundEndings::page(endings.into_iter().map(with_family).collect(), *limit, scanned))
    }
}

/// The families that were ended one by one.
async fn families(session: &Session, endings: &[Ending]) -> Result<HashMap<TokenId, Family>, QueryError> {
    let id = |ending: &Ending| match ending.what {
        Revoked::Family(id) => Some(id),
        _ => None,
    };
    let ids: Vec<TokenId> = endings.iter().filter_map(id).collect();
    let mut families = HashMap::new();
    for found in find_all(session, &ids).await? {
        if let Some(FoundAt { found, .. }) = found? {
            families.insert(found.family.id, found.family);
        }
    }
    Ok(families)
}

pub(super) fn read(row: &Row) -> Result<Ending, StoreError> {
    let Revocation { sequence, what, at, until } = rows::revocation(row)?;
    let reason = rows::revoke_reason(get(row, "reason")?)?;
    let by = rows::read_text_or_null(row, "by")?.as_deref().and_then(Revoker::parse);
    Ok(Ending { sequence, what, at, reason, by, until })
}

pub(super) struct FindRevokers {
    pub(super) ids: Vec<TokenId>,
}

impl Operation for FindRevokers {
    type Output = Vec<(TokenId, Revoker)>;

    const KIND: OperationKind = OperationKind::Read;

    async fn run(&self, _: &Shared, session: &Session) -> Result<Vec<(TokenId, Revoker)>, QueryError> {
        let names: Vec<String> = self.ids.iter().map(TokenId::to_string).collect();
        let mut revokers = Vec::new();
        for row in &session.query(REVOKERS, &[&names]).await? {
            let by = Revoker::parse(&rows::read_text(row, "by")?);
            revokers.extend(by.map(|by| Ok::<_, StoreError>((rows::token_id(get(row, "name")?)?, by))).transpose()?);
        }
        Ok(revokers)
    }
}
