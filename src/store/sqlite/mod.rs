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
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use crate::store::acme::AcmeEntry;
use crate::store::api::{
    DecideKeys, DecideRotation, KeysChanged, Outbox, RevocationHook, RevokeOutcome, RevokedBy, Store, StoreFuture,
};
use crate::store::endings::{EndingSearch, FoundEndings, Revoker};
use crate::store::error::StoreError;
use crate::store::expired::Expired;
use crate::store::late::CallTime;
use crate::store::mark::{Mark, Marked};
use crate::store::provider_login::{
    EndedLogins, Lease, LoginLease, ProviderLogin, RefreshedLogin, SavedLogin, SweepTimes,
};
use crate::store::search::{FoundFamilies, KeySearch, Search};
pub use crate::store::settings::Settings;
use crate::tokens::audit_event::{Event, EventContext, Recorded};
use crate::tokens::family::Family;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::rotation::Rotation;
use crate::tokens::signing::StoredKey;
use crate::types::clock::UnixTime;
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
    pub fn open(path: impl AsRef<Path>, settings: Settings, enforce: RevocationHook) -> Result<Self, StoreError> {
        Self::open_within(Duration::ZERO, path, settings, enforce)
    }

    /// Like [`SqliteStore::open`], but waits at most `lock_timeout` for another gateway to close the file.
    pub fn open_within(
        lock_timeout: Duration,
        path: impl AsRef<Path>,
        settings: Settings,
        enforce: RevocationHook,
    ) -> Result<Self, StoreError> {
        let opened = file::open(path.as_ref(), lock_timeout)?;
        maintenance::keep_revocations_for(&opened.connection, settings.longest_life)?;
        opened.connection.execute(provider_logins::END_LEASES, [])?;
        let longest_ever = |name, configured| longest_ever(&opened.connection, name, configured);
        let limits = TokenLimits {
            issuer: settings.issuer,
            longest_life: longest_ever("longest_life", settings.longest_life)?,
            longest_family: longest_ever("longest_family", settings.longest_family)?,
            audit: settings.audit,
            timeout: settings.timeout,
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

/// Like [`Store::revocations_since`], but all of them, for the database at `path`, also while a gateway has it open.
pub fn stored_revocations(path: impl AsRef<Path>, after: u64, now: UnixTime) -> Result<Vec<Revocation>, StoreError> {
    let Some(connection) = file::open_read_only(path.as_ref())? else { return Ok(Vec::new()) };
    let mut statement = connection.prepare(revocations::SINCE)?;
    statement.query_and_then(params![rows::counter(after)?, now, -1], rows::revocation)?.collect()
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
pub fn check(path: impl AsRef<Path>, now: UnixTime) -> Result<(), StoreError> {
    let path = path.as_ref();
    let with_path = |error: StoreError| StoreError::new(format!("{}: {error}", path.display()));
    let Some(connection) = file::open_read_only(path)? else { return Ok(()) };
    // The tables of an older version lack columns that the start adds.
    if schema::identify(&connection).map_err(with_path)?.is_current() {
        read_all(&connection, now).map_err(with_path)?;
    }
    Ok(())
}

fn read_all(connection: &Connection, now: UnixTime) -> Result<(), StoreError> {
    let mut statement = connection.prepare(revocations::SINCE)?;
    statement.query_and_then(params![0, now, -1], rows::revocation)?.try_for_each(|row| row.map(drop))?;
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

impl Store for SqliteStore {
    fn issue(&self, family: Family, max_live: usize, context: EventContext) -> StoreFuture<Option<Family>> {
        let call = CallTime::begin();
        self.writer.submit(move |batch| {
            call.check(batch.limits.timeout)?;
            families::issue(batch, &family, max_live, &context)
        })
    }

    fn rotate(
        &self,
        presented: PresentedToken,
        decide: DecideRotation,
        context: EventContext,
    ) -> StoreFuture<Rotation> {
        let call = CallTime::begin();
        self.writer.submit(move |batch| families::rotate(batch, &presented, &decide, call, &context))
    }

    fn revoke_family(&self, id: TokenId, by: RevokedBy, context: EventContext) -> StoreFuture<RevokeOutcome> {
        self.writer.submit(move |batch| families::revoke_family(batch, id, &by, &context))
    }

    fn revoke(&self, what: Revoked, context: EventContext) -> StoreFuture<u64> {
        self.writer.submit(move |batch| revocations::revoke(batch, &what, &context))
    }

    fn mark(&self, mark: Mark, revoke: Vec<Revoked>, context: EventContext) -> StoreFuture<Marked> {
        self.writer.submit(move |batch| marks::mark(batch, &mark, &revoke, &context))
    }

    fn marked(&self, mark: Mark) -> StoreFuture<Marked> {
        self.writer.submit(move |batch| marks::find(batch, &mark))
    }

    fn confirm(&self, seen: Vec<(TokenId, u64)>) -> StoreFuture<()> {
        self.writer.submit(move |batch| families::confirm(batch, &seen))
    }

    fn families_of(&self, subject: String) -> StoreFuture<Vec<Family>> {
        self.writer.submit(move |batch| families::of_subject(batch, &subject))
    }

    fn search(&self, search: Search) -> StoreFuture<FoundFamilies> {
        self.writer.submit(move |batch| search::search(batch, &search))
    }

    fn api_keys(&self, search: KeySearch) -> StoreFuture<FoundFamilies> {
        self.writer.submit(move |batch| api_keys::search(batch, &search))
    }

    fn used(&self, id: TokenId, at: UnixTime) -> StoreFuture<()> {
        self.writer.submit(move |batch| api_keys::used(batch, id, at))
    }

    fn family(&self, id: TokenId) -> StoreFuture<Option<Family>> {
        self.writer.submit(move |batch| families::show(batch, id))
    }

    fn endings(&self, search: EndingSearch) -> StoreFuture<FoundEndings> {
        self.writer.submit(move |batch| endings::search(batch, &search))
    }

    fn revokers(&self, ids: Vec<TokenId>) -> StoreFuture<Vec<(TokenId, Revoker)>> {
        self.writer.submit(move |batch| endings::revokers(batch, &ids))
    }

    fn revocations_since(&self, after: u64, now: UnixTime) -> StoreFuture<Vec<Revocation>> {
        self.writer.submit(move |batch| revocations::since(batch, after, now))
    }

    fn sweep(&self, now: UnixTime, limit: usize) -> StoreFuture<usize> {
        let untried_since = self.sweeps.untried_since(now);
        self.writer.submit(move |batch| maintenance::sweep(batch, now, untried_since, limit))
    }

    fn expired(&self, now: UnixTime, limit: usize) -> StoreFuture<Expired> {
        self.writer.submit(move |batch| maintenance::expired(batch, now, limit))
    }

    fn begin_login(
        &self,
        family: Family,
        login: ProviderLogin,
        replaces: Option<TokenId>,
        max_live: usize,
        context: EventContext,
    ) -> StoreFuture<Option<Family>> {
        let call = CallTime::begin();
        self.writer.submit(move |batch| {
            call.check(batch.limits.timeout)?;
            provider_logins::begin(batch, &family, &login, replaces, max_live, &context)
        })
    }

    fn provider_login(&self, id: TokenId) -> StoreFuture<Option<(Family, ProviderLogin)>> {
        self.writer
            .submit(move |batch| Ok(provider_logins::find(batch, id)?.map(|(family, stored)| (family, stored.login))))
    }

    fn claim_login(&self, id: TokenId, at: UnixTime) -> StoreFuture<()> {
        self.writer.submit(move |batch| provider_logins::claim(batch, id, at))
    }

    fn make_logins_due(&self, of: Revoked, at: UnixTime) -> StoreFuture<Vec<TokenId>> {
        self.writer.submit(move |batch| provider_logins::make_due(batch, &of, at))
    }

    fn lease_login(
        &self,
        id: TokenId,
        version: u64,
        holder: [u8; 16],
        now: UnixTime,
        until: UnixTime,
    ) -> StoreFuture<LoginLease> {
        let wanted = Lease { holder, until };
        self.writer.submit(move |batch| provider_logins::lease(batch, id, version, wanted, now))
    }

    fn save_login(
        &self,
        id: TokenId,
        holder: [u8; 16],
        refreshed: RefreshedLogin,
        context: EventContext,
    ) -> StoreFuture<SavedLogin> {
        self.writer.submit(move |batch| provider_logins::save(batch, id, holder, &refreshed, &context))
    }

    fn interrupted_logins(&self, now: UnixTime, limit: usize) -> StoreFuture<Vec<(Family, ProviderLogin)>> {
        self.writer.submit(move |batch| provider_logins::interrupted(batch, now, limit))
    }

    fn logins_to_revoke(&self, provider: String, now: UnixTime, limit: usize) -> StoreFuture<EndedLogins> {
        self.writer.submit(move |batch| provider_logouts::to_revoke(batch, &provider, now, limit))
    }

    fn forget_login(&self, id: TokenId, version: u64) -> StoreFuture<()> {
        self.writer.submit(move |batch| provider_logouts::forget(batch, id, version))
    }

    fn change_signing_keys(&self, decide: DecideKeys, context: EventContext) -> StoreFuture<KeysChanged> {
        self.writer.submit(move |batch| signing_keys::change(batch, &decide, &context))
    }

    fn acme_entries(&self, known: Vec<(String, u64)>) -> StoreFuture<Vec<AcmeEntry>> {
        self.writer.submit(move |batch| acme::changed(batch, &known))
    }

    fn save_acme_entry(&self, entry: AcmeEntry) -> StoreFuture<bool> {
        self.writer.submit(move |batch| acme::save(batch, &entry))
    }

    fn record(&self, event: Event, context: EventContext) -> StoreFuture<()> {
        self.writer.submit(move |batch| audit::record(batch, &event, &context))
    }

    fn undelivered(&self, limit: usize) -> StoreFuture<Vec<Recorded>> {
        self.writer.submit(move |batch| audit::undelivered(batch, limit))
    }

    fn delivered(&self, sequences: Vec<u64>) -> StoreFuture<()> {
        self.writer.submit(move |batch| audit::delivered(batch, &sequences))
    }

    fn outbox(&self) -> Arc<Outbox> {
        self.outbox.clone()
    }

    fn check(&self) -> StoreFuture<()> {
        self.writer.submit(|batch| maintenance::check(batch))
    }

    fn probe(&self) -> StoreFuture<()> {
        let failures = self.writer.disk_failures();
        if let Some(error) = failures.recent() {
            return Box::pin(async { Err(error) });
        }
        let began = Instant::now();
        let check = self.check();
        Box::pin(async move {
            check.await?;
            failures.end(began);
            Ok(())
        })
    }

    fn close(&self) {
        self.writer.close();
    }
}
