//! `bearward store copy`: moves the content of an SQLite database to the PostgreSQL database of the configuration.
//!
//! No session ends: the root secrets stay the same, and every row and every number of the log is kept. The gateway must
//! be stopped, because what it writes after its rows were read would be missing.

use std::path::{Path, PathBuf};

use super::error::StartError;
use super::root_secrets::read_existing_roots;
use super::stored;
use crate::config::{Config, Database};
use crate::store::StoreError;
use crate::store::copy::{Checksum, Part, Record};
use crate::store::postgres::Import;
use crate::store::sqlite::Export;
use crate::tokens::family::refresh_token::Roots;
use crate::tokens::signing::seal;
use crate::types::clock::UnixTime;

/// Number of rows that are written at once.
const PAGE: usize = 1_000;

/// What was copied.
pub struct Copied {
    /// The number of records, and the hash that both stores have.
    pub parts: Vec<(Part, Checksum)>,
}

/// What happens, for the operator.
pub enum CopyStep {
    /// `done` of `total` records are written.
    Written { part: Part, done: u64, total: u64 },
    /// They are read again, to compare both stores.
    Compared { part: Part, done: u64, total: u64 },
}

/// Copies everything from the database `from` to `store.postgres`.
///
/// # Errors
/// If a gateway uses the source, the target is not empty, the root secrets do not belong to the source, or the copy
/// differs from the source. No gateway starts on an incomplete target.
pub fn copy_store(
    config: &Config,
    from: &Path,
    now: UnixTime,
    progress: &mut dyn FnMut(CopyStep),
) -> Result<Copied, StartError> {
    let store = &config.store;
    let of_source =
        |error: StoreError| StartError::ReadStore { database: Database::Sqlite(from.to_owned()), source: error.into() };
    let of_target = |error: StoreError| stored::open_error(store, error);
    let Some(settings) = store.postgres() else { return Err(StartError::NotShared) };
    let export = Export::open(from).map_err(of_source)?;
    let roots = read_existing_roots(&store.secret)?;
    check_roots(&export, &roots, from)?;
    let tls = stored::encryption(settings)?;
    let import = Import::begin(settings, tls, now).map_err(of_target)?;
    let mut parts = Vec::new();
    for part in Part::ALL {
        let mut written = Checksum::default();
        let total = export.count(part).map_err(of_source)?;
        export
            .read(part, PAGE, &mut |records| {
                records.iter().for_each(|record| written.add(record));
                import.write(&records)?;
                progress(CopyStep::Written { part, done: written.count, total });
                Ok(())
            })
            .map_err(of_target)?;
        let mut compared = |done| progress(CopyStep::Compared { part, done, total });
        let found = import.checksum(part, &mut compared).map_err(of_target)?;
        if found != written || written.count != total {
            return Err(StartError::CopyDiffers { part, source: total, target: found.count });
        }
        parts.push((part, written));
    }
    import.end(&export.counters().map_err(of_source)?, &roots.checks(), now).map_err(of_target)?;
    Ok(Copied { parts })
}

/// The signing keys are sealed under the root secrets. With others, each session would end at its next refresh.
fn check_roots(export: &Export, roots: &Roots, from: &Path) -> Result<(), StartError> {
    let mut checked = Ok(());
    let database = || PathBuf::from(from);
    let read = export.read(Part::SigningKeys, PAGE, &mut |records| {
        for record in &records {
            if let Record::SigningKey(key) = record
                && !key.is_revoked_for_good()
                && checked.is_ok()
            {
                checked =
                    seal::open_public(key, roots).map(drop).map_err(|error| StartError::SigningKeys(error.into()));
            }
        }
        Ok(())
    });
    let failed =
        |error: StoreError| StartError::ReadStore { database: Database::Sqlite(database()), source: error.into() };
    read.map_err(failed).and(checked)
}
