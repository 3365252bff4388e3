//! The embedded store: one SQLite file, for one gateway.
//!
//! Three files lie beside each other: `bearward.db`, `bearward.db-wal` (commits that were not moved into the first yet),
//! and `bearward.db.lock`, which is held for as long as the store is open and names the process. All are made with mode
//! 0600. Operators may read the database with `sqlite3` meanwhile; back it up with `VACUUM INTO` or `.backup`, as a copy
//! of the file alone lacks what is in the `-wal`. The disk has to be a local one.
//!
//! `writer` has the one thread that touches the database, and group commit. `file` opens, `schema` knows whose file it
//! is, `rows` maps; `families`, `revocations`, `signing_keys`, `audit` and `upkeep` are the operations, on a `batch`.

mod audit;
mod batch;
mod error;
mod families;
mod file;
mod revocations;
mod rows;
mod schema;
mod signing_keys;
mod upkeep;
mod writer;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};

use crate::store::{
    DecideKeys, DecideRotation, KeysChanged, Outbox, RevocationHook, RevokeOutcome, RevokedBy, Store, StoreError,
    StoreFuture,
};
use crate::tokens::audit_event::{Event, EventContext, Recorded};
use crate::tokens::family::Family;
use crate::tokens::family::refresh_token::PresentedToken;
use crate::tokens::family::revocation::{Revocation, Revoked};
use crate::tokens::family::rotation::Rotation;
use crate::tokens::signing::StoredKey;
use crate::types::clock::UnixTime;
use crate::types::ids::TokenId;
use batch::TokenTerms;
use writer::Writer;

/// What the store has to be told about tokens.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The gateway's own issuer, `tokens.issuer`: revocations of its subjects end their families as well.
    pub issuer: String,
    /// The longest life of any access token that a revocation can concern, of whatever issuer, with the clock skew that its
    /// expiry is granted. Revocations are remembered so long. The store keeps the largest that it was ever given:
    /// tokens from before the setting was lowered live on, and have to stay revocable.
    pub longest_life: Duration,
    /// The longest that a family can live, `tokens.refresh_absolute`: so long is one of our own access tokens good for a
    /// refresh. The largest is kept as well.
    pub longest_family: Duration,
    /// `audit.outbox`: the most events that may wait for their delivery; 0 if none are to be recorded.
    pub audit: usize,
}

/// The embedded store. Dropping it finishes what is under way and closes the file, which can take as long as the disk
/// does.
pub struct SqliteStore {
    writer: Writer,
    outbox: Arc<Outbox>,
}

impl SqliteStore {
    /// Opens the database at `path`, which is created if it is not there; its folder must be.
    ///
    /// `enforce` runs on the store's thread: it must be quick, and must not own this store or wait for it.
    ///
    /// # Errors
    /// If another gateway has the file open, if the file is not a bearward database or one of a newer version, or if
    /// the disk, the rights or the file system do not permit safe commits. The file is then as it was.
    pub fn open(path: impl AsRef<Path>, settings: Settings, enforce: RevocationHook) -> Result<Self, StoreError> {
        Self::open_within(Duration::ZERO, path, settings, enforce)
    }

    /// As [`SqliteStore::open`], but waits so long for another gateway that has the file open.
    pub fn open_within(
        patience: Duration,
        path: impl AsRef<Path>,
        settings: Settings,
        enforce: RevocationHook,
    ) -> Result<Self, StoreError> {
        let opened = file::open(path.as_ref(), patience)?;
        let longest_ever = |name, configured| longest_ever(&opened.connection, name, configured);
        let terms = TokenTerms {
            issuer: settings.issuer,
            longest_life: longest_ever("longest_life", settings.longest_life)?,
            longest_family: longest_ever("longest_family", settings.longest_family)?,
            audit: settings.audit,
        };
        let waiting: i64 = opened.connection.query_row("select count(*) from audit", [], |row| row.get(0))?;
        let outbox = Arc::new(Outbox { waiting: waiting.unsigned_abs().into(), ..Outbox::default() });
        Ok(SqliteStore { writer: Writer::start(opened, terms, enforce, outbox.clone())?, outbox })
    }
}

/// The signing keys in the database at `path`, which a gateway may have open meanwhile; none if there is no such file yet.
/// Changes nothing.
pub fn stored_signing_keys(path: impl AsRef<Path>) -> Result<Vec<StoredKey>, StoreError> {
    match file::open_to_read(path.as_ref())? {
        Some(connection) => connection.prepare(signing_keys::ALL)?.query_and_then([], signing_keys::read)?.collect(),
        None => Ok(Vec::new()),
    }
}

/// As [`Store::revocations_since`], of the database at `path`, which a gateway may have open meanwhile. Changes nothing.
pub fn stored_revocations(path: impl AsRef<Path>, after: u64, now: UnixTime) -> Result<Vec<Revocation>, StoreError> {
    let Some(connection) = file::open_to_read(path.as_ref())? else { return Ok(Vec::new()) };
    let mut statement = connection.prepare(revocations::SINCE)?;
    statement.query_and_then(params![rows::counter(after)?, now], rows::revocation)?.collect()
}

/// Is there anything in the database at `path`, which a gateway may have open meanwhile? Fails if it is none. Changes nothing.
pub fn is_begun(path: impl AsRef<Path>) -> Result<bool, StoreError> {
    file::open_to_read(path.as_ref()).map(|begun| begun.is_some())
}

/// Notes the configured life if it is a new maximum; answers the maximum.
fn longest_ever(connection: &Connection, name: &str, configured: Duration) -> Result<Duration, StoreError> {
    let sql = "update meta set value = ?2 where name = ?1 and value < ?2";
    connection.execute(sql, params![name, rows::millis(configured)])?;
    let ever: i64 = connection.query_row("select value from meta where name = ?1", [name], |row| row.get(0))?;
    Ok(Duration::from_millis(ever.unsigned_abs()))
}

impl Store for SqliteStore {
    fn issue(&self, family: Family, most_live: usize, occasion: EventContext) -> StoreFuture<Family> {
        self.writer.submit(move |batch| families::issue(batch, &family, most_live, &occasion))
    }

    fn issue_begun(
        &self,
        family: Family,
        most_live: usize,
        known: u64,
        occasion: EventContext,
    ) -> StoreFuture<Option<Family>> {
        self.writer.submit(move |batch| families::issue_begun(batch, &family, most_live, known, &occasion))
    }

    fn rotate(
        &self,
        presented: PresentedToken,
        decide: DecideRotation,
        occasion: EventContext,
    ) -> StoreFuture<Rotation> {
        self.writer.submit(move |batch| families::rotate(batch, &presented, &decide, &occasion))
    }

    fn revoke_family(&self, id: TokenId, by: RevokedBy, occasion: EventContext) -> StoreFuture<RevokeOutcome> {
        self.writer.submit(move |batch| families::revoke_family(batch, id, &by, &occasion))
    }

    fn revoke(&self, what: Revoked, occasion: EventContext) -> StoreFuture<u64> {
        self.writer.submit(move |batch| revocations::revoke(batch, &what, &occasion))
    }

    fn confirm(&self, seen: Vec<(TokenId, u64)>) -> StoreFuture<()> {
        self.writer.submit(move |batch| families::confirm(batch, &seen))
    }

    fn families_of(&self, subject: String) -> StoreFuture<Vec<Family>> {
        self.writer.submit(move |batch| families::of_subject(batch, &subject))
    }

    fn family(&self, id: TokenId) -> StoreFuture<Option<Family>> {
        self.writer.submit(move |batch| families::show(batch, id))
    }

    fn revocations_since(&self, after: u64, now: UnixTime) -> StoreFuture<Vec<Revocation>> {
        self.writer.submit(move |batch| revocations::since(batch, after, now))
    }

    fn sweep(&self, now: UnixTime, limit: usize) -> StoreFuture<usize> {
        self.writer.submit(move |batch| upkeep::sweep(batch, now, limit))
    }

    fn change_signing_keys(&self, decide: DecideKeys, occasion: EventContext) -> StoreFuture<KeysChanged> {
        self.writer.submit(move |batch| signing_keys::change(batch, &decide, &occasion))
    }

    fn record(&self, event: Event, occasion: EventContext) -> StoreFuture<()> {
        self.writer.submit(move |batch| audit::record(batch, &event, &occasion))
    }

    fn undelivered(&self, limit: usize) -> StoreFuture<Vec<Recorded>> {
        self.writer.submit(move |batch| audit::undelivered(batch, limit))
    }

    fn delivered(&self, through: u64) -> StoreFuture<()> {
        self.writer.submit(move |batch| audit::delivered(batch, through))
    }

    fn outbox(&self) -> Arc<Outbox> {
        self.outbox.clone()
    }

    fn check(&self) -> StoreFuture<()> {
        self.writer.submit(|batch| upkeep::check(batch))
    }

    fn close(&self) {
        self.writer.close();
    }
}
