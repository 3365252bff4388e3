//! Accounts, orders and certificates of ACME.

use tokio_postgres::Row;

use crate::store::acme::AcmeEntry;
use crate::store::error::StoreError;
use crate::store::pool::OperationKind;
use crate::store::postgres::error::QueryError;
use crate::store::postgres::operation::{Operation, Shared};
use crate::store::postgres::rows::{self, get, read_counter, read_root};
use crate::store::postgres::session::Session;

const CHANGED: &str = "select a.name, a.version, a.root, a.sealed
    from acme a left join unnest($1::text[], $2::bigint[]) as k (name, version) on k.name = a.name
    where k.version is distinct from a.version order by a.name";

/// The same content counts as written: an attempt of this call may have lost its connection.
const SAVE: &str = "insert into acme as a (name, version, root, sealed) values ($1, $2, $3, $4)
    on conflict (name) do update set version = excluded.version, root = excluded.root, sealed = excluded.sealed
    where a.version = excluded.version - 1 or (a.version = excluded.version and a.sealed = excluded.sealed)
    returning a.version";

const DELETE: &str = "delete from acme where name = $1 and version = $2 - 1 returning version";

/// For a copy of the store.
pub(super) const PAGE: &str = "select a.name, a.version, a.root, a.sealed from acme a
    where a.name > $1 order by a.name limit $2";

pub(super) struct ReadChanged {
    pub(super) known: Vec<(String, u64)>,
}

impl Operation for ReadChanged {
    type Output = Vec<AcmeEntry>;

    const KIND: OperationKind = OperationKind::Upkeep;

    async fn run(&self, _: &Shared, session: &Session) -> Result<Self::Output, QueryError> {
        let names: Vec<String> = self.known.iter().map(|(name, _)| name.clone()).collect();
        let versions = self.known.iter().map(|(_, version)| rows::counter(*version)).collect::<Result<Vec<_>, _>>()?;
        let rows = session.query(CHANGED, &[&names, &versions]).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }
}

/// See [`AcmeStore::save_acme_entry`](crate::store::AcmeStore::save_acme_entry).
pub(super) struct Save {
    pub(super) entry: AcmeEntry,
}

impl Operation for Save {
    type Output = bool;

    const KIND: OperationKind = OperationKind::Upkeep;

    async fn run(&self, _: &Shared, session: &Session) -> Result<bool, QueryError> {
        write(session, &self.entry).await
    }
}

pub(super) async fn write(session: &Session, entry: &AcmeEntry) -> Result<bool, QueryError> {
    let AcmeEntry { name, version, root, sealed } = entry;
    let version = rows::counter(*version)?;
    let written = if sealed.is_empty() {
        session.query_opt(DELETE, &[name, &version]).await?
    } else {
        session.query_opt(SAVE, &[name, &version, &i32::from(*root), sealed]).await?
    };
    Ok(written.is_some())
}

pub(super) fn read(row: &Row) -> Result<AcmeEntry, StoreError> {
    Ok(AcmeEntry {
        name: get(row, "name")?,
        version: read_counter(row, "version")?,
        root: read_root(row, "root")?,
        sealed: get(row, "sealed")?,
    })
}
