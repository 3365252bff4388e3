//! The embedded store: one SQLite file for one gateway, on a local disk.
//!
//! There are three files: `bearward.db`, `bearward.db-wal` (commits that were not moved into the first file yet), and
//! `bearward.db.lock`, which is locked while the store is open and contains the process id. All have mode 0600.
//! Operators can read the database with `sqlite3` while the gateway runs. A backup needs `VACUUM INTO` or `.backup`,
//! because a copy of the file alone lacks the commits in the `-wal`.
//!
//! `writer` owns the one thread that uses the database, and does group commit. `file` opens the database, `own_files`
//! notices when a file of it is removed, `schema` identifies and migrates it, `rows` converts values. `families`,
//! `api_keys`, `search`, `revocations`, `origins`, `marks`, `provider_logins`, `provider_logouts`, `endings`,
//! `signing_keys`, `acme`, `audit` and `maintenance` are the operations, on a `batch`.

mod acme;
mod api_keys;
mod audit;
mod batch;
mod calls;
mod endings;
mod error;
mod export;
mod families;
mod file;
mod maintenance;
mod marks;
mod origins;
mod own_files;
mod provider_logins;
mod provider_logouts;
mod revocations;
mod rows;
mod schema;
mod search;
mod signing_keys;
mod steady_time;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};

use crate::store::api::{Outbox, RevocationHook};
use crate::store::error::StoreError;
pub use crate::store::options::StoreOptions;
use crate::store::provider_login::SweepTimes;
use crate::tokens::family::Family;
use crate::tokens::family::revocation::Revocation;
use crate::tokens::signing::StoredKey;
use crate::types::ids::TokenId;
use batch::TokenLimits;
pub use export::Export;
use writer::Writer;

/// The embedded store. Dropping it finishes the queued operations and closes the file, which can take as long as the
/// disk needs.
pub struct SqliteStore {
    writer: Writer,
    sweeps: SweepTimes,
    outbox: Arc<Outbox>,
}

impl SqliteStore {
    /// Opens the database at `path`, or creates it in an existing folder.
    ///
    /// `enforce` runs on the thread of the store. It must be fast, and must not own the store or wait for it.
    ///
    /// # Errors
    /// If another gateway has the file open, if the file belongs to another program or a newer version, or if the disk,
    /// the permissions or the file system do not allow safe commits. The file is then unchanged.
    pub fn open(path: impl AsRef<Path>, options: StoreOptions, enforce: RevocationHook) -> Result<Self, StoreError> {
        Self::open_within(Duration::ZERO, path, options, enforce)
    }

    /// Like [`SqliteStore::open`], but waits at most `lock_timeout` for another gateway to close the file.
    pub fn open_within(
        lock_timeout: Duration,
        path: impl AsRef<Path>,
        options: StoreOptions,
        enforce: RevocationHook,
    ) -> Result<Self, StoreError> {
        let opened = file::open(path.as_ref(), lock_timeout)?;
        maintenance::keep_revocations_for(&opened.connection, options.longest_life)?;
        opened.connection.execute(provider_logins::END_LEASES, [])?;
        let longest_ever = |name, configured| longest_ever(&opened.connection, name, configured);
        let limits = TokenLimits {
            issuer: options.issuer,
            longest_life: longest_ever("longest_life", options.longest_life)?,
            longest_family: longest_ever("longest_family", options.longest_family)?,
            audit: options.audit,
            timeout: options.timeout,
        };
        let waiting: i64 = opened.connection.query_row("select count(*) from audit", [], |row| row.get(0))?;
        let outbox = Arc::new(Outbox { waiting: waiting.unsigned_abs().into(), ..Outbox::default() });
        let writer = Writer::start(opened, limits, enforce, outbox.clone())?;
        Ok(SqliteStore { writer, sweeps: SweepTimes::default(), outbox })
    }
}

/// Reads the signing keys of the database at `path`, also while a gateway has it open. Empty if there is no database.
pub fn stored_signing_keys(path: impl AsRef<Path>) -> Result<Vec<StoredKey>, StoreError> {
    match file::open_read_only(path.as_ref())? {
        Some(connection) => connection.prepare(signing_keys::ALL)?.query_and_then([], signing_keys::read)?.collect(),
        None => Ok(Vec::new()),
    }
}

/// All revocations that a start reads, of the database at `path`, also while a gateway has it open.
pub fn stored_revocations(path: impl AsRef<Path>, after: u64) -> Result<Vec<Revocation>, StoreError> {
    let Some(connection) = file::open_read_only(path.as_ref())? else { return Ok(Vec::new()) };
    let mut statement = connection.prepare(revocations::SINCE)?;
    statement.query_and_then(params![rows::counter(after)?, -1], rows::revocation)?.collect()
}

/// The family with this id in the database at `path`, also while a gateway has it open.
pub fn stored_family(path: impl AsRef<Path>, id: TokenId) -> Result<Option<Family>, StoreError> {
    let Some(connection) = file::open_read_only(path.as_ref())? else { return Ok(None) };
    families::read(&connection, id)
}

/// Returns true if the database at `path` exists and is not empty, also while a gateway has it open. Fails if the file
/// is not a database of bearward.
pub fn is_initialized(path: impl AsRef<Path>) -> Result<bool, StoreError> {
    file::open_read_only(path.as_ref()).map(|connection| connection.is_some())
}

/// Returns true if there is no database at `path` yet. Fails if what was there is lost: the file is empty, or only its
/// log is left.
pub fn is_new(path: impl AsRef<Path>) -> Result<bool, StoreError> {
    file::is_new(path.as_ref())
}

/// Reads what a start reads from the database at `path`, also while a gateway has it open. Changes nothing.
///
/// # Errors
/// If the file is damaged, or is not a database that this version can open.
pub fn check(path: impl AsRef<Path>) -> Result<(), StoreError> {
    let path = path.as_ref();
    let with_path = |error: StoreError| StoreError::new(format!("{}: {error}", path.display()));
    let Some(connection) = file::open_read_only(path)? else { return Ok(()) };
    // The tables of an older version lack columns that the start adds.
    if schema::identify(&connection).map_err(with_path)?.is_current() {
        read_all(&connection).map_err(with_path)?;
    }
    Ok(())
}

fn read_all(connection: &Connection) -> Result<(), StoreError> {
    let mut statement = connection.prepare(revocations::SINCE)?;
    statement.query_and_then(params![0, -1], rows::revocation)?.try_for_each(|row| row.map(drop))?;
    connection.prepare(signing_keys::ALL)?.query_and_then([], signing_keys::read)?.try_for_each(|row| row.map(drop))?;
    for table in ["meta", "audit", "acme", "provider_logins"] {
        connection.query_row(&format!("select count(*) from {table}"), [], |_| Ok(()))?;
    }
    Ok(())
}

/// Stores the configured lifetime if it is a new maximum. Returns the maximum.
fn longest_ever(connection: &Connection, name: &str, configured: Duration) -> Result<Duration, StoreError> {
    let sql = "update meta set value = ?2 where name = ?1 and value < ?2";
    connection.execute(sql, params![name, rows::millis(configured)])?;
    let ever: i64 = connection.query_row("select value from meta where name = ?1", [name], |row| row.get(0))?;
    Ok(Duration::from_millis(ever.unsigned_abs()))
}
