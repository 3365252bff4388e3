//! One page of a search of families.

use tokio_postgres::Row;

use crate::store::error::StoreError;
use crate::store::pool::OperationKind;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::lookup::{MarkedFamily, found, mark_of};
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::rows::{self, family_columns, get, read_text, read_time};
use crate::store::postgres::session::{Param, Session};
use crate::store::search::{
    FoundFamilies, LiveClient, MAX_SCANNED, Position, Search, SearchState, Subjects, end_of_prefix,
};
use crate::store::watermark::with_watermark;
use crate::tokens::family::Family;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;

/// Of a row of the range. `$1` is now.
macro_rules! is_live {
    () => {
        concat!(
            "f.revoked_at is null and f.idle_expiry > $1 and f.absolute_expiry > $1 and f.created_at > coalesce(",
            mark_of!("f.subject", "f.client_id"),
            ", -1)"
        )
    };
}

/// The first rows of a range, which one index has in this order, and of them the families that are wanted. `$2` is how
/// many, `$3` the client, and `$4` a value of the audience in JSON: the quotes at its ends are those of the array. The
/// number of scanned rows is constant, so that the planner knows it.
macro_rules! page {
    ($range:expr, $order:literal, $wanted:expr) => {
        concat!(
            "select ",
            family_columns!(),
            ", ",
            mark_of!("f.subject", "f.client_id"),
            " as mark from (select ",
            family_columns!(),
            " from families f where ",
            $range,
            " order by ",
            $order,
            " limit 2000) f where f.key_hash is null and ($3::text is null or f.client_id = $3)
                and ($4::text is null or strpos(f.audience, $4) > 0) and ",
            $wanted,
            " order by ",
            $order,
            " limit $2"
        )
    };
}

/// The last row that [`page`] scans, if it scans as many as it may.
macro_rules! last_scanned {
    ($range:expr, $order:literal) => {
        concat!(
            "select f.subject, f.created_at, f.id from families f where $1::bigint is not null and $2::bigint > 0
                and ($3::text is null or $3 is not null) and ($4::text is null or $4 is not null) and ",
            $range,
            " order by ",
            $order,
            " offset 1999 limit 1"
        )
    };
}

const _: () = assert!(MAX_SCANNED == 2_000);

/// The statements that scan one range. All of them have the same parameters.
pub(super) struct Range {
    pub(super) live: [&'static str; 2],
    pub(super) ended: [&'static str; 2],
    pub(super) all: [&'static str; 2],
}

macro_rules! range {
    ($range:literal, $order:literal) => {
        Range {
            live: [
                page!(concat!($range, " and f.revoked_at is null"), $order, is_live!()),
                last_scanned!(concat!($range, " and f.revoked_at is null"), $order),
            ],
            ended: [page!($range, $order, concat!("not (", is_live!(), ")")), last_scanned!($range, $order)],
            all: [page!($range, $order, "$1 is not null"), last_scanned!($range, $order)],
        }
    };
}

/// The rest of a subject.
pub(super) const REST: Range =
    range!("f.subject = $5 and (f.created_at, f.id) < ($6, $7)", "f.created_at desc, f.id desc");
/// The subjects after it.
pub(super) const OTHERS: Range = range!("f.subject > $5 and f.subject < $6", "f.subject, f.created_at desc, f.id desc");

/// After the text of every id.
const AFTER_IDS: &str = "~";
/// After every text as a column contains it: there, the character is followed by a digit.
const AFTER_TEXTS: &str = "\u{10FFFF}\u{10FFFF}";

impl Range {
    /// The page, and the last row that it scans.
    pub(super) const fn statements(&self, state: SearchState) -> [&'static str; 2] {
        match state {
            SearchState::Live => self.live,
            SearchState::Ended => self.ended,
            SearchState::All => self.all,
        }
    }
}

pub(super) struct SearchFamilies {
    pub(super) search: Search,
}

impl Operation for SearchFamilies {
    type Output = FoundFamilies;

    const KIND: OperationKind = OperationKind::Read;

    async fn run(&self, _: &Shared, session: &Session) -> Result<FoundFamilies, QueryError> {
        let Search { subjects, after, limit, .. } = &self.search;
        let (subject, created_at, id) = match after {
            Some(after) => (rows::text(&after.subject), rows::time(after.created_at), after.id.to_string()),
            None => (rows::text(subjects.first()), i64::MAX, AFTER_IDS.to_owned()),
        };
        let mut found = Vec::new();
        let mut stopped = self.scan(session, &REST, &[&subject, &created_at, &id], &mut found).await?;
        if let (Subjects::WithPrefix(prefix), None, true) = (subjects, &stopped, found.len() <= *limit) {
            let end = end_of_prefix(&rows::text(prefix)).unwrap_or_else(|| AFTER_TEXTS.to_owned());
            stopped = self.scan(session, &OTHERS, &[&subject, &end], &mut found).await?;
        }
        Ok(FoundFamilies::page(found, *limit, stopped))
    }
}

impl SearchFamilies {
    /// Adds what the range has to `found`. Returns the last row that was scanned, if there may be more after it.
    async fn scan(
        &self,
        session: &Session,
        range: &Range,
        bounds: &[&dyn Param],
        found: &mut Vec<Family>,
    ) -> Result<Option<Position>, QueryError> {
        let [page, last_scanned] = range.statements(self.search.state);
        let now = rows::time(self.search.now);
        let wanted = rows::limit(self.search.limit + 1 - found.len());
        let client_id = self.search.client_id.as_deref().map(rows::text);
        let resource = self.search.resource.as_ref().map(rows::to_json).transpose()?;
        let filters: [&dyn Param; 4] = [&now, &wanted, &client_id, &resource];
        let params: Vec<&dyn Param> = filters.into_iter().chain(bounds.iter().copied()).collect();
        for row in &session.query(page, &params).await? {
            found.push(listed(row)?);
        }
        if found.len() > self.search.limit {
            return Ok(None);
        }
        let last = session.query_opt(last_scanned, &params).await?;
        Ok(last.as_ref().map(position).transpose()?)
    }
}

const LIVE_CLIENTS: &str = concat!(
    "select f.client_id, count(*) as live from families f
    where f.client_id <> '' and f.key_hash is null and ",
    is_live!(),
    " group by f.client_id order by live desc, f.client_id limit $2"
);

pub(super) struct LiveClients {
    pub(super) now: UnixTime,
    pub(super) limit: usize,
}

impl Operation for LiveClients {
    type Output = Vec<LiveClient>;

    const KIND: OperationKind = OperationKind::Read;

    async fn run(&self, _: &Shared, session: &Session) -> Result<Vec<LiveClient>, QueryError> {
        let found = session.query(LIVE_CLIENTS, &[&rows::time(self.now), &rows::limit(self.limit)]).await?;
        let client = |row: &Row| {
            let client_id = read_text(row, "client_id")?;
            Ok::<_, StoreError>(LiveClient { client_id, live: rows::read_counter(row, "live")? })
        };
        Ok(found.iter().map(client).collect::<Result<_, _>>()?)
    }
}

fn listed(row: &Row) -> Result<Family, StoreError> {
    let MarkedFamily { family, mark } = found(row)?;
    Ok(with_watermark(family, mark))
}

fn position(row: &Row) -> Result<Position, StoreError> {
    let id: TokenId = rows::token_id(get(row, "id")?)?;
    Ok(Position { subject: read_text(row, "subject")?, created_at: read_time(row, "created_at")?, id })
}
