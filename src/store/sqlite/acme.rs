//! Accounts, orders and certificates of ACME.

use rusqlite::{Row, params};

use crate::store::acme::AcmeEntry;
use crate::store::error::StoreError;
use crate::store::sqlite::batch::Batch;
use crate::store::sqlite::rows::{counter, read_counter};

pub(super) fn changed(batch: &mut Batch<'_>, known: &[(String, u64)]) -> Result<Vec<AcmeEntry>, StoreError> {
    let entries = batch.query("select * from acme order by name", [], read)?;
    let is_known =
        |entry: &AcmeEntry| known.iter().any(|(name, version)| (name, *version) == (&entry.name, entry.version));
    Ok(entries.into_iter().filter(|entry| !is_known(entry)).collect())
}

/// See [`AcmeStore::save_acme_entry`](crate::store::AcmeStore::save_acme_entry).
pub(super) fn save(batch: &mut Batch<'_>, entry: &AcmeEntry) -> Result<bool, StoreError> {
    let AcmeEntry { name, version, root, sealed } = entry;
    let version = counter(*version)?;
    let written = if sealed.is_empty() {
        batch.execute("delete from acme where name = ?1 and version = ?2 - 1", params![name, version])
    } else {
        batch.execute(
            "insert into acme as a (name, version, root, sealed) values (?1, ?2, ?3, ?4)
             on conflict (name) do update set version = ?2, root = ?3, sealed = ?4 where a.version = ?2 - 1",
            params![name, version, root, sealed],
        )
    };
    Ok(written? > 0)
}

pub(super) fn read(row: &Row<'_>) -> Result<AcmeEntry, StoreError> {
    let version = read_counter(row, "version")?;
    Ok(AcmeEntry { name: row.get("name")?, version, root: row.get("root")?, sealed: row.get("sealed")? })
}
