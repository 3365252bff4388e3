//! Reads families, each with the watermark that applies to it.

use std::collections::HashMap;

use tokio_postgres::Row;

use crate::store::error::StoreError;
use crate::store::postgres::clock::{Reading, database_time};
use crate::store::postgres::error::QueryError;
use crate::store::postgres::rows::{self, family_columns};
use crate::store::postgres::session::Session;
use crate::tokens::family::Family;
use crate::types::boot_time::BootTime;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// The latest of the watermark of a subject, those of a client, and the watermark over everything; null if there is
/// none. The column of families with the client has the collation of the database.
macro_rules! mark_of {
    ($subject:literal, $client:literal) => {
        concat!(
            "greatest((select s.not_after from subjects s where s.subject = ",
            $subject,
            "), (select max(c.not_after) from clients c where c.client_id = ",
            $client,
            " collate \"C\" and c.subject in ('', ",
            $subject,
            ")), (select m.value from meta m where m.name = 'watermark' and m.value > 0))"
        )
    };
}
pub(super) use mark_of;

const FIND: &str = concat!(
    "select ",
    family_columns!(),
    ", ",
    mark_of!("f.subject", "f.client_id"),
    " as mark from families f where f.id = $1"
);
const FIND_ALL: &str = concat!(
    "select ",
    family_columns!(),
    ", ",
    mark_of!("f.subject", "f.client_id"),
    " as mark, t.clock, t.set_back from families f cross join ",
    database_time!(),
    " where f.id = any($1)"
);

/// A family, and the watermark that applies to it.
#[derive(Clone)]
pub(super) struct MarkedFamily {
    pub(super) family: Family,
    pub(super) mark: Option<UnixTime>,
}

pub(super) fn found(row: &Row) -> Result<MarkedFamily, StoreError> {
    Ok(MarkedFamily { family: rows::family(row)?, mark: rows::read_time_or_null(row, "mark")? })
}

pub(super) async fn find(session: &Session, id: TokenId) -> Result<Option<MarkedFamily>, QueryError> {
    let row = session.query_opt(FIND, &[&id.to_string()]).await?;
    Ok(row.as_ref().map(found).transpose()?)
}

/// A family, the watermark that applies to it, and the time of the database when they were read.
#[derive(Clone)]
pub(super) struct FoundAt {
    pub(super) found: MarkedFamily,
    pub(super) reading: Reading,
}

/// The families with these ids, in their order. A damaged one fails alone.
pub(super) async fn find_all(
    session: &Session,
    ids: &[TokenId],
) -> Result<Vec<Result<Option<FoundAt>, StoreError>>, QueryError> {
    let names: Vec<String> = ids.iter().map(TokenId::to_string).collect();
    let mut families = HashMap::new();
    let sent = BootTime::now();
    let rows = session.query(FIND_ALL, &[&names]).await?;
    let answered = BootTime::now();
    for row in &rows {
        let reading = Reading::read(row, sent, answered)?;
        families.insert(rows::token_id(rows::get(row, "id")?)?, found(row).map(|found| FoundAt { found, reading }));
    }
    Ok(ids.iter().map(|id| families.get(id).cloned().transpose()).collect())
}
